"""The duplex endpoint: one WebSocket, from its hello to its end (AEP-0003 sections 2 to 6).

Rules:
- The first frame in each direction is hello; anything else first is an error, and the end.
- Frames that nobody knows are ignored; binary messages are reserved and end the connection.
- A request that cannot be met is answered in-band, by a code of the closed set, and neither ends
  the connection nor disturbs its other subscriptions.
- Commands need a token that may control (AEP-0004 section 4.1), whatever hello says.
- One task reads, one writes, one asks whether the other side lives, one whether its token does: a
  connection ends with its token.

What an event leads to is `hub.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, field, frozen
from starlette.websockets import WebSocket, WebSocketDisconnect

from kimiaepd.collector.asked import AskedError, TooMuchError, read_demand
from kimiaepd.collector.hub import Emitter, Hub, Subscription
from kimiaepd.collector.outgoing import Outgoing
from kimiaepd.collector.revocation import revoked
from kimiaepd.collector.roster import Refusal
from kimiaepd.mapping.event import VERSION
from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, dump, parse
from kimiaepd.storage.journal import Position

HELLO_SECONDS = 5.0
PING_SECONDS = 30.0
SILENT_SECONDS = 90.0
GOODBYE_SECONDS = 2.0

MOST_MESSAGE = 16 << 20
"""Bytes of one message of whoever may control: of an event."""

MOST_OBSERVED = 256 << 10
"""Bytes of one message of whoever only observes: a wish with 500 positions is far shorter."""

MOST_SUBSCRIPTIONS = 64
"""Of one connection."""

MOST_OF_ALL = 1_024
"""Of all connections together: each is asked about every event, and hooks are waiting."""

_ROLES = ("emitter", "consumer", "both")
_UNSUPPORTED_DATA, _TRY_AGAIN_LATER, _GOING_AWAY, _POLICY = 1003, 1013, 1001, 1008


class _EndError(Exception):
    """The connection is over; `str()` is the reason of the close."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@frozen
class Terms:
    """What a connection may do, and how the endpoint presents itself.

    Attributes:
        may_control: whether its token does more than observe.
        identity: of this endpoint.
        capabilities: of this endpoint, as in the discovery document.
        stopping: set when the endpoint closes in an orderly way.
        is_good: whether its token still stands for as much.
    """

    may_control: bool
    identity: JSONObject
    capabilities: JSONObject
    stopping: trio.Event
    is_good: Callable[[], bool] = lambda: True


@define(eq=False)
class Conversation:
    """One connection.

    Attributes:
        socket: accepted.
        hub: the collector.
        terms: what it may do.
    """

    socket: WebSocket
    hub: Hub
    terms: Terms
    _outgoing: Outgoing = field(init=False)
    _emitter: Emitter = field(init=False)
    _role: str = field(default="consumer", init=False)
    _subscriptions: dict[str, Subscription] = field(factory=dict, init=False)
    _heard_at: float = field(factory=trio.current_time, init=False)

    def __attrs_post_init__(self) -> None:
        self._outgoing = Outgoing(self.hub.budget)
        self._emitter = Emitter(self._outgoing)

    async def run(self) -> None:
        """Talk to the end of the connection."""
        try:
            await self._say_hello()
            async with trio.open_nursery() as conversation_nursery:
                conversation_nursery.start_soon(self._write)
                conversation_nursery.start_soon(self._watch)
                conversation_nursery.start_soon(self._give_up)
                conversation_nursery.start_soon(self._await_stop)
                conversation_nursery.start_soon(self._await_revocation)
                await self._read()
        except* _EndError as group:
            await self._close(_first(group))
        except* (WebSocketDisconnect, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the other side has gone
        finally:
            self._leave()

    def _leave(self) -> None:
        self.hub.commanders.discard(self._emitter)
        self.hub.roster.left(self._emitter)
        for subscription in self._subscriptions.values():
            self.hub.unsubscribe(subscription)
        self._outgoing.close()

    # --- hello -----------------------------------------------------------------------------------

    async def _say_hello(self) -> None:
        hello = None
        with trio.move_on_after(HELLO_SECONDS):
            hello = _object(await self._receive())
        if hello is None or hello.get("type") != "hello":
            await self._send(_error("hello-required"))
            raise _EndError(_UNSUPPORTED_DATA, "hello-required")
        versions = hello.get("versions")
        if not isinstance(versions, list) or VERSION not in versions:
            await self._send({**_error("version-unsupported"), "versions": [VERSION]})
            raise _EndError(_UNSUPPORTED_DATA, "version-unsupported")
        role = hello.get("role")
        self._role = role if isinstance(role, str) and role in _ROLES else "consumer"
        if self._role != "consumer":
            self.hub.roster.joined(self._emitter, hello)
        await self._send(
            {
                "type": "hello",
                "versions": [VERSION],
                "role": "both",
                "identity": self.terms.identity,
                "capabilities": self.terms.capabilities,
            }
        )
        if self.terms.may_control and self._role != "emitter":
            self.hub.commanders.add(self._emitter)
            self.hub.came()

    # --- reading ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            text = await self._receive()
            self._heard_at = trio.current_time()
            try:
                value = parse(text.encode("utf-8", "replace"))
            except MalformedJSONError as error:
                self._put(_error("invalid-event", detail=f"not JSON: {error}"))
                continue
            if isinstance(value, dict):
                self._take(value, text)

    def _take(self, value: JSONObject, text: str) -> None:
        match value.get("type"):
            case "subscribe":
                self._on_subscribe(value)
            case "unsubscribe":
                self._on_unsubscribe(value)
            case "roster":
                self._on_roster(value)
            case "ping":
                self._put({"type": "pong", "t": value.get("t")})
            case str(kind) if "." not in kind:
                pass  # ours, such as pong and closing, or one of a later version
            case _:
                self._take_event(value, text)

    def _take_event(self, event: JSONObject, text: str) -> None:
        cause = event.get("id")
        if not self.terms.may_control:
            self._put(_error("unauthorized", cause=cause, detail="this token only observes"))
            return
        line = text.encode("utf-8", "replace")
        if b"\n" in line:
            line = dump(event)
        outcome = self.hub.ingest(event, line, sender=self._emitter)
        if outcome is None:
            return
        if isinstance(outcome, Refusal):
            self._put(_error(outcome.code, cause=cause, detail=outcome.detail))
        else:
            self._put(_error("invalid-event", cause=cause, detail=outcome))

    def _on_subscribe(self, frame: JSONObject) -> None:
        name = frame.get("id")
        code, detail = self._subscribe(name, frame)
        if code:
            self._put(_error(code, name=name, detail=detail))

    def _subscribe(self, name: JSON, frame: JSONObject) -> tuple[str | None, str]:
        if self._role == "emitter":
            return "unauthorized", "an emitter subscribes to nothing"
        if not isinstance(name, str) or name in self._subscriptions:
            return "invalid-filter", "a subscription needs an id of its own"
        try:
            self._bound()
            demand = read_demand(frame.get("filter"), frame.get("capture"), frame.get("from"))
        except TooMuchError as error:
            return "limit-exceeded", str(error)
        except AskedError as error:
            return "invalid-filter", str(error)
        subscription = Subscription(demand, self._outgoing, _as_it_is, _exhausted(name))
        self._subscriptions[name] = subscription
        self._put({"type": "subscribed", "id": name})
        self.hub.subscribe(subscription)
        return None, ""

    def _bound(self) -> None:
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise TooMuchError(f"{MOST_SUBSCRIPTIONS} subscriptions a connection")
        if self.hub.subscriptions >= MOST_OF_ALL:
            raise TooMuchError(f"{MOST_OF_ALL} subscriptions of all connections")

    def _on_unsubscribe(self, frame: JSONObject) -> None:
        name = frame.get("id")
        if isinstance(name, str) and (subscription := self._subscriptions.pop(name, None)):
            self.hub.unsubscribe(subscription)
        self._put({"type": "unsubscribed", "id": name})

    def _on_roster(self, frame: JSONObject) -> None:
        name = frame.get("id")
        if self._role == "emitter":
            self._put(_error("unauthorized", name=name, detail="the roster is for consumers"))
        else:
            entries: list[JSON] = list(self.hub.roster.entries())
            self._put({"type": "roster", "id": name, "entries": entries})

    # --- writing ---------------------------------------------------------------------------------

    async def _write(self) -> None:
        while True:
            await self.socket.send_text(await self._outgoing.get())

    def _put(self, frame: JSONObject) -> None:
        self._outgoing.put(dump(frame).decode("utf-8"))

    async def _send(self, frame: JSONObject) -> None:
        await self.socket.send_text(dump(frame).decode("utf-8"))

    async def _receive(self) -> str:
        message = await self.socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text = message.get("text")
        if text is None:
            raise _EndError(_UNSUPPORTED_DATA, "binary frames are reserved")
        return str(text)

    async def _close(self, end: _EndError) -> None:
        with trio.move_on_after(GOODBYE_SECONDS, shield=True) as goodbye:
            try:
                await self._send({"type": "closing", "reason": str(end), "delivered": []})
                await self.socket.close(end.code, str(end))
                goodbye.shield = False
                # Whoever hangs up before the answer to his close cuts off what is still being read:
                # Node's client, which unpacks in a thread, loses all of it.
                while (await self.socket.receive())["type"] != "websocket.disconnect":
                    pass
            except (RuntimeError, WebSocketDisconnect, trio.BrokenResourceError):
                pass  # it was closed meanwhile

    # --- the clock -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        number = 0
        while True:
            await trio.sleep(PING_SECONDS)
            if trio.current_time() - self._heard_at >= SILENT_SECONDS:
                raise _EndError(_GOING_AWAY, "silent")
            number += 1
            self._put({"type": "ping", "t": number})

    async def _give_up(self) -> None:
        await self._outgoing.over.wait()
        self._leave()  # at once: the writer is stuck in a send that nobody can cancel (`serve.py`)
        raise _EndError(_TRY_AGAIN_LATER, "too slow; resume from your positions")

    async def _await_stop(self) -> None:
        await self.terms.stopping.wait()
        raise _EndError(_GOING_AWAY, "shutdown")

    async def _await_revocation(self) -> None:
        await revoked(self.terms.is_good)
        raise _EndError(_POLICY, "the token was taken back")


def _error(
    code: str, *, name: JSON = None, cause: JSON = None, detail: str | None = None
) -> JSONObject:
    frame: JSONObject = {"type": "error", "code": code}
    for key, value in (("id", name), ("cause", cause), ("detail", detail)):
        if value is not None:
            frame[key] = value
    return frame


def _as_it_is(_: JSONObject, line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _exhausted(name: str) -> Callable[[str, Position], str]:
    def frame(session: str, earliest: Position) -> str:
        said: JSONObject = {
            "type": "replay-exhausted",
            "sub": name,
            "session": session,
            "earliest": {"epoch": earliest[0], "seq": earliest[1]},
        }
        return dump(said).decode("utf-8")

    return frame


def _object(text: str) -> JSONObject | None:
    try:
        value = parse(text.encode("utf-8", "replace"))
    except MalformedJSONError:
        return None
    return value if isinstance(value, dict) else None


def _first(group: BaseExceptionGroup[_EndError]) -> _EndError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, _EndError) else _EndError(_GOING_AWAY, "")
