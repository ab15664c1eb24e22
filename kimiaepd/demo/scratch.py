"""The instance that the demo is played on: a home under the temporary directory, and its daemon.

Rules:
- The daemon is `kimiaepd up` in a process of its own, so hooks are registered and its relay is
  found as a user's are. Nothing of our environment that could lead it elsewhere reaches it.
- One file of settings names all its places: whoever sets `KIMIAEPD_CONFIG` to it is on the
  instance, with any command.
- It leads a session of its own: a Ctrl-C at the terminal is the demo's alone, which ends it within
  `STOP_SECONDS`, by force if need be.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import frozen

from kimiaepd import settings
from kimiaepd.errors import UserError
from kimiaepd.paths import SOCKET_BYTES
from kimiaepd.setup.install import CONFIG_NAME

START_SECONDS = 30.0
STOP_SECONDS = 5.0
KIMI_VERSION = "2.1.0"
"""The release whose hooks are registered; the session is in its shapes."""

CONSOLE = "console: "
"""How the last line of a start begins."""

SETTINGS = """\
[capture]
default = "redacted"  # so that there is something to read; a user's own default is "metadata"

[collector]
port = 0

[instruct]
enabled = true

[gate]
enabled = true
mode = "auto"
tools = ["Bash"]

[[gate.rules]]
id = "tests"
tool_name = "Bash"
matcher = {kind = "command_prefix", value = "pytest"}
decision = "approved"
"""

_LEADS_ELSEWHERE = ("KIMIAEPD_", "AEP_", "KIMI_", "XDG_", "LISTEN_", "WATCHDOG_", "NOTIFY_SOCKET")


@frozen
class Registered:
    """A hook as Kimi finds it in its config.toml.

    Attributes:
        command: for `sh -c`.
        timeout: after so many seconds Kimi ends it.
    """

    command: str
    timeout: float


@frozen
class Scratch:
    """One instance.

    Attributes:
        home: its HOME; everything of it is in there.
        environ: what its daemon is started with, and whoever looks at it.
    """

    home: Path
    environ: Mapping[str, str]

    @property
    def config(self) -> Path:
        """Its settings file."""
        return Path(self.environ["KIMIAEPD_CONFIG"])

    def settings(self) -> settings.Settings:
        """Its settings, as the daemon reads them."""
        return settings.load(self.environ)

    def registered(self) -> dict[str, Registered]:
        """What Kimi would run, by event."""
        text = (self.settings().paths.kimi_home / CONFIG_NAME).read_text(encoding="utf-8")
        return {
            one["event"]: Registered(one["command"], one["timeout"])
            for one in tomllib.loads(text)["hooks"]
        }

    def logs(self) -> list[Path]:
        """The files of its log."""
        return sorted(self.settings().paths.log_dir.glob("*.jsonl"))

    def log_lines(self) -> list[bytes]:
        """The lines of its log."""
        return [line for file in self.logs() for line in file.read_bytes().splitlines()]

    def complaint(self) -> str:
        """The last that the daemon said on stderr."""
        lines = self._stderr.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    @property
    def _stderr(self) -> Path:
        return self.home / "daemon.stderr"

    def configure(self) -> None:
        """Write its settings.

        Raises:
            OSError: they cannot be written.
        """
        places = {"state_dir": "state", "kimi_home": "kimi", "log.dir": "log"}
        lines = [f"{key} = {_quoted(self.home / at)}\n" for key, at in places.items()]
        self.config.write_text("".join(lines) + "\n" + SETTINGS, encoding="utf-8")

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[tuple[trio.Process, str]]:
        """Its daemon until the end of the block, and the URL that opens the console.

        Raises:
            UserError: it did not start; the line says why.
        """
        with self._stderr.open("ab") as stderr:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "kimiaepd", "up", "--kimi-version", KIMI_VERSION],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self.environ,
                cwd=self.home,
                start_new_session=True,
            )
        try:
            yield process, await self._started(process)
        finally:
            await _end(process)

    async def _started(self, process: trio.Process) -> str:
        said = b""
        with trio.move_on_after(START_SECONDS):
            while piece := await _read(process):
                said += piece
                last = said.rpartition(b"\n")[0].rpartition(b"\n")[2].decode()
                if last.startswith(CONSOLE):
                    return last.removeprefix(CONSOLE).partition(" ")[0]
        raise UserError(f"the demo's daemon did not start: {self.complaint()}")


def make(environ: Mapping[str, str]) -> Scratch:
    """Make the directory of an instance.

    Args:
        environ: ours; what leads elsewhere is left out.

    Raises:
        UserError: there is no place for it.
    """
    try:
        home = _directory()
    except OSError as error:
        raise UserError(
            f"no place for the demo: {error}; set TMPDIR to a directory that can be written to"
        ) from None
    kept = {name: said for name, said in environ.items() if not name.startswith(_LEADS_ELSEWHERE)}
    return Scratch(home, {**kept, "HOME": str(home), "KIMIAEPD_CONFIG": str(home / "config.toml")})


def remove(made: Scratch) -> None:
    """Take it away, whole."""
    shutil.rmtree(made.home, ignore_errors=True)


def _directory() -> Path:
    prefix = "kimiaepd-demo-"
    socket = len(os.fsencode(tempfile.gettempdir())) + len(f"/{prefix}12345678/state/hook.sock")
    # In a deep one the socket would be too long a path, and stand elsewhere.
    base = tempfile.gettempdir() if socket <= SOCKET_BYTES else "/tmp"  # noqa: S108 - mkdtemp's is ours
    return Path(tempfile.mkdtemp(prefix=prefix, dir=base))


def _quoted(path: Path) -> str:
    """A path as TOML has it."""
    return json.dumps(str(path), ensure_ascii=False)


async def _read(process: trio.Process) -> bytes:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    return bytes(await process.stdout.receive_some())


async def _end(process: trio.Process) -> None:
    with trio.move_on_after(STOP_SECONDS, shield=True):
        process.terminate()
        await process.wait()
    if process.returncode is None:
        process.kill()
        with trio.move_on_after(STOP_SECONDS, shield=True):
            await process.wait()
