"""Reading back from disk what a relay does not have yet: one session, in order, a piece at a time.

Rules:
- The place to begin is found from the end of the log: what is looked at is what is to be sent, and
  the one event before it. Only where nothing was delivered yet it is the first file's beginning.
- A file is followed through its rotation: it keeps its inode, and what comes after it is found by
  its name. A file that is no longer what it was is not read on in.
- A line that has no position is no event of ours and is passed over.
- Everything here blocks for as long as the disk needs: it runs in a worker thread (`in_thread`),
  beside a journal that appends, rotates and removes meanwhile.

It does not know what was sent (`outbox.py`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

from attrs import define, evolve, frozen

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


@frozen
class _Place:
    """Where reading goes on.

    Attributes:
        stamp: when the file was closed; None while it is written to.
        inode: its device and number: a file keeps them when it is renamed.
        offset: in it, at the beginning of a line.
    """

    stamp: int | None
    inode: tuple[int, int]
    offset: int


@define(eq=False)
class Backlog:
    """What of one session comes after a position; it holds no file open between two reads.

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
    _place: _Place | None = None

    @classmethod
    def open(cls, directory: Path, session: str, after: Position | None) -> Backlog:
        """Find the first event after a position; of what comes earlier nothing is read but one.

        Raises:
            OSError: a file is there and cannot be read.
        """
        backlog = cls(directory, session, Extent(), after, stem_of(session))
        backlog._begin_after(after)
        return backlog

    def _begin_after(self, after: Position | None) -> None:
        """Go back from the file that is written to, until one has the position or none is left."""
        events = size = 0
        stamps, newest = _newest(self.directory, self._stem)
        for stamp in (None, *reversed(stamps)):
            file = newest if stamp is None else _open(self.directory, self._stem, stamp)
            if file is None:
                continue
            with file:
                start, found, length = _begin(file, after)
                self._place = _Place(stamp, _inode(file), start)
            events, size = events + found, size + length
            if start:
                break
        self.extent = Extent(events, size)

    def read(self, most_events: int, most_bytes: int) -> list[Item]:
        """The next events, in order; none where there are no more for now.

        Raises:
            OSError: a file cannot be read.
        """
        found: list[Item] = []
        while (file := self._open_place()) is not None:
            with file:
                if self._read_lines(file, found, most_events, most_bytes):
                    return found
            if self._place and self._place.stamp is None:
                if _is_active(self.directory, self._stem, self._place.inode):
                    return found
                # It was closed since, and may have got more lines before that: read on there.
            elif not self._go_on():
                return found
        return found

    def _read_lines(self, file: BinaryIO, found: list[Item], events: int, size: int) -> bool:
        """Read on to the end of a file; true where a bound was reached before."""
        taken = sum(len(item.line) for item in found)
        while (line := file.readline()).endswith(b"\n"):  # else a line that is just being written
            if self._place:
                self._place = evolve(self._place, offset=self._place.offset + len(line))
            at = position_in(line)
            if at is None or (self.after is not None and at <= self.after):
                continue
            self.after = at
            found.append(Item(self.session, at, line.rstrip(b"\n")))
            taken += len(line)
            if len(found) >= events or taken >= size:
                return True
        return False

    def _open_place(self) -> BinaryIO | None:
        """The file that is being read, at the place; None where it is not what it was."""
        if self._place is None and not self._go_on():
            return None
        place = self._place
        if place is None:
            return None
        file = _open_if(self.directory, self._stem, place.stamp, place)
        if file is None and place.stamp is None:
            for stamp in reversed(closed_stamps(self.directory, self._stem)):
                if file := _open_if(self.directory, self._stem, stamp, place):
                    self._place = evolve(place, stamp=stamp)
                    break
        return file

    def _go_on(self) -> bool:
        """Go to the file after the one that was read to its end; false where there is none."""
        last = self._place.stamp if self._place else None
        while True:
            stamps = closed_stamps(self.directory, self._stem)
            stamp = next((at for at in stamps if last is None or at > last), None)
            file = _open(self.directory, self._stem, stamp)
            if file is None:
                return False
            with file:
                # A file that was closed between the two looks comes before this one.
                if stamp is not None or closed_stamps(self.directory, self._stem) == stamps:
                    self._place = _Place(stamp, _inode(file), 0)
                    return True


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
        if _is_active(directory, stem, _inode(file) if file else None):
            return stamps, file
        if file is not None:
            file.close()  # it was closed between the two looks


def _is_active(directory: Path, stem: str, inode: tuple[int, int] | None) -> bool:
    """Whether this is the file that is written to; None: whether there is none. One cheap look."""
    try:
        there = (directory / active_name(stem)).stat()
    except FileNotFoundError:
        return inode is None
    return inode == (there.st_dev, there.st_ino)


def _inode(file: BinaryIO) -> tuple[int, int]:
    there = os.fstat(file.fileno())
    return there.st_dev, there.st_ino


def _open_if(directory: Path, stem: str, stamp: int | None, place: _Place) -> BinaryIO | None:
    """Open a file, at the place, where it is still the one that the place is in."""
    file = _open(directory, stem, stamp)
    if file is None:
        return None
    try:
        if _inode(file) == place.inode and _is_line_start(file, place.offset):
            return file
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _is_line_start(file: BinaryIO, offset: int) -> bool:
    """Whether a line begins there; the file is left at that offset."""
    file.seek(max(0, offset - 1))
    return offset == 0 or file.read(1) == b"\n"


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
