"""The scripted `kimi web` server answers over REST, and wakes sessions, as the real one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import kap_turns
from kap_clients import client, plain, subscribe, types
from kap_journal import TOKEN, KapHome
from kap_server import serving
from kimiaepd.web.answers import LiveSession
from kimiaepd.web.client import Verdict
from kimiaepd.web.errors import Refusal, RefusedError

OLD = "0.28.0"
VERSIONS = (OLD, "2.1.0")
S = LiveSession("s1")
BASE = "/api/v1/sessions/s1"


@pytest.fixture
def home(tmp_path: Path) -> KapHome:
    return KapHome(tmp_path)


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
