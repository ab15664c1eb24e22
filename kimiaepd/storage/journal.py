"""Journal: what happened in every session, one JSONL file a session, kept on disk (rules I20-I27).

Rules:
- `append` is one `os.write` on the loop's thread and waits for nothing. When it returns True the
  line survives the death of this process. When it survives a power cut is the sync policy's word:
  `always`, after `await synced()`; `interval`, 200 ms or 64 lines later; `os`, as the system likes.
- A line that could not be written is not there at all: the file ends at a line boundary, and
  `JournalError` says why. Nothing here stops the program.
- Disk is bounded (`retention.py`), and so are open files: `LogPolicy.open_files`, one that is being
  synced, one that is being read, and the lock.
- One process writes to a directory: it holds the lock on `.lock` in it until it ends.

It does not look into the lines it writes, gives no seq and no id (`emitter.py`), and does not know
which sessions are open: it asks.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import structlog
import trio
from attrs import define, field, frozen

from kimiaepd.errors import BusyError, ConfigError, UserError
from kimiaepd.storage.file_safety import lock_file, read_pid
from kimiaepd.storage.log_files import MAX_LINE, TornWriteError, stems_in, write_line
from kimiaepd.storage.log_names import active_name, stem_of
from kimiaepd.storage.log_reader import JournalError, LogReader, Position
from kimiaepd.storage.log_sync import Syncer
from kimiaepd.storage.open_logs import OpenLogs
from kimiaepd.storage.private_directory import create_closed
from kimiaepd.storage.retention import Bury, Footprint, FreeSpace, IsOpen, Retention

__all__ = ["Journal", "JournalError", "JournalStats", "LogPolicy", "Position"]

_LOG: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

LOCK_NAME = ".lock"
"""What a log's writer holds a lock on; no session's file begins with a dot."""

LAST_SYNC_SECONDS = 5.0
"""How long the last sync may hold up a stop."""

_GAPS = 10_000
"""How many sessions have their shed events counted one by one; beyond, they count in `stats`."""


@frozen
class LogPolicy:
    """How the log is kept.

    Attributes:
        sync: when a line is put on the disk itself.
        rotate_bytes: a file is closed for good before it grows beyond this; one line may be longer.
        keep_bytes: ended sessions are removed, the longest unwritten first, above this.
        keep_days: and when nothing was written to them for so long.
        min_free_bytes: below this much free disk, lines that may be dropped are.
        open_files: how many files are kept open to append to.
    """

    sync: Literal["always", "interval", "os"] = "interval"
    rotate_bytes: int = 64 << 20
    keep_bytes: int = 2 << 30
    keep_days: int = 30
    min_free_bytes: int = 256 << 20
    open_files: int = 128


@define
class JournalStats:
    """What `status` shows. All but `open_files` count from the start of the program.

    Attributes:
        lines: lines written.
        bytes: bytes written.
        failed: lines that could not be written.
        shed: lines that were dropped because the disk is nearly full.
        torn: torn tails that were cut off.
        skipped: lines passed over while reading, and files that could not be read.
        failed_syncs: syncs that the disk refused.
        removed: sessions that retention removed.
        open_files: files open to append to.
    """

    lines: int = 0
    bytes: int = 0
    failed: int = 0
    shed: int = 0
    torn: int = 0
    skipped: int = 0
    failed_syncs: int = 0
    removed: int = 0
    open_files: int = 0


@define(eq=False, kw_only=True)
class Journal(LogReader):
    """The logs of all sessions, to write and (`LogReader`) to read, all on the loop's thread.

    Attributes:
        policy: how they are kept.
    """

    policy: LogPolicy
    _lock: int
    _space: FreeSpace
    _clock: Callable[[], float] = time.monotonic
    _syncer: Syncer = field(init=False)
    _logs: OpenLogs = field(init=False)
    _retention: Retention = field(init=False)
    _stats: JournalStats = field(factory=JournalStats, init=False)
    _gaps: dict[str, int] = field(factory=dict, init=False)
    _written: set[str] = field(factory=set, init=False)
    """The stems of all sessions that have a file: a new one is known without a look at the disk."""

    def __attrs_post_init__(self) -> None:
        policy = self.policy
        self._syncer = Syncer(self.directory, self._give_up)
        self._logs = OpenLogs(
            self.directory, self._syncer, policy.open_files, policy.rotate_bytes, self._clock
        )
        self._retention = Retention(self, policy.keep_bytes, policy.keep_days, self._remove)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        policy: LogPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Journal:
        """Make the directory where it is not there, lock it, and cut every torn tail.

        Args:
            directory: one file a session goes there.
            policy: how the log is kept; default `LogPolicy()`.
            clock: seconds, monotonic; how old the last looks are, at the free disk and at a file.

        Raises:
            BusyError: another process writes there.
            ConfigError: it cannot be used.
        """
        policy = policy or LogPolicy()
        journal = cls(
            directory=directory,
            policy=policy,
            lock=_take(directory),
            space=FreeSpace(directory, policy.min_free_bytes, clock),
            clock=clock,
        )
        try:
            for stem in stems_in(directory):
                journal._logs.mend(stem)
                journal._written.add(stem)
        except OSError as error:
            journal.close()
            raise ConfigError(f"{directory}: cannot be read: {error.strerror}") from None
        return journal

    # --- writing -------------------------------------------------------------------------------

    def append(self, session: str, line: bytes, *, droppable: bool) -> bool:
        r"""Write one event at the end of its session's log.

        Args:
            session: the session's id, whatever it looks like.
            line: one line of UTF-8 with its `\n`.
            droppable: it may be dropped while the disk is nearly full; it is counted then.

        Returns:
            Whether it was written; False: dropped.

        Raises:
            JournalError: it could not be written, and nothing of it is there.
            ValueError: it is not exactly one line.
        """
        if line.find(b"\n") != len(line) - 1 or not line:
            raise ValueError("a log takes exactly one line at a time")
        if droppable and self._space.is_low():
            self._shed(session)
            return False
        try:
            self._write(session, line)
        except (OSError, UserError) as error:
            self._stats.failed += 1
            raise JournalError.of(error) from error
        stats = self._stats
        stats.lines += 1
        stats.bytes += len(line)
        self._retention.wrote(len(line))
        return True

    def _write(self, session: str, line: bytes) -> None:
        if len(line) > MAX_LINE:
            raise OSError(errno.EMSGSIZE, f"the line has more than {MAX_LINE} bytes")
        try:
            log = self._logs.of(session)
        except FileNotFoundError:
            self.reopen()  # somebody removed the directory under our feet
            log = self._logs.of(session)
        self._written.add(log.stem)
        if log.size + len(line) > log.limit and log.size and not self._syncer.is_busy(log.name):
            log = self._logs.rotate(log)
        try:
            write_line(log.descriptor, line)
        except TornWriteError:
            self._logs.give_up(session)
            raise
        log.size += len(line)
        if self.policy.sync != "os":
            self._syncer.wrote(log.name, session)

    def _shed(self, session: str) -> None:
        self._stats.shed += 1
        if session in self._gaps or len(self._gaps) < _GAPS:
            self._gaps[session] = self._gaps.get(session, 0) + 1

    def take_gap(self, session: str) -> int:
        """How many lines of the session were dropped, once the disk has room again; then forgotten.

        It is 0 while the disk is nearly full, so that the event which tells of the gap is one.
        """
        if session not in self._gaps or self._space.is_low():
            return 0
        return self._gaps.pop(session)

    # --- syncing -------------------------------------------------------------------------------

    async def synced(self, session: str) -> None:
        """Wait until every line of the session is on the disk, where the policy is `always`.

        Callers at the same time share a sync. Whoever cannot wait for ever sets a deadline.

        Raises:
            JournalError: the disk did not take them; whether they stay there is not known.
        """
        if self.policy.sync == "always" and not await self._syncer.is_synced(session):
            raise JournalError("EIO", f"a sync of the log in {self.directory} failed")

    async def sync_all(self) -> None:
        """Sync everything that waits, at once; nothing where the policy is `os`. Failures count."""
        if self.policy.sync != "os":
            await self._syncer.flush()

    def hasten(self) -> None:
        """Have the interval's next sync come at once: at the end of a session (I23).

        Waits for nothing. Under `always` the callers of `synced` see to it, under `os` nobody does.
        """
        if self.policy.sync == "interval":
            self._syncer.hasten()

    def _give_up(self, name: str, session: str, error: OSError) -> None:
        _LOG.error("log.sync_failed", file=name, error=error.strerror)
        if name == active_name(stem_of(session)):
            self._logs.give_up(session)

    # --- the task ------------------------------------------------------------------------------

    async def run(
        self,
        is_open: IsOpen,
        bury: Bury,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Sync by interval and remove what is overdue, until cancelled; then sync once more.

        Args:
            is_open: whether a session is open, and so is not to be removed.
            bury: called before a session is removed, with its last position; it must not raise.
            task_status: started at once.
        """
        try:
            async with trio.open_nursery() as nursery:
                if self.policy.sync != "os":
                    nursery.start_soon(self._syncer.by_interval)
                nursery.start_soon(self._retention.run, is_open, bury)
                task_status.started()
        finally:
            with trio.move_on_after(LAST_SYNC_SECONDS, shield=True):
                await self.sync_all()

    def _remove(self, footprint: Footprint) -> None:
        self._logs.close(footprint.stem)
        self._written.discard(footprint.stem)
        for name in footprint.files:
            (self.directory / name).unlink(missing_ok=True)
            self._syncer.removed(name)
        self._stats.removed += 1
        _LOG.info("log.removed", stem=footprint.stem, bytes=footprint.size)

    # --- reading -------------------------------------------------------------------------------

    def last_position(self, session: str) -> Position | None:
        """Where the session's last event stands; None where it has none, or none can be read."""
        if stem_of(session) not in self._written:
            return None
        return super().last_position(session)

    # --- opening and closing ---------------------------------------------------------------------

    @property
    def stats(self) -> JournalStats:
        """The counters, as they are now."""
        self._stats.torn = self._logs.torn
        self._stats.skipped = self.skipped
        self._stats.failed_syncs = self._syncer.failed
        self._stats.open_files = len(self._logs)
        return self._stats

    def reopen(self) -> None:
        """Let go of every file (SIGHUP); if the directory was moved or removed, make a new one.

        Raises:
            BusyError: another process writes to the new one.
            ConfigError: it cannot be used.
        """
        self._logs.close_all()
        if not self._holds_directory():
            lock = _take(self.directory)
            os.close(self._lock)
            self._lock = lock

    def _holds_directory(self) -> bool:
        try:
            there = (self.directory / LOCK_NAME).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:  # it may well be there, with our own lock in it
            raise ConfigError(f"{self.directory}: cannot be used: {error.strerror}") from error
        return os.path.samestat(there, os.fstat(self._lock))

    def close(self) -> None:
        """Close every file and let go of the directory. It syncs nothing: see `sync_all`."""
        self._logs.close_all()
        os.close(self._lock)


def _take(directory: Path) -> int:
    create_closed(directory)
    path = directory / LOCK_NAME
    try:
        return lock_file(path)
    except BlockingIOError:
        pid = read_pid(path)
        owner = f"process {pid}" if pid else "another process"
        raise BusyError(
            f"{directory}: {owner} writes its log there; stop it, or set log.dir to another place"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be locked: {error.strerror}") from None
