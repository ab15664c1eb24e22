"""An AEP relay as a daemon meets it, good or bad: real WebSockets on loopback, and switches.

    python tests/fake_relay.py PORT FILE

It keeps what it got, as bytes and in order, answers pings (a `pong` says that everything before it
was taken in), fans events out to whoever subscribed, and takes commands to the connection that
claims their session. The switches are the ways in which a relay, or the network before it, fails.

As a program it keeps the lines in a file, and they are in it before their `pong` goes out: it may
be killed at any moment, and started again on what it has.

It talks `wsproto` by itself and not through the library under test, so that it can do what that one
never would.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import trio
from attrs import define, field
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from kimiaepd.mapping.json_value import JSON, JSONObject

TOKEN = "t0ken"
HELLO = {"type": "hello", "versions": ["0.1"], "role": "both", "capabilities": {}}

_PROTOCOL_PING = b"\x89\x01x"


@define(eq=False)
class Switches:
    """How this relay misbehaves.

    Attributes:
        hang_up: close each TCP connection as soon as it is there.
        answer: send these bytes instead of a handshake, and keep the connection.
        refuse: answer the handshake with this HTTP status.
        needs_token: refuse whoever has none.
        close_after_accept: close as soon as the WebSocket is there.
        no_hello: say nothing.
        hello: say this instead.
        say: say this after the hello.
        drop_after: hang up, without a word, after so many events of a connection.
        no_pong: take pings and never answer.
        before_pong: what to wait for before each answer.
        refuse_events: answer these events, by id, with an error frame.
        stop_reading: read nothing more after the hello.
        one_byte_a_second: read so slowly after the hello.
        largest: close with 1009 at a longer message.
        never_close: leave a goodbye unanswered, and the connection open.
        ping_at_goodbye: answer it with protocol pings.
    """

    hang_up: bool = False
    answer: bytes | None = None
    refuse: int | None = None
    needs_token: bool = True
    close_after_accept: bool = False
    no_hello: bool = False
    hello: JSONObject | None = None
    say: tuple[str, ...] = ()
    drop_after: int | None = None
    no_pong: bool = False
    before_pong: Callable[[], Awaitable[None]] | None = None
    refuse_events: Callable[[JSONObject], bool] = lambda _: False
    stop_reading: bool = False
    one_byte_a_second: bool = False
    largest: int | None = None
    never_close: bool = False
    ping_at_goodbye: bool = False


class _GoneError(Exception):
    """This connection is at its end."""


@define(eq=False)
class Peer:
    """One connection.

    Attributes:
        stream: its TCP stream.
        role: what it says of itself.
        subscriptions: the sessions whose events it wants; None stands for all.
        events: how many it sent.
        is_slow: whether it is read from as if it were far away.
        pieces: of a message that is not whole yet.
    """

    stream: trio.abc.Stream
    role: JSON = None
    subscriptions: list[JSON] = field(factory=list)
    events: int = 0
    is_slow: bool = False
    pieces: list[str] = field(factory=list)
    _protocol: WSConnection = field(factory=lambda: WSConnection(ConnectionType.SERVER))
    _sending: trio.Lock = field(factory=trio.Lock)

    async def say(self, text: str) -> None:
        """Send a message."""
        await self.do(TextMessage(data=text))

    async def do(self, event: Event) -> None:
        """Send what a protocol event is in bytes; a peer that went meanwhile is no failure."""
        async with self._sending:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
                await self.stream.send_all(self._protocol.send(event))

    async def receive(self) -> list[Event]:
        """What comes next, at least one byte of it."""
        try:
            data = await self.stream.receive_some(1 if self.is_slow else 65_536)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise _GoneError from None
        if not data:
            raise _GoneError
        self._protocol.receive_data(bytes(data))
        return list(self._protocol.events())


@define(eq=False)
class FakeRelay:
    """A relay on 127.0.0.1.

    Attributes:
        switches: how it misbehaves; may be changed while it runs.
        port: where it listens.
        lines: every event it was sent, as sent, over all connections.
        frames: every frame it was sent.
        connections: how many were accepted.
        live: those that said hello and are there now.
        took: told of every event, as sent.
        keep: where the lines go instead of `lines`.
    """

    switches: Switches = field(factory=Switches)
    port: int = 0
    lines: list[str] = field(factory=list)
    frames: list[JSONObject] = field(factory=list)
    connections: int = 0
    live: set[Peer] = field(factory=set)
    took: Callable[[str], None] = lambda _: None
    keep: BinaryIO | None = None
    _claimed: dict[JSON, Peer] = field(factory=dict)
    _streams: set[trio.abc.Stream] = field(factory=set)
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
            serve = partial(trio.serve_tcp, self._serve, self.port, host="127.0.0.1")
            (listener,) = await nursery.start(serve)
            self.port = listener.socket.getsockname()[1]
            task_status.started()

    async def send(self, frame: JSONObject) -> None:
        """Send a frame or an event to everybody who is there."""
        for peer in list(self.live):
            await peer.say(json.dumps(frame))

    async def drop_all(self) -> None:
        """Hang up on everybody, without a word."""
        for stream in list(self._streams):
            await trio.aclose_forcefully(stream)

    # --- one connection --------------------------------------------------------------------------

    async def _serve(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        peer = Peer(stream)
        self._streams.add(stream)
        try:
            if self.switches.hang_up:
                return
            while True:
                for event in await peer.receive():
                    await self._handle(peer, event)
                if peer.is_slow:
                    await trio.sleep(1)
        except (_GoneError, ProtocolError):
            pass
        finally:
            self._streams.discard(stream)
            self.live.discard(peer)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _handle(self, peer: Peer, event: Event) -> None:
        match event:
            case Request():
                await self._shake_hands(peer, event)
            case TextMessage():
                peer.pieces.append(event.data)
                if event.message_finished:
                    text = "".join(peer.pieces)
                    peer.pieces.clear()
                    await self._take_message(peer, text)
            case Ping():
                await peer.do(event.response())
            case CloseConnection():
                await self._part(peer, event)

    async def _shake_hands(self, peer: Peer, request: Request) -> None:
        switches = self.switches
        has_token = f"access_token={TOKEN}" in request.target or any(
            (name.lower(), value) == (b"authorization", f"Bearer {TOKEN}".encode())
            for name, value in request.extra_headers
        )
        if switches.answer is not None:
            with suppress(trio.BrokenResourceError):
                await peer.stream.send_all(switches.answer)
            await trio.sleep_forever()
        status = switches.refuse or (None if has_token or not switches.needs_token else 401)
        if status:
            headers = [(b"Location", b"http://127.0.0.1:1/"), (b"Content-Length", b"2")]
            await peer.do(RejectConnection(status_code=status, headers=headers, has_body=True))
            await peer.do(RejectData(data=b"no"))
            raise _GoneError
        await peer.do(AcceptConnection())
        if switches.close_after_accept:
            await peer.do(CloseConnection(code=1000))
            raise _GoneError

    async def _part(self, peer: Peer, goodbye: CloseConnection) -> None:
        if self.switches.ping_at_goodbye:
            with suppress(trio.BrokenResourceError):
                for _ in range(3):
                    await peer.stream.send_all(_PROTOCOL_PING)
        elif not self.switches.never_close:
            await peer.do(goodbye.response())
            raise _GoneError
        await trio.sleep_forever()

    # --- what is said ----------------------------------------------------------------------------

    async def _take_message(self, peer: Peer, text: str) -> None:
        if self.switches.largest is not None and len(text) > self.switches.largest:
            await peer.do(CloseConnection(code=1009))
            raise _GoneError
        message = json.loads(text)
        if "." in message["type"]:
            peer.events += 1
            await self._take(peer, message, text)
        else:
            self.frames.append(message)
            await self._answer(peer, message)
        self._changed.set()
        self._changed = trio.Event()
        if self.switches.drop_after is not None and peer.events >= self.switches.drop_after:
            raise _GoneError

    async def _take(self, peer: Peer, event: JSONObject, text: str) -> None:
        session = event.get("session")
        if peer.role != "emitter" and str(event["type"]).startswith("control."):
            await self._command(peer, session, event, text)
            return
        if self.keep:
            self.keep.write(text.encode() + b"\n")
        else:
            self.lines.append(text)
        self.took(text)
        self._claimed[session] = peer
        if self.switches.refuse_events(event):
            refusal = {"type": "error", "code": "invalid-event", "cause": event["id"]}
            await peer.say(json.dumps(refusal))
        for other in self.live:
            if session in other.subscriptions or None in other.subscriptions:
                await other.say(text)

    async def _command(self, sender: Peer, session: JSON, event: JSONObject, text: str) -> None:
        target = self._claimed.get(session)
        if target in self.live:
            await target.say(text)
        else:
            nobody = {"type": "error", "code": "unsupported", "cause": event["id"]}
            await sender.say(json.dumps(nobody))

    async def _answer(self, peer: Peer, frame: JSONObject) -> None:
        match frame:
            case {"type": "hello"}:
                await self._greet(peer, frame)
            case {"type": "ping", "t": t} if not self.switches.no_pong:
                if self.switches.before_pong:
                    await self.switches.before_pong()
                if self.keep:
                    self.keep.flush()
                await peer.say(json.dumps({"type": "pong", "t": t}))
            case {"type": "subscribe"}:
                wanted = frame.get("filter")
                peer.subscriptions.append(
                    wanted.get("session") if isinstance(wanted, dict) else None
                )
                await peer.say(json.dumps({"type": "subscribed", "id": frame.get("id")}))

    async def _greet(self, peer: Peer, hello: JSONObject) -> None:
        peer.role = hello.get("role")
        self.live.add(peer)
        if self.switches.no_hello:
            return
        await peer.say(json.dumps(self.switches.hello or HELLO))
        for text in self.switches.say:
            await peer.say(text)
        if self.switches.stop_reading:
            await trio.sleep_forever()
        peer.is_slow = self.switches.one_byte_a_second


def open_kept(file: Path) -> BinaryIO:
    """What was kept, to add to; a line that a kill cut in two is no line."""
    kept = file.open("a+b")
    kept.seek(0)
    kept.truncate(kept.read().rfind(b"\n") + 1)
    return kept


async def main(port: int, file: Path) -> None:
    """Serve until killed."""
    with open_kept(file) as kept:
        relay = FakeRelay(port=port, keep=kept)
        async with trio.open_nursery() as nursery:
            await nursery.start(relay.run)
            os.write(1, b"ready %d\n" % relay.port)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), Path(sys.argv[2]))
