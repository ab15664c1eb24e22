"""A relay that a test holds in its hand: a consumer's connections, as memory, one after the other.

`Scripted.connect` stands in for the network; a test says what the relay says, reads what it was
sent, and ends a connection as it likes. `watching` is a consumer of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import trio
from attrs import define, field

from collector_room import Place
from kimiaepd import settings
from kimiaepd.backoff import Backoff
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.relay.connection import Connection, LinkError
from kimiaepd.views.relay import Relay, Spot, find
from kimiaepd.views.relay_consumer import Change, Consumer, Item, Wish

HELLO: JSONObject = {"type": "hello", "versions": ["0.1"], "capabilities": {"roster": {}}}


@define(eq=False)
class Line:
    """One connection: what the relay says on it, and what it was told."""

    said: trio.MemorySendChannel[JSONObject | str] = field(init=False)
    heard: trio.MemoryReceiveChannel[JSONObject] = field(init=False)
    end: LinkError | None = None
    _out: trio.MemoryReceiveChannel[JSONObject | str] = field(init=False)
    _in: trio.MemorySendChannel[JSONObject] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.said, self._out = trio.open_memory_channel[JSONObject | str](1000)
        self._in, self.heard = trio.open_memory_channel[JSONObject](1000)

    async def send(self, text: str) -> None:
        await self._in.send(json.loads(text))

    async def receive(self) -> str | bytes:
        try:
            message = await self._out.receive()
        except trio.EndOfChannel:
            raise self.end or LinkError("the connection broke") from None
        return message if isinstance(message, str) else json.dumps(message)

    # --- the relay's side ----------------------------------------------------------------------

    def say(self, *frames: JSONObject) -> None:
        for frame in frames:
            self.said.send_nowait(frame)

    async def hears(self, kind: str) -> JSONObject:
        """The next message of a type; those before it are passed over."""
        while (frame := await self.heard.receive())["type"] != kind:
            pass
        return frame

    async def subscribed(self) -> JSONObject:
        """Let the wish stand; the frame that asked for it."""
        while (frame := await self.hears("subscribe"))["id"] != "wish":
            pass
        self.say({"type": "subscribed", "id": "wish"})
        return frame

    def breaks(self, error: LinkError | None = None) -> None:
        self.end = error
        self.said.close()


@define(eq=False)
class Scripted:
    """A relay; each connection is a `Line`, and `refusals` come instead of the first ones."""

    refusals: list[LinkError] = field(factory=list)
    _lines: trio.MemorySendChannel[Line] = field(init=False)
    lines: trio.MemoryReceiveChannel[Line] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lines, self.lines = trio.open_memory_channel[Line](100)

    async def connect(self, _: Spot, use: Callable[[Connection], Awaitable[None]]) -> None:
        await trio.lowlevel.checkpoint()
        if self.refusals:
            raise self.refusals.pop(0)
        line = Line()
        await self._lines.send(line)
        try:
            await use(cast("Connection", line))
        except BaseExceptionGroup as group:  # as `connected` does it
            known, rest = group.split(LinkError)
            if rest or known is None:
                raise
            raise _first(known) from None

    async def line(self) -> Line:
        """The next connection, with the relay's hello said."""
        with trio.fail_after(600):
            line = await self.lines.receive()
        line.say(HELLO)
        return line


def _first(group: BaseExceptionGroup[LinkError]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def relay_at(folder: Path, url: str, token: str, *, may_control: bool = False) -> Relay:
    """A configured relay of a scratch user."""
    environ = {"HOME": str(folder), "AEP_RELAY_URL": url, "AEP_TOKEN": token}
    return find(settings.load(environ), environ, may_control=may_control)


def relay_of(folder: Path, place: Place, *, may_control: bool = False) -> Relay:
    """The collector, as the configured relay of a scratch user."""
    token = place.token if may_control else place.observer
    return relay_at(folder, place.url, token, may_control=may_control)


@asynccontextmanager
async def watching(
    scripted: Scripted, wish: Wish | None, folder: Path, *, may_control: bool = False
) -> AsyncIterator[tuple[Consumer, Line]]:
    """A consumer of a relay in hand, and its first connection, on which the wish stands."""
    relay = relay_at(folder, "wss://relay.example", "token", may_control=may_control)
    never = Backoff(uniform=lambda _, most: most)
    consumer = Consumer(relay, wish, "test", connect=scripted.connect, backoff=never)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nursery.start, consumer.run)
        line = await scripted.line()
        if wish is not None:
            await line.subscribed()
        assert (await took(consumer)) == Change("connected")
        yield consumer, line
        nursery.cancel_scope.cancel()


async def took(consumer: Consumer) -> Item:
    """The consumer's next item."""
    with trio.fail_after(600):
        return await consumer.next()


async def ids(consumer: Consumer, count: int) -> list[JSON]:
    """The ids of the next events; a change among them is there by its kind."""
    items = [await took(consumer) for _ in range(count)]
    return [one.kind if isinstance(one, Change) else one["id"] for one in items]
