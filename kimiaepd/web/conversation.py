"""One connection to a `kimi web` server: who is subscribed, which frames are new, when to let go.

Rules:
- Only live sessions are subscribed, because nothing else can be; listing and asking wakes none. All
  that the server lists are asked for at the start and from time to time, and one that a frame of
  everybody's speaks of at once. What is asked for goes on from its cursor. One without is told of
  from now on; from its beginning where it began while we looked, and in primary where no hook told
  of it either.
- What is replayed comes before the acknowledgement, and without holes: until that only the frame
  that follows the cursor is taken. What everybody is told, of a session that is not subscribed, is
  not taken: its journal says it again.
- A frame that its cursor is beyond is dropped: 0.28.0 sends those of everybody once for each
  subscription, and later servers to every connection.
- The reader answers pings at once. Another task asks `healthz` every second and lets go where that
  is refused: an open WebSocket keeps a server from ending (observed at every version).

It never raises because of what a server says: that is counted as odd.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import structlog
import trio
from attrs import define, field

from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, dump, parse
from kimiaepd.mapping.web_frames import GLOBAL, Frame, read_frame
from kimiaepd.relay.connection import Connection
from kimiaepd.web import wire
from kimiaepd.web.client import Client
from kimiaepd.web.cursors import BEGINNING, Cursor
from kimiaepd.web.errors import NoAnswerError, WebError
from kimiaepd.web.feed import Feed

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PROBE_SECONDS = 1.0
"""Between two looks whether the server wants to end: it waits for us, and its user for it."""

ROLL_CALL_SECONDS = 15.0
BLIND_ROLL_CALL_SECONDS = 2.0
"""Between two lists of sessions: of a server that tells of new ones, and of one that does not yet
(0.28.0, as long as nothing is subscribed)."""

AT_ONCE = 200
"""Sessions in one subscription."""

CLIENT = "kimiaepd"


@define(eq=False)
class Seen:
    """What was seen of one server, over all its connections.

    Attributes:
        frames: messages of any kind.
        odd: those that could not be understood.
        gaps: how often frames were missed.
        last_error: for people.
        ever_listed: the sessions that were there when we first looked: their past is not told.
        too_large: a frame was larger than is taken, so that what is replayed must be left out.
    """

    frames: int = 0
    odd: int = 0
    gaps: int = 0
    last_error: str | None = None
    ever_listed: set[str] | None = None
    too_large: bool = False


@define(eq=False)
class Conversation:
    """One connection, from its first message to its last.

    Attributes:
        sessions: what is subscribed.
        is_called: whether every session that the server lists was asked for once.
    """

    connection: Connection
    client: Client
    feed: Feed
    server: str
    seen: Seen
    sessions: set[str] = field(factory=set, init=False)
    is_called: bool = field(default=False, init=False)
    _beats: bool = field(default=False, init=False)
    _sending: trio.Lock = field(factory=trio.Lock, init=False)
    _numbers: Iterator[int] = field(factory=lambda: itertools.count(1), init=False)
    _asked: dict[str, list[str]] = field(factory=dict, init=False)
    _pending: dict[str, Cursor | None] = field(factory=dict, init=False)
    _reasons: dict[str, str] = field(factory=dict, init=False)
    _wanted: set[str] = field(factory=set, init=False)
    _stale: set[str] = field(factory=set, init=False)
    _woken: trio.Event = field(factory=trio.Event, init=False)

    async def run(self) -> None:
        """Read until the connection ends, or the server wants to.

        Raises:
            LinkError: the connection was lost.
        """
        async with trio.open_nursery() as talk_nursery:
            talk_nursery.start_soon(self._probe, talk_nursery.cancel_scope)
            talk_nursery.start_soon(self._call_rolls)
            while True:
                await self._hear(await self.connection.receive())

    async def _probe(self, scope: trio.CancelScope) -> None:
        while True:
            await trio.sleep(PROBE_SECONDS)
            try:
                await self.client.healthz()
            except NoAnswerError as error:
                if error.is_refused:
                    scope.cancel()
                    return
            except WebError as error:
                self.seen.last_error = str(error)

    async def _send(self, message: JSONObject) -> None:
        async with self._sending:
            await self.connection.send(dump(message).decode())

    # --- who is subscribed ---

    async def _call_rolls(self) -> None:
        await self._send(wire.hello(CLIENT))
        due = trio.current_time()
        while True:
            try:
                if trio.current_time() >= due:
                    await self._call_roll()
                    is_blind = not (self._beats or self.sessions)
                    every = BLIND_ROLL_CALL_SECONDS if is_blind else ROLL_CALL_SECONDS
                    due = trio.current_time() + every
                await self._settle_stale()
            except WebError as error:
                self.seen.last_error = str(error)
                due = trio.current_time() + BLIND_ROLL_CALL_SECONDS
            await self._subscribe(self._wanted)
            self._wanted.clear()
            with trio.move_on_at(due):
                await self._woken.wait()
            self._woken = trio.Event()

    async def _call_roll(self) -> None:
        listed = [session.id for session in await self.client.sessions()]
        if self.seen.ever_listed is None:
            self.seen.ever_listed = set(listed)
        await self._subscribe(listed)
        self.is_called = True

    async def _subscribe(self, wanted: list[str] | set[str]) -> None:
        missing = [one for one in wanted if one not in self.sessions and one not in self._pending]
        for first in range(0, len(missing), AT_ONCE):
            part = {name: self._begin(name) for name in missing[first : first + AT_ONCE]}
            request = f"s{next(self._numbers)}"
            self._asked[request] = list(part)
            self._pending.update(part)
            await self._send(wire.subscribe(request, part))

    def _begin(self, name: str) -> Cursor | None:
        """After what a session's stream is wanted; None: from now on."""
        if self.seen.too_large:
            return None
        if known := self.feed.cursors.get(name):
            return known
        is_new = name not in (self.seen.ever_listed or ())
        is_untold = self.feed.is_primary and not self.feed.book.is_known(name)
        return BEGINNING if is_new or is_untold else None

    def _acknowledged(self, ack: wire.Ack) -> None:
        asked = self._asked.pop(ack.request, [])
        for name in ack.accepted:
            self._accepted(name, ack.at.get(name), is_cut=name in ack.resync)
        for name in asked:
            self._pending.pop(name, None)
        if asked and not self._pending:
            self.seen.too_large = False

    def _accepted(self, name: str, there: Cursor | None, *, is_cut: bool) -> None:
        was_asked = name in self._pending
        begun = self._pending.pop(name, None)
        self.sessions.add(name)
        self.feed.host(name, self.server)
        reason = self._reasons.pop(name, "unknown")
        if there is None or not was_asked:
            return
        before = self.feed.cursors.get(name) or begun
        if before is not None and (is_cut or there.seq > before.seq):
            why = "too-large" if self.seen.too_large else "not-replayed"
            self._missed(name, there.seq - before.seq, reason if is_cut else why)
        self.feed.cursors.put(name, there)

    def _missed(self, name: str, count: int, reason: str) -> None:
        self.seen.gaps += 1
        self.feed.gap(name, count, reason)
        if self.feed.is_primary:
            self._stale.add(name)
            self._woken.set()

    async def _settle_stale(self) -> None:
        """After a gap: where no turn runs any more, the run whose end was missed is over."""
        for name in sorted(self._stale & self.sessions):
            session = await self.client.session(name)
            if not session.main_turn_active:
                self.feed.idle(name)
        self._stale.clear()

    # --- what comes ---

    async def _hear(self, message: str | bytes) -> None:
        self.seen.frames += 1
        try:
            raw = parse(message.encode() if isinstance(message, str) else message)
        except (MalformedJSONError, UnicodeEncodeError):
            self.seen.odd += 1
            return
        if not isinstance(raw, dict):
            self.seen.odd += 1
        elif raw.get("volatile") is not True:
            await self._heard(raw)

    async def _heard(self, raw: JSONObject) -> None:
        kind = raw.get("type")
        if kind == "ping":
            await self._send(wire.pong(raw))
        elif kind == "server_hello":
            self._beats = wire.beats(raw)
        elif kind == "ack":
            self._acknowledged(wire.read_ack(raw))
        elif kind == "resync_required":
            if resync := wire.read_resync(raw):
                self._reasons[resync.session] = resync.reason
        else:
            await self._frame(raw.get("session_id"), read_frame(raw))

    async def _frame(self, journal: JSON, frame: Frame) -> None:
        if not isinstance(journal, str) or frame.seq is None:
            self.seen.odd += 1
        elif journal == GLOBAL or journal in self.sessions:
            if self._is_new(journal, frame, frame.seq):
                await self.feed.take(frame, journal, self.server)
        elif journal in self._pending:
            if self._is_next(journal, frame, frame.seq):
                await self.feed.take(frame, journal, self.server)
        else:
            self._wanted.add(journal)
            self._woken.set()

    def _is_new(self, journal: str, frame: Frame, seq: int) -> bool:
        known = self.feed.cursors.get(journal)
        if known is None or frame.epoch not in (None, known.epoch):
            return True
        if seq > known.seq + 1 and journal != GLOBAL:
            self._missed(journal, seq - known.seq - 1, "skipped")
        return seq > known.seq

    def _is_next(self, journal: str, frame: Frame, seq: int) -> bool:
        """Whether it is the next one of what is replayed."""
        begun = self._pending[journal]
        if begun is None or seq != begun.seq + 1:
            return False
        self._pending[journal] = Cursor(seq, frame.epoch or begun.epoch)
        self.feed.host(journal, self.server)
        return True
