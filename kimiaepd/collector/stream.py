"""Server-sent events: what one consumer gets over `GET /stream` (AEP-0003 section 3.3).

Rules:
- An event is one message: its type, itself on one line, and its position as the id. An agent-scoped
  event has no id: it is no position to resume from.
- What comes after a quiet spell goes out at once, and what follows it in pieces.
- A comment comes at least every `HEARTBEAT_SECONDS`, so that both sides know of each other.
- A consumer that is too slow is cut off, and resumes by its last id (section 8.4). So is one whose
  token was taken back, and that one does not resume.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from attrs import define, field
from starlette.types import Message, Receive, Scope, Send

from kimiaepd.collector.hub import Demand, Hub, Subscription
from kimiaepd.collector.outgoing import Outgoing
from kimiaepd.collector.revocation import revoked
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.storage.journal import Position

HEARTBEAT_SECONDS = 15.0

AT_ONCE = 32
"""Messages that go out in one piece, where so many wait: a piece costs more than a message."""

GATHER_SECONDS = 0.02
"""How long what comes after a message that was waited for is gathered into a piece: with many
consumers of a busy stream a piece of one message each takes four times as much time of the core."""

PIECE = 64 << 10
"""Characters of such a piece; the last message may exceed it."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_UNFIT = re.compile("[\r\n\0\ud800-\udfff]")
"""What no field of a message can have in it; a lone surrogate is no UTF-8."""


@define(eq=False)
class EventStream:
    """One consumer's stream, as an ASGI response.

    Attributes:
        hub: where it subscribes.
        demand: what it wants.
        live: whether it goes on after what is held.
        stopping: set when the collector closes.
        is_good: whether the consumer's token still lets it look.
    """

    hub: Hub
    demand: Demand
    live: bool
    stopping: trio.Event
    is_good: Callable[[], bool] = lambda: True
    _outgoing: Outgoing = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._outgoing = Outgoing(self.hub.budget)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send, until the consumer goes or is too slow, everything was sent, or we stop."""
        subscription = Subscription(self.demand, self._outgoing, _message, _exhausted)
        self.hub.subscribe(subscription, live=self.live)
        try:
            async with trio.open_nursery() as stream_nursery:
                end = stream_nursery.cancel_scope.cancel
                stream_nursery.start_soon(_then, self.stopping.wait, end)
                stream_nursery.start_soon(_then, _gone(receive), end)
                stream_nursery.start_soon(_then, partial(revoked, self.is_good), end)
                stream_nursery.start_soon(self._give_up, subscription, end)
                await self._send_all(send)
                end()
        finally:
            self.hub.unsubscribe(subscription)
            self._outgoing.close()

    async def _give_up(self, subscription: Subscription, end: Callable[[], None]) -> None:
        await self._outgoing.over.wait()
        # At once: the sender is stuck in a send that nobody can cancel (`serve.py`).
        self.hub.unsubscribe(subscription)
        end()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        # So that the headers go out, and a proxy lets go of them.
        await send(_body(": here\n\n"))
        while True:
            found = await self._outgoing.take(AT_ONCE, PIECE)
            if found is None and not self.live:
                # No word of the standard's; its reference relay says it, and clients wait for it.
                await send({**_body(": replay-complete\n\n"), "more_body": False})
                return
            if found:
                await send(_body("".join(found)))
            elif found is None:
                await send(_body(await self._next()))
                await trio.sleep(GATHER_SECONDS)

    async def _next(self) -> str:
        """The next message, or a comment where none comes for long."""
        with trio.move_on_after(HEARTBEAT_SECONDS):
            return await self._outgoing.get()
        return ": ping\n\n"


def _body(text: str) -> Message:
    body = text.encode("utf-8", "surrogatepass")
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _then(wait: Callable[[], Awaitable[object]], act: Callable[[], None]) -> None:
    await wait()
    act()


def _gone(receive: Receive) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return wait


def _message(event: JSONObject, line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    session, seq = event.get("session"), event.get("seq")
    name = "" if session is None or seq is None else f"{session}:{event.get('epoch', 0)}:{seq}"
    identity = f"id: {name}\n" if name and not _UNFIT.search(name) else ""
    return f"event: {event['type']}\ndata: {text}\n{identity}\n"


def _exhausted(session: str, earliest: Position) -> str:
    return f": replay-exhausted {_UNFIT.sub('?', session)} {earliest[0]}:{earliest[1]}\n\n"
