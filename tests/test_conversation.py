"""One connection's talk, over a real socket pair, in virtual time.

The client's end is Trio's own stream, so that what our connection does is seen from outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import tracemalloc

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kimiaepd import __version__
from kimiaepd.errors import ConfigError
from kimiaepd.hook_socket import conversation
from kimiaepd.hook_socket.connection import PIECE_BYTES, Connection
from kimiaepd.hook_socket.conversation import HEAD_BYTES, Conversations, Reply
from kimiaepd.hook_socket.limits import Limits
from kimiaepd.hook_socket.peer import Peer
from kimiaepd.hook_socket.wire import Kind, encode_reply, encode_request
from kimiaepd.mapping.json_value import JSONObject, parse

MIB = 1 << 20


@define
class Recorder:
    """A handler that keeps what it was given, and says or raises what it is told."""

    reply: bytes = b""
    error: BaseException | None = None
    hooks: list[tuple[bytes, int]] = field(factory=list)
    over: list[tuple[bytes, int, int]] = field(factory=list)

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> bytes:
        self.hooks.append((body, started_ns))
        if self.error:
            raise self.error
        return self.reply

    def oversized(self, head: bytes, size: int, started_ns: int) -> None:
        self.over.append((head, size, started_ns))
        if self.error:
            raise self.error

    def status(self) -> JSONObject:
        if self.error:
            raise self.error
        return {"hooks": len(self.hooks)}

    async def reload(self) -> JSONObject:
        if self.error:
            raise self.error
        return {"ok": True}

    def console(self, *, read_only: bool, with_token: bool) -> JSONObject:
        return {"read_only": read_only, "token": with_token}


@define
class Asker:
    """A handler of hooks that wants to know what becomes of its replies."""

    reply: bytes = b"said"
    told: list[bool] = field(factory=list)
    error: Exception | None = None

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> Reply:
        return Reply(self.reply, self._over)

    def _over(self, arrived: bool) -> None:
        self.told.append(arrived)
        if self.error:
            raise self.error

    def oversized(self, head: bytes, size: int, started_ns: int) -> None:
        raise AssertionError

    def status(self) -> JSONObject:
        raise AssertionError

    async def reload(self) -> JSONObject:
        raise AssertionError

    def console(self, *, read_only: bool, with_token: bool) -> JSONObject:
        raise AssertionError


@define
class Holder(Recorder):
    """A handler that holds each hook until its peer is gone or `answer` is set."""

    answer: trio.Event = field(factory=trio.Event)
    left: int = 0

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> bytes:
        self.hooks.append((body, started_ns))
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await peer.gone()
                self.left += 1
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await self.answer.wait()
            nursery.cancel_scope.cancel()
        return self.reply


def start(conversations: Conversations, nursery: trio.Nursery) -> trio.SocketStream:
    """The client's end of a connection that is being served."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(ours)

    async def serve() -> None:
        await conversations.serve(connection)
        await connection.aclose()

    nursery.start_soon(serve)
    return trio.SocketStream(trio.socket.from_stdlib_socket(theirs))


async def read_to_end(client: trio.SocketStream) -> bytes:
    """Everything until the server hangs up, or throws away what we sent."""
    said = b""
    try:
        async for piece in client:
            said += piece
    except trio.BrokenResourceError:
        pass
    return said


async def talk(conversations: Conversations, *pieces: bytes, half_close: bool = False) -> bytes:
    """Send the pieces, one after the other is read; what the server said until it hung up."""
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        async with client:
            for piece in pieces:
                await client.send_all(piece)
                await wait_all_tasks_blocked()
            if half_close:
                await client.send_eof()
            return await read_to_end(client)
    raise AssertionError("unreachable")


def counted(conversations: Conversations) -> dict[str, int]:
    """The counters that are not zero; and nothing may be left behind."""
    assert (conversations.connected, conversations.spare, conversations.reserved) == (0, 0, 0)
    return {kind: times for kind, times in conversations.stats.items() if times}


@pytest.mark.parametrize("reply", [b"", b'{"message":"m"}', b"r" * (3 * MIB)])
async def test_a_hook_gets_what_the_handler_says(reply: bytes) -> None:
    handler = Recorder(reply=reply)
    conversations = Conversations(handler, Limits())
    assert await talk(conversations, encode_request("hook", 7, b"body")) == encode_reply(reply)
    assert handler.hooks == [(b"body", 7)]
    assert counted(conversations) == {"hook": 1}


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 20, PIECE_BYTES, 3 * MIB])
async def test_a_body_of_any_size_arrives(size: int) -> None:
    handler = Recorder()
    conversations = Conversations(handler, Limits())
    body = os.urandom(size)
    assert await talk(conversations, encode_request("hook", 7, body)) == b"0\n"
    assert handler.hooks == [(body, 7)]
    assert counted(conversations) == {"hook": 1}


async def test_a_frame_in_pieces_arrives() -> None:
    handler = Recorder()
    conversations = Conversations(handler, Limits())
    frame = encode_request("hook", 7, b"body")
    assert await talk(conversations, *(bytes([byte]) for byte in frame)) == b"0\n"
    assert handler.hooks == [(b"body", 7)]


async def drip(client: trio.SocketStream, frame: bytes, every: float) -> None:
    """One byte at a time, until the server has enough of it."""
    try:
        for byte in frame:
            await client.send_all(bytes([byte]))
            await trio.sleep(every)
    except trio.BrokenResourceError:
        pass


@pytest.mark.parametrize(("every", "reply"), [(1.0, b""), (0.2, b""), (0.15, b"0\n")])
async def test_the_read_deadline_is_for_the_whole_frame(
    every: float, reply: bytes, autojump_clock: MockClock
) -> None:
    frame = encode_request("hook", 7, b"a body: 31 bytes.")
    assert len(frame) == 33
    conversations = Conversations(Recorder(), Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        nursery.start_soon(drip, client, frame, every)
        began = trio.current_time()
        assert await read_to_end(client) == reply
        assert trio.current_time() - began <= 5.0
        await client.aclose()
        nursery.cancel_scope.cancel()
    assert counted(conversations) == ({"hook": 1} if reply else {"slow_read": 1})


async def test_a_silent_client_has_five_seconds(autojump_clock: MockClock) -> None:
    conversations = Conversations(Recorder(), Limits())
    began = trio.current_time()
    assert await talk(conversations) == b""
    assert trio.current_time() - began == pytest.approx(5.0)
    assert counted(conversations) == {"slow_read": 1}


async def test_a_held_hook_has_all_the_time_it_needs(autojump_clock: MockClock) -> None:
    handler = Holder(reply=b"deny")
    conversations = Conversations(handler, Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        await client.send_all(encode_request("hook", 7, b"body"))
        await trio.sleep(3600)
        handler.answer.set()
        assert await read_to_end(client) == b"4\ndeny"
        await client.aclose()
    assert handler.left == 0


async def test_a_handler_that_holds_sees_its_client_go(autojump_clock: MockClock) -> None:
    handler = Holder(reply=b"deny")
    conversations = Conversations(handler, Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        await client.send_all(encode_request("hook", 7, b"body"))
        await trio.sleep(10)
        assert (handler.left, conversations.connected) == (0, 1)
        await client.aclose()
    assert handler.left == 1
    assert counted(conversations) == {"hook": 1, "gone": 1}


async def test_a_client_that_does_not_read_has_one_second(autojump_clock: MockClock) -> None:
    conversations = Conversations(Recorder(reply=b"r" * (16 * MIB)), Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        began = trio.current_time()
        await client.send_all(encode_request("hook", 7, b"body"))
        await trio.sleep(0.9)
        assert conversations.connected == 1
        await trio.sleep(0.2)
        assert counted(conversations) == {"hook": 1, "slow_write": 1}
        assert trio.current_time() - began == pytest.approx(1.1)
        await client.aclose()


async def test_a_reply_has_arrived_when_the_client_took_it_and_hung_up() -> None:
    handler = Asker()
    conversations = Conversations(handler, Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        await client.send_all(encode_request("hook", 7, b"body"))
        assert await client.receive_some() == b"4\nsaid"
        await wait_all_tasks_blocked()
        assert handler.told == []
        await client.aclose()
    assert handler.told == [True]
    assert counted(conversations) == {"hook": 1}


async def test_a_reply_that_nobody_waited_for_has_not_arrived() -> None:
    handler = Asker()
    conversations = Conversations(handler, Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        await client.send_all(encode_request("hook", 7, b"body"))
        await client.aclose()
    assert handler.told == [False]
    assert counted(conversations) == {"hook": 1, "gone": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of bytes left unread")
async def test_a_reply_that_a_killed_client_left_unread_has_not_arrived() -> None:
    handler = Asker()
    conversations = Conversations(handler, Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        await client.send_all(encode_request("hook", 7, b"body"))
        await wait_all_tasks_blocked()  # it is in the client's socket, and stays there
        assert handler.told == []
        await client.aclose()
    assert handler.told == [False]
    assert counted(conversations) == {"hook": 1, "gone": 1}


async def test_a_reply_that_did_not_fit_in_time_has_not_arrived(autojump_clock: MockClock) -> None:
    handler = Asker(b"r" * (16 * MIB))
    conversations = Conversations(handler, Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        await client.send_all(encode_request("hook", 7, b"body"))
        await trio.sleep(1.1)
        assert handler.told == [False]
        await client.aclose()
    assert counted(conversations) == {"hook": 1, "slow_write": 1}


async def test_a_client_that_took_its_reply_and_stays_is_let_go(autojump_clock: MockClock) -> None:
    handler = Asker()
    conversations = Conversations(handler, Limits())
    began = trio.current_time()
    assert await talk(conversations, encode_request("hook", 7, b"body")) == b"4\nsaid"
    assert trio.current_time() - began == pytest.approx(Limits().write_seconds)
    assert handler.told == [True]


async def test_a_stop_says_that_a_reply_may_not_have_arrived() -> None:
    handler = Asker()
    conversations = Conversations(handler, Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        await client.send_all(encode_request("hook", 7, b"body"))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await client.aclose()
    assert handler.told == [False]
    assert counted(conversations) == {"hook": 1}


async def test_a_defect_in_who_is_told_costs_nothing_but_a_line() -> None:
    handler = Asker(error=ValueError("x"))
    conversations = Conversations(handler, Limits())
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            client = start(conversations, nursery)
            await client.send_all(encode_request("hook", 7, b"body"))
            assert await client.receive_some() == b"4\nsaid"
            await client.aclose()
    assert counted(conversations) == {"hook": 1, "handler_error": 1}
    assert [entry["exc_info"] for entry in logs if "exc_info" in entry] == [handler.error]


async def test_a_probe_is_not_garbage() -> None:
    conversations = Conversations(Recorder(), Limits())
    with capture_logs() as logs:
        assert await talk(conversations, half_close=True) == b""
    assert counted(conversations) == {"knock": 1}
    assert logs == []


@pytest.mark.parametrize("cut", [3, 20, -1])
async def test_half_a_frame_is_counted(cut: int) -> None:
    handler = Recorder()
    conversations = Conversations(handler, Limits())
    frame = encode_request("hook", 1_700_000_000, b"body")
    assert await talk(conversations, frame[:cut], half_close=True) == b""
    assert counted(conversations) == {"truncated": 1}
    assert handler.hooks == []


async def test_a_whole_frame_is_answered_also_after_a_half_close() -> None:
    conversations = Conversations(Recorder(), Limits())
    frame = encode_request("hook", 7, b"body")
    assert await talk(conversations, frame, half_close=True) == b"0\n"


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 300, b"AEPD1 stop 1 1\n", b"AEPD1 hook 1 1\nxy", b"x"],
)
async def test_garbage_costs_its_connection_and_one_line(garbage: bytes) -> None:
    handler = Recorder()
    conversations = Conversations(handler, Limits())
    with capture_logs() as logs:
        for _ in range(3):
            assert await talk(conversations, garbage) == b""
    assert counted(conversations) == {"garbage": 3}
    assert [entry["kind"] for entry in logs] == ["garbage"]
    assert await talk(conversations, encode_request("hook", 7, b"body")) == b"0\n"


async def test_an_oversized_hook_is_freed_by_its_header_alone() -> None:
    handler = Recorder()
    conversations = Conversations(handler, Limits(frame_bytes=10_000))
    assert await talk(conversations, b"AEPD1 hook 7 10001\n") == b"0\n"
    assert await talk(conversations, b'AEPD1 hook 7 9000000\n{"se') == b"0\n"
    await talk(conversations, b"AEPD1 hook 7 9000000\n" + b"x" * 9000)
    assert handler.over == [
        (b"", 10_001, 7),
        (b'{"se', 9_000_000, 7),
        (b"x" * HEAD_BYTES, 9_000_000, 7),
    ]
    assert handler.hooks == []
    assert counted(conversations) == {"oversized": 3}


async def test_only_a_hook_may_be_oversized() -> None:
    conversations = Conversations(Recorder(), Limits(frame_bytes=10))
    assert await talk(conversations, b"AEPD1 status 7 11\n") == b""
    assert counted(conversations) == {"garbage": 1}


@pytest.mark.parametrize("error", [ValueError("x"), ExceptionGroup("x", [OSError("y")])])
async def test_a_defect_in_the_handler_frees_the_hook_and_is_told(error: Exception) -> None:
    handler = Recorder(error=error)
    conversations = Conversations(handler, Limits(frame_bytes=10))
    with capture_logs() as logs:
        assert await talk(conversations, encode_request("hook", 7, b"body")) == b"0\n"
        assert await talk(conversations, b"AEPD1 hook 7 11\n") == b"0\n"
        assert await talk(conversations, encode_request("status", 7)) == encode_reply(
            b'{"error":"status failed; the daemon\'s log says why"}'
        )
    assert counted(conversations) == {"hook": 1, "oversized": 1, "status": 1, "handler_error": 3}
    assert [entry["exc_info"] for entry in logs if "exc_info" in entry] == [error] * 3
    handler.error = None
    assert await talk(conversations, encode_request("hook", 7, b"body")) == b"0\n"


async def test_what_the_settings_say_is_no_hooks_reply() -> None:
    conversations = Conversations(Recorder(error=ConfigError("a key is wrong")), Limits())
    assert await talk(conversations, encode_request("hook", 7, b"body")) == b"0\n"


async def test_cancelling_passes_through_and_leaves_nothing() -> None:
    conversations = Conversations(Holder(), Limits())
    async with trio.open_nursery() as nursery:
        client = start(conversations, nursery)
        await client.send_all(encode_request("hook", 7, b"x" * (2 * PIECE_BYTES)))
        await wait_all_tasks_blocked()
        assert (conversations.connected, conversations.reserved) == (1, 2 * PIECE_BYTES)
        nursery.cancel_scope.cancel()
    assert await read_to_end(client) == b""
    await client.aclose()
    assert counted(conversations) == {"hook": 1}


async def ask(conversations: Conversations, kind: Kind) -> JSONObject:
    """The answer to a client's question."""
    _, _, body = (await talk(conversations, encode_request(kind, 7))).partition(b"\n")
    answer = parse(body)
    assert isinstance(answer, dict)
    return answer


async def test_a_ping_is_answered_without_the_handler() -> None:
    conversations = Conversations(Recorder(error=RuntimeError()), Limits())
    assert await ask(conversations, "ping") == {"pid": os.getpid(), "version": __version__}


async def test_a_status_shows_the_counters_beside_what_the_handler_says() -> None:
    conversations = Conversations(Recorder(), Limits())
    await talk(conversations, b"garbage")
    await talk(conversations, encode_request("hook", 7, b"body"))
    assert await ask(conversations, "status") == {
        "hooks": 1,
        "connections": {"open": 1, "hook": 1, "status": 1, "garbage": 1},
    }


async def test_a_reload_says_what_is_wrong_in_one_line() -> None:
    handler = Recorder()
    conversations = Conversations(handler, Limits())
    assert await ask(conversations, "reload") == {"ok": True}
    handler.error = ConfigError("config.toml: no such key")
    assert await ask(conversations, "reload") == {"error": "config.toml: no such key"}
    assert counted(conversations) == {"reload": 2}


async def test_one_too_many_is_closed_at_once(autojump_clock: MockClock) -> None:
    handler = Holder()
    conversations = Conversations(handler, Limits(connections=2))
    async with trio.open_nursery() as nursery:
        held = [start(conversations, nursery) for _ in range(2)]
        for client in held:
            await client.send_all(encode_request("hook", 7, b"body"))
        began = trio.current_time()
        assert await talk(conversations, encode_request("hook", 7, b"third")) == b""
        assert trio.current_time() == began
        handler.answer.set()
        for client in held:
            assert await read_to_end(client) == b"0\n"
            await client.aclose()
    assert await talk(conversations, encode_request("hook", 7, b"fourth")) == b"0\n"
    assert [body for body, _ in handler.hooks] == [b"body", b"body", b"fourth"]
    assert counted(conversations) == {"hook": 3, "over_limit": 1}


async def test_a_full_house_still_says_how_it_is(autojump_clock: MockClock) -> None:
    handler = Holder()
    conversations = Conversations(handler, Limits(connections=1))
    async with trio.open_nursery() as nursery:
        held = start(conversations, nursery)
        await held.send_all(encode_request("hook", 7, b"body"))
        await wait_all_tasks_blocked()
        assert await ask(conversations, "ping") == {"pid": os.getpid(), "version": __version__}
        status = await ask(conversations, "status")
        assert status["connections"] == {"open": 2, "hook": 1, "ping": 1, "status": 1}
        for body in (b"", b"x" * PIECE_BYTES * 2):
            assert await talk(conversations, encode_request("hook", 7, body)) == b""
        handler.answer.set()
        assert await read_to_end(held) == b"0\n"
        await held.aclose()
    assert [body for body, _ in handler.hooks] == [b"body"]
    assert counted(conversations) == {"hook": 1, "ping": 1, "status": 1, "over_limit": 2}


async def test_spare_places_are_few_and_nobody_keeps_one(autojump_clock: MockClock) -> None:
    limits = Limits(connections=1, spare_places=2)
    conversations = Conversations(Holder(), limits)
    async with trio.open_nursery() as nursery:
        held = start(conversations, nursery)
        await held.send_all(encode_request("hook", 7, b"body"))
        await wait_all_tasks_blocked()
        silent = [start(conversations, nursery) for _ in range(2)]
        await wait_all_tasks_blocked()
        began = trio.current_time()
        assert await talk(conversations, encode_request("ping", 7)) == b""
        for client in silent:
            assert await read_to_end(client) == b""
            await client.aclose()
        assert trio.current_time() - began == limits.spare_seconds
        assert await ask(conversations, "ping")
        await held.aclose()
    assert counted(conversations)["slow_read"] == 2


async def test_who_has_a_spare_place_takes_nobody_elses(autojump_clock: MockClock) -> None:
    handler = Holder()
    conversations = Conversations(handler, Limits(connections=1))
    async with trio.open_nursery() as nursery:
        held = start(conversations, nursery)
        await held.send_all(encode_request("hook", 7, b"body"))
        await wait_all_tasks_blocked()
        silent = start(conversations, nursery)
        await wait_all_tasks_blocked()
        await held.aclose()
        handler.answer.set()
        await wait_all_tasks_blocked()
        assert await talk(conversations, encode_request("hook", 7, b"next")) == b"0\n"
        await silent.aclose()
    assert [body for body, _ in handler.hooks] == [b"body", b"next"]


async def test_another_users_hook_is_not_read() -> None:
    handler = Recorder()
    conversations = Conversations(handler, Limits(), uid=os.geteuid() + 1)
    assert await talk(conversations, encode_request("hook", 7, b"body")) == b""
    assert handler.hooks == []
    assert counted(conversations) == {"foreign_user": 1}


async def test_a_peer_that_cannot_be_asked_for_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(_: object) -> int:
        raise OSError(errno.ENOTCONN, "went before it could be asked")

    monkeypatch.setattr(conversation, "peer_uid", gone)
    conversations = Conversations(Recorder(), Limits())
    assert await talk(conversations, encode_request("hook", 7, b"body")) == b""
    assert counted(conversations) == {"foreign_user": 1}


async def test_large_bodies_share_their_room_until_they_are_answered() -> None:
    handler = Holder()
    size = 3 * PIECE_BYTES
    conversations = Conversations(handler, Limits(large_bytes=2 * size))
    frame = encode_request("hook", 7, b"x" * size)
    async with trio.open_nursery() as nursery:
        clients = [start(conversations, nursery) for _ in range(2)]
        await clients[0].send_all(frame)
        await clients[1].send_all(frame[:-1])
        await wait_all_tasks_blocked()
        assert conversations.reserved == 2 * size
        assert await talk(conversations, frame) in (b"0\n", b"")
        assert conversations.stats["no_room"] == 1
        handler.answer.set()
        assert await talk(conversations, encode_request("hook", 7, b"small")) == b"0\n"
        assert await read_to_end(clients[0]) == b"0\n"
        await clients[1].send_all(frame[-1:])
        assert await read_to_end(clients[1]) == b"0\n"
        for client in clients:
            await client.aclose()
    assert counted(conversations) == {"hook": 3, "no_room": 1}


def test_the_worst_case_is_the_sum_that_is_written_beside_it() -> None:
    assert Limits().worst_case_bytes == (48 + 1 + 72 + 32) * MIB


@pytest.mark.parametrize(("frame", "room"), [(32, 64), (64, 64), (100, 100)])
def test_the_longest_body_always_finds_room(frame: int, room: int) -> None:
    assert Limits(frame_bytes=frame * MIB).large_bytes == room * MIB


async def test_a_body_longer_than_64_mib_is_read_where_the_settings_allow_it() -> None:
    handler = Recorder()
    conversations = Conversations(handler, Limits(frame_bytes=80 * MIB))
    assert await talk(conversations, encode_request("hook", 7, bytes(80 * MIB))) == b"0\n"
    assert counted(conversations) == {"hook": 1}


async def test_no_crowd_holds_more_than_the_worst_case() -> None:
    limits = Limits(frame_bytes=2 * MIB, connections=16, large_bytes=6 * MIB)
    conversations = Conversations(Holder(), limits)
    frames = [
        encode_request("hook", 7, b"x" * size) for size in (PIECE_BYTES - 30, PIECE_BYTES, 2 * MIB)
    ]
    # Every other one stops before its last byte, the rest is held.
    pieces = [frame[: len(frame) - cut] for cut in (0, 1) for frame in frames]
    tracemalloc.start()
    try:
        async with trio.open_nursery() as nursery:
            clients = [start(conversations, nursery) for _ in range(20)]
            for number, client in enumerate(clients):
                nursery.start_soon(send_quietly, client, pieces[number % len(pieces)])
            await wait_all_tasks_blocked()
            _, peak = tracemalloc.get_traced_memory()
            assert conversations.reserved <= limits.large_bytes
            assert conversations.connected > 8
            nursery.cancel_scope.cancel()
    finally:
        tracemalloc.stop()
    for client in clients:
        await client.aclose()
    assert 6 * MIB < peak < limits.worst_case_bytes


async def send_quietly(client: trio.SocketStream, data: bytes) -> None:
    """Send; that the server throws it away is its right."""
    with contextlib.suppress(trio.BrokenResourceError):
        await client.send_all(data)
