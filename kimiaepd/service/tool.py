"""Running a program of the system: found on PATH, no shell, no input, at most so long."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence

import trio
from attrs import frozen

from kimiaepd.errors import UserError
from kimiaepd.log_lines import tame

SECONDS = 20.0
"""What a manager may take to answer; a busy one takes a second."""


class ToolError(UserError):
    """A program of the system is missing, failed or did not end; the line says which and why."""


@frozen
class Done:
    """A program that has run.

    Attributes:
        words: what was run.
        status: its exit status.
        out: what it printed.
        said: the first line of its complaints, fit to be shown.
    """

    words: Sequence[str]
    status: int
    out: str
    said: str

    def ok(self) -> Done:
        """Itself.

        Raises:
            ToolError: its status is not 0.
        """
        if self.status:
            raise ToolError(f"{shlex.join(self.words)}: {self.said or f'status {self.status}'}")
        return self


async def run(*words: str, seconds: float = SECONDS) -> Done:
    """Run a program to its end.

    Raises:
        ToolError: it is not on PATH, cannot be started, or did not end within `seconds`.
    """
    program = shutil.which(words[0])
    if program is None:
        raise ToolError(f"{words[0]} is not on PATH")
    with trio.move_on_after(seconds):
        try:
            done = await trio.run_process(
                [program, *words[1:]],
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                deliver_cancel=_kill,
                env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
            )
        except OSError as error:
            raise ToolError(f"{program}: cannot be run: {error.strerror}") from None
        complaints = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Done(
            words,
            done.returncode,
            done.stdout.decode("utf-8", "replace"),
            tame(complaints[0]) if complaints else "",
        )
    raise ToolError(f"{shlex.join(words)}: did not end within {seconds:g} s")


async def _kill(process: trio.Process) -> None:
    process.kill()
