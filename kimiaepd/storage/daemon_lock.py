"""One daemon a state directory (rule I2): an advisory lock, held for life.

It is taken before anything else in the directory is touched, the socket first of all. The kernel
lets it go when the process ends, however it ends, so nothing is ever cleaned up by hand. The file
is never unlinked: a name that comes and goes can be locked by two at once. Its pid is for people;
whether a daemon lives is told by an answered ping alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import define

from kimiaepd.errors import BusyError, ConfigError
from kimiaepd.storage.file_safety import lives, lock_file, read_pid
from kimiaepd.storage.private_directory import create_private

LOCK_NAME = "daemon.lock"
"""The file in the state directory."""


@define(eq=False)
class DaemonLock:
    """The right to be the daemon of a state directory, until `release` or the process's end."""

    path: Path
    _descriptor: int

    @classmethod
    def acquire(cls, state_dir: Path) -> Self:
        """Take the lock, making the directory where it is missing.

        The descriptor is closed on exec, so a child never keeps a dead daemon's lock.

        Raises:
            BusyError: another process has it; the line names its pid.
            ConfigError: the directory is not private, or the file cannot be opened or locked.
        """
        create_private(state_dir)
        path = state_dir / LOCK_NAME
        try:
            descriptor = lock_file(path)
        except BlockingIOError:
            raise BusyError(
                f"kimiaepd is running already (pid {(pid := _owner(path)) or 'unknown'}, it holds "
                f"{path}); to stop it: Ctrl-C where it runs, or kill {pid or 'its process'}"
            ) from None
        except OSError as error:
            raise ConfigError(f"cannot lock {path}: {error.strerror}") from error
        return cls(path, descriptor)

    def release(self) -> None:
        """Let the next daemon start. The file stays."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.release()


def _owner(path: Path) -> int | None:
    """The pid in the lock file; None where its owner does not write it within 0.2 s.

    Between the owner's lock and its write the file is empty, or still has the pid of one that was
    killed: a moment's patience gets the right one.
    """
    for _ in range(20):
        pid = read_pid(path)
        if pid and lives(pid):
            return pid
        time.sleep(0.01)
    return None
