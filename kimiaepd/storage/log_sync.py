"""What was written to the log and is not on the disk itself yet (rule I23).

Rules:
- One sync runs at a time, in a worker thread, and takes everything that is waiting: callers that
  come while it runs share the next one (group commit). The loop's thread never waits for the disk.
- Files are synced before the directory that names them.
- A sync that failed says that bytes may be lost, and a second one would say that all is well. So
  whoever waits for that session is told, once, and the file is given up (`on_failure`). A file that
  somebody removed under our hands is such a failure too.
- Where the system lacked a thread or a descriptor, the disk was not asked: whoever waits is told
  all the same, but the file stays in use and waits for the next sync.
- Files are known by name, and opened anew for each sync: a descriptor that the journal closes
  meanwhile cannot become another file's. While a file is in the thread's hands (`is_busy`), the
  journal does not rename it to rotate it.

It does not know the policy: whether anybody asks, and when, is `journal.py`'s business.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import trio
from attrs import define, field, frozen

from kimiaepd.storage.file_safety import open_private, sync_data, sync_directory
from kimiaepd.storage.worker_thread import in_thread

INTERVAL_SECONDS = 0.2
"""How long a line may wait for its sync while few come (policy `interval`)."""

INTERVAL_LINES = 64
"""How many lines may wait for their sync (policy `interval`)."""

_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""What an open says where the system lacks something: nothing about the file."""

_DOUBTS = 1000
"""How many sessions are remembered whose sync failed, until somebody asks."""


@frozen
class _Outcome:
    """What one sync could not do: files by name, those it did not get to, and the directory."""

    files: dict[str, OSError]
    unasked: set[str]
    directory: OSError | None


def _sync(directory: Path, files: Iterable[str], *, entries: bool) -> _Outcome:
    """Put files, and where `entries` says so the directory, on the disk. Runs in a thread."""
    failed: dict[str, OSError] = {}
    unasked = set()
    for name in files:
        try:
            descriptor = open_private(directory / name, os.O_RDONLY)
        except OSError as error:
            if error.errno in _SCARCE:
                unasked.add(name)
            else:
                failed[name] = error
            continue
        try:
            sync_data(descriptor)
        except OSError as error:
            failed[name] = error
        finally:
            os.close(descriptor)
    try:
        if entries:
            sync_directory(directory)
    except OSError as error:
        return _Outcome(failed, unasked, error)
    return _Outcome(failed, unasked, None)


@define
class _Doubts:
    """How often a session's sync failed, and how many of those failures somebody was told."""

    raised: int = 0
    told: int = 0


@define(eq=False)
class Syncer:
    """The files that wait for a sync.

    Worst case in memory: a name of at most 226 bytes and a session's id, for each session that was
    written to since the last sync and for each of the last 1000 whose sync failed.

    Attributes:
        directory: where the files are.
        on_failure: called on the loop's thread with the file's name, its session and the error,
            when a file's sync failed.
        failed: syncs that failed since the start, of files and of the directory, and those that
            could not be tried.
    """

    directory: Path
    on_failure: Callable[[str, str, OSError], None]
    failed: int = 0
    _waiting: dict[str, str] = field(factory=dict, init=False)
    _busy: dict[str, str] = field(factory=dict, init=False)
    _entries: bool = field(default=False, init=False)
    _lines: int = field(default=0, init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)
    _some: trio.Event = field(factory=trio.Event, init=False)
    _many: trio.Event = field(factory=trio.Event, init=False)
    # One thread: a disk that hangs must not take all of the program's threads, one a caller.
    _thread: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(1), init=False)
    _doubts: dict[str, _Doubts] = field(factory=dict, init=False)

    def wrote(self, name: str, session: str) -> None:
        """A line of `session` was written to the file `name`."""
        self._waiting[name] = session
        self._lines += 1
        if self._lines == 1:
            self._some.set()
        elif self._lines == INTERVAL_LINES:
            self._many.set()

    def hasten(self) -> None:
        """Have `by_interval` sync what waits at once, where anything does."""
        if self._waiting or self._entries:
            self._some.set()
            self._many.set()

    def entries_changed(self) -> None:
        """A file was created or renamed."""
        self._entries = True

    def renamed(self, old: str, new: str) -> None:
        """The file `old` is called `new` now."""
        self._entries = True
        session = self._waiting.pop(old, self._busy.get(old))
        if session is not None:
            self.wrote(new, session)

    def removed(self, name: str) -> None:
        """The file was removed on purpose: nothing of it waits any more."""
        self._waiting.pop(name, None)

    def is_busy(self, name: str) -> bool:
        """Whether the file is being synced at this moment."""
        return name in self._busy

    async def flush(self) -> None:
        """Sync everything that waits, after the sync that is running.

        What fails is counted and reported to `on_failure`. When cancelled, the thread is left to
        itself, and what it was given waits again.
        """
        async with self._turn:
            entries = self._take()
            if not self._busy and not entries:
                return  # what waited was removed meanwhile; whom it woke must not wake again
            outcome = None
            try:
                outcome = await in_thread(
                    partial(_sync, self.directory, tuple(self._busy), entries=entries),
                    limiter=self._thread,
                )
            except OSError:  # there is no thread for it
                self._fail(self._busy.values())
            finally:
                batch, self._busy = self._busy, {}
                if outcome is None:
                    self._entries |= entries
                    self._wait_again(batch)
            if outcome is not None:
                self._settle(batch, outcome)

    def _wait_again(self, batch: dict[str, str]) -> None:
        self._waiting = batch | self._waiting
        self._some.set()

    def _take(self) -> bool:
        """Move what waits into the thread's hands; whether the directory is part of it."""
        self._busy, self._waiting = self._waiting, {}
        entries, self._entries = self._entries, False
        self._lines = 0
        # An event that nobody set may have someone waiting on it: that one stays.
        if self._some.is_set():
            self._some = trio.Event()
        if self._many.is_set():
            self._many = trio.Event()
        return entries

    def _settle(self, batch: dict[str, str], outcome: _Outcome) -> None:
        for name, error in outcome.files.items():
            self._fail([batch[name]])
            self.on_failure(name, batch[name], error)
        if outcome.unasked:
            waiting = {name: session for name, session in batch.items() if name in outcome.unasked}
            self._fail(waiting.values())
            self._wait_again(waiting)
        if outcome.directory:
            self._entries = True  # a directory cannot be given up
            self._fail(batch.values())

    def _fail(self, sessions: Iterable[str]) -> None:
        self.failed += 1
        for session in sessions:
            self._doubt(session)

    def _doubt(self, session: str) -> None:
        self._doubts.setdefault(session, _Doubts()).raised += 1
        if len(self._doubts) > _DOUBTS:
            del self._doubts[next(iter(self._doubts))]

    async def is_synced(self, session: str) -> bool:
        """Sync everything, and say whether all of this session came to the disk.

        Everyone who waits when a sync fails is told; if nobody did, the next one to ask is.
        """
        before = self._doubts.get(session)
        told = before.told if before else 0
        await self.flush()
        doubts = self._doubts.get(session)
        if doubts is None or doubts.raised == told:
            return True
        doubts.told = doubts.raised
        return False

    async def by_interval(self) -> None:
        """Sync within 200 ms or 64 lines, whichever comes first, until cancelled."""
        while True:
            await self._some.wait()
            with trio.move_on_after(INTERVAL_SECONDS):
                await self._many.wait()
            await self.flush()
