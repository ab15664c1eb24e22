"""One connection to a `kimi web` server: who is subscribed, which frames are new, when to let go.

Rules:
- Only live sessions are subscribed, because nothing else can be; listing and asking wakes none. All
  that the server lists are asked for at the start and from time to time, and one that a frame of
  everybody's speaks of at once. What is asked for goes on from its cursor. One without is told of
  from now on; from its beginning where it began while we looked, and in primary where no hook told
  of it either.
- What everybody is told, of a session that is not subscribed, is not taken: its journal says it
  again, as it does what came between a subscription and an acknowledgement that does not reach it.
- A frame that its cursor is beyond is dropped: 0.28.0 sends those of everybody once for each
  subscription, and later servers to every connection.
- A session that is archived, or gone, is not subscribed again: it stays mute until the server is
  begun again, also where it is restored (observed at every version).
- The reader answers pings at once. Another task asks `healthz` every second and lets go where that
  is refused: an open WebSocket keeps a server from ending (observed at every version).
- A frame at which we fail costs that frame: it would come again at every replay.

It never raises because of what a server says: that is counted as odd. Who is asked for, and what an
acknowledgement means, is `subscriptions.py`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import structlog
import trio
from attrs import define, field

from kimiaepd.lifecycle.state import remember
from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, dump, parse
from kimiaepd.mapping.moment import moment_ns
from kimiaepd.mapping.payloads import LONGEST_SESSION
from kimiaepd.mapping.web_frames import GLOBAL, Frame, read_frame
from kimiaepd.relay.connection import Connection
from kimiaepd.web import wire
from kimiaepd.web.answers import Session
from kimiaepd.web.client import MOST_SESSIONS, PAGE, Client
from kimiaepd.web.cursors import BEGINNING, Cursor
from kimiaepd.web.errors import NoAnswerError, Refusal, RefusedError, WebError
from kimiaepd.web.feed import Feed
from kimiaepd.web.subscriptions import ACK_SECONDS, Asked, Subscriptions

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PROBE_SECONDS = 1.0
"""Between two looks whether the server wants to end: it waits for us, and its user for it."""

ROLL_CALL_SECONDS = 15.0
BLIND_ROLL_CALL_SECONDS = 2.0
"""Between two lists of sessions: of a server that tells of new ones, and of one that does not yet
(0.28.0, as long as nothing is subscribed)."""

AT_ONCE = 200
"""Sessions in one subscription."""

MUTE = 2_000
"""Sessions of one server that are known to be mute, the oldest forgotten first."""

CLIENT = "kimiaepd"

_LEAVING = ("event.session.archived", "event.session.deleted")


@define(eq=False)
class Seen:
    """What was seen of one server, over all its connections.

    Attributes:
        frames: messages of any kind.
        odd: those that could not be understood, or taken.
        failed: those at which we failed.
        gaps: how often frames were missed.
        last_error: for people.
        ever_listed: the sessions that were there when we first looked: their past is not told.
        since_ns: when that was (wall clock): older sessions than a list holds have a past, too.
        mute: the sessions that it will tell nothing of.
        too_large: a frame was larger than is taken, so that what is replayed must be left out.
    """

    frames: int = 0
    odd: int = 0
    failed: int = 0
    gaps: int = 0
    last_error: str | None = None
    ever_listed: set[str] | None = None
    since_ns: int = 0
    mute: dict[str, None] = field(factory=dict)
    too_large: bool = False


@define(eq=False)
class Conversation:
    """One connection, from its first message to its last."""

    connection: Connection
    client: Client
    feed: Feed
    server: str
    seen: Seen
    _subscriptions: Subscriptions = field(factory=Subscriptions, init=False)
    _was_called: bool = field(default=False, init=False)
    _beats: bool = field(default=False, init=False)
    _sending: trio.Lock = field(factory=trio.Lock, init=False)
    _numbers: Iterator[int] = field(factory=lambda: itertools.count(1), init=False)
    _listed: dict[str, Session] = field(factory=dict, init=False)
    _created: set[str] = field(factory=set, init=False)
    _torn: set[str] = field(factory=set, init=False)
    _wanted: set[str] = field(factory=set, init=False)
    _stale: set[str] = field(factory=set, init=False)
    _woken: trio.Event = field(factory=trio.Event, init=False)

    @property
    def sessions(self) -> set[str]:
        """What is subscribed."""
        return self._subscriptions.sessions

    @property
    def is_called(self) -> bool:
        """Whether every session that the server lists was asked for, and it has answered."""
        return self._was_called and not self._subscriptions.asked

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
            wanted, self._wanted = self._wanted, set()
            try:
                if trio.current_time() >= due:
                    await self._call_roll()
                    is_blind = not (self._beats or self.sessions)
                    every = BLIND_ROLL_CALL_SECONDS if is_blind else ROLL_CALL_SECONDS
                    due = trio.current_time() + every
                elif wanted - self._created - (self.seen.ever_listed or set()):
                    await self._list(PAGE)  # what was just used stands first
                await self._subscribe(wanted)
                self._created -= wanted
                await self._settle_stale()
            except WebError as error:
                self.seen.last_error = str(error)
                self._wanted |= wanted
                due = trio.current_time() + BLIND_ROLL_CALL_SECONDS
                self._woken = trio.Event()
            with trio.move_on_at(due):
                await self._woken.wait()
            self._woken = trio.Event()

    async def _call_roll(self) -> None:
        if late := self._subscriptions.give_up(trio.current_time()):
            said = f"no word of {len(late)} subscriptions within {ACK_SECONDS:g} s"
            log.warning("kimi web does not answer", server=self.server, why=said)
            self.seen.last_error = said
        if self.seen.ever_listed is None:
            self.seen.since_ns = self.feed.book.emitter.clock_ns()
        await self._list(MOST_SESSIONS)
        if self.seen.ever_listed is None:
            self.seen.ever_listed = set(self._listed)
        # A session that the last connection was told of may be archived meanwhile, or too old.
        await self._subscribe([*self._listed, *self.feed.hosted_by(self.server)])
        self._was_called = True
        for name in sorted(self.sessions - self._listed.keys()):
            await self._look_for(name)

    async def _list(self, most: int) -> None:
        self._listed = {session.id: session for session in await self.client.sessions(most)}

    async def _look_for(self, name: str) -> None:
        """Leave a session that is listed no more: 0.28.0 says nothing else of an archived one."""
        if await self._found(name) is None:
            self._leave(name)

    async def _found(self, name: str) -> Session | None:
        """A session; None where it is archived, or is none."""
        try:
            session = await self.client.session(name)
        except RefusedError as error:
            if error.refusal is not Refusal.NO_SESSION:
                raise
            return None
        return None if session.archived else session

    def _leave(self, name: str) -> None:
        self.sessions.discard(name)
        remember(self.seen.mute, name, None, MUTE)
        self.feed.left(name, self.server)

    async def _subscribe(self, wanted: Iterable[str]) -> None:
        worth = (one for one in wanted if one not in self.seen.mute or one in self._torn)
        missing = self._subscriptions.missing(worth)
        for first in range(0, len(missing), AT_ONCE):
            part = {name: self._begin(name) for name in missing[first : first + AT_ONCE]}
            request = f"s{next(self._numbers)}"
            self._subscriptions.ask(request, part, trio.current_time())
            await self._send(wire.subscribe(request, part))

    def _begin(self, name: str) -> Cursor | None:
        """After what a session's stream is wanted; None: from now on."""
        if self.seen.too_large:
            return None
        if known := self.feed.cursors.get(name):
            return known
        is_untold = self.feed.is_primary and not self.feed.book.is_known(name)
        return BEGINNING if is_untold or self._is_new(name) else None

    def _is_new(self, name: str) -> bool:
        """Whether a session began while we looked."""
        if self.seen.ever_listed is None or name in self.seen.ever_listed:
            return False
        if name in self._created:
            return True
        listed = self._listed.get(name)
        began = moment_ns(listed.created_at) if listed else None
        return began is None or began >= self.seen.since_ns

    def _acknowledged(self, ack: wire.Ack) -> None:
        for name, asked in self._subscriptions.acknowledged(ack).items():
            self._accepted(name, asked, ack)
        for name in ack.missing:
            self.feed.left(name, self.server)
        if not self._subscriptions.asked and self._was_called:
            self.seen.too_large = False

    def _accepted(self, name: str, asked: Asked, ack: wire.Ack) -> None:
        listed = self._listed.get(name)
        is_busy = listed is not None and listed.main_turn_active
        if name not in self.seen.mute:
            self.feed.host(name, self.server, is_busy=is_busy)
        is_cut = name in ack.resync or asked.cut is not None
        there = ack.at.get(name) or (asked.cut.at if asked.cut else None)
        if there is None:
            return
        before = self.feed.cursors.get(name) or asked.after
        if is_cut and before:
            self._missed(name, there.seq - before.seq, asked.cut.reason if asked.cut else "unknown")
        at = there if is_cut or before is None else before
        is_torn = at.seq < max(there.seq, asked.passed)
        if is_torn and name not in self._torn and not self.seen.too_large:
            self._again(name, at)
            return
        self._torn.discard(name)
        if at.seq < there.seq:
            why = "too-large" if self.seen.too_large else "not-replayed"
            self._missed(name, there.seq - at.seq, why)
        if at.seq <= there.seq:  # more may have come than it knew of
            self.feed.cursors.put(name, there)

    def _again(self, name: str, at: Cursor) -> None:
        """Ask for a session once more: something came that the acknowledgement leaves out."""
        self._torn.add(name)
        self.sessions.discard(name)
        self.feed.cursors.put(name, at)
        self._wanted.add(name)
        self._woken.set()

    def _missed(self, name: str, count: int, reason: str) -> None:
        self.seen.gaps += 1
        self.feed.gap(name, count, reason)
        if self.feed.is_primary:
            self._stale.add(name)
            self._woken.set()

    async def _settle_stale(self) -> None:
        """After a gap: where no turn runs any more, the run whose end was missed is over."""
        for name in sorted(self._stale):
            # One that begins while we ask is not the one that is asked about.
            run = self.feed.run(name)
            session = await self._found(name) if run else None
            if run and not (session and session.main_turn_active):
                self.feed.idle(name, run)
            self._stale.discard(name)

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
                self._subscriptions.cut(resync)
        else:
            await self._frame(raw.get("session_id"), read_frame(raw))

    async def _frame(self, journal: JSON, frame: Frame) -> None:
        if not isinstance(journal, str) or frame.seq is None or len(journal) > LONGEST_SESSION:
            self.seen.odd += 1
        elif journal in self._subscriptions.asked:
            now = trio.current_time()
            if self._subscriptions.follows(journal, frame.seq, frame.epoch, now):
                if journal not in self.seen.mute:
                    self.feed.host(journal, self.server)
                await self._take(frame, journal)
        elif self._is_told(journal):
            if self._is_unread(journal, frame, frame.seq):
                await self._take(frame, journal)
        elif len(self._wanted) < AT_ONCE:
            self._wanted.add(journal)
            if frame.type == "event.session.created":
                self._created.add(journal)
            self._woken.set()

    def _is_told(self, journal: str) -> bool:
        """Whether its frames are taken as they come."""
        is_mute = journal in self.seen.mute and journal not in self._torn
        return journal == GLOBAL or journal in self.sessions or is_mute

    def _is_unread(self, journal: str, frame: Frame, seq: int) -> bool:
        known = self.feed.cursors.get(journal)
        if known is None or frame.epoch not in (None, known.epoch):
            return True
        if seq > known.seq + 1 and journal in self.sessions:
            self._missed(journal, seq - known.seq - 1, "skipped")
        return seq > known.seq

    async def _take(self, frame: Frame, journal: str) -> None:
        try:
            await self.feed.take(frame, journal, self.server)
        except Exception:
            self.seen.odd += 1
            self.seen.failed += 1
            if self.seen.failed == 1:
                log.exception("a frame of kimi web was not taken", type=frame.type)
            self.feed.pass_over(frame, journal)
        if journal == GLOBAL and frame.type in _LEAVING:
            self._leave(frame.session)
