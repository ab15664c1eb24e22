"""A disk that fails on demand: `os` functions that raise, writes that are cut short.

    with Faults() as faults:
        faults.fail(os, "rename", errno.EIO, after=1)
        faults.disk_takes(100)

Every fault lasts until `mend()` or the end of the block. Writes are hindered on regular files only,
so that a test's own pipes and sockets go on working.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pytest
import trio
from attrs import define, field


@define
class Faults:
    """The faults of one test.

    Attributes:
        calls: how often each function that was told to fail was called, by its name.
    """

    calls: Counter[str] = field(factory=Counter)
    _patch: pytest.MonkeyPatch = field(factory=pytest.MonkeyPatch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.mend()

    def mend(self) -> None:
        """Everything works again."""
        self._patch.undo()

    def fail(
        self,
        target: object,
        name: str,
        number: int,
        *,
        after: int = 0,
        times: int = sys.maxsize,
    ) -> None:
        """Make `target.name` raise OSError(number), `times` times, `after` calls that go well."""
        real = getattr(target, name)
        seen = 0

        def failing(*args: object, **kwargs: object) -> object:
            nonlocal seen
            self.calls[name] += 1
            seen += 1
            if after < seen <= after + times:
                raise OSError(number, os.strerror(number))
            return real(*args, **kwargs)

        self._patch.setattr(target, name, failing)

    def fail_sync(self, number: int, *, after: int = 0, times: int = sys.maxsize) -> None:
        """Make the disk refuse to take a file's bytes."""
        target, name = _SYNC
        self.fail(target, name, number, after=after, times=times)

    def on_sync(self, hook: Callable[[int], None]) -> None:
        """Call `hook` with the descriptor, in the syncing thread, before each sync of a file."""
        target, name = _SYNC
        real = getattr(target, name)

        def watched(descriptor: int, *args: object) -> object:
            hook(descriptor)
            return real(descriptor, *args)

        self._patch.setattr(target, name, watched)

    def no_thread(self, *, times: int = sys.maxsize) -> None:
        """Make the system refuse a thread, as it does at its limit of processes."""
        real = trio.to_thread.run_sync
        left = times

        async def run_sync(*args: object, **kwargs: object) -> object:
            nonlocal left
            self.calls["run_sync"] += 1
            if left > 0:
                left -= 1
                raise RuntimeError("can't start new thread")
            return await real(*args, **kwargs)  # type: ignore[arg-type]

        self._patch.setattr(trio.to_thread, "run_sync", run_sync)

    def disk_takes(self, room: int) -> None:
        """Let `os.write` write so many bytes more in all: the last is cut short, then ENOSPC."""
        real = os.write

        def write(descriptor: int, data: bytes | memoryview) -> int:
            nonlocal room
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return real(descriptor, data)
            if not room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = real(descriptor, data[:room])
            room -= written
            return written

        self._patch.setattr(os, "write", write)

    def cut_writes(self, *lengths: int) -> None:
        """Let the next writes to files write so many bytes each, and those after them all."""
        real = os.write
        left = list(lengths)

        def write(descriptor: int, data: bytes | memoryview) -> int:
            if left and stat.S_ISREG(os.fstat(descriptor).st_mode):
                data = data[: left.pop(0)]
            return real(descriptor, data)

        self._patch.setattr(os, "write", write)


_SYNC: tuple[object, str] = (fcntl, "fcntl") if sys.platform == "darwin" else (os, "fdatasync")
"""What `file_safety.sync_data` calls."""
