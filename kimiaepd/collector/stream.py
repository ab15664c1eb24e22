"""Server-sent events: what one consumer gets over `GET /stream` (AEP-0003 section 3.3).

Rules:
- An event is one message: its type, itself on one line, and its position as the id. An agent-scoped
  event has no id: it is no position to resume from.
- A comment comes at least every `HEARTBEAT_SECONDS`, so that both sides know of each other.
- A consumer that is too slow is cut off, and resumes by its last id (section 8.4).
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import trio

from kimiaepd.collector.hub import Demand, Hub, Subscription
from kimiaepd.collector.outgoing import Outgoing
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.storage.journal import Position

HEARTBEAT_SECONDS = 15.0

_UNFIT = re.compile(r"[\r\n\0]")
"""What no field of a message can have in it."""


async def messages(
    hub: Hub, demand: Demand, *, live: bool, stopping: trio.Event
) -> AsyncGenerator[str, None]:
    """The messages of one consumer, until it goes, is too slow, or the collector stops."""
    outgoing = Outgoing()
    subscription = Subscription(demand, outgoing, _message, _exhausted)
    hub.subscribe(subscription, live=live)
    try:
        yield ": here\n\n"  # so that the headers go out, and a proxy lets go of them
        while not stopping.is_set():
            if live:
                message: str | None = ": ping\n\n"
                with trio.move_on_after(HEARTBEAT_SECONDS):
                    message = await outgoing.get()
            else:
                message = outgoing.get_nowait()
            if message is None:
                return
            yield message
    finally:
        hub.unsubscribe(subscription)


def _message(event: JSONObject, line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    session, seq = event.get("session"), event.get("seq")
    name = "" if session is None or seq is None else f"{session}:{event.get('epoch', 0)}:{seq}"
    identity = f"id: {name}\n" if name and not _UNFIT.search(name) else ""
    return f"event: {event['type']}\ndata: {text}\n{identity}\n"


def _exhausted(session: str, earliest: Position) -> str:
    return f": replay-exhausted {_UNFIT.sub('?', session)} {earliest[0]}:{earliest[1]}\n\n"
