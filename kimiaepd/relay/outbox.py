"""What is sent next, what is under way, and what the relay is known to have.

It does no I/O and knows no clock; `link.py` sends, `backlog.py` reads, both as they are told here.

Rules:
- A session is *fresh* or *behind*. The events of a fresh one go straight into the window, in the
  order in which they were logged. One for which the window has no room makes its session behind:
  from there on its events are read back from disk, until it has caught up (I40).
- What was sent is *under way* until a barrier after it is answered; then it is proven, and its
  session's position moves forward (I41). At most `WINDOW` events or bytes are under way.
- A lost connection proves nothing: what was under way is read back from disk and sent again, the
  same bytes (I42).
- Fresh sessions and those that are behind take turns, so that neither waits for the other.

Worst case in memory: `WINDOW` twice (waiting, and under way), one piece read from disk, and the one
line by which each may be exceeded; and 400 bytes for each session that has something to send.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from attrs import define, field, frozen

from kimiaepd.relay.backlog import Extent, Item
from kimiaepd.storage.journal import Position


@frozen
class Window:
    """A bound by number and by size.

    Attributes:
        events: how many at most.
        bytes: and of how many bytes; the last one may exceed it.
    """

    events: int = 1_000
    bytes: int = 4 << 20


WINDOW = Window()
PIECE = Window(events=256, bytes=256 << 10)
"""What is read from disk, or handed out, at once."""


@define
class Track:
    """One session that has something to send.

    Attributes:
        last: its last event in the log.
        sent: its last event that was sent on this connection, or is proven.
        lag_events: how many of its events are not proven.
        lag_bytes: and of how many bytes their lines are.
        is_behind: whether its next event comes from disk.
        waiting: how many of its events wait in memory.
        under_way: how many were sent and are not proven.
    """

    last: Position
    sent: Position | None
    lag_events: int = 0
    lag_bytes: int = 0
    is_behind: bool = False
    waiting: int = 0
    under_way: int = 0


@frozen
class Turn:
    """A session that is to be read from disk.

    Attributes:
        session: whose turn it is.
        after: after which event.
        last: its last event in the log as known now.
    """

    session: str
    after: Position | None
    last: Position


@define(eq=False)
class Outbox:
    """The order of delivery to one relay.

    Attributes:
        window: what may wait in memory, and what may be under way.
        is_complete: whether every session that is behind was adopted; until then a session that is
            not known here may have more on disk than the event that it comes with.
        delivered: events that were proven, since the start.
        missing: events that were logged and could not be read back.
    """

    window: Window = WINDOW
    is_complete: bool = True
    delivered: int = 0
    missing: int = 0
    _tracks: dict[str, Track] = field(factory=dict)
    _waiting: deque[Item] = field(factory=deque)
    _waiting_bytes: int = 0
    _behind: OrderedDict[str, None] = field(factory=OrderedDict)
    _put_off: list[str] = field(factory=list)
    """Sessions that are behind, and whose log could not be read just now."""
    _under_way: deque[tuple[Item, Track]] = field(factory=deque)
    """In the order of sending; a session that was removed and came back has another track."""
    _under_way_bytes: int = 0
    _barriers: deque[tuple[int, int]] = field(factory=deque)
    """Each ping that is not answered, and how many events had been sent before it."""
    _sent_count: int = 0
    _proven_count: int = 0
    _next_ping: int = 0

    # --- what comes in ---------------------------------------------------------------------------

    def adopt(self, session: str, last: Position, proven: Position | None, extent: Extent) -> None:
        """Take on a session of which the log has more than the relay: at the start.

        One that came with an event before is read on from where it is proven to be, not from its
        beginning.
        """
        track = self._tracks.get(session)
        if track is None:
            track = self._tracks[session] = Track(last, proven)
            self._fall_behind(session, track)
        elif track.is_behind and proven and (track.sent is None or track.sent < proven):
            track.sent = proven
        track.last = max(track.last, last)
        track.lag_events = max(track.lag_events, extent.events)
        track.lag_bytes = max(track.lag_bytes, extent.bytes)

    def offer(self, item: Item, proven: Position | None) -> None:
        """Take on an event that was just logged.

        Args:
            item: the event.
            proven: its session's proven position, for a session that is not known here.
        """
        track = self._tracks.get(item.session)
        if track is None:
            track = self._tracks[item.session] = Track(item.at, proven)
            if not self.is_complete:
                self._fall_behind(item.session, track)
        track.last = item.at
        track.lag_events += 1
        track.lag_bytes += len(item.line) + 1
        if track.is_behind:
            return
        if not self._has_room(len(self._waiting), self._waiting_bytes):
            self._fall_behind(item.session, track)
            return
        track.waiting += 1
        self._waiting.append(item)
        self._waiting_bytes += len(item.line)

    def is_behind(self, session: str) -> bool:
        """Whether the session's next event will come from disk, and so may take a while."""
        track = self._tracks.get(session)
        return track is not None and track.is_behind

    def knows(self, session: str) -> bool:
        """Whether a session has anything here."""
        return session in self._tracks

    def forget(self, session: str) -> int:
        """Let a session go whose log was removed; how many of its events were not proven."""
        track = self._tracks.pop(session, None)
        self._behind.pop(session, None)
        if track is None:
            return 0
        kept = [item for item in self._waiting if item.session != session]
        self._waiting = deque(kept)
        self._waiting_bytes = sum(len(item.line) for item in kept)
        return track.lag_events

    # --- what goes out ---------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether more may be sent before something is proven."""
        return self._has_room(len(self._under_way), self._under_way_bytes)

    def take(self) -> Item | None:
        """The next event that waits in memory; it counts as sent."""
        if not self._waiting or not self.has_room():
            return None
        item = self._waiting.popleft()
        self._waiting_bytes -= len(item.line)
        track = self._tracks[item.session]
        track.waiting -= 1
        self._send(track, item)
        return item

    def next_behind(self) -> Turn | None:
        """The session whose turn it is to be read from disk.

        None where none is behind, nothing more may be sent, or its own events still wait in memory:
        those come first.
        """
        if not self.has_room():
            return None
        for session in self._behind:
            track = self._tracks[session]
            if not track.waiting:
                self._behind.move_to_end(session)
                return Turn(session, track.sent, track.last)
        return None

    def read_back(self, turn: Turn, items: list[Item]) -> list[Item]:
        """What of a piece from disk is to be sent; it counts as sent. An empty piece is the end."""
        track = self._tracks.get(turn.session)
        if track is None or not track.is_behind or track.sent != turn.after:
            return []  # the session's log was removed meanwhile
        for item in items:
            self._send(track, item)
        is_missing = not items and track.last == turn.last
        if is_missing:
            self._miss(track)
        if is_missing or (track.sent is not None and track.sent >= track.last):
            track.is_behind = False
            del self._behind[turn.session]
            self._let_go_of(turn.session, track)
        return items

    def put_off(self, session: str) -> None:
        """Pass a session over until `resume`: its log cannot be read now, which says nothing of it.

        It stays behind, so nothing of it is sent past what could not be read.
        """
        if session in self._behind:
            del self._behind[session]
            self._put_off.append(session)

    def resume(self) -> None:
        """Let the sessions that were put off take turns again."""
        for session in self._put_off:
            if (track := self._tracks.get(session)) and track.is_behind:
                self._behind[session] = None
        self._put_off.clear()

    def barrier(self) -> int:
        """The `t` of a ping that goes out now: its answer proves everything sent before it."""
        self._next_ping += 1
        self._barriers.append((self._next_ping, self._sent_count))
        return self._next_ping

    # --- what came of it -------------------------------------------------------------------------

    def prove(self, t: int) -> dict[str, Position]:
        """Take the answer to a ping; the sessions whose position moved forward, and where to."""
        if all(number != t for number, _ in self._barriers):
            return {}
        moved: dict[str, Position] = {}
        while self._barriers:
            number, sent_before = self._barriers.popleft()
            while self._proven_count < sent_before:
                self._prove_one(moved)
            if number == t:
                break
        return moved

    def refused(self, event_id: str) -> Item | None:
        """The event under way that a relay refused; it is proven with those around it."""
        return next((item for item, _ in self._under_way if item.id == event_id), None)

    def largest_under_way(self, most: int) -> int:
        """Bytes of the largest event under way that has no more than so many; 0 where none has."""
        sizes = (len(item.line) for item, _ in self._under_way)
        return max((size for size in sizes if size <= most), default=0)

    def lost(self, proven: dict[str, Position | None]) -> None:
        """The connection is gone: everything that is not proven begins anew, from disk.

        Args:
            proven: the proven position of each session that `unproven` names.
        """
        self._waiting.clear()
        self._put_off.clear()
        self._under_way.clear()
        self._barriers.clear()
        self._waiting_bytes = self._under_way_bytes = 0
        self._proven_count = self._sent_count
        for session, track in self._tracks.items():
            track.sent = proven[session]
            track.waiting = track.under_way = 0
            self._fall_behind(session, track)

    def unproven(self) -> list[str]:
        """Every session that has something the relay is not known to have."""
        return list(self._tracks)

    @property
    def lag(self) -> Extent:
        """How much the relay is not known to have."""
        tracks = self._tracks.values()
        events, size = sum(t.lag_events for t in tracks), sum(t.lag_bytes for t in tracks)
        return Extent(max(0, events), max(0, size))

    @property
    def is_settled(self) -> bool:
        """Whether the relay has everything, as far as anybody knows."""
        return not self._tracks

    # --- inside ----------------------------------------------------------------------------------

    def _has_room(self, events: int, size: int) -> bool:
        return events < self.window.events and size < self.window.bytes

    def _fall_behind(self, session: str, track: Track) -> None:
        track.is_behind = True
        self._behind[session] = None

    def _send(self, track: Track, item: Item) -> None:
        track.sent = item.at
        track.under_way += 1
        self._under_way.append((item, track))
        self._under_way_bytes += len(item.line)
        self._sent_count += 1

    def _prove_one(self, moved: dict[str, Position]) -> None:
        item, track = self._under_way.popleft()
        self._under_way_bytes -= len(item.line)
        self._proven_count += 1
        if self._tracks.get(item.session) is not track:
            return  # its log was removed since
        moved[item.session] = item.at
        self.delivered += 1
        track.under_way -= 1
        track.lag_events -= 1
        track.lag_bytes -= len(item.line) + 1
        self._let_go_of(item.session, track)

    def _miss(self, track: Track) -> None:
        """What should come next is not on disk: somebody removed it, and it never will be."""
        self.missing += track.lag_events - track.under_way
        track.lag_events = track.under_way
        track.lag_bytes = 0 if not track.under_way else track.lag_bytes
        track.last = track.sent or track.last

    def _let_go_of(self, session: str, track: Track) -> None:
        """Forget a session of which the relay has everything."""
        is_done = track.sent is None or track.sent >= track.last
        if is_done and not (track.waiting or track.under_way or track.is_behind):
            del self._tracks[session]
