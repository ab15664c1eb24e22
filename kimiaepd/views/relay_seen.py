"""What a consumer has had already: each event once, and where every session stands.

Rules:
- An event is known by `(source, id)`. The newest `MOST_IDS` are remembered.
- After a reconnect, what is at or before the place where its session stood is had: a relay that
  forgot is filled again, with more than can be remembered one by one.
- What is older than the beginning of a session's story that was asked for is not wanted.

Worst case in memory: 5 MiB for ids, and 4 MiB for positions. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

from attrs import define, field

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.storage.log_reader import Position, position_of

MOST_IDS = 32_768
MOST_SESSIONS = 2_000
LONGEST_NAME = 1_024
"""Characters of a session's name; of one with a longer name no place is kept."""

SLACK = timedelta(seconds=0.5)
"""An event is stamped as its hook starts, a moment before it arrives."""


@define(eq=False)
class Seen:
    """What came.

    Attributes:
        since: of a session that is not known yet, what is older is passed over; None: nothing is.
    """

    since: datetime | None = None
    _ids: OrderedDict[int, None] = field(factory=OrderedDict, init=False)
    _places: OrderedDict[str, tuple[Position, JSON]] = field(factory=OrderedDict, init=False)
    _had: dict[str, tuple[Position, JSON]] = field(factory=dict, init=False)

    def takes(self, event: JSONObject) -> bool:
        """Note an event; whether it is new, and wanted."""
        session, source, place = event.get("session"), event.get("source"), position_of(event)
        name = session if isinstance(session, str) and len(session) <= LONGEST_NAME else None
        if self._was_had(name, source, place) or self._is_too_old(name, event.get("time")):
            return False
        key = hash((str(source), str(event.get("id"))))
        if key in self._ids:
            self._ids.move_to_end(key)
            return False
        self._ids[key] = None
        if len(self._ids) > MOST_IDS:
            self._ids.popitem(last=False)
        if name is not None and place is not None:
            self._stand(name, place, source)
        return True

    def reconnecting(self) -> None:
        """A connection ended: what was had until now may come again."""
        self._had = dict(self._places)

    def positions(self, most: int) -> list[tuple[str, Position]]:
        """Where the sessions stand that were heard of last."""
        return [(name, place) for name, (place, _) in list(self._places.items())[-most:]]

    def knows(self, session: str) -> bool:
        """Whether the place of a session is known."""
        return session in self._places

    def _was_had(self, name: str | None, source: JSON, place: Position | None) -> bool:
        had = self._had.get(name) if name is not None and place is not None else None
        return had is not None and place is not None and had[1] == source and place <= had[0]

    def _is_too_old(self, name: str | None, time: JSON) -> bool:
        if self.since is None or (name is not None and name in self._places):
            return False
        moment = moment_of(time)
        return moment is not None and moment < self.since - SLACK

    def _stand(self, name: str, place: Position, source: JSON) -> None:
        known = self._places.get(name)
        self._places[name] = (place, source) if known is None or known[0] < place else known
        self._places.move_to_end(name)
        if len(self._places) > MOST_SESSIONS:
            self._places.popitem(last=False)


def moment_of(time: JSON) -> datetime | None:
    """The moment that an event's `time` says; None where it says none."""
    try:
        moment = datetime.fromisoformat(time) if isinstance(time, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
