"""An AEP relay as a daemon meets it, good or bad: real WebSockets on loopback, and switches.

It keeps what it got, as bytes and in order, and answers pings: a `pong` says that everything before
it was taken in. The switches are the ways in which a relay, or the network before it, fails.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import trio
from attrs import define, field
from trio_websocket import (
    ConnectionClosed,
    WebSocketConnection,
    WebSocketRequest,
    serve_websocket,
)

from kimiaepd.mapping.json_value import JSON, JSONObject

TOKEN = "t0ken"
HELLO = {"type": "hello", "versions": ["0.1"], "role": "both", "capabilities": {}}


@define(eq=False)
class Switches:
    """How this relay misbehaves.

    Attributes:
        refuse: answer the handshake with this HTTP status.
        close_after_accept: close as soon as the connection is there.
        no_hello: say nothing.
        hello: say this instead.
        drop_after: hang up, without a word, after so many events of a connection.
        no_pong: take pings and never answer.
        before_pong: what to wait for before each answer.
        refuse_events: answer these events, by id, with an error frame.
        stop_reading: read nothing more after the hello.
    """

    refuse: int | None = None
    close_after_accept: bool = False
    no_hello: bool = False
    hello: JSONObject | None = None
    drop_after: int | None = None
    no_pong: bool = False
    before_pong: Callable[[], Awaitable[None]] | None = None
    refuse_events: Callable[[JSONObject], bool] = lambda _: False
    stop_reading: bool = False


@define(eq=False)
class FakeRelay:
    """A relay on 127.0.0.1.

    Attributes:
        switches: how it misbehaves; may be changed while it runs.
        port: where it listens.
        lines: every event it was sent, as sent, over all connections.
        frames: every frame it was sent.
        connections: how many were accepted.
        live: those that are there now.
    """

    switches: Switches = field(factory=Switches)
    port: int = 0
    lines: list[str] = field(factory=list)
    frames: list[JSONObject] = field(factory=list)
    connections: int = 0
    live: set[WebSocketConnection] = field(factory=set)
    _changed: trio.Event = field(factory=trio.Event)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def events(self) -> list[JSONObject]:
        return [json.loads(line) for line in self.lines]

    def ids(self) -> list[JSON]:
        """The ids of what it got, each once, in the order of their first arrival."""
        return list(dict.fromkeys(event["id"] for event in self.events))

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait until something is so: looked at after each message here, and now and then."""
        with trio.fail_after(seconds):
            while not condition():
                with trio.move_on_after(0.01):
                    await self._changed.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            server = await nursery.start(
                lambda task_status: serve_websocket(
                    self._serve, "127.0.0.1", self.port, None, task_status=task_status
                )
            )
            self.port = server.port
            task_status.started()

    async def send(self, frame: JSONObject) -> None:
        """Send a frame or an event to everybody who is there."""
        for connection in list(self.live):
            await connection.send_message(json.dumps(frame))

    async def _serve(self, request: WebSocketRequest) -> None:
        self.connections += 1
        if self.switches.refuse:
            await request.reject(self.switches.refuse, body=b"no")
            return
        if dict(request.headers).get(b"authorization") != f"Bearer {TOKEN}".encode():
            await request.reject(401, body=b"no")
            return
        connection = await request.accept()
        if self.switches.close_after_accept:
            await connection.aclose()
            return
        self.live.add(connection)
        try:
            await self._talk(connection)
        except ConnectionClosed:
            pass
        finally:
            self.live.discard(connection)

    async def _talk(self, connection: WebSocketConnection) -> None:
        events = 0
        while True:
            message = json.loads(await connection.get_message())
            if "." in message["type"]:
                events += 1
                await self._take(connection, message)
            else:
                self.frames.append(message)
                await self._answer(connection, message)
            self._changed.set()
            self._changed = trio.Event()
            if self.switches.drop_after is not None and events >= self.switches.drop_after:
                await trio.aclose_forcefully(connection._stream)
                return
            if self.switches.stop_reading and message["type"] == "hello":
                await trio.sleep_forever()

    async def _take(self, connection: WebSocketConnection, event: JSONObject) -> None:
        self.lines.append(json.dumps(event, ensure_ascii=False, separators=(",", ":")))
        if self.switches.refuse_events(event):
            refusal = {"type": "error", "code": "invalid-event", "cause": event["id"]}
            await connection.send_message(json.dumps(refusal))

    async def _answer(self, connection: WebSocketConnection, frame: JSONObject) -> None:
        if frame["type"] == "hello" and not self.switches.no_hello:
            await connection.send_message(json.dumps(self.switches.hello or HELLO))
        elif frame["type"] == "ping" and not self.switches.no_pong:
            if self.switches.before_pong:
                await self.switches.before_pong()
            await connection.send_message(json.dumps({"type": "pong", "t": frame["t"]}))
