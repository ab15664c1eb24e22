"""How far each session was delivered to a relay that keeps nothing once it ends: ours.

Rules:
- Positions live as long as the relay does: in memory. Another start begins anew.
- It is given the newest of what the log holds again, so that who comes later sees the past: of the
  sessions that were written to last, the last events, within `BOUNDS`. What is older stays on disk.
- The rest of a log is no debt: a session that is not among those begins with its next event.

Worst case in memory: 200 bytes for each session that was written to, `positions.MOST` of them.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import structlog
from attrs import define, field, frozen

from kimiaepd.relay.backlog import position_in
from kimiaepd.relay.positions import MOST, Start
from kimiaepd.storage.journal import Position
from kimiaepd.storage.log_files import lines_backward, open_to_read
from kimiaepd.storage.retention import Footprint, survey

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@frozen
class Bounds:
    """How much of the past is given to a relay that has none.

    Attributes:
        sessions: at most.
        events: of one session.
        bytes: of all lines; the one by which it is exceeded is given too.
    """

    sessions: int = 500
    events: int = 10_000
    bytes: int = 4 << 20


BOUNDS = Bounds()
"""Some 6 000 events: about two seconds of one core at a start, a piece at a time between hooks."""


@define(eq=False)
class RecentPositions:
    """The position of every session that was delivered since the relay is there.

    Attributes:
        bounds: how much of the past it is given.
    """

    bounds: Bounds = BOUNDS
    _at: OrderedDict[str, Position] = field(factory=OrderedDict, init=False)

    def get(self, session: str) -> Position | None:
        """The last event of a session that the relay has or shall not have; None: nothing yet."""
        return self._at.get(session)

    def put(self, session: str, at: Position) -> None:
        """Keep what was proven."""
        self._at[session] = at
        self._at.move_to_end(session)
        if len(self._at) > MOST:
            self._at.popitem(last=False)

    def starts(self, directory: Path) -> list[Start]:
        """What the relay is to have of a log, the session that was written to last at the end.

        It blocks, and changes nothing here: it runs in a thread.

        Raises:
            OSError: the directory cannot be read.
        """
        newest = sorted(survey(directory), key=lambda one: one.modified, reverse=True)
        found: list[Start] = []
        room = self.bounds.bytes
        for footprint in newest:
            if room <= 0 or len(found) >= self.bounds.sessions:
                break
            if footprint.session is None:
                continue
            try:
                before, size = _before_last(directory, footprint, self.bounds.events, room)
            except OSError as error:
                log.warning("log not read", session=footprint.session, why=error.strerror)
                continue
            found.append(Start(footprint.session, before))
            room -= size
        return found[::-1]


def _before_last(
    directory: Path, footprint: Footprint, most_events: int, most_bytes: int
) -> tuple[Position | None, int]:
    """The event before a session's last ones, and how many bytes those are.

    None where there is none before them.

    Raises:
        OSError: a file cannot be read.
    """
    events = size = 0
    for name in reversed(footprint.files):
        try:
            file = open_to_read(directory / name)
        except FileNotFoundError:
            continue
        with file:
            for line in lines_backward(file):
                at = position_in(line)
                if at is None:
                    continue
                if events >= most_events or size >= most_bytes:
                    return at, size
                events, size = events + 1, size + len(line)
    return None, size
