"""The scripted `kimi web` server behaves as the real one was seen to, and can be trusted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import kap_turns
from kap_journal import GLOBAL, TOKEN, KapHome
from kap_port import SOCKET
from kap_rest import refusal
from kap_server import KapServer, serving
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.web.answers import LiveSession
from kimiaepd.web.client import Client, Verdict
from kimiaepd.web.errors import NoAnswerError, OddAnswerError, Refusal, RefusedError
from kimiaepd.web.home import find
from ws_client import Client as Socket
from ws_client import DeniedError, OverError, connected

OLD, NEW = "0.28.0", "2.1.0"
VERSIONS = (OLD, NEW)
OFFER = f"kimi-code.bearer.{TOKEN}"
S = LiveSession("s1")
BASE = "/api/v1/sessions/s1"


@pytest.fixture
def home(tmp_path: Path) -> KapHome:
    return KapHome(tmp_path)


def client(server: KapServer) -> Client:
    (instance,) = [one for one in find(server.home.path).servers if one.id == server.at.id]
    return Client(instance, server.home.path)


@asynccontextmanager
async def plain(server: KapServer) -> AsyncIterator[Socket]:
    """A client that has heard the hello."""
    async with connected(server.port, target=SOCKET, offers=[OFFER]) as socket:
        assert socket.subprotocol == OFFER
        assert (await socket.hear())["type"] == "server_hello"
        yield socket


async def subscribe(socket: Socket, *names: JSON, **payload: JSON) -> list[JSONObject]:
    """What comes up to the acknowledgement, which is the last."""
    asked: JSONObject = {"session_ids": list(names), **payload}
    await socket.say({"type": "subscribe", "id": "r1", "payload": asked})
    heard = [await socket.hear()]
    while heard[-1]["type"] != "ack":
        heard.append(await socket.hear())
    return heard


async def types(socket: Socket, count: int) -> list[JSON]:
    return [(await socket.hear())["type"] for _ in range(count)]


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


# --- REST, and what it wakes ---------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_looking_wakes_no_session_and_asking_for_what_it_waits_for_does(
    home: KapHome, version: str
) -> None:
    with trio.fail_after(10):
        async with serving(home, version) as server, plain(server) as socket:
            server.session("s1", live=False)
            asked = client(server)
            await asked.healthz()
            assert [one.id for one in await asked.sessions()] == ["s1"]
            assert not (await asked.session("s1")).busy
            (ack,) = await subscribe(socket, "s1", cursors={"s1": {"seq": 0}})
            assert ack["payload"] == {
                "accepted": [],
                "not_found": ["s1"],
                "resync_required": [],
                "cursors": {},
            }
            assert server.woken == []
            await asked.snapshot(S)
            assert server.woken == ([] if version == OLD else ["s1"])
            await asked.pending_approvals(S)
            assert server.woken == ["s1"]
            (ack,) = await subscribe(socket, "s1")
            assert server.writes == []
            assert "s1" in (await server.subscribed("s1")).subscriptions


async def test_a_list_has_pages_and_a_session_says_what_it_does(home: KapHome) -> None:
    with trio.fail_after(10):
        async with serving(home) as server:
            for number in range(120):
                server.session(f"s{number}", live=False)
            server.session("s7")
            kap_turns.begin(server, "s7")
            sessions = await client(server).sessions()
            assert [one.id for one in sessions[:2]] == ["s7", "s119"]
            assert sessions[0].live == "s7"
            assert len(sessions) == 120
            asked = [call.query for call in server.calls if call.query]
            assert asked == [{"page_size": "100"}, {"page_size": "100", "before_id": "s21"}]
            kap_turns.end(server, "s7", reason="failed", error={"code": "provider.api_error"})
            assert not (await client(server).session("s7")).busy


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_approval_is_answered_once_and_the_stream_says_so(
    home: KapHome, version: str
) -> None:
    with trio.fail_after(10):
        async with serving(home, version) as server, plain(server) as socket:
            server.session("s1")
            await subscribe(socket, "s1")
            kap_turns.begin(server, "s1", 3)
            name = kap_turns.ask(server, "s1", "call_1", 3)
            assert name == ("call_1" if version == OLD else "approval_call_1")
            await types(socket, 5)
            asked = client(server)
            (approval,) = await asked.pending_approvals(S)
            assert (approval.approval_id, approval.tool_call_id) == (name, "call_1")
            snapshot = await asked.snapshot(S)
            assert snapshot.in_flight_turn is not None
            assert (snapshot.in_flight_turn.turn_id, snapshot.as_of_seq) == (3, 5)
            assert snapshot.session.pending_interaction == "approval"
            await asked.respond(S, name, Verdict("rejected", feedback="no"))
            said = [await socket.hear() for _ in range(3)]
            resolved = next(one for one in said if one["type"] == "event.approval.resolved")
            payload = resolved["payload"]
            assert isinstance(payload, dict)
            assert (payload["decision"], payload["feedback"]) == ("rejected", "no")
            for approval_id, code in ((name, 40902), ("nope", 40404)):
                with pytest.raises(RefusedError) as refused:
                    await asked.respond(S, approval_id, Verdict("approved"))
                assert refused.value.number == code
            with pytest.raises(RefusedError) as refused:
                await asked.respond(LiveSession("nobody"), name, Verdict("approved"))
            assert refused.value.refusal is Refusal.NO_SESSION
            assert [call.code for call in server.writes] == [0, 40902, 40404, 40401]
            assert server.writes[0].json() == {"decision": "rejected", "feedback": "no"}


@pytest.mark.parametrize(
    ("body", "code"), [(b"", 40001), (b"{nope", 50001), (b'{"decision":"maybe"}', 40001),
                       (b'{"decision":"approved","scope":"forever"}', 40001)],
)  # fmt: skip
async def test_a_bad_verdict_is_refused(home: KapHome, body: bytes, code: int) -> None:
    with trio.fail_after(10):
        async with serving(home) as server:
            server.session("s1")
            head = f"POST {BASE}/approvals/a HTTP/1.1\r\nHost: localhost\r\n"
            head += f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
            async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
                await stream.send_all(head.encode() + body)
                async for _ in stream:
                    pass
            assert [call.code for call in server.writes] == [code]


async def test_an_aborted_turn_ends_and_what_it_asked_is_dismissed(home: KapHome) -> None:
    with trio.fail_after(10):
        async with serving(home) as server, plain(server) as socket:
            server.session("s1")
            await subscribe(socket, "s1")
            assert await client(server).abort(S)
            kap_turns.begin(server, "s1")
            kap_turns.ask(server, "s1")
            await types(socket, 5)
            assert await client(server).abort(S)
            said = [await socket.hear() for _ in range(6)]
            assert [one["type"] for one in said] == [
                "turn.step.interrupted",
                "turn.ended",
                "event.approval.resolved",
                "event.session.work_changed",
                "event.session.work_changed",
                "prompt.aborted",
            ]
            resolved = said[2]["payload"]
            assert isinstance(resolved, dict)
            assert "decision" not in resolved
            assert (await client(server).session("s1")).pending_interaction == "none"


async def test_a_dismissed_question_is_no_longer_asked(home: KapHome) -> None:
    with trio.fail_after(10):
        async with serving(home) as server:
            server.session("s1")
            kap_turns.begin(server, "s1")
            form = kap_turns.question(server, "s1")
            (question,) = await client(server).pending_questions(S)
            assert (question.question_id, question.tool_call_id) == (form, "call_1")
            await client(server).abort(S)
            assert await client(server).pending_questions(S) == ()


async def test_without_reactions_a_write_is_only_taken(home: KapHome) -> None:
    with trio.fail_after(10):
        async with serving(home) as server:
            server.switches.reacts = False
            session = server.session("s1")
            kap_turns.begin(server, "s1")
            name = kap_turns.ask(server, "s1")
            seq = session.journal.seq
            await client(server).respond(S, name, Verdict("approved"))
            await client(server).abort(S)
            assert session.journal.seq == seq
            with pytest.raises(RefusedError) as refused:
                await client(server).respond(S, name, Verdict("approved"))
            assert refused.value.refusal is Refusal.ALREADY_RESOLVED


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
