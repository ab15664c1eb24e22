"""One connection's talk: hello, claims, events with their barriers, both keepalives, goodbye.

Rules (AEP-0003 sections 3.5 and 4, operations I46 and I47):
- One task reads, one writes, one watches the clock. The reader waits for nobody: what it has to
  answer it leaves to the writer, which answers before it sends more events.
- A barrier follows every piece that was sent, and whatever was sent while no answer was due. The
  order of the writer's frames is the order in which the relay handles them, so the answer proves
  what was sent before. Pieces begin small and grow with each answer: a connection that always
  breaks early still gets further each time.
- A relay that was silent for `SILENT_SECONDS`, or that owes an answer for so long, is dead.
- Sessions that go on are claimed again before anything new: by their last proven event, sent again
  as it was, so that a command finds its way here.

What is sent next is `outbox.py`'s decision; who connects, and when again, `sender.py`'s.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from pathlib import Path

import structlog
import trio
from attrs import define, field, frozen

from kimiaepd.mapping.event import VERSION
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.relay import frames
from kimiaepd.relay.backlog import MAX_FRAME, Backlog, Item, line_at
from kimiaepd.relay.connection import Connection, LinkError
from kimiaepd.relay.frames import Closing, Frame, Incoming, PeerHello, Ping, Pong, Refusal
from kimiaepd.relay.outbox import PIECE, Outbox, Turn
from kimiaepd.storage.journal import Position
from kimiaepd.storage.worker_thread import in_thread

log: structlog.stdlib.BoundLogger = structlog.get_logger()

HELLO_SECONDS = 5.0
PING_SECONDS = 30.0
SILENT_SECONDS = 90.0
GOODBYE_SECONDS = 1.0
SETTLE_SECONDS = 1.0
"""After a stop, for what is there; then goodbye is said, while there is time for it."""

ALWAYS_FIT = 64 << 10
"""Bytes of an event that is never held to be too large for a relay."""

_PLACES = 4_096
"""Sessions of which the place in their log is remembered; another one's is looked for again."""

_FIRST_PIECE = 8
_WORDS = 100
_OWED = 64
"""Answers that wait to be sent; a relay that asks more often than it reads gets no more."""


@frozen
class Orders:
    """What a link needs from the daemon.

    Attributes:
        log_dir: where the log is.
        hello: our first frame.
        up: told that the relay said hello too.
        first: events that belong to no session, sent right after it (`agent.presence`).
        last: the same, before an orderly end.
        claims: the sessions that go on, each with its last proven position.
        proven: told what the relay now has, by session.
        refused: told of an event that the relay did not take, and why.
        command: told of an Event that came from the relay; it must not wait and not raise.
    """

    log_dir: Path
    hello: str
    up: Callable[[], None]
    first: Iterable[bytes]
    last: Callable[[], Iterable[bytes]]
    claims: Callable[[], list[tuple[str, Position]]]
    proven: Callable[[dict[str, Position]], None]
    refused: Callable[[Item, Refusal], None]
    command: Callable[[JSONObject], None]


@define(eq=False)
class Link:
    """The talk on one connection, from its first frame to its last.

    Attributes:
        outbox: what is to be delivered.
        orders: what the daemon wants of it.
        stopping: set when the daemon stops: what is there is still delivered.
        largest: bytes of an event that is sent at all.
        is_up: whether hellos were exchanged.
        complaint: the relay's last error that was about no event of ours.
    """

    outbox: Outbox
    orders: Orders
    stopping: trio.Event
    largest: int = MAX_FRAME
    is_up: bool = False
    complaint: str | None = None
    _owed: deque[str] = field(factory=deque, init=False)
    _barriers: deque[tuple[int, float]] = field(factory=deque, init=False)
    _piece: int = field(default=_FIRST_PIECE, init=False)
    _unasked: int = field(default=0, init=False)
    """Events that no barrier was sent after."""
    _heard_at: float = field(factory=trio.current_time, init=False)
    _ping_due: bool = field(default=False, init=False)
    _is_late: bool = field(default=False, init=False)
    _woken: trio.Event = field(factory=trio.Event, init=False)
    _backlogs: OrderedDict[str, Backlog] = field(factory=OrderedDict, init=False)

    async def talk(self, connection: Connection) -> None:
        """Talk until the daemon stops and everything was delivered, or there is no time for more.

        Raises:
            LinkError: the connection was lost, or the relay does not speak as it must.
        """
        await self._exchange_hellos(connection)
        self.is_up = True
        self.orders.up()
        try:
            async with trio.open_nursery() as talk_nursery:
                talk_nursery.start_soon(self._read, connection)
                talk_nursery.start_soon(self._watch)
                talk_nursery.start_soon(self._come_to_an_end)
                await self._write(connection)
                talk_nursery.cancel_scope.cancel()
        finally:
            self.is_up = False

    def wake(self) -> None:
        """Something may be there to be sent, or room for it."""
        self._woken.set()

    def send(self, line: bytes) -> None:
        """Send a line that is in no log, or again one that is: an answer to a command."""
        self._owe(line.decode("utf-8"))

    # --- hello -----------------------------------------------------------------------------------

    async def _exchange_hellos(self, connection: Connection) -> None:
        with trio.move_on_after(HELLO_SECONDS):
            await connection.send(self.orders.hello)
            while True:
                match frames.read_frame(await connection.receive()):
                    case PeerHello(versions) if VERSION in versions:
                        self._heard_at = trio.current_time()
                        return
                    case PeerHello(versions):
                        raise LinkError(f"the relay speaks AEP {_listed(versions)} only")
                    case Refusal(code, _, detail):
                        raise LinkError(f"the relay refuses us: {code} {detail}".rstrip())
        raise LinkError(f"the relay said no hello within {HELLO_SECONDS:g} s")

    # --- reading ---------------------------------------------------------------------------------

    async def _read(self, connection: Connection) -> None:
        while True:
            message = await connection.receive()
            self._heard_at = trio.current_time()
            frame = frames.read_frame(message)
            if frame is not None:
                self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        match frame:
            case Pong(int(t)) if t is not True:  # which is 1, to Python alone
                self._prove(t)
            case Ping(t):
                self._owe(frames.pong(t))
            case Closing(reason):
                raise LinkError(f"the relay closes: {reason or 'it does not say why'}")
            case Refusal(_, str(cause)) if item := self.outbox.refused(cause):
                self.orders.refused(item, frame)
            case Refusal(code, _, detail):
                if self.complaint is None:  # the first of a connection; a flood is not written
                    log.warning("the relay complains", code=code, detail=detail)
                self.complaint = f"{code} {detail}".rstrip()
            case Incoming(event):
                self.orders.command(event)
            case _:
                pass

    def _prove(self, t: int) -> None:
        if all(number != t for number, _ in self._barriers):
            return  # an answer to nothing, or one that was heard
        while self._barriers and self._barriers[0][0] <= t:
            self._barriers.popleft()
        self._piece = min(self._piece * 2, PIECE.events)
        self.orders.proven(self.outbox.prove(t))
        self.wake()

    def _owe(self, text: str) -> None:
        if len(self._owed) < _OWED:
            self._owed.append(text)
            self.wake()

    # --- writing ---------------------------------------------------------------------------------

    async def _write(self, connection: Connection) -> None:
        for line in self.orders.first:
            await connection.send(line.decode("utf-8"))
        await self._claim(connection)
        while True:
            woken = self._woken
            if not self._is_late and await self._send_what_is_there(connection):
                continue
            if self._is_late or (self.stopping.is_set() and self.outbox.is_settled):
                await self._say_goodbye(connection)
                return
            await woken.wait()
            self._woken = trio.Event()

    async def _send_what_is_there(self, connection: Connection) -> bool:
        """One piece from memory and one from disk, and a barrier; false where nothing waits."""
        sent = await self._send_owed(connection)
        events = 0
        while events < self._piece and (item := self.outbox.take()):
            await self._send_event(connection, item)
            events += 1
        if turn := self.outbox.next_behind():
            events += await self._send_from_disk(connection, turn)
            sent = True
        self._unasked += events
        is_next = self._unasked and not self._barriers
        if is_next or self._unasked >= self._piece or self._ping_due:
            await self._send_barrier(connection)
        return sent or bool(events)

    async def _send_event(self, connection: Connection, item: Item) -> None:
        if len(item.line) > self.largest:
            self.orders.refused(item, Refusal("too-large", item.id, f"{len(item.line)} bytes"))
        else:
            # A person with an editor may have left what is no UTF-8.
            await connection.send(item.line.decode("utf-8", "replace"))
        await self._send_owed(connection)

    async def _send_owed(self, connection: Connection) -> bool:
        sent = bool(self._owed)
        while self._owed:
            await connection.send(self._owed.popleft())
        return sent

    async def _send_barrier(self, connection: Connection) -> None:
        self._ping_due = False
        self._unasked = 0
        t = self.outbox.barrier()
        self._barriers.append((t, trio.current_time()))
        await connection.send(frames.ping(t))

    async def _send_from_disk(self, connection: Connection, turn: Turn) -> int:
        try:
            items = await self._read_back(turn)
        except OSError as error:
            # It says nothing of what is there: nothing later may be sent past it.
            log.warning("log not read back", session=turn.session, why=error.strerror)
            self.outbox.put_off(turn.session)
            return 0
        fit = self.outbox.read_back(turn, items)
        for item in fit:
            await self._send_event(connection, item)
        return len(fit)

    async def _read_back(self, turn: Turn) -> list[Item]:
        # The thread has the backlog to itself: cancelled, it is left to itself, and may go on.
        held = self._backlogs.pop(turn.session, None)
        read = partial(_read_piece, self.orders.log_dir, turn, held, self._piece)
        backlog, items = await in_thread(read)
        if len(self._backlogs) >= _PLACES:
            self._backlogs.popitem(last=False)
        self._backlogs[turn.session] = backlog
        return items

    async def _claim(self, connection: Connection) -> None:
        for session, at in self.orders.claims():
            try:
                line = await in_thread(partial(line_at, self.orders.log_dir, session, at))
            except OSError:
                line = None
            # A larger one may have been set aside: a claim by it would end each connection.
            if line is not None and len(line) <= min(self.largest, ALWAYS_FIT):
                # The relay is known to have it, so it is not under way.
                await connection.send(line.decode("utf-8", "replace"))
            await self._send_owed(connection)

    async def _say_goodbye(self, connection: Connection) -> None:
        with trio.move_on_after(GOODBYE_SECONDS):
            for line in self.orders.last():
                await connection.send(line.decode("utf-8"))
            await connection.send(frames.closing("shutdown"))

    async def _come_to_an_end(self) -> None:
        await self.stopping.wait()
        await trio.sleep(SETTLE_SECONDS)
        self._is_late = True
        self.wake()

    # --- the clock -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Ask now and then whether the relay lives, and give it up where it does not answer."""
        ping_at = trio.current_time() + PING_SECONDS
        while True:
            silent_at = self._heard_at + SILENT_SECONDS
            owes_at = self._barriers[0][1] + SILENT_SECONDS if self._barriers else inf
            now = trio.current_time()
            if now >= silent_at:
                raise LinkError(f"the relay was silent for {SILENT_SECONDS:g} s")
            if now >= owes_at:
                raise LinkError(f"the relay owes an answer for {SILENT_SECONDS:g} s")
            if now >= ping_at:
                ping_at = now + PING_SECONDS
                self._ping_due = True
                self.outbox.resume()
                self.wake()
            await trio.sleep_until(min(ping_at, silent_at, owes_at))


def _listed(versions: Iterable[str]) -> str:
    return ", ".join(versions)[:_WORDS] or "?"


def _read_piece(
    log_dir: Path, turn: Turn, backlog: Backlog | None, most: int
) -> tuple[Backlog, list[Item]]:
    """The next events of a session, and where they came from; it blocks.

    A backlog that is not where the session is, or has no more, is looked for anew: the session had
    caught up, and went on from memory; or somebody put another file in place of the one it held.
    """
    if backlog and backlog.after == turn.after and (items := backlog.read(most, PIECE.bytes)):
        return backlog, items
    backlog = Backlog.open(log_dir, turn.session, turn.after)
    return backlog, backlog.read(most, PIECE.bytes)
