"""The real CLI, run headless: one process, one prompt, what it printed.

The terminal UI is driven by `screen.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from attrs import frozen

from vendor.place import Place

TURN_DEADLINE_S = 60


@frozen
class Turn:
    """What one headless run left: its exit status, its output, and how long it took."""

    status: int
    stdout: str
    stderr: str
    seconds: float


@frozen
class Kimi:
    """One installed version; `programs` is where `kimi` and its `node` are found."""

    version: str
    programs: tuple[Path, ...]

    def run(self, place: Place, *arguments: str) -> Turn:
        """Run `kimi` with these arguments in the place's working directory, to its end.

        Raises:
            AssertionError: it did not end in time; it is dead then.
        """
        started = time.monotonic()
        process = subprocess.Popen(
            ["kimi", *arguments],
            executable=self.programs[0] / "kimi",
            cwd=place.work,
            env=place.environ(self.programs),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                stdout, stderr = process.communicate(timeout=TURN_DEADLINE_S)
            except subprocess.TimeoutExpired as late:
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(
                    f"kimi {self.version} {arguments} did not end: {late.stdout!r} {late.stderr!r}"
                ) from None
        return Turn(process.returncode, stdout, stderr, time.monotonic() - started)
