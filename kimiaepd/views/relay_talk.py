"""A consumer's talk on one connection: hello, what it asks for, events, both keepalives.

Rules:
- One task reads, one writes, one watches the clock. A send that is interrupted ends a connection,
  so only the writer sends.
- Who does not take events holds the reader up, and the relay in time: nothing piles up here. The
  relay cuts off whom it cannot wait for, and he resumes by his positions.
- A relay that was silent for `SILENT_SECONDS` is dead, unless it is we who do not listen.

What an event leads to, and the next connection, is `relay_consumer.py`'s business.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from math import inf

import trio
from attrs import define, field, frozen

from kimiaepd.mapping.event import VERSION
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.relay.connection import Connection, LinkError
from kimiaepd.views import relay_frames as frames
from kimiaepd.views.relay_command import host
from kimiaepd.views.relay_frames import (
    Came,
    Closing,
    Frame,
    Hello,
    Missing,
    Ping,
    Refusal,
    Roster,
    Subscribed,
)

HELLO_SECONDS = 5.0
ROSTER_SECONDS = 2.0
"""For who is there, before we ask on: a relay that does not say costs no more."""

PING_SECONDS = 30.0
SILENT_SECONDS = 90.0
_OWED = 64
"""Messages that wait to be sent."""

BEFORE = "before"
"""The roster that is asked for after a reconnect, for sessions that began meanwhile."""


@frozen
class Ears:
    """Whom a talk tells.

    Attributes:
        event: of an event; it may wait.
        missing: of a session of which something is held no more; it may wait.
        subscribed: of a subscription that stands.
        roster: of who is there.
        refusal: of an error.
    """

    event: Callable[[JSONObject], Awaitable[None]]
    missing: Callable[[str], Awaitable[None]]
    subscribed: Callable[[str], None]
    roster: Callable[[Roster], None]
    refusal: Callable[[Refusal], None]


@define(eq=False)
class Talk:
    """One connection.

    Attributes:
        connection: open.
        name: who we say that we are.
        ears: whom we tell.
        has_roster: whether the relay says who is there.
    """

    connection: Connection
    name: str
    ears: Ears
    has_roster: bool = field(default=False, init=False)
    _heard_at: float = field(factory=trio.current_time, init=False)
    _mouth: trio.MemorySendChannel[str] = field(init=False)
    _said: trio.MemoryReceiveChannel[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._mouth, self._said = trio.open_memory_channel[str](_OWED)

    async def greet(self) -> None:
        """Exchange hellos.

        Raises:
            LinkError: the relay is not one for us, or the connection was lost.
        """
        with trio.move_on_after(HELLO_SECONDS):
            await self.connection.send(frames.hello(self.name, f"{host()}/{os.getpid()}"))
            while True:
                match await self._next():
                    case Hello(versions, has_roster) if VERSION in versions:
                        self.has_roster = has_roster
                        return
                    case Hello():
                        raise LinkError(f"the relay does not speak AEP {VERSION}")
                    case Refusal(code, _, _, detail):
                        raise LinkError(f"the relay refuses us: {code} {detail}".rstrip())
        raise LinkError(f"the relay said no hello within {HELLO_SECONDS:g} s")

    async def who_is_there(self) -> tuple[JSONObject, ...]:
        """Who claims what; only between `greet` and `run`.

        Raises:
            LinkError: the connection was lost.
        """
        if not self.has_roster:
            return ()
        with trio.move_on_after(ROSTER_SECONDS):
            await self.connection.send(frames.roster(BEFORE))
            while True:
                match await self._next():
                    case Roster(name, entries) if name == BEFORE:
                        return entries
                    case Refusal(_, name) if name == BEFORE:
                        return ()
                    case Ping(t):
                        await self.connection.send(frames.pong(t))
        return ()

    async def run(self) -> None:
        """Talk until the connection is lost, or cancelled.

        Raises:
            LinkError: it was lost.
        """
        async with trio.open_nursery() as talk_nursery:
            talk_nursery.start_soon(self._read)
            talk_nursery.start_soon(self._write)
            talk_nursery.start_soon(self._watch)

    async def say(self, text: str) -> None:
        """Send a message, in its turn."""
        await self._mouth.send(text)

    async def _write(self) -> None:
        async for text in self._said:
            await self.connection.send(text)

    async def _next(self) -> Frame | None:
        message = await self.connection.receive()
        self._heard_at = trio.current_time()
        return frames.read_frame(message)

    async def _read(self) -> None:
        while True:
            frame = await self._next()
            self._heard_at = inf  # whoever is told may take his time
            await self._handle(frame)
            self._heard_at = trio.current_time()

    async def _handle(self, frame: Frame | None) -> None:
        match frame:
            case Came(event):
                await self.ears.event(event)
            case Missing(session):
                await self.ears.missing(session)
            case Subscribed(name):
                self.ears.subscribed(name)
            case Roster():
                self.ears.roster(frame)
            case Refusal():
                self.ears.refusal(frame)
            case Ping(t):
                self._answer(frames.pong(t))
            case Closing(reason):
                raise LinkError(f"the relay closes: {reason}")

    def _answer(self, text: str) -> None:
        with contextlib.suppress(trio.WouldBlock):  # who asks and does not read gets no more
            self._mouth.send_nowait(text)

    async def _watch(self) -> None:
        number = 0
        while True:
            await trio.sleep(PING_SECONDS)
            if trio.current_time() - self._heard_at >= SILENT_SECONDS:
                raise LinkError(f"the relay was silent for {SILENT_SECONDS:g} s")
            number += 1
            self._answer(frames.ping(number))
