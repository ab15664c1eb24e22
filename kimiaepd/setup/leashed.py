"""What a program says, where the program never outlives the question, nor us.

Rules:
- It runs in a session of its own, and ends with all that it started: when its time is up, when a
  signal ends us meanwhile, and when we exit while a thread still asks.
- A signal that comes while the program runs does to us what it would have done, after that.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def output(command: Sequence[Path | str], environ: Mapping[str, str], seconds: float) -> bytes:
    """What a program writes to stdout; nothing where it fails, is too slow, or cannot be run.

    Args:
        command: the program and its arguments.
        environ: its whole environment.
        seconds: how long it may take.
    """
    with _Leash() as leash:
        try:
            process = subprocess.Popen(  # noqa: S603 - asking the installed program is the point
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return b""
        with process:
            leash.hold(process)
            try:
                said_bytes, _ = process.communicate(timeout=max(seconds, 0))
            except subprocess.TimeoutExpired:
                return b""
            finally:
                leash.end()
    return b"" if process.returncode else said_bytes


class _Leash:
    """Ends a program, and all that it started, when we are told to end meanwhile.

    The signals only end the program; what they would have done to us they do on the way out. So
    none can come at a moment when there is a program that nobody knows of yet.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._told: list[int] = []
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Self:
        atexit.register(self.end)
        self._undo.callback(atexit.unregister, self.end)
        # Handlers can be set in the main thread alone, where Python also runs them.
        if threading.current_thread() is threading.main_thread():
            for number in _ENDINGS:
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:  # what was started with nohup stays so
                    signal.signal(number, self._end_it)
                    self._undo.callback(signal.signal, number, before)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        for number in self._told:
            signal.raise_signal(number)

    def hold(self, process: subprocess.Popen[bytes]) -> None:
        """Answer for a program that has just been started."""
        self._process = process
        if self._told:
            self.end()

    def end(self) -> None:
        """End it, if it has not ended."""
        process = self._process
        if process and process.returncode is None:
            # The whole group: a wrapper's child would hold the pipe, and outlive us.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _end_it(self, number: int, _: FrameType | None) -> None:
        self._told.append(number)
        self.end()
