"""How much disk the log may take: what is removed, and when little weight is not written at all.

Rules (I24):
- A session goes whole or stays whole: a log without its beginning helps nobody. It goes when
  nothing was written to it for `keep_days`, and, the longest unwritten first, while all sessions
  together are larger than `keep_bytes`. An open session stays.
- So the disk holds at most `keep_bytes` and an eighth, beside what open sessions have.
- The look comes every hour, and whenever an eighth of `keep_bytes` was written since the last.
- Below `min_free_bytes` of free disk, events that may be dropped are; above it by an eighth they
  are written again. The free space is asked for at most once a second or once in 256 events.

It removes nothing itself: `journal.py` does, because it alone knows which file it is writing to.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeAlias

import structlog
import trio
from attrs import define, field, frozen

from kimiaepd.storage.log_names import LogName, parse_name
from kimiaepd.storage.log_reader import LogReader, Position, session_of
from kimiaepd.storage.worker_thread import in_thread

_LOG: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

IsOpen: TypeAlias = Callable[[str], bool]
"""Whether a session is open, and so is not to be removed."""

Bury: TypeAlias = Callable[[str, Position | None], None]
"""Called before a session is removed, with its last position; it must not raise."""

RETENTION_SECONDS = 3600.0
"""How often the log's size and age are looked at, at least."""

_DAY = 86_400
_LOOK_SECONDS = 1.0
_LOOK_EVENTS = 256


@frozen
class Footprint:
    """What one session has on disk.

    Attributes:
        stem: the session as its files' names say it.
        session: the session, or None where neither a name nor a line says it.
        files: the names of its files, those that were closed first in front.
        size: bytes in all of them.
        modified: when something was last written to one, in seconds since 1970.
    """

    stem: str
    session: str | None
    files: tuple[str, ...]
    size: int
    modified: float


def survey(directory: Path) -> list[Footprint]:
    """What every session has on disk. It blocks for as long as the disk needs.

    A log that cannot be read is left out, and so stays: it may be an open session's.

    Raises:
        OSError: the directory cannot be read.
    """
    found: dict[str, list[tuple[LogName, os.stat_result]]] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            name = parse_name(entry.name)
            if name and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    there = entry.stat(follow_symlinks=False)
                    found.setdefault(name.stem, []).append((name, there))
    footprints = []
    for stem, files in found.items():
        with contextlib.suppress(OSError):
            footprints.append(_footprint(directory, stem, files))
    return footprints


def _footprint(
    directory: Path, stem: str, files: list[tuple[LogName, os.stat_result]]
) -> Footprint:
    names = sorted((name for name, _ in files), key=lambda name: (name.stamp is None, name.stamp))
    return Footprint(
        stem=stem,
        session=session_of(directory, stem),
        files=tuple(name.file for name in names),
        size=sum(there.st_size for _, there in files),
        modified=max(there.st_mtime for _, there in files),
    )


def overdue(
    footprints: Iterable[Footprint],
    is_open: IsOpen,
    *,
    keep_bytes: int,
    keep_days: int,
    now: float,
) -> list[Footprint]:
    """The sessions that have to go, in the order in which they should.

    Args:
        footprints: all that is there.
        is_open: whether a session stays, whatever its age and size are.
        keep_bytes: what all sessions together may take, the open ones counted.
        keep_days: how long a session stays after the last line.
        now: seconds since 1970.
    """
    oldest_first = sorted(footprints, key=lambda footprint: footprint.modified)
    excess = sum(footprint.size for footprint in oldest_first) - keep_bytes
    too_old = now - keep_days * _DAY
    going = []
    for footprint in oldest_first:
        stays = footprint.session is not None and is_open(footprint.session)
        if (footprint.modified < too_old or excess > 0) and not stays:
            going.append(footprint)
            excess -= footprint.size
    return going


@define(eq=False)
class Retention:
    """When to look what has to go, and in which order it goes.

    Attributes:
        reader: the log.
        keep_bytes: what all sessions together may take.
        keep_days: how long a session stays after its last line.
        remove: removes one session's files; it may raise OSError.
    """

    reader: LogReader
    keep_bytes: int
    keep_days: int
    remove: Callable[[Footprint], None]
    _written: int = field(default=0, init=False)
    _due: trio.Event = field(factory=trio.Event, init=False)

    def wrote(self, size: int) -> None:
        """The log grew by so many bytes."""
        self._written += size
        if self._written >= self.keep_bytes // 8:
            self._due.set()

    async def run(self, is_open: IsOpen, bury: Bury) -> NoReturn:
        """Look at once, then whenever it is time, until cancelled."""
        while True:
            self._written = 0
            self._due = trio.Event()
            try:
                await self.prune(is_open, bury)
            except OSError as error:
                _LOG.error("log.retention_failed", error=error.strerror)
            with trio.move_on_after(RETENTION_SECONDS):
                await self._due.wait()

    async def prune(self, is_open: IsOpen, bury: Bury) -> None:
        """Remove what is overdue now; what cannot be removed stays until the next time.

        Raises:
            OSError: the directory cannot be read, or the system has no thread for it.
        """
        footprints = await in_thread(partial(survey, self.reader.directory))
        going = overdue(
            footprints,
            is_open,
            keep_bytes=self.keep_bytes,
            keep_days=self.keep_days,
            now=time.time(),
        )
        for footprint in going:
            session = footprint.session
            # It may have been resumed while others were removed.
            if session is None or not is_open(session):
                if session is not None:
                    bury(session, self.reader.last_position(session))
                try:
                    self.remove(footprint)
                except OSError as error:
                    _LOG.error("log.not_removed", stem=footprint.stem, error=error.strerror)
            await trio.lowlevel.checkpoint()


@define
class FreeSpace:
    """Whether the disk of `directory` is nearly full, at the price of one comparison a question.

    Attributes:
        directory: any directory on that disk.
        minimum: how many bytes have to be free.
        clock: seconds, monotonic.
    """

    directory: Path
    minimum: int
    clock: Callable[[], float] = time.monotonic
    _low: bool = field(default=False, init=False)
    _look_at: float = field(default=float("-inf"), init=False)
    _questions: int = field(default=0, init=False)

    def is_low(self) -> bool:
        """Whether events that may be dropped have to be."""
        self._questions -= 1
        if self._questions < 0 or self.clock() >= self._look_at:
            self._look()
        return self._low

    def _look(self) -> None:
        self._questions = _LOOK_EVENTS
        self._look_at = self.clock() + _LOOK_SECONDS
        try:
            there = os.statvfs(self.directory)
        except OSError:
            return  # what was true a second ago is the best guess
        # Twice the same border would let the log flap between writing and dropping.
        needed = self.minimum * 9 // 8 if self._low else self.minimum
        self._low = there.f_bavail * there.f_frsize < needed
