"""Reading the log back: a session's events in order, its last one, and which sessions there are.

Rules:
- A line that is not a JSON object is passed over and counted (I21): a crash or a person with an
  editor left it, and what follows is still good.
- A file that cannot be read costs its own session alone.
- Reading never changes a file, and may go on while the journal writes, on the same thread.

It gives bytes as they were written; what they mean is for the caller to parse.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import structlog
from attrs import define

from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, parse
from kimiaepd.storage.log_files import closed_stamps, lines, lines_backward, open_to_read, stems_in
from kimiaepd.storage.log_names import active_name, closed_name, session_of_stem, stem_of

_LOG: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

Position: TypeAlias = tuple[int, int]
"""(epoch, seq): where an event stands in its session."""


class JournalError(Exception):
    """The log could not do what was asked; `code` says why in a word: ENOSPC, EIO, EACCES."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code

    @classmethod
    def of(cls, error: Exception) -> JournalError:
        """The same failure, with the system's own word for it where there is one."""
        number = error.errno if isinstance(error, OSError) else None
        return cls(errno.errorcode.get(number or 0, "unknown"), str(error))


def as_object(line: bytes) -> JSONObject | None:
    """The JSON object that a line is; None where it is anything else."""
    try:
        value = parse(line)
    except MalformedJSONError:
        return None
    return value if isinstance(value, dict) else None


def position_from(value: JSON) -> Position | None:
    """A position as a record keeps it, `[epoch, seq]`; None for anything else."""
    match value:
        case [int(epoch), int(seq)]:
            return epoch, seq
        case _:
            return None


def position_of(event: JSONObject) -> Position | None:
    """Where an event stands in its session; None where it does not say."""
    epoch, seq = event.get("epoch"), event.get("seq")
    if isinstance(epoch, bool) or isinstance(seq, bool):
        return None
    return (epoch, seq) if isinstance(epoch, int) and isinstance(seq, int) else None


def last_event(directory: Path, stem: str) -> JSONObject | None:
    """The last event of a session that has a position; None where nothing has.

    Raises:
        OSError: a file is there and cannot be read.
    """
    for name in _newest_first(directory, stem):
        with contextlib.suppress(FileNotFoundError), open_to_read(directory / name) as file:
            for line in lines_backward(file):
                event = as_object(line)
                if event is not None and position_of(event):
                    return event
    return None


def _newest_first(directory: Path, stem: str) -> Iterator[str]:
    yield active_name(stem)
    # Mostly it ends there: a look at the whole directory for each session would be dear.
    for stamp in reversed(closed_stamps(directory, stem)):
        yield closed_name(stem, stamp)


def session_of(directory: Path, stem: str) -> str | None:
    """Which session a stem stands for: by itself, or, where it was cut, by the session's last line.

    Raises:
        OSError: a file is there and cannot be read.
    """
    session = session_of_stem(stem)
    if session is None and (event := last_event(directory, stem)):
        said = event.get("session")
        session = said if isinstance(said, str) and stem_of(said) == stem else None
    return session


@define(eq=False)
class LogReader:
    """The sessions of one directory.

    Attributes:
        directory: where the files are.
        skipped: lines passed over, and files that could not be read, each time one was met.
    """

    directory: Path
    skipped: int = 0

    def read(self, session: str) -> Iterator[bytes]:
        r"""Every line of the session that is a JSON object, with its `\n`, the oldest first.

        Lines appended meanwhile may or may not be among them; if one is, so is all before it.

        Raises:
            JournalError: a file cannot be read.
        """
        stem = stem_of(session)
        last = -1
        try:
            while True:
                # Between this look and the open nothing is renamed: it would be by this thread.
                stamp = next((at for at in closed_stamps(self.directory, stem) if at > last), None)
                if stamp is None:
                    yield from self._read_file(active_name(stem))
                    return
                yield from self._read_file(closed_name(stem, stamp))
                last = stamp
        except OSError as error:
            raise JournalError.of(error) from error

    def _read_file(self, name: str) -> Iterator[bytes]:
        try:
            file = open_to_read(self.directory / name)
        except FileNotFoundError:
            return  # removed since, or nothing was written yet
        with file:
            for line in lines(file):
                if as_object(line) is None:
                    self.skipped += 1
                else:
                    yield line

    def tail(self, session: str, most: int) -> list[JSONObject]:
        """The session's last events that have a position, at most so many, the oldest first.

        It reads from the end, so it costs what it gives, however long the log is.

        Raises:
            JournalError: a file cannot be read.
        """
        found: list[JSONObject] = []
        try:
            for name in _newest_first(self.directory, stem_of(session)):
                with (
                    contextlib.suppress(FileNotFoundError),
                    open_to_read(self.directory / name) as file,
                ):
                    for line in lines_backward(file):
                        event = as_object(line)
                        if event is not None and position_of(event):
                            found.append(event)
                            if len(found) == most:
                                return found[::-1]
        except OSError as error:
            raise JournalError.of(error) from error
        return found[::-1]

    def last_position(self, session: str) -> Position | None:
        """Where the session's last event stands; None where it has none, or none can be read."""
        return self._last_position(stem_of(session))

    def highest_epoch(self) -> int:
        """The highest epoch that the last event of a session has; 0 where there is no event.

        Raises:
            JournalError: the directory cannot be read.
        """
        positions = map(self._last_position, self._stems())
        return max((position[0] for position in positions if position), default=0)

    def _last_position(self, stem: str) -> Position | None:
        try:
            event = last_event(self.directory, stem)
        except OSError as error:
            self.skipped += 1
            _LOG.warning("log.unreadable", stem=stem, error=error.strerror)
            return None
        return position_of(event) if event else None

    def sessions(self) -> Iterator[str]:
        """Every session that has a log.

        Raises:
            JournalError: the directory cannot be read.
        """
        for stem in self._stems():
            session = None
            with contextlib.suppress(OSError):
                session = session_of(self.directory, stem)
            if session is None:
                self.skipped += 1
            else:
                yield session

    def _stems(self) -> list[str]:
        try:
            return sorted(stems_in(self.directory))
        except OSError as error:
            raise JournalError.of(error) from error
