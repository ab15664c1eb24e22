"""Reading back from disk what a relay does not have yet: one session, in order, a piece at a time.

Rules:
- The place to begin is found from the end of the log: what is looked at is what is to be sent, and
  the one event before it. Only where nothing was delivered yet it is the first file's beginning.
- A file is followed through its rotation: a file that was closed is still the one we hold open, and
  what comes after it is found by its name.
- A line that has no position is no event of ours and is passed over.
- Everything here blocks for as long as the disk needs: it runs in a worker thread (`in_thread`),
  beside a journal that appends, rotates and removes meanwhile.

It does not know what was sent (`outbox.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attrs import define, field, frozen

from kimiaepd.storage.journal import Position
from kimiaepd.storage.log_files import closed_stamps, lines_backward, open_to_read
from kimiaepd.storage.log_names import active_name, closed_name, stem_of

MAX_FRAME = 8 << 20
"""Bytes of an event that is sent at all; no relay takes a larger message, and no hook made one."""

_BLOCK = 64 << 10

# The emitter writes the envelope before `data`, and in a JSON string every quote has a backslash
# before it: so the first match is the envelope's own.
_POSITION = re.compile(rb'"seq":(\d{1,15}),"epoch":(\d{1,15})[,}]')
_ID = re.compile(rb'"id":"([^"\\]{1,200})"')


@frozen
class Item:
    """One event on its way.

    Attributes:
        session: whose it is.
        at: where it stands there.
        line: the log's line, without its newline: what is sent, byte for byte.
    """

    session: str
    at: Position
    line: bytes

    @property
    def id(self) -> str | None:
        """The event's id, which a relay names where it refuses it."""
        match = _ID.search(self.line)
        return match[1].decode("utf-8", "replace") if match else None


@frozen
class Extent:
    """How much is to be sent.

    Attributes:
        events: how many.
        bytes: of their lines, newlines included.
    """

    events: int = 0
    bytes: int = 0


def position_in(line: bytes) -> Position | None:
    """Where the event of a line stands; None where the line says none."""
    match = _POSITION.search(line)
    return (int(match[2]), int(match[1])) if match else None


@define(eq=False)
class Backlog:
    """What of one session comes after a position.

    Attributes:
        directory: the log's.
        session: whose it is.
        extent: what was there to be sent when it was opened.
        after: the last event that was read; what comes after it is next.
    """

    directory: Path
    session: str
    extent: Extent
    after: Position | None
    _stem: str
    _stamp: int | None
    _file: BinaryIO | None = field(repr=False)

    @classmethod
    def open(cls, directory: Path, session: str, after: Position | None) -> Backlog:
        """Find the first event after a position; of what comes earlier nothing is read but one.

        Raises:
            OSError: a file is there and cannot be read.
        """
        stem = stem_of(session)
        stamps, file = _newest(directory, stem)
        backlog = cls(directory, session, Extent(), after, stem, None, file)
        try:
            backlog._begin_after(after, stamps)
        except BaseException:
            backlog.close()
            raise
        return backlog

    def _begin_after(self, after: Position | None, stamps: list[int]) -> None:
        """Go back from the file that is written to, until one has the position or none is left."""
        events = size = 0
        for stamp in (None, *reversed(stamps)):
            file = self._file if stamp is None else _open(self.directory, self._stem, stamp)
            if file is None:
                continue
            if file is not self._file:
                self.close()
                self._file, self._stamp = file, stamp
            start, found, length = _begin(file, after)
            events, size = events + found, size + length
            file.seek(start)
            if start:
                break
        self.extent = Extent(events, size)

    def read(self, most_events: int, most_bytes: int) -> list[Item]:
        """The next events, in order; none where there are no more for now.

        Raises:
            OSError: a file cannot be read.
        """
        found: list[Item] = []
        size = 0
        for line in self._lines():
            at = position_in(line)
            if at is None or (self.after is not None and at <= self.after):
                continue
            self.after = at
            found.append(Item(self.session, at, line.rstrip(b"\n")))
            size += len(line)
            if len(found) >= most_events or size >= most_bytes:
                break
        return found

    def _lines(self) -> Iterator[bytes]:
        while True:
            if self._file is None and not self._next_file():
                return
            file = self._file
            while file:
                start = file.tell()
                line = file.readline()
                if not line.endswith(b"\n"):
                    file.seek(start)  # the end, or a line that is just being written
                    break
                yield line
            if not self._next_file():
                return

    def _next_file(self) -> bool:
        """Go on to the file after the one that was read to its end; False where that is the last.

        The file that is written to may have been closed, and so renamed, since it was opened.
        """
        while True:
            if self._file is not None and self._stamp is None:
                return self._is_closed(self._file)
            stamps = closed_stamps(self.directory, self._stem)
            stamp = next((at for at in stamps if self._stamp is None or at > self._stamp), None)
            file = _open(self.directory, self._stem, stamp)
            if file is None:
                return False
            if stamp is None and closed_stamps(self.directory, self._stem) != stamps:
                file.close()  # a file was closed between the two looks, and comes before this one
                continue
            self.close()
            self._file, self._stamp = file, stamp
            return True

    def _is_closed(self, file: BinaryIO) -> bool:
        """Whether the file that was written to no longer is: then it has an end, to be read to."""
        if not _is_active(self.directory, self._stem, file):
            self._stamp = self._stamp_of(file, closed_stamps(self.directory, self._stem))
        return self._stamp is not None

    def _stamp_of(self, file: BinaryIO, stamps: list[int]) -> int | None:
        """When the file that we hold was closed; None where it is still written to."""
        ours = os.fstat(file.fileno())
        for stamp in reversed(stamps):
            try:
                there = (self.directory / closed_name(self._stem, stamp)).stat()
            except FileNotFoundError:
                continue
            if os.path.samestat(ours, there):
                return stamp
        return None

    def __del__(self) -> None:
        # A thread that was left to itself gives its backlog back to nobody.
        self.close()

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None


def line_at(directory: Path, session: str, at: Position) -> bytes | None:
    """The line of one event, without its newline, as it was written; None where it is not there.

    Raises:
        OSError: a file is there and cannot be read.
    """
    stem = stem_of(session)
    for stamp in (None, *reversed(closed_stamps(directory, stem))):
        file = _open(directory, stem, stamp)
        if file is None:
            continue
        with file:
            for line in lines_backward(file):
                found = position_in(line)
                if found == at:
                    return line.rstrip(b"\n")
                if found is not None and found < at:
                    return None
    return None


def _newest(directory: Path, stem: str) -> tuple[list[int], BinaryIO | None]:
    """The file that is written to, and the stamps of all that were closed before it."""
    while True:
        file = _open(directory, stem, None)
        stamps = closed_stamps(directory, stem)
        if _is_active(directory, stem, file):
            return stamps, file
        if file is not None:
            file.close()  # it was closed between the two looks


def _is_active(directory: Path, stem: str, file: BinaryIO | None) -> bool:
    """Whether this is the file that is written to; None: whether there is none. One cheap look."""
    try:
        there = (directory / active_name(stem)).stat()
    except FileNotFoundError:
        return file is None
    return file is not None and os.path.samestat(there, os.fstat(file.fileno()))


def _open(directory: Path, stem: str, stamp: int | None) -> BinaryIO | None:
    name = active_name(stem) if stamp is None else closed_name(stem, stamp)
    try:
        return open_to_read(directory / name)
    except FileNotFoundError:
        return None


def _begin(file: BinaryIO, after: Position | None) -> tuple[int, int, int]:
    """Where in a file what comes after a position begins; how many events and bytes that are.

    The place is 0 where everything in the file comes after it.
    """
    end = file.seek(0, os.SEEK_END)
    events = size = 0
    for line in lines_backward(file, end):
        at = position_in(line)
        if after is not None and at is not None and at <= after:
            return _boundary(file, end) - size, events, size
        size += len(line)
        events += at is not None
    return 0, events, size


def _boundary(file: BinaryIO, end: int) -> int:
    """The offset behind the last newline: a line that is just being written is none yet."""
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
