"""The scripted `kimi web` server streams as the real one was seen to, and can be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kap_clients import OFFER, client, plain, subscribe, types
from kap_journal import GLOBAL, TOKEN, KapHome
from kap_port import SOCKET
from kap_server import KapServer, serving
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.web.errors import Refusal, RefusedError
from ws_client import Client as Socket
from ws_client import DeniedError, OverError, connected

OLD, NEW = "0.28.0", "2.1.0"
VERSIONS = (OLD, NEW)


@pytest.fixture
def home(tmp_path: Path) -> KapHome:
    return KapHome(tmp_path)


def seqs(frames: list[JSONObject]) -> list[JSON]:
    return [frame.get("seq") for frame in frames]


# --- the stream ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_subscriber_is_told_and_what_it_missed_comes_before_the_ack(
    home: KapHome, version: str
) -> None:
    with trio.fail_after(10):
        async with serving(home, version) as server:
            journal = server.session("s1").journal
            for _ in range(3):
                server.say("s1", "turn.started", {"turnId": 0})
            async with plain(server) as socket:
                cursor: JSONObject = {"seq": 1, "epoch": journal.epoch}
                *missed, ack = await subscribe(socket, "s1", cursors={"s1": cursor})
                assert seqs(missed) == [2, 3]
                assert ack["payload"] == {
                    "accepted": ["s1"],
                    "not_found": [],
                    "resync_required": [],
                    "cursors": {"s1": {"seq": 3, "epoch": journal.epoch}},
                }
                server.say("s1", "assistant.delta", {"delta": "w"}, volatile=True)
                said = server.say("s1", "turn.ended", {"turnId": 0, "reason": "completed"})
                delta, ended = await socket.hear(), await socket.hear()
                assert (delta["volatile"], delta["seq"], ended) == (True, 3, said)
                await socket.say({"type": "unsubscribe", "payload": {"session_ids": ["s1"]}})
                assert (await socket.hear())["id"] == ""
                server.say("s1", "turn.started", {"turnId": 1})
                server.send({"type": "end"})
                assert await types(socket, 1) == ["end"]


async def test_a_gap_that_is_too_long_or_of_another_journal_is_said_to_be_one(
    home: KapHome,
) -> None:
    with trio.fail_after(10):
        async with serving(home) as server:
            epoch = server.session("s1").journal.epoch
            for _ in range(1001):
                server.say("s1", "context.spliced")
            async with plain(server) as socket:
                gaps: list[tuple[JSONObject, str]] = [
                    ({"seq": 0}, "buffer_overflow"),
                    ({"seq": 1001, "epoch": "ep_other"}, "epoch_changed"),
                    ({"seq": 1002, "epoch": epoch}, "epoch_changed"),
                ]
                for cursor, reason in gaps:
                    resync, ack = await subscribe(socket, "s1", cursors={"s1": cursor})
                    assert resync["payload"] == {
                        "session_id": "s1",
                        "reason": reason,
                        "current_seq": 1001,
                        "epoch": epoch,
                    }
                    payload = ack["payload"]
                    assert isinstance(payload, dict)
                    assert payload["accepted"] == payload["resync_required"] == ["s1"]
                assert len(await subscribe(socket, "s1", cursors={"s1": {"seq": 1}})) == 1001


@pytest.mark.parametrize(
    ("version", "subscribed", "copies"), [(OLD, 2, 2), (OLD, 0, 0), (NEW, 2, 1), (NEW, 0, 1)]
)
async def test_what_is_global_is_told_once_a_subscription_at_first_and_then_once_a_connection(
    home: KapHome, version: str, subscribed: int, copies: int
) -> None:
    with trio.fail_after(10):
        async with serving(home, version) as server:
            names = ["s1", "s2"][:subscribed]
            for name in ("s1", "s2"):
                server.session(name)
            async with plain(server) as socket:
                await subscribe(socket, *names)
                server.create("s3")
                server.say("s3", "turn.started", {"turnId": 0})
                archived = server.say("s2", "event.session.archived")
                assert (archived["session_id"], server.home.sessions["s2"].is_archived) == (
                    GLOBAL,
                    True,
                )
                server.send({"type": "end"})
                heard = await types(socket, 2 * copies + 1)
                assert heard[:copies] == ["event.session.created"] * copies
                assert heard[copies:-1] == ["event.session.archived"] * copies


async def test_bad_input_has_no_answer_and_harms_nothing(home: KapHome) -> None:
    with trio.fail_after(10):
        async with serving(home) as server, plain(server) as socket:
            await socket.say("no JSON", "[1,2]", "null", {"type": "abort"}, b"\xff")
            await socket.say({"type": "subscribe", "id": 7, "payload": {"session_ids": "s1"}})
            assert await socket.hear() == {
                "type": "ack",
                "id": "",
                "code": 0,
                "msg": "success",
                "payload": {"accepted": [], "not_found": [], "resync_required": [], "cursors": {}},
            }
            assert server.open[0].odd == ["no JSON", "[1,2]", "null", b"\xff"]
            assert [frame["type"] for frame in server.said] == ["abort", "subscribe"]


async def test_a_hello_may_subscribe_and_a_wrong_token_in_it_ends_the_connection(
    home: KapHome,
) -> None:
    with trio.fail_after(10):
        async with serving(home) as server, plain(server) as socket:
            server.session("s1")
            hello: JSONObject = {"client_id": "c", "subscriptions": ["s1", "nobody"]}
            await socket.say({"type": "client_hello", "id": "h", "payload": hello})
            payload = (await socket.hear())["payload"]
            assert isinstance(payload, dict)
            assert payload["accepted_subscriptions"] == ["s1"]
            assert payload["resync_required"] == ["nobody"]
            await socket.say({"type": "client_hello", "payload": {"token": "wrong"}})
            assert (await socket.hear())["code"] == 40112
            assert await socket.rest() == ([], 1000)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_null_cursor_kills_an_old_server_and_silences_a_new_one(
    home: KapHome, version: str
) -> None:
    with trio.fail_after(10):
        async with serving(home, version) as server, plain(server) as socket:
            server.session("s1")
            asked: JSONObject = {"session_ids": ["s1"], "cursors": {"s1": None}}
            await socket.say({"type": "subscribe", "payload": asked})
            if version == OLD:
                assert await socket.rest() == ([], 1006)
                await server.ended()
                assert server.at.file.exists()
            else:
                await socket.say({"type": "subscribe", "id": "r2", "payload": {}})
                assert (await socket.hear())["id"] == "r2"
            assert server.failures
            server.failures.clear()


async def test_a_test_that_causes_a_failure_fails(home: KapHome) -> None:
    with pytest.raises(AssertionError, match="null cursor"):  # noqa: PT012 - it is the block's
        async with serving(home) as server, plain(server) as socket:
            await socket.say({"type": "subscribe", "payload": {"cursors": {"s1": None}}})
            await server.until(lambda: bool(server.failures))


# --- heartbeats ----------------------------------------------------------------------------------


async def test_who_is_silent_for_thirty_seconds_is_closed(
    home: KapHome, autojump_clock: MockClock
) -> None:
    async with (
        serving(home) as server,
        connected(server.port, target=SOCKET, offers=[OFFER]) as socket,
    ):
        payload = (await socket.hear())["payload"]
        assert isinstance(payload, dict)
        assert payload["heartbeat_ms"] == 10_000
        began = trio.current_time()
        with trio.fail_after(60):
            pings, code = await heard_to_the_end(socket)
        assert (pings, code) == (["ping", "ping"], 1001)
        assert trio.current_time() - began == pytest.approx(30)
        await socket.answer_close()
        await server.until(lambda: not server.open)


async def heard_to_the_end(socket: Socket) -> tuple[list[JSON], int | None]:
    """As `rest`, without its patience of five seconds."""
    heard = list[JSON]()
    while True:
        try:
            heard.append((await heard_late(socket))["type"])
        except OverError as over:
            return heard, over.code


async def heard_late(socket: Socket) -> JSONObject:
    while True:
        try:
            return await socket.hear()
        except trio.TooSlowError:
            pass


async def test_who_answers_stays_and_an_old_server_does_not_ask(
    home: KapHome, autojump_clock: MockClock
) -> None:
    async with serving(home) as server, plain(server) as socket:
        for _ in range(5):
            ping = await heard_late(socket)
            await socket.say({"type": "pong", "payload": ping["payload"]})
        assert trio.current_time() >= 50
        (nonce,) = server.ping()
        assert (await socket.hear())["payload"] == {"nonce": nonce}
        assert len(server.open[0].pongs) == 5
    async with serving(home, OLD) as server, plain(server) as socket:
        await trio.sleep(60)
        server.send({"type": "end"})
        assert await types(socket, 1) == ["end"]


# --- who may ask ---------------------------------------------------------------------------------


async def raw(server: KapServer, *lines: str, path: str = SOCKET) -> bytes:
    """All that comes back to a handshake."""
    head = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *lines]
    head += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    head += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        await stream.send_all("\r\n".join(head).encode())
        answer = b""
        while piece := await stream.receive_some():
            answer += piece
            if b"101" in answer:
                break
        return answer


REFUSED = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n"


async def test_a_handshake_needs_the_token_and_a_refusal_is_bare(home: KapHome) -> None:
    right, wrong = f"Authorization: Bearer {TOKEN}", "Authorization: Bearer wrong"
    offer = f"Sec-WebSocket-Protocol: {OFFER}"
    with trio.fail_after(10):
        async with serving(home) as server:
            assert await raw(server) == REFUSED
            assert await raw(server, wrong) == REFUSED
            assert await raw(server, wrong, offer) == REFUSED
            assert await raw(server, path=f"{SOCKET}?token={TOKEN}") == REFUSED
            assert (await raw(server, right)).startswith(b"HTTP/1.1 101")
            assert (await raw(server, right, path=f"{SOCKET}?x=1")).startswith(b"HTTP/1.1 101")
            assert (await raw(server, right, "Origin: null")).startswith(b"HTTP/1.1 101")
            assert (await raw(server, right, "Origin: http://evil.example")).startswith(
                b"HTTP/1.1 403"
            )
            assert await raw(server, right, path="/ws") == b""
            with pytest.raises(DeniedError, match="401"):
                async with connected(server.port, target=SOCKET, offers=["kimi-code.bearer.no"]):
                    pass


async def test_a_rotated_token_is_taken_at_once_and_who_is_connected_stays(
    home: KapHome,
) -> None:
    with trio.fail_after(10):
        async with serving(home) as server, plain(server) as socket:
            server.rotate("another")
            assert (await client(server).meta()).server_version == NEW
            with pytest.raises(DeniedError, match="401"):
                async with connected(server.port, target=SOCKET, offers=[OFFER]):
                    pass
            assert len(await subscribe(socket)) == 1
            (home.path / "server.token").write_text("not-the-one")
            with pytest.raises(RefusedError) as refused:
                await client(server).meta()
            assert refused.value.refusal is Refusal.UNAUTHORIZED
            assert (home.path / "server.token").stat().st_mode & 0o777 == 0o600
