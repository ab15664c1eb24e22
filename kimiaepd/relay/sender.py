"""The life of delivery: what is there at the start, one connection after the other, and the end.

Rules:
- `logged` is all that a hook's way touches: it remembers a line or a session, and returns.
- A connection that ends, however it ends, is followed by another after a wait (`backoff.py`); a
  refused token is tried again at a slow rate, and said in `status` (I43, I45).
- At the start the log is looked through for what the relay does not have, in a thread; until all of
  it was, a session that is not known may have more on disk than it comes with.
- A stop delivers what is there, within the daemon's deadline, and says goodbye.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import structlog
import trio
from attrs import define, field

from kimiaepd.backoff import Backoff
from kimiaepd.errors import UserError
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.relay.address import Address
from kimiaepd.relay.backlog import MAX_FRAME, Backlog, Extent, Item
from kimiaepd.relay.connection import LinkError, RefusedError, TooLargeError, connected
from kimiaepd.relay.link import ALWAYS_FIT, Link, Orders
from kimiaepd.relay.outbox import Outbox
from kimiaepd.relay.positions import Proven, Start
from kimiaepd.relay.rejects import Rejects
from kimiaepd.storage.journal import Position
from kimiaepd.storage.log_names import stem_of
from kimiaepd.storage.log_reader import JournalError, last_event, position_of
from kimiaepd.storage.worker_thread import in_thread

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LOOK_AGAIN_SECONDS = 60.0
"""After a look through the log in which not all could be read."""

State: TypeAlias = Literal["starting", "up", "down", "refused"]
"""What there is between us and the relay; "refused": it does not take our token."""


@define(eq=False, kw_only=True)
class RelaySender:
    """Delivers the log to one relay.

    Attributes:
        address: where it is.
        token: reads the token, each time anew.
        log_dir: where the log is.
        positions: what the relay is known to have.
        rejects: where the events go that it does not take.
        hello: makes our first frame, for an authenticated connection or another.
        first: events without a session that a connection begins with; `last` those it ends with.
        claims: the sessions that go on.
        command: told of every Event that comes from the relay.
        connected: told when a relay has said hello.
        is_own: whether it is our own relay, which is no news where it is there at once.
        outbox: what is to be delivered.
        backoff: how long to wait after a connection that ended.
    """

    address: Address
    token: Callable[[], str | None]
    log_dir: Path
    positions: Proven
    rejects: Rejects
    hello: Callable[[str | None], str]
    first: Callable[[], list[bytes]] = list
    last: Callable[[], list[bytes]] = list
    claims: Callable[[], list[str]] = list
    command: Callable[[JSONObject], None] = lambda _: None
    connected: Callable[[], object] = lambda: None
    is_own: bool = False
    outbox: Outbox = field(factory=lambda: Outbox(is_complete=False))
    backoff: Backoff = field(factory=Backoff)
    stopping: trio.Event = field(factory=trio.Event, init=False)
    lost: int = field(default=0, init=False)
    """Events whose log was removed before they were proven."""
    _link: Link | None = field(default=None, init=False)
    _has_token: bool = field(default=False, init=False)
    _state: State = field(default="starting", init=False)
    _since: float = field(factory=trio.current_time, init=False)
    _error: str | None = field(default=None, init=False)
    _hurried: trio.Event = field(factory=trio.Event, init=False)
    _largest: int = field(default=MAX_FRAME, init=False)
    """Bytes of an event that this relay takes, as far as we know."""

    # --- what the daemon tells -------------------------------------------------------------------

    def logged(self, session: str, at: Position, line: bytes) -> None:
        """An event was logged; `line` has its newline."""
        proven = None if self.outbox.knows(session) else self.positions.get(session)
        self.outbox.offer(Item(session, at, line.rstrip(b"\n")), proven)
        self._wake()

    def removed(self, session: str) -> None:
        """A session's log is gone; what of it was not proven never will be."""
        missing = self.outbox.forget(session)
        if missing:
            self.lost += missing
            log.warning("events removed before the relay had them", session=session, count=missing)

    def send(self, line: bytes) -> bool:
        """Send a line past the log, on the connection that is there; whether one is."""
        if self._link is None or not self._link.is_up:
            return False
        self._link.send(line)
        return True

    def stop(self) -> None:
        """Deliver what is there and come to an end; the caller has the deadline."""
        self.stopping.set()
        self.hurry()
        self._wake()

    def hurry(self) -> None:
        """Try to connect at once, whatever the wait still is."""
        self._hurried.set()

    @property
    def is_up(self) -> bool:
        """Whether there is a connection with a relay that said hello."""
        return self._link is not None and self._link.is_up

    @property
    def has_token(self) -> bool:
        """Whether there was a token for the relay at the latest try."""
        return self._has_token

    @property
    def is_authenticated(self) -> bool:
        """Whether the relay knows who we are, so that it may command (AEP-0004 section 4)."""
        return self.is_up and self._has_token

    def status(self) -> JSONObject:
        """What `kimiaepd status` says of delivery."""
        lag = self.outbox.lag
        complaint = self._link.complaint if self._link else None
        return {
            "url": self.address.url,
            "link": self._state,
            "for_s": round(trio.current_time() - self._since),
            "delivered": self.outbox.delivered,
            "lag_events": lag.events,
            "lag_bytes": lag.bytes,
            "rejected": self.rejects.count,
            "lost": self.lost + self.outbox.missing,
            "last_error": self._error or complaint or self.rejects.last,
        }

    # --- the task --------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until told to stop and everything was, or until cancelled."""
        task_status.started()
        async with trio.open_nursery() as sender_nursery:
            sender_nursery.start_soon(self._look_through_the_log)
            await self._connect_again_and_again()
            sender_nursery.cancel_scope.cancel()

    async def _connect_again_and_again(self) -> None:
        while True:
            try:
                await self._connect_once()
            except RefusedError as error:
                self._down("refused", str(error))
                wait = self.backoff.next(is_refused=True)
            except LinkError as error:
                self._down("down", str(error))
                wait = self.backoff.next(retry_after=error.retry_after)
            except UserError as error:
                self._down("down", str(error))
                wait = self.backoff.next()
            except Exception:
                self._down("down", "a defect of ours, which the daemon's own log has")
                raise
            else:
                return  # told to stop, and everything was delivered
            if self.stopping.is_set():
                return  # what the relay does not have is in the log, for the next start
            with trio.move_on_after(wait):
                await self._hurried.wait()
            self._hurried = trio.Event()

    async def _connect_once(self) -> None:
        token = self.token()
        self._has_token = token is not None
        self._link = Link(self.outbox, self._orders(token), self.stopping, self._largest)
        try:
            await connected(self.address, token, self._link.talk)
        except TooLargeError:
            self._lower_the_limit()
            raise
        except RefusedError:
            if self.token() != token:
                raise LinkError("the token was renewed while we showed the old one") from None
            raise
        finally:
            self._link = None
            unproven = self.outbox.unproven()
            self.outbox.lost({session: self.positions.get(session) for session in unproven})

    def _lower_the_limit(self) -> None:
        """One event that the relay does not take must not be sent for ever, and stop all others.

        Which one it was the relay does not say. If it was an event, the largest is one of those.
        """
        largest = self.outbox.largest_under_way(self._largest)  # a larger one was not sent
        if largest > ALWAYS_FIT:
            self._largest = largest - 1
            log.warning("events are too large for the relay", bytes=largest)

    def _orders(self, token: str | None) -> Orders:
        return Orders(
            log_dir=self.log_dir,
            hello=self.hello(token),
            up=self._up,
            first=self.first(),
            last=self.last,
            claims=self._claims,
            proven=self._proven,
            refused=lambda item, refusal: self.rejects.put(item, refusal, time.time_ns()),
            command=self.command,
        )

    def _claims(self) -> list[tuple[str, Position]]:
        known = ((session, self.positions.get(session)) for session in self.claims())
        return [(session, at) for session, at in known if at is not None]

    def _proven(self, moved: dict[str, Position]) -> None:
        for session, at in moved.items():
            self.positions.put(session, at)

    def _up(self) -> None:
        # The last line of a start is to be the one that opens the console.
        say = log.debug if self.is_own and self._error is None else log.info
        self._state, self._since, self._error = "up", trio.current_time(), None
        say("relay connected", url=self.address.url, lag_events=self.outbox.lag.events)
        self.connected()

    def _down(self, state: State, why: str) -> None:
        now = trio.current_time()
        self.backoff.lasted(now - self._since if self._state == "up" else 0.0)
        if why != self._error:
            log.warning("no relay", url=self.address.url, why=why)
        if self._state != state:
            self._state, self._since = state, now
        self._error = why

    def _wake(self) -> None:
        if self._link is not None:
            self._link.wake()

    # --- the start -------------------------------------------------------------------------------

    async def _look_through_the_log(self) -> None:
        while True:
            if await self._look_once():
                self.outbox.is_complete = True
                return
            await trio.sleep(LOOK_AGAIN_SECONDS)

    async def _look_once(self) -> bool:
        """Whether all could be read: what could not may have more than the relay has."""
        try:
            starts = await in_thread(partial(self.positions.starts, self.log_dir))
        except (JournalError, OSError) as error:
            log.warning("log not looked through", why=str(error))
            return False
        return all([await self._look_at(start) for start in starts])

    async def _look_at(self, start: Start) -> bool:
        session, proven = start.session, self.positions.get(start.session)
        if start.before and (proven is None or proven < start.before):
            proven = start.before
            self.positions.put(session, proven)
        try:
            found = await in_thread(partial(_behind, self.log_dir, session, proven))
        except OSError as error:
            log.warning("log not read", session=session, why=error.strerror)
            return False
        # What was delivered while the thread looked is delivered.
        proven = self.positions.get(session)
        if found and (proven is None or proven < found[0]):
            self.outbox.adopt(session, found[0], proven, found[1])
            self._wake()
        return True


def _behind(
    directory: Path, session: str, proven: Position | None
) -> tuple[Position, Extent] | None:
    """A session's last event and how much of it a relay does not have; None where it has all.

    Raises:
        OSError: a file is there and cannot be read.
    """
    event = last_event(directory, stem_of(session))
    last = position_of(event) if event else None
    if last is None or (proven is not None and proven >= last):
        return None
    return last, Backlog.open(directory, session, proven).extent
