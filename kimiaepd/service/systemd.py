"""Talks to `systemd --user` by systemctl. Nothing here decides what is to be done (`steps.py`)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from attrs import frozen

from kimiaepd.errors import EXIT_BUSY, EXIT_CONFIG, UserError
from kimiaepd.service import unit
from kimiaepd.service.manager import NoManager, State
from kimiaepd.service.own_file import OwnFile
from kimiaepd.service.tool import SECONDS, Done, ToolError, run
from kimiaepd.service.wanted import Service

START_SECONDS = 90.0
"""systemd's own patience with a start: a long log may have to be repaired."""

_ASKED = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "ExecMainStatus",
    "MainPID",
    "UnitFileState",
    "NeedDaemonReload",
    "FragmentPath",
)
_MEANINGS = {
    str(EXIT_BUSY): "another daemon runs",
    str(EXIT_CONFIG): "a setting or a directory is wrong; kimiaepd run says which",
}


@frozen
class Systemd:
    """The user's systemd.

    Attributes:
        file: our unit.
    """

    file: OwnFile

    @classmethod
    def below(cls, config_home: Path) -> Systemd:
        """The manager that reads its units below the XDG configuration directory."""
        return cls(OwnFile(config_home / "systemd/user" / unit.NAME, unit.MARKER))

    @property
    def diary(self) -> str:
        """The command that shows what the daemon said."""
        return f"journalctl --user -u {unit.NAME} -n 20"

    def render(self, service: Service) -> str:
        """The unit."""
        return unit.render(service)

    async def check(self) -> None:
        """Make sure of a manager that answers."""
        try:
            done = await run("systemctl", "--user", "show", "--property=Version")
            why = done.said if done.status else ""
        except ToolError as error:
            why = str(error)
        else:
            # Without a system that runs on systemd it says nothing and is content.
            if not why and "Version=" in done.out:
                return
        raise NoManager(
            f"no systemd of yours answers here ({why or 'systemctl says nothing'});"
            " run the daemon yourself: kimiaepd run"
        )

    async def state(self) -> State:
        """What `systemctl show` says."""
        done = (await self._ctl("show", f"--property={','.join(_ASKED)}", unit.NAME)).ok()
        said = dict(line.split("=", 1) for line in done.out.splitlines() if "=" in line)
        said = {name: said.get(name, "") for name in _ASKED}
        active = said["ActiveState"]
        return State(
            said=_words(said),
            file=Path(said["FragmentPath"]) if said["FragmentPath"] else None,
            enabled=said["UnitFileState"] in ("enabled", "enabled-runtime"),
            active=active in ("active", "activating", "reloading"),
            ended=active in ("", "inactive", "failed"),
            stale=said["NeedDaemonReload"] == "yes",
            pid=int(said["MainPID"])
            if said["MainPID"].isdecimal() and said["MainPID"] != "0"
            else None,
        )

    async def take_up(self) -> None:
        """Read the unit and enable it."""
        (await self._ctl("daemon-reload")).ok()
        found = (await self.state()).file
        if not self.file.is_at(found):
            raise ToolError(
                f"your systemd does not read {self.file.path}: it has another HOME or"
                f" XDG_CONFIG_HOME than this shell{f', and found {found}' if found else ''}"
            )
        (await self._ctl("enable", unit.NAME)).ok()

    async def start(self, *, again: bool, seconds: float) -> None:
        """Start it and wait until it is ready."""
        # A unit that failed too often is started no more until somebody says so.
        await self._ctl("reset-failed", unit.NAME)
        verb, patience = ("restart", seconds) if again else ("start", 0.0)
        (await self._ctl(verb, unit.NAME, seconds=START_SECONDS + patience + SECONDS)).ok()

    async def let_go(self, *, seconds: float) -> None:
        """Stop and disable it."""
        if (await self.state()).active:
            (await self._ctl("stop", unit.NAME, seconds=seconds + SECONDS)).ok()
        if self.file.exists():
            (await self._ctl("disable", unit.NAME)).ok()

    async def forget(self) -> None:
        """Read the units again, without ours."""
        (await self._ctl("daemon-reload")).ok()
        await self._ctl("reset-failed", unit.NAME)

    def sweep(self) -> None:
        """Remove the link by which it is started at a login, if it is to our unit."""
        link = self.file.path.parent / "default.target.wants" / unit.NAME
        with contextlib.suppress(OSError):
            if link.is_symlink() and self.file.is_at(link):
                link.unlink()

    async def hints(self) -> list[str]:
        """That a user's services end with the last session, unless the user lingers."""
        with contextlib.suppress(UserError):
            done = await run("loginctl", "show-user", str(os.getuid()), "--property=Linger")
            if done.out.strip() == "Linger=yes":
                return []
        return [
            "it runs while you are logged in; to have it always: loginctl enable-linger",
        ]

    async def _ctl(self, *words: str, seconds: float = SECONDS) -> Done:
        return await run("systemctl", "--user", *words, seconds=seconds)


def _words(said: dict[str, str]) -> str:
    """One line for people; "not-found" where systemd knows no such unit."""
    if said["LoadState"] not in ("loaded", ""):
        return said["LoadState"]
    words = f"{said['ActiveState'] or 'unknown'} ({said['SubState'] or 'unknown'})"
    if said["Result"] in ("success", ""):
        return words
    number = said["ExecMainStatus"]
    if said["Result"] != "exit-code":  # signal, core-dump, watchdog, timeout
        meaning = f"signal {number}"
    else:
        meaning = _MEANINGS.get(number, f"status {number}")
    return f"{words}, last end: {said['Result']}, {meaning}"
