"""The scripted `kimi web` server begins and ends as the real one does, and misbehaves as asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import kap_turns
from kap_clients import OFFER, client, plain, subscribe, types
from kap_journal import KapHome
from kap_port import SOCKET
from kap_rest import refusal
from kap_server import serving
from kimiaepd.mapping.json_value import JSON
from kimiaepd.web.answers import LiveSession
from kimiaepd.web.errors import NoAnswerError, OddAnswerError, RefusedError
from kimiaepd.web.home import find
from ws_client import connected

S = LiveSession("s1")


@pytest.fixture
def home(tmp_path: Path) -> KapHome:
    return KapHome(tmp_path)


# --- beginnings and ends -------------------------------------------------------------------------


async def test_a_stopped_server_refuses_calls_and_lives_as_long_as_its_web_sockets(
    home: KapHome,
) -> None:
    with trio.fail_after(10):
        async with serving(home) as server:
            server.session("s1")
            asked = client(server)
            async with plain(server) as socket:
                server.stop()
                with pytest.raises(NoAnswerError) as refused:
                    await asked.healthz()
                assert refused.value.is_refused
                await subscribe(socket, "s1")
                server.say("s1", "turn.started", {"turnId": 0})
                assert await types(socket, 1) == ["turn.started"]
                assert server.at.file.exists()
                await socket.answer_close()
                assert await socket.rest() == ([], 1000)
                await server.ended()
            assert not server.at.file.exists()
            assert server.connections[0].goodbye == 1000


async def test_a_killed_server_leaves_its_file_and_the_next_goes_on_where_it_was(
    home: KapHome,
) -> None:
    with trio.fail_after(20):
        async with serving(home, is_mortal=True) as first:
            first.session("s1")
            async with plain(first) as socket:
                await subscribe(socket, "s1")
                kap_turns.begin(first, "s1")
                assert len(find(home.path).servers) == 1
                await first.drained()
                first.kill()
                said, code = await socket.rest()
                assert (len(said), code) == (2, 1006)
            await first.ended()
            assert [one.id for one in find(home.path).gone] == [first.at.id]
        async with serving(home, port=first.port) as second, plain(second) as socket:
            asked = client(second)
            assert second.port == first.port
            assert not (await asked.session("s1")).busy
            assert len(await subscribe(socket, "s1")) == 1
            second.session("s1")
            begun: JSON = {"seq": 2, "epoch": home.sessions["s1"].journal.epoch}
            assert len(await subscribe(socket, "s1", cursors={"s1": begun})) == 1
            assert second.say("s1", "turn.started", {"turnId": 1})["seq"] == 3
        assert not second.at.file.exists()


async def test_the_file_may_come_before_the_port(home: KapHome) -> None:
    with trio.fail_after(10):
        async with serving(home, port_is_known=False) as server:
            assert client(server).instance.port == 0
            server.ready()
            await client(server).meta()


async def test_what_a_session_does_is_known_to_the_server_that_runs_it_alone(
    home: KapHome,
) -> None:
    with trio.fail_after(10):
        async with serving(home) as one, serving(home) as other:
            one.session("s1")
            kap_turns.begin(one, "s1")
            kap_turns.ask(one, "s1")
            assert (await client(one).session("s1")).busy
            assert not (await client(other).session("s1")).busy
            assert len(await client(one).pending_approvals(S)) == 1
            assert await client(other).pending_approvals(S) == ()
            assert other.woken == ["s1"]
            async with plain(other) as socket:
                assert (await subscribe(socket, "s1"))[-1]["code"] == 0
                kap_turns.resolve(one, "s1", "approval_call_1", {"decision": "approved"})
                other.send({"type": "end"})
                assert await types(socket, 1) == ["end"]


# --- what can go wrong ---------------------------------------------------------------------------


async def test_it_can_send_what_no_server_sends(home: KapHome) -> None:
    with trio.fail_after(30):
        async with serving(home) as server, plain(server) as socket:
            server.session("s1")
            await subscribe(socket, "s1")
            server.send("garbage")
            server.send(b"\x00\xff")
            server.say("s1", "tool.result", {"output": "x" * 5_000_000})
            assert await socket.text() == "garbage"
            assert len(await socket.text()) > 5_000_000
            await server.flood("s1", 3000)
            assert len([await socket.hear() for _ in range(3000)]) == 3000
            server.send_raw(b"\x81\x7e\x10\x00half of it")
            await server.drained()
            await server.open[0].drop()
            assert await socket.rest() == ([], 1006)


async def test_it_can_leave_a_client_waiting(home: KapHome, autojump_clock: MockClock) -> None:
    async with serving(home) as server:
        server.session("s1")
        server.switches.instead["GET /api/v1/meta"] = None
        with pytest.raises(NoAnswerError):
            await client(server).meta()
        server.switches.instead["GET /api/v1/meta"] = b"HTTP/1.1 200 OK\r\n\r\n<html>"
        with pytest.raises(OddAnswerError):
            await client(server).meta()
        server.switches.instead["GET /api/v1/meta"] = refusal(40401, "none").bytes()
        with pytest.raises(RefusedError):
            await client(server).meta()
        assert [call.code for call in server.calls if call.path.endswith("/meta")] == [None] * 3
        server.switches.no_ack = True
        async with plain(server) as socket:
            await socket.say({"type": "subscribe", "payload": {"session_ids": ["s1"]}})
            await server.subscribed("s1")
            server.say("s1", "turn.started", {"turnId": 0})
            assert await types(socket, 1) == ["turn.started"]
        server.switches.no_hello = True
        async with connected(server.port, target=SOCKET, offers=[OFFER]) as socket:
            with pytest.raises(trio.TooSlowError):
                await socket.hear()
        server.switches.never_shakes_hands = True
        with trio.move_on_after(5) as given_up:
            async with connected(server.port, target=SOCKET, offers=[OFFER]):
                pass
        assert given_up.cancelled_caught
        server.switches.hang_up = True
        with pytest.raises(NoAnswerError) as gone:
            await client(server).healthz()
        assert not gone.value.is_refused


async def test_it_can_take_a_goodbye_badly(home: KapHome, autojump_clock: MockClock) -> None:
    async with serving(home) as server:
        server.switches.ping_at_goodbye = True
        async with plain(server) as socket:
            await socket.answer_close()
            assert await socket.stream.receive_some() == b"\x89\x01x" * 3 + b"\x88\x02\x03\xe8"
        server.switches.never_close = True
        server.switches.ping_at_goodbye = False
        async with plain(server) as socket:
            await socket.answer_close()
            with trio.move_on_after(60) as given_up:
                await socket.stream.receive_some()
            assert given_up.cancelled_caught
            assert len(server.open) == 1
        await server.until(lambda: not server.open)
