"""Talks to launchd by launchctl. Nothing here decides what is to be done (`steps.py`).

`launchctl print` is for people, and the only way to ask. What is taken from it are three lines that
have been the same since macOS 10.11; one that is missing means "not running".
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import trio
from attrs import field, frozen

from kimiaepd.service import plist
from kimiaepd.service.manager import NoManager, State
from kimiaepd.service.own_file import OwnFile
from kimiaepd.service.tool import ToolError, run
from kimiaepd.service.wanted import Service

POLL_SECONDS = 0.2

_FACT = re.compile(r"^\t(?P<name>state|pid|last exit code) = (?P<value>.+)$", re.MULTILINE)


@frozen
class Launchd:
    """The launchd of a user who is logged in at the screen.

    Attributes:
        file: our agent.
        uid: whose.
    """

    file: OwnFile
    uid: int = field(factory=os.getuid)

    @classmethod
    def below(cls, home: Path) -> Launchd:
        """The manager that reads its agents below a home directory."""
        path = home / "Library/LaunchAgents" / f"{plist.LABEL}.plist"
        return cls(OwnFile(path, plist.MARKER))

    @property
    def diary(self) -> str:
        """The file with what the daemon said."""
        return f"{plist.LOG_NAME} in the state directory"

    def render(self, service: Service) -> str:
        """The agent."""
        return plist.render(service)

    async def check(self) -> None:
        """Make sure of a session at the screen."""
        try:
            done = await run("launchctl", "print", self._domain)
            why = done.said or f"status {done.status}" if done.status else ""
        except ToolError as error:
            why = str(error)
        if why:
            raise NoManager(
                f"no launchd of yours answers here ({why}); log in at the screen,"
                " or run the daemon yourself: kimiaepd run"
            )

    async def state(self) -> State:
        """What `launchctl print` says."""
        done = await run("launchctl", "print", self._target)
        if done.status:
            return State("not loaded")
        # The service's own facts are indented once; those of what it uses, deeper.
        facts = {found["name"]: found["value"] for found in _FACT.finditer(done.out)}
        running = facts.get("state") == "running"
        pid = facts.get("pid", "")
        code = facts.get("last exit code", "")
        last = f", last exit code {code}" if code and not running else ""
        return State(
            said=facts.get("state", "loaded") + last,
            file=self.file.path,
            enabled=True,
            active=running,
            ended=False,
            pid=int(pid) if pid.isdecimal() else None,
        )

    async def take_up(self) -> None:
        """Nothing yet: an agent in its directory is read at every login."""

    async def start(self, *, again: bool, seconds: float) -> None:
        """Load the agent, which starts it; `again`, or where it is loaded: after unloading."""
        if (await self.state()).enabled:
            if not again:
                (await run("launchctl", "kickstart", self._target)).ok()
                return
            await self.let_go(seconds=seconds)
        # A person, or an older uninstall, may have disabled it for good.
        (await run("launchctl", "enable", self._target)).ok()
        (await run("launchctl", "bootstrap", self._domain, str(self.file.path))).ok()

    async def let_go(self, *, seconds: float) -> None:
        """Unload it, and wait for its end: launchd loads nothing of a name that still stops."""
        if not (await self.state()).enabled:
            return
        done = await run("launchctl", "bootout", self._target)
        with trio.move_on_after(seconds):
            while (await self.state()).enabled:  # noqa: ASYNC110 - launchd tells nobody
                await trio.sleep(POLL_SECONDS)
            return
        done.ok()
        raise ToolError(f"launchctl bootout {self._target}: it did not end in {seconds:g} s")

    async def forget(self) -> None:
        """Nothing: what is unloaded is forgotten."""

    def sweep(self) -> None:
        """Nothing: launchd keeps no file of its own for us."""

    async def hints(self) -> list[str]:
        """None: an agent runs from login to logout, and everybody on macOS knows it so."""
        return []

    @property
    def _domain(self) -> str:
        return f"gui/{self.uid}"

    @property
    def _target(self) -> str:
        return f"gui/{self.uid}/{plist.LABEL}"
