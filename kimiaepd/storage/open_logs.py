"""The file that each session is written to right now, open and whole.

Rules:
- At most `limit` files are open; the one that was longest unused is closed for the next.
- A file is only ever appended to at a line boundary. One that ends in the middle of a line is cut
  back; one that cannot be, or whose bytes the disk would not take, is closed for good, and the
  session goes on in a new one (I23).
- A file that somebody removed takes no more lines: nobody would ever read them. It is looked at
  once in 100 ms at most: an `fstat` between two writes costs more than either.
- Closed for good means renamed, with the moment in its name, later than any before it.

It neither writes nor syncs (`journal.py`, `log_sync.py`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import structlog
from attrs import define, field

from kimiaepd.storage.file_safety import open_private
from kimiaepd.storage.log_files import closed_stamps, ends_whole, repair_tail
from kimiaepd.storage.log_names import active_name, closed_name, stem_of
from kimiaepd.storage.log_sync import Syncer

_LOG: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1


@define(eq=False)
class OpenLog:
    """One open file.

    Attributes:
        session: whose it is.
        stem: the session, encoded.
        name: the file's name.
        descriptor: open for appending.
        size: bytes in it.
        limit: the size above which it is to be rotated.
        looked: when it was last known to be there, by `OpenLogs.clock`.
    """

    session: str
    stem: str
    name: str
    descriptor: int
    size: int
    limit: int
    looked: float


@define(eq=False)
class OpenLogs:
    """The open files, the longest unused first.

    Attributes:
        directory: where they are.
        syncer: is told what was created and renamed.
        limit: how many may be open.
        rotate_bytes: how large a file may get.
        clock: seconds, monotonic.
        torn: torn tails that were cut off since the start.
    """

    directory: Path
    syncer: Syncer
    limit: int
    rotate_bytes: int
    clock: Callable[[], float] = time.monotonic
    torn: int = 0
    _logs: OrderedDict[str, OpenLog] = field(factory=OrderedDict, init=False)
    _damaged: set[str] = field(factory=set, init=False)

    def __len__(self) -> int:
        return len(self._logs)

    def of(self, session: str) -> OpenLog:
        """The session's file, opened or created where it is not open.

        Raises:
            OSError: it cannot be opened, or the damaged one before it cannot be put aside.
        """
        log = self._logs.get(session)
        if log and self._is_there(log):
            self._logs.move_to_end(session)
            return log
        if log:
            self._close(log)
            _LOG.warning("log.removed_by_another_program", file=log.name)
        log = self._logs[session] = self._open(session, stem_of(session))
        if len(self._logs) > self.limit:
            self._close(next(iter(self._logs.values())))
        return log

    def _is_there(self, log: OpenLog) -> bool:
        now = self.clock()
        if now - log.looked >= _LOOK_SECONDS:
            log.looked = now
            return os.fstat(log.descriptor).st_nlink > 0
        return True

    def _open(self, session: str, stem: str) -> OpenLog:
        if stem in self._damaged:
            self._retire(stem)
        name = active_name(stem)
        descriptor = open_private(self.directory / name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            whole = ends_whole(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        if not whole:
            os.close(descriptor)
            self.mend(stem)
            return self._open(session, stem)
        if not size:
            self.syncer.entries_changed()
        return OpenLog(session, stem, name, descriptor, size, self.rotate_bytes, self.clock())

    def mend(self, stem: str) -> None:
        """Cut a torn tail off the session's file; a file that keeps it is not written to again."""
        name = active_name(stem)
        try:
            if repair_tail(self.directory / name):
                self.torn += 1
                _LOG.warning("log.torn_tail", file=name)
        except FileNotFoundError:
            pass  # all its files are closed
        except OSError as error:
            self._damaged.add(stem)
            _LOG.warning("log.torn_tail_stays", file=name, error=error.strerror)

    def rotate(self, log: OpenLog) -> OpenLog:
        """Close a file for good because of its size; the one to write to instead.

        Raises:
            OSError: the new one cannot be opened.
        """
        try:
            self._retire(log.stem)
        except OSError as error:
            # Larger than it should be is better than not written.
            log.limit = log.size + self.rotate_bytes
            _LOG.warning("log.not_rotated", file=log.name, error=error.strerror)
            return log
        self._close(log)
        return self.of(log.session)

    def give_up(self, session: str) -> None:
        """Write no more to the session's file: its end, or its bytes on the disk, are in doubt."""
        log = self._logs.get(session)
        if log:
            self._close(log)
        stem = stem_of(session)
        self._damaged.add(stem)
        with contextlib.suppress(OSError):  # else before its next line
            self._retire(stem)

    def _retire(self, stem: str) -> None:
        name = active_name(stem)
        earlier = closed_stamps(self.directory, stem)
        stamp = max(time.time_ns(), earlier[-1] + 1 if earlier else 0)
        closed = closed_name(stem, stamp)
        with contextlib.suppress(FileNotFoundError):
            (self.directory / name).rename(self.directory / closed)
            self.syncer.renamed(name, closed)
        self._damaged.discard(stem)

    def close(self, stem: str) -> None:
        """Close the session's file, if it is open."""
        for log in [log for log in self._logs.values() if log.stem == stem]:
            self._close(log)

    def close_all(self) -> None:
        """Close every file; the next line opens its file anew."""
        for log in list(self._logs.values()):
            self._close(log)

    def _close(self, log: OpenLog) -> None:
        del self._logs[log.session]
        try:
            os.close(log.descriptor)
        except OSError as error:  # some network file systems say only here what went wrong
            self.syncer.failed += 1
            _LOG.error("log.close_failed", file=log.name, error=error.strerror)
