"""What the relay holds of each session, to give to whoever comes later (AEP-0003 sections 5, 7).

Rules:
- An event is held once, by `(source, id)`. Ids are remembered only of what is held.
- A session is kept in the order of `(epoch, seq)`, whatever order its events came in. A foreign
  emitter's event has no seq (AEP-0001 section 5.2): it stays behind the one it came after.
- What is held of a session is the newer end of what came: the oldest go first, and what is not
  newer than those comes in no more. So a consumer either misses nothing, or is told.
- Too many sessions: the one that was not written to for the longest time goes, whole.
- Too many bytes: the same, and the oldest events of the only session that is left.

Worst case in memory: `Bounds.bytes`, of which `EVENT_BYTES` are reckoned for each event beside its
line, and `SESSION_BYTES` for each session beside its name: 128 MiB by default. Only the lines are
kept; an event is parsed when it is asked for, because parsed it may be thirty times as large.

Pure: no clock, no file. It fans nothing out, and knows no filter. Two emitters that share the name
of a session share what is held of it, as they share its resume positions (AEP-0001 section 5.2).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from operator import attrgetter

from attrs import define, field, frozen

from kimiaepd.mapping.json_value import JSON, JSONObject, parse
from kimiaepd.storage.journal import Position

BEGINNING: Position = (-1, -1)
"""Before every event: what replay-all asks for. Nothing can be missing since then."""

EVENT_BYTES = 512
"""What an event costs beside its line: its object, its position, its key twice, its slots."""

SESSION_BYTES = 2_048
"""What a session costs beside its name, in bytes."""

_LARGEST = 2**53
"""Beyond it a double is no exact number any more, and so no position."""

_place = attrgetter("at")
_rank = attrgetter("at", "number")


@frozen
class Bounds:
    """How much is held.

    Attributes:
        events: of one session at most; what `replay.buffer` advertises.
        sessions: at most.
        bytes: of memory in all, as the top of this file reckons it.
    """

    events: int = 10_000
    sessions: int = 500
    bytes: int = 128 << 20


@frozen(eq=False)
class Held:
    """One event.

    Attributes:
        line: it as it came, byte for byte.
        at: where it stands; one without a seq of its own, the place of the event before it.
        has_place: whether that place is its own.
        key: its `(source, id)`, as a digest.
        number: of all that was ever taken in, the how manieth it was.
    """

    line: bytes
    at: Position
    has_place: bool
    key: bytes
    number: int

    @property
    def event(self) -> JSONObject:
        """The same, parsed; parsed anew each time.

        Raises:
            MalformedJSONError: the line is not what `admit` was told that it is.
        """
        value = parse(self.line)
        return value if isinstance(value, dict) else {}

    @property
    def weight(self) -> int:
        """What it costs, in bytes."""
        return len(self.line) + EVENT_BYTES


@frozen
class Replay:
    """What one resume position gets.

    Attributes:
        held: the events after it, in order. One without a seq, that came after the event at the
            position itself, is among them: whether the consumer had it nobody knows.
        exhausted: the earliest place that is held, where events between it and the position may be
            missing; None where nothing is.
    """

    held: list[Held]
    exhausted: Position | None = None


@define(eq=False)
class _Session:
    """The events of one session, in order.

    Attributes:
        weight: what they and the session cost, in bytes.
        lost: the highest place of what was let go.
    """

    weight: int
    lost: Position = BEGINNING
    _events: list[Held] = field(factory=list)
    _keys: set[bytes] = field(factory=set)

    def __len__(self) -> int:
        return len(self._events)

    def has(self, key: bytes) -> bool:
        return key in self._keys

    def place(self, event: JSONObject) -> tuple[Position, bool]:
        """Where an event stands, and whether that place is its own."""
        if (own := own_place(event)) is not None:
            return own, True
        return (self._events[-1].at if self._events else self.lost), False

    def add(self, held: Held) -> None:
        events = self._events
        if not events or held.at >= events[-1].at:
            events.append(held)
        else:
            events.insert(bisect_right(events, held.at, key=_place), held)
        self._keys.add(held.key)
        self.weight += held.weight

    def let_go(self, count: int) -> int:
        """Let the oldest go; returns their weight."""
        gone = self._events[:count]
        del self._events[:count]
        self._keys.difference_update(held.key for held in gone)
        weight = sum(held.weight for held in gone)
        self.weight -= weight
        if gone:
            self.lost = max(self.lost, gone[-1].at)
        return weight

    def oldest(self, excess: int) -> int:
        """How many of the oldest weigh so much together."""
        count = 0
        while excess > 0 and count < len(self._events):
            excess -= self._events[count].weight
            count += 1
        return count

    def after(self, position: Position) -> Replay:
        events = self._events
        first = bisect_left(events, position, key=_place)
        later = bisect_right(events, position, lo=first, key=_place)
        between = [held for held in events[first:later] if not held.has_place]
        return Replay(between + events[later:], self.exhausted(position))

    def following(self, rank: tuple[Position, int], until: int) -> Iterator[Held]:
        """What comes behind a place and a number, of what was there at `until`."""
        first = bisect_right(self._events, rank, key=_rank)
        return (held for held in self._events[first:] if held.number <= until)

    def exhausted(self, position: Position) -> Position | None:
        """As `Replay` says it."""
        if position == BEGINNING:
            return None
        earliest = next((held.at for held in self._events if held.has_place), self._events[0].at)
        epoch, seq = position
        is_next = earliest == (epoch, seq + 1)
        if position < self.lost or (position < earliest and not is_next):
            return earliest
        return None


@define(eq=False)
class History:
    """What is held of all sessions.

    Attributes:
        bounds: how much.
        events: how many events are held.
        size: what everything costs, in bytes.
        duplicates: events that were held already.
        late: events that were older than what had been let go.
        evicted_events: events let go one by one.
        evicted_sessions: sessions let go whole.
        taken: how many events were ever taken in: a moment, for `pieces`.
    """

    bounds: Bounds = field(factory=Bounds)
    events: int = 0
    size: int = 0
    duplicates: int = 0
    late: int = 0
    evicted_events: int = 0
    evicted_sessions: int = 0
    taken: int = 0
    _sessions: OrderedDict[str, _Session] = field(factory=OrderedDict)
    """The one that was written to last comes last."""

    def admit(self, event: JSONObject, line: bytes) -> bool:
        """Hold an event.

        Args:
            event: one that was checked; without a session it is not held.
            line: the same as bytes, on one line.

        Returns:
            Whether it is held now and was not before: False for a duplicate, and for one that is
            older than all for which there is room.
        """
        name = event.get("session")
        if not isinstance(name, str):
            return False
        key = _key(event)
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Session(SESSION_BYTES + 4 * len(name))
            self.size += session.weight
        elif session.has(key):
            self.duplicates += 1
            return False
        at, has_place = session.place(event)
        if has_place and at <= session.lost:
            self.late += 1
            return False
        self.taken += 1
        held = Held(line, at, has_place, key, self.taken)
        session.add(held)
        self.events += 1
        self.size += held.weight
        self._sessions.move_to_end(name)
        self._bound(session)
        return session.has(key)

    def _bound(self, written: _Session) -> None:
        self._let_go(written, len(written) - self.bounds.events)
        while len(self._sessions) > self.bounds.sessions:
            self._evict()
        while self.size > self.bounds.bytes and len(self._sessions) > 1:
            self._evict()
        self._let_go(written, written.oldest(self.size - self.bounds.bytes))
        if not written:
            self._evict()

    def _let_go(self, session: _Session, count: int) -> None:
        if count > 0:
            self.size -= session.let_go(count)
            self.events -= count
            self.evicted_events += count

    def _evict(self) -> None:
        _, session = self._sessions.popitem(last=False)
        self.size -= session.weight
        self.events -= len(session)
        self.evicted_sessions += 1

    def after(self, session: str, position: Position) -> Replay:
        """What is held of a session after a position; nothing where nothing of it is held."""
        found = self._sessions.get(session)
        return Replay([]) if found is None else found.after(position)

    def pieces(
        self, session: str, position: Position, *, until: int, most: int = 256
    ) -> Iterator[Replay]:
        """What `after` gives, bit by bit, read when it is asked for: it keeps nothing alive.

        Each event comes once, however many share a place; the generator ends, whatever comes in
        meanwhile; and what is let go before it was read is told of.

        Args:
            session: whose.
            position: after which one.
            until: the `taken` of the moment of which it shall tell; what came later is left out.
            most: events at once.
        """
        rank, asked = (position, 0), position
        while (found := self._sessions.get(session)) is not None:
            behind = found.following(rank, until)
            later = (held for held in behind if held.at > position or not held.has_place)
            replay = Replay(list(islice(later, most)), found.exhausted(asked))
            if replay.held or replay.exhausted:
                yield replay
            if not replay.held:
                return
            last = replay.held[-1]
            rank, asked = (last.at, last.number), last.at

    def sessions(self) -> list[str]:
        """The sessions of which something is held, the one that was written to last at the end."""
        return list(self._sessions)

    def counters(self) -> dict[str, int]:
        """What `/healthz` says of it: numbers alone."""
        return {
            "sessions": len(self._sessions),
            "events": self.events,
            "bytes": self.size,
            "duplicates": self.duplicates,
            "late": self.late,
            "evicted_events": self.evicted_events,
            "evicted_sessions": self.evicted_sessions,
        }


def own_place(event: JSONObject) -> Position | None:
    """Where an event says that it stands, epoch 0 by default; None where it has no place."""
    epoch, seq = _whole(event.get("epoch", 0)), _whole(event.get("seq"))
    return None if epoch is None or seq is None else (epoch, seq)


def _whole(value: JSON) -> int | None:
    """A whole number; one may be written 1.0 in JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= _LARGEST and value == int(value) else None


def _key(event: JSONObject) -> bytes:
    source, name = str(event.get("source")), str(event.get("id"))
    text = f"{len(source)}:{source}{name}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).digest()
