"""The consumer that all views share: one supervised conversation with a relay, events in order.

    async with consuming(find(settings, environ), Wish(since="all"), "kimiaepd-tail") as consumer:
        while True:
            match await consumer.next():
                case Change() as change: ...
                case event: ...

Rules:
- A connection that is lost is followed by another, after a wait (`backoff.py`). It goes on where it
  was: what was had comes no more, and what cannot be had any more is said (`Change`, "missing").
- The first connection must succeed, and a token that is refused ends it for good: `UserError`.
- `next` belongs to one task and `send` to any other: an answer waits behind events that nobody
  takes.
- A command is sent again, as it was, until it is answered or its time is over: it is done once.

Worst case in memory: `WAITING` items and what `relay_seen.py` says. One message is `LONGEST` bytes
at most.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import trio
from attrs import define, field, frozen

from kimiaepd.backoff import Backoff
from kimiaepd.collector.attr_match import Filter, FilterError, compile_filter
from kimiaepd.errors import UsageError, UserError
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.relay.connection import Connection, LinkError, RefusedError, connected
from kimiaepd.views import relay_frames as frames
from kimiaepd.views.relay import Relay, Spot
from kimiaepd.views.relay_command import ACKS, Outcome
from kimiaepd.views.relay_frames import Refusal
from kimiaepd.views.relay_pending import Answer, Pending
from kimiaepd.views.relay_seen import Seen
from kimiaepd.views.relay_talk import Ears, Talk

LONGEST = 17 << 20
"""Bytes of one message: our own relay takes events of 16 MiB."""

WAITING = 256
"""Items that wait to be taken."""

OWN_CAP_SECONDS = 2.0
"""Between tries at the daemon's own relay: it is on this machine, and its user is looking."""

ACK_SECONDS = 10.0
"""Within which a command gets its answer (AEP-0004 section 3)."""

STAND_SECONDS = 10.0
"""For the relay to say that what was asked for stands."""

ATTEMPTS = 2
"""How often it is sent, each time for so long."""

MOST_POSITIONS = 500
"""In one subscription, as our own relay takes them."""

_BEGINNING = (0, 0)
"""Where a session is asked for that nothing was had of."""

_WISH, _ACKS, _ROSTER = "wish", "acks", "roster-"


@frozen
class Wish:
    """What a view wants to see.

    Attributes:
        filter: which events, as attr-match has it.
        since: "all" that is held; only what comes "now"; or what is held since a moment.
        ceiling: how much of an event at most; None: as it came.
    """

    filter: JSONObject = field(factory=dict)
    since: Literal["all", "now"] | datetime = "now"
    ceiling: Capture | None = None


@frozen
class Change:
    """Something about the connection, between the events before it and those after.

    Attributes:
        kind: "connected"; "lost"; "back" after that; "missing": something of a session is held no
            more.
        why: for people: what ended it, or the session.
    """

    kind: Literal["connected", "lost", "back", "missing"]
    why: str = ""


Item: TypeAlias = JSONObject | Change
Connect: TypeAlias = Callable[[Spot, Callable[[Connection], Awaitable[None]]], Awaitable[None]]


async def _connect(spot: Spot, use: Callable[[Connection], Awaitable[None]]) -> None:
    await connected(spot.address, spot.token, use, longest=LONGEST)


@define(eq=False)
class Consumer:
    """A view's conversation with a relay, over however many connections.

    Attributes:
        relay: which.
        wish: what is to be seen; None: nothing, only commands are sent.
        name: who we say that we are.
        connect: how a connection is made.
        backoff: how long we wait after one that ended.
    """

    relay: Relay
    wish: Wish | None
    name: str
    connect: Connect = _connect
    backoff: Backoff = field(factory=Backoff)
    _filter: Filter = field(init=False)
    _seen: Seen = field(init=False)
    _talk: Talk | None = field(default=None, init=False)
    _is_again: bool = field(default=False, init=False)
    _refusal: UserError | None = field(default=None, init=False)
    _pending: Pending = field(factory=Pending, init=False)
    _rosters: int = field(default=0, init=False)
    _address: str = field(default="", init=False)
    _is_up: bool = field(default=False, init=False)
    _subscribed: trio.Event = field(factory=trio.Event, init=False)
    _stands: bool = field(default=False, init=False)
    _started: Callable[[], None] = field(default=lambda: None, init=False)
    _put: trio.MemorySendChannel[Item] = field(init=False)
    _items: trio.MemoryReceiveChannel[Item] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._put, self._items = trio.open_memory_channel[Item](WAITING)
        wish = self.wish or Wish()
        try:
            self._filter = compile_filter(wish.filter)
        except FilterError as error:
            raise UsageError(f"this filter is none: {error}") from None
        since = wish.since
        if since == "now" and self.relay.is_own:
            # A daemon that starts anew fills its relay with what was long ago.
            since = datetime.now(UTC)
        self._seen = Seen(since if isinstance(since, datetime) else None)

    # --- for views -------------------------------------------------------------------------------

    async def next(self) -> Item:
        """The next event, or change of the connection.

        Raises:
            UserError: the relay does not take our token, or not what we ask for.
        """
        try:
            return await self._items.receive()
        except trio.EndOfChannel:
            raise self._refusal or UserError("the conversation with the relay is over") from None

    async def send(
        self, command: JSONObject, *, seconds: float = ACK_SECONDS, attempts: int = ATTEMPTS
    ) -> Outcome:
        """Send a command (`relay_command.build`), and wait for what becomes of it.

        Args:
            command: the event.
            seconds: how long each attempt waits.
            attempts: how often the same is sent.

        Raises:
            UserError: the relay does not take our token.
        """
        found = await self._ask(str(command["id"]), frames.event(command), seconds, attempts)
        if isinstance(found, Outcome):
            return found
        waited = f"no answer within {seconds * attempts:g} s"
        return Outcome("nobody", "timeout", waited)

    async def roster(self, *, seconds: float = ACK_SECONDS) -> tuple[JSONObject, ...] | None:
        """Who claims which session and accepts what, as declared; None: the relay does not say.

        Raises:
            UserError: the relay does not take our token.
        """
        self._rosters += 1
        name = f"{_ROSTER}{self._rosters}"
        found = await self._ask(name, frames.roster(name), seconds, 1)
        return found if isinstance(found, tuple) else None

    async def _ask(self, key: str, text: str, seconds: float, attempts: int) -> Answer | None:
        self._check()
        with self._pending.waiting(key, text) as waiter:
            for _ in range(attempts):
                with trio.move_on_after(seconds):
                    if self._talk is not None:
                        await self._talk.say(text)
                    await waiter.settled.wait()
                    break
        if waiter.answer is None:
            self._check()
        return waiter.answer

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    # --- the task --------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Converse until refused or cancelled; started once what was asked for stands.

        Raises:
            UserError: the first connection did not succeed.
        """
        self._started = task_status.started
        with self._put:
            try:
                await self._converse()
            except UserError as error:
                self._refusal = error
                self._pending.give_up()
                if not self._stands:
                    raise

    async def _converse(self) -> None:
        while True:
            retry_after = None
            try:
                await self._connect_once()
            except RefusedError as error:
                raise UserError(f"{error}; {_which_token(self.relay)}") from None
            except LinkError as error:
                if self._refusal is not None:
                    raise self._refusal from None
                if not self._stands:
                    raise UserError(f"{self._address}: {error}") from None
                retry_after = error.retry_after
            except UserError:
                if not self._stands:
                    raise  # later on it may come back
            await trio.sleep(self._wait(retry_after))

    def _wait(self, retry_after: float | None) -> float:
        wait = self.backoff.next(retry_after=retry_after)
        return min(wait, OWN_CAP_SECONDS) if self.relay.is_own else wait

    async def _connect_once(self) -> None:
        spot = self.relay.spot()
        self._address = spot.address.url
        began = trio.current_time()
        try:
            await self.connect(spot, self._use)
        except LinkError as error:
            if self._is_up:
                self.backoff.lasted(trio.current_time() - began)
                self._is_up, self._talk = False, None
                self._seen.reconnecting()
                await self._put.send(Change("lost", str(error)))
            if isinstance(error, RefusedError) and self.relay.spot().token != spot.token:
                raise LinkError("the token was renewed while we showed the old one") from None
            raise

    async def _use(self, connection: Connection) -> None:
        ears = Ears(
            event=self._on_event,
            missing=self._on_missing,
            subscribed=self._on_subscribed,
            roster=self._pending.on_roster,
            refusal=self._on_refusal,
        )
        talk = Talk(connection, self.name, ears)
        await talk.greet()
        since = await self._since(talk)
        await self._put.send(Change("back" if self._is_again else "connected"))
        self._is_up = self._is_again = True
        self._subscribed = trio.Event()
        async with trio.open_nursery() as use_nursery:
            use_nursery.start_soon(talk.run)
            await self._ask_for(talk, since)
            with trio.move_on_after(STAND_SECONDS):
                await self._subscribed.wait()
            if not self._subscribed.is_set():
                raise LinkError(f"the relay gave no answer within {STAND_SECONDS:g} s")

    async def _since(self, talk: Talk) -> JSON:
        """From where on: everything, what is new, or where we were and what began meanwhile."""
        if self.wish is None or (self.wish.since == "now" and not self._is_again):
            return None
        if self.wish.since != "now":
            return "all"
        had = self._seen.positions(MOST_POSITIONS)
        there = [entry.get("session") for entry in await talk.who_is_there()]
        began = [
            (name, _BEGINNING)
            for name in there
            if isinstance(name, str) and not self._seen.knows(name)
        ]
        return frames.positions((began + had)[:MOST_POSITIONS])

    async def _ask_for(self, talk: Talk, since: JSON) -> None:
        if self.relay.may_control:
            await talk.say(frames.subscribe(_ACKS, {"type": list(ACKS)}))
        if self.wish is not None:
            ceiling = frames.ceiling_word(self.wish.ceiling)
            await talk.say(frames.subscribe(_WISH, self.wish.filter, since, ceiling))
        self._talk = talk
        for text in self._pending.texts():
            await talk.say(text)
        if self.wish is None:  # then there is nothing that would be answered
            self._stand()

    # --- what comes ------------------------------------------------------------------------------

    async def _on_event(self, event: JSONObject) -> None:
        is_ack = event.get("type") in ACKS
        if is_ack:
            self._pending.on_ack(event)
        if self.wish is None or (is_ack and not self._filter.matches(event)):
            return
        if self._seen.takes(event):
            await self._put.send(event)

    async def _on_missing(self, session: str) -> None:
        # What nothing was had of has no gap: it begins where it begins.
        if self._is_again and self._seen.knows(session):
            await self._put.send(Change("missing", session))

    def _on_subscribed(self, name: str) -> None:
        if name == _WISH:
            self._stand()

    def _stand(self) -> None:
        self._subscribed.set()
        if not self._stands:
            self._stands = True
            self._started()

    def _on_refusal(self, refusal: Refusal) -> None:
        self._pending.on_refusal(refusal)
        if refusal.name in (_WISH, _ACKS):
            said = f"{refusal.code} {refusal.detail}".rstrip()
            self._refusal = UserError(f"the relay refuses what was asked for: {said}")
            raise LinkError(said)


@asynccontextmanager
async def consuming(relay: Relay, wish: Wish | None, name: str) -> AsyncIterator[Consumer]:
    """A consumer that converses until the end of the block.

    Raises:
        UserError: the relay cannot be reached, or does not take our token.
    """
    consumer = Consumer(relay, wish, name)
    try:
        async with trio.open_nursery() as consumer_nursery:
            await consumer_nursery.start(consumer.run)
            yield consumer
            consumer_nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _only(group) from None


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one failure out of the nurseries' wrapping; the group itself where there are more."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return group if isinstance(found, BaseExceptionGroup) else found


def _which_token(relay: Relay) -> str:
    if relay.is_own:
        return "to have a new one made: kimiaepd token rotate"
    return "mend AEP_TOKEN or relay.token_file"
