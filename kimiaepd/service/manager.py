"""What the steps ask of a service manager, whichever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from attrs import frozen

from kimiaepd.errors import UserError
from kimiaepd.service.own_file import OwnFile
from kimiaepd.service.wanted import Service


class NoManager(UserError):  # noqa: N818 - a state of the world, as `service status` names it
    """This session has no service manager of its user's; the line says what to do instead."""


@frozen
class State:
    """What a manager says of our service.

    Attributes:
        said: its own words: "active (running)", "failed (exit-code, status 78)".
        file: the file that it read; None where it knows no service of our name.
        enabled: whether it starts the service by itself.
        active: whether the service runs, or is about to.
        ended: whether it does not run and nobody will start it again.
        stale: whether the manager has not read the file as it is now.
        pid: the daemon's process.
    """

    said: str
    file: Path | None = None
    enabled: bool = False
    active: bool = False
    ended: bool = True
    stale: bool = False
    pid: int | None = None


class Manager(Protocol):
    """A user's service manager.

    Every method may raise ToolError: its program is missing, failed, or did not end in time.
    """

    @property
    def file(self) -> OwnFile:
        """The file that it reads."""
        ...

    @property
    def diary(self) -> str:
        """Where the daemon's own words are: a command or a file, for people."""
        ...

    def render(self, service: Service) -> str:
        """The file's text."""
        ...

    async def check(self) -> None:
        """Make sure that there is a manager to talk to.

        Raises:
            NoManager: there is none.
        """
        ...

    async def state(self) -> State:
        """What it says of our service."""
        ...

    async def take_up(self) -> None:
        """Read the file, and start the service at every login from now on."""
        ...

    async def start(self, *, again: bool, seconds: float) -> None:
        """Start the service; `again`: after a stop that may take so many seconds."""
        ...

    async def let_go(self, *, seconds: float) -> None:
        """Stop the service, which may take so many seconds, and start it at no login."""
        ...

    async def forget(self) -> None:
        """Notice that the file is gone."""
        ...

    def sweep(self) -> None:
        """Remove by hand what `take_up` made, where there is no manager to be asked."""
        ...

    async def hints(self) -> list[str]:
        """What a person should know of this manager after an install, a line each."""
        ...
