"""One connection: whatever a peer or the library does, it ends in time, and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import wsproto
from attrs import define
from trio.testing import MockClock, memory_stream_pair
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream
from wsproto.events import AcceptConnection, CloseConnection, Ping, Request

from kimiaepd.relay.address import Address
from kimiaepd.relay.connection import (
    CLOSE_SECONDS,
    CONNECT_SECONDS,
    REFUSAL_SECONDS,
    Connection,
    LinkError,
    RefusedError,
    connected,
)

PLACE = Address("ws://relay", "relay", 80, is_tls=False, path="")


@define
class Watched(trio.abc.Stream):
    """A stream that remembers whether it was closed."""

    inner: trio.abc.Stream
    is_closed: bool = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.inner.receive_some(max_bytes)

    async def aclose(self) -> None:
        self.is_closed = True
        await self.inner.aclose()


@asynccontextmanager
async def peer(
    serve: Callable[[trio.abc.Stream], Awaitable[None]],
) -> AsyncIterator[Callable[[Address], Awaitable[trio.abc.Stream]]]:
    """A peer in memory; the stream to it is closed at the end, or the test fails."""
    ours, theirs = memory_stream_pair()
    watched = Watched(ours)

    async def open_stream(_: Address) -> trio.abc.Stream:
        return watched

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, theirs)
        yield open_stream
        nursery.cancel_scope.cancel()
    assert watched.is_closed


def websocket(
    talk: Callable[[WebSocketConnection], Awaitable[None]],
) -> Callable[[trio.abc.Stream], Awaitable[None]]:
    """A well-behaved server that talks so."""

    async def serve(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as nursery:
            request = await wrap_server_stream(nursery, stream)
            connection = await request.accept()
            with suppress(ConnectionClosed):
                await talk(connection)
            nursery.cancel_scope.cancel()

    return serve


def raw(
    answer: bytes, *, then: Callable[[trio.abc.Stream], Awaitable[None]] | None = None
) -> Callable[[trio.abc.Stream], Awaitable[None]]:
    """A server that answers the handshake with these bytes."""

    async def serve(stream: trio.abc.Stream) -> None:
        await stream.receive_some(65_536)
        await stream.send_all(answer)
        await (then(stream) if then else stream.aclose())

    return serve


async def nothing(_: Connection) -> None:
    """Use a connection for nothing."""


async def listen(connection: Connection) -> None:
    while True:
        await connection.receive()


async def forever(_: object) -> None:
    await trio.sleep_forever()


async def test_a_message_goes_each_way_and_the_token_travels_in_its_header() -> None:
    heard: list[str | bytes] = []
    headers: list[tuple[bytes, bytes]] = []

    async def serve(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as nursery:
            request = await wrap_server_stream(nursery, stream)
            headers.extend(request.headers)
            assert request.path == "/aep/socket"
            connection = await request.accept()
            heard.append(await connection.get_message())
            await connection.send_message("back")

    async def talk(connection: Connection) -> None:
        await connection.send("forth")
        heard.append(await connection.receive())

    place = Address("ws://relay/aep", "relay", 8398, is_tls=False, path="/aep")
    async with peer(serve) as open_stream:
        await connected(place, "t0ken", talk, open_stream=open_stream)
    assert heard == ["forth", "back"]
    assert (b"authorization", b"Bearer t0ken") in headers


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, RefusedError, "the relay refuses the token (HTTP 401)"),
        (403, RefusedError, "the relay refuses the token (HTTP 403)"),
        (302, LinkError, "the relay answered HTTP 302, not a WebSocket"),
        (200, LinkError, "the relay answered HTTP 200, not a WebSocket"),
        (503, LinkError, "the relay answered HTTP 503, not a WebSocket"),
    ],
)
async def test_an_answer_that_is_no_handshake_is_said(
    status: int, kind: type[LinkError], words: str
) -> None:
    answer = b"HTTP/1.1 %d Sorry\r\nLocation: /x\r\nContent-Length: 2\r\n\r\nno" % status
    async with peer(raw(answer)) as open_stream:
        with pytest.raises(LinkError) as raised:
            await connected(PLACE, None, nothing, open_stream=open_stream)
    assert (type(raised.value), str(raised.value)) == (kind, words)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"Retry-After: 120", 120.0),
        (b"retry-after: 0", 0.0),
        (b"Retry-After: Wed, 21 Oct 2026 07:28:00 GMT", None),
        (b"Retry-After: 99999999999", None),
        (b"X: 1", None),
    ],
)
async def test_what_a_relay_asks_for_is_heard(header: bytes, seconds: float | None) -> None:
    answer = b"HTTP/1.1 503 Busy\r\n%b\r\nContent-Length: 0\r\n\r\n" % header
    async with peer(raw(answer)) as open_stream:
        with pytest.raises(LinkError) as raised:
            await connected(PLACE, None, nothing, open_stream=open_stream)
    assert raised.value.retry_after == seconds


@pytest.mark.parametrize(
    "serve",
    [
        raw(b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n"),
        raw(b"\x16\x03\x01 garbage\r\n\r\n"),
        raw(b""),
        raw(b"HTTP/1.1 101 Switching", then=forever),
        forever,
    ],
    ids=["bare-401", "garbage", "hangs-up", "half-an-answer", "silence"],
)
async def test_a_handshake_that_never_ends_is_given_up_in_time(
    serve: Callable[[trio.abc.Stream], Awaitable[None]], autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    async with peer(serve) as open_stream:
        with pytest.raises(LinkError):
            await connected(PLACE, None, nothing, open_stream=open_stream)
    assert trio.current_time() - began <= CONNECT_SECONDS


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_without_a_body_is_told_at_once(
    status: int, autojump_clock: MockClock
) -> None:
    """The library says nothing of it; `kimi web` refuses so."""
    answer = b"HTTP/1.1 %d Unauthorized\r\nConnection: close\r\n\r\n" % status
    for then in (None, forever):
        began = trio.current_time()
        async with peer(raw(answer, then=then)) as open_stream:
            with pytest.raises(RefusedError, match=str(status)):
                await connected(PLACE, "t", nothing, open_stream=open_stream)
        assert trio.current_time() - began <= REFUSAL_SECONDS


async def test_a_host_that_does_not_answer_is_given_up_in_time(autojump_clock: MockClock) -> None:
    async def open_stream(_: Address) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    with pytest.raises(LinkError, match="no connection within 5 s"):
        await connected(PLACE, None, nothing, open_stream=open_stream)
    assert trio.current_time() == CONNECT_SECONDS


async def test_a_port_where_nobody_listens_is_said() -> None:
    with pytest.raises(LinkError, match="cannot connect: Connection refused"):
        await connected(Address("ws://x", "127.0.0.1", 9, is_tls=False, path=""), None, nothing)


async def test_a_peer_that_never_answers_our_close_is_let_go(autojump_clock: MockClock) -> None:
    async with peer(websocket(forever)) as open_stream:
        began = trio.current_time()
        await connected(PLACE, None, nothing, open_stream=open_stream)
        assert trio.current_time() - began <= CLOSE_SECONDS


async def test_a_protocol_ping_while_we_close_ends_nothing_but_the_connection() -> None:
    """The library's reader raises then, and its own context manager ends the program."""

    async def serve(stream: trio.abc.Stream) -> None:
        protocol = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        while True:
            protocol.receive_data(bytes(await stream.receive_some(65_536)) or None)
            for event in protocol.events():
                if isinstance(event, Request):
                    await stream.send_all(protocol.send(AcceptConnection()))
                elif isinstance(event, CloseConnection):
                    # A ping on the wire that was sent before our close arrived there.
                    fresh = wsproto.connection.Connection(wsproto.ConnectionType.SERVER)
                    await stream.send_all(fresh.send(Ping(b"x")))
                    await trio.sleep_forever()

    survived = False
    async with peer(serve) as open_stream:
        with trio.move_on_after(60):
            with pytest.raises(LinkError, match="LocalProtocolError"):
                await connected(PLACE, None, nothing, open_stream=open_stream)
            survived = True
    assert survived


async def test_a_message_that_is_too_large_ends_the_connection_also_where_nobody_answers(
    autojump_clock: MockClock,
) -> None:
    async def flood(connection: WebSocketConnection) -> None:
        await connection.send_message("x" * (2 << 20))
        await trio.sleep_forever()

    async with peer(websocket(flood)) as open_stream:
        with pytest.raises(LinkError, match="1009"):
            await connected(PLACE, None, listen, open_stream=open_stream)


async def test_a_connection_that_is_cut_is_lost() -> None:
    async def cut(connection: WebSocketConnection) -> None:
        await trio.aclose_forcefully(connection._stream)

    async with peer(websocket(cut)) as open_stream:
        with pytest.raises(LinkError):
            await connected(PLACE, None, listen, open_stream=open_stream)


async def test_after_a_send_that_was_cancelled_nothing_more_is_sent(
    autojump_clock: MockClock,
) -> None:
    refused: list[str] = []
    ours, _theirs = memory_stream_pair()

    class Stuck(Watched):
        stuck = False

        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await super().send_all(data)
            if self.stuck:
                await trio.sleep_forever()

    stuck = Stuck(ours)

    async def open_stream(_: Address) -> trio.abc.Stream:
        return stuck

    async def use(connection: Connection) -> None:
        stuck.stuck = True
        with trio.move_on_after(1):
            await connection.send("half")
        stuck.stuck = False
        with pytest.raises(LinkError, match="interrupted") as raised:
            await connection.send("whole")
        refused.append(str(raised.value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(websocket(forever), _theirs)
        await connected(PLACE, None, use, open_stream=open_stream)
        nursery.cancel_scope.cancel()
    assert len(refused) == 1
    assert stuck.is_closed


async def test_a_cancellation_goes_through_and_closes_the_stream(autojump_clock: MockClock) -> None:
    async with peer(websocket(forever)) as open_stream:
        with trio.move_on_after(3) as scope:
            await connected(PLACE, None, listen, open_stream=open_stream)
        assert scope.cancelled_caught
        assert trio.current_time() == 3


async def test_what_the_user_of_a_connection_raises_comes_out_as_it_is() -> None:
    async def broken(_: Connection) -> None:
        raise KeyError("mine")

    async with peer(websocket(forever)) as open_stream:
        with pytest.raises(ExceptionGroup) as raised:
            await connected(PLACE, None, broken, open_stream=open_stream)
    assert raised.group_contains(KeyError)


@define
class Reset(trio.abc.Stream):
    """A stream whose other end is gone: a RST came before the first or the second system call."""

    at_send: bool

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self.at_send:
            raise trio.BrokenResourceError

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("at_send", [False, True])
async def test_a_reset_in_the_handshake_is_told_at_once(
    at_send: bool, autojump_clock: MockClock
) -> None:
    async def open_stream(_: Address) -> trio.abc.Stream:
        return Reset(at_send)

    began = trio.current_time()
    with pytest.raises(LinkError, match="hung up at the WebSocket handshake"):
        await connected(PLACE, None, nothing, open_stream=open_stream)
    assert trio.current_time() - began < 1
