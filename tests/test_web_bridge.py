"""The bridge beside scripted servers: who is watched, what is told, what a server may do to us."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import kap_turns as turns
from bridge_room import PATIENCE, BridgeRoom, bridged, words
from daemon_room import DEFAULT
from judge import judge
from kap_journal import KapHome
from kap_server import KapServer, serving
from kap_switches import Switches
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.web.cursors import Cursor

VERSIONS = ["0.28.0", "2.1.0"]
STORY = [
    "run.started", "attention.requested", "attention.answered", "attention.resolved",
    "tool.requested", "tool.completed", "run.finished",
]  # fmt: skip


@pytest.fixture
def fast_clock() -> MockClock:
    """Five seconds of the bridge's waits in one of ours."""
    return MockClock(rate=5.0)


@pytest.fixture
def home(tmp_path: Path) -> KapHome:
    return KapHome(tmp_path / "kimi")


def story(server: KapServer, session: str = "s1", turn: int = 0) -> None:
    """A turn with a call that is approved in the browser."""
    turns.begin(server, session, turn)
    approval = turns.ask(server, session, f"c{turn}", turn)
    turns.resolve(server, session, approval, {"decision": "approved"})
    turns.call(server, session, f"c{turn}", turn)
    turns.result(server, session, f"c{turn}", turn)
    turns.end(server, session, turn)


async def watched(room: BridgeRoom, server: KapServer, *sessions: str) -> None:
    """Wait until the bridge is told of these."""
    for session in sessions:
        await server.subscribed(session, PATIENCE)
    await room.so(lambda: room.server["sessions"] == len(sessions))


# --- what is told ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_primary_tells_the_whole_story_once(
    tmp_path: Path, home: KapHome, fast_clock: MockClock, version: str
) -> None:
    async with serving(home, version) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        story(server)
        await room.until("run.finished")
        assert room.core() == STORY
        story(server, turn=1)
        await room.until("run.finished", 2)
        assert room.core() == [*STORY, *STORY]
        judge(room.events())
        assert (server.writes, server.woken) == ([], [])
        assert room.server["odd"] == room.server["gaps"] == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_companion_shows_every_frame_and_tells_nothing_itself(
    tmp_path: Path, home: KapHome, fast_clock: MockClock, version: str
) -> None:
    async with serving(home, version) as server, bridged(tmp_path, home, "companion") as room:
        server.session("s1")
        await watched(room, server, "s1")
        story(server)
        await room.until("x.kimi-code.web.turn.ended")
        assert room.core() == []
        assert "x.kimi-code.web.tool.call.started" in room.types()
        assert {json.dumps(event.get("data")) for event in room.events()} <= {"{}", "null"}


async def test_nothing_above_the_ceiling_is_written(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home, ceilings=DEFAULT) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1", prompt="a secret prompt")
        turns.call(server, "s1", "c1", args={"command": "cat secret"})
        turns.result(server, "s1", "c1", output="the secret itself")
        turns.end(server, "s1", reason="failed", error={"code": "x", "message": "secret place"})
        await room.until("run.failed")
        assert "secret" not in words(room.events())


async def test_a_session_that_begins_while_we_look_is_told_from_its_first_frame(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        await room.so(lambda: room.status["servers"] and room.server["link"] == "connected")
        server.create("s1")
        story(server)
        await room.until("run.finished")
        assert room.types()[0] == "x.kimi-code.web.event.session.created"
        assert room.core() == STORY


@pytest.mark.parametrize("version", VERSIONS)
async def test_cold_sessions_stay_cold(
    tmp_path: Path, home: KapHome, fast_clock: MockClock, version: str
) -> None:
    for number in range(50):
        home.session(f"cold{number}")
    async with serving(home, version) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        await trio.sleep(20)
        assert server.woken == []
        assert {call.name for call in server.calls} <= {
            "GET /api/v1/healthz", "GET /api/v1/meta", "GET /api/v1/sessions",
        }  # fmt: skip


async def test_a_frame_of_everybody_s_is_told_once_however_often_it_comes(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home, "0.28.0") as server, bridged(tmp_path, home) as room:
        names = ("s1", "s2", "s3")
        for name in names:
            server.session(name)
        await watched(room, server, *names)
        turns.work_changed(server, "s1")
        turns.begin(server, "s1")
        await room.until("run.started")
        assert room.types().count("x.kimi-code.web.event.session.work_changed") == 2


# --- connections that end --------------------------------------------------------------------


async def test_what_was_said_while_the_connection_was_lost_is_told_after_it(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        await room.until("run.started")
        await server.open[0].drop()
        turns.end(server, "s1")
        story(server, turn=1)
        await room.until("run.finished", 2)
        assert room.core() == ["run.started", "run.finished", *STORY]
        assert room.server["gaps"] == 0


async def test_after_a_restart_of_the_daemon_the_run_goes_on_as_itself(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server:
        server.session("s1")
        async with bridged(tmp_path, home) as room:
            await watched(room, server, "s1")
            turns.begin(server, "s1")
            turns.call(server, "s1", "c1")
            await room.until("tool.requested")
        turns.result(server, "s1", "c1")
        turns.end(server, "s1")
        async with bridged(tmp_path, home, epoch=2) as room:
            await room.until("run.finished")
            assert room.core() == [
                "run.started",
                "tool.requested",
                "tool.completed",
                "run.finished",
            ]
            assert len({event["run"] for event in room.events() if "run" in event}) == 1
            judge(room.events())


@pytest.mark.parametrize("by", ["epoch", "overflow"])
async def test_what_cannot_be_replayed_is_a_gap_and_a_run_whose_end_it_hid_is_over(
    tmp_path: Path, home: KapHome, fast_clock: MockClock, by: str
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        await room.until("run.started")
        before = room.feed.cursors.get("s1")
        assert before
        await server.open[0].drop()
        turns.end(server, "s1")
        if by == "epoch":
            room.feed.cursors.put("s1", Cursor(before.seq, "ep_another"))
        else:
            for _ in range(1_001):
                server.say("s1", "context.spliced")
        await room.until("run.cancelled")
        gap = room.data("x.kimi-code.web.gap")
        assert gap["reason"] == ("epoch_changed" if by == "epoch" else "buffer_overflow")
        assert isinstance(gap["count"], int)
        assert gap["count"] > 0
        assert room.server["gaps"] == 1
        story(server, turn=1)
        await room.until("run.finished")
        assert room.core() == ["run.started", "run.cancelled", *STORY]


async def test_a_server_that_wants_to_end_is_let_go_and_its_run_is_over(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        turns.ask(server, "s1")
        await room.until("attention.requested")
        server.stop()
        await server.ended(PATIENCE)
        await room.until("run.cancelled")
        assert room.data("attention.resolved")["resolution"] == "dismissed"
        assert room.data("run.cancelled")["by"] == "shutdown"
        await room.so(lambda: room.status["servers"] == [])


async def test_a_server_that_was_killed_and_begins_again_is_told_on_from_there(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with bridged(tmp_path, home) as room:
        async with serving(home, is_mortal=True) as server:
            server.session("s1")
            await watched(room, server, "s1")
            turns.begin(server, "s1")
            await room.until("run.started")
            await server.drained()
            server.kill()
            await server.ended(PATIENCE)
        await room.until("run.cancelled")
        assert room.data("run.cancelled")["by"] == "shutdown"
        async with serving(home) as server:
            server.session("s1")
            await server.subscribed("s1", PATIENCE)
            story(server, turn=1)
            await room.until("run.finished")
        assert room.core() == ["run.started", "run.cancelled", *STORY]


async def test_what_the_stream_began_and_no_server_goes_on_with_is_ended_at_the_next_start(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server:
        server.session("s1")
        async with bridged(tmp_path, home) as room:
            await watched(room, server, "s1")
            turns.begin(server, "s1")
            await room.until("run.started")
    async with bridged(tmp_path, home, epoch=2) as room:
        await room.until("run.cancelled")
        assert room.data("run.cancelled")["by"] == "shutdown"


async def test_two_servers_of_one_home_are_told_each_once(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as first, serving(home) as second, bridged(tmp_path, home) as room:
        first.session("s1")
        second.session("s2")
        await first.subscribed("s1", PATIENCE)
        await second.subscribed("s2", PATIENCE)
        story(first, "s1")
        story(second, "s2")
        await room.until("run.finished")
        await room.until("run.finished", session="s2")
        assert room.core("s1") == room.core("s2") == STORY


async def test_a_token_that_was_rotated_is_taken_at_the_next_connection(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        server.rotate("another-token")
        story(server)
        await room.until("run.finished")
        await server.open[0].drop()
        await server.until(lambda: len(server.connections) == 2, PATIENCE)
        story(server, turn=1)
        await room.until("run.finished", 2)


async def test_a_server_is_asked_only_once_it_says_where_it_listens(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home, port_is_known=False) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await trio.sleep(5)
        assert room.status["servers"] == []
        assert server.calls == []
        server.ready()
        await watched(room, server, "s1")


async def test_pings_are_answered_and_silence_is_not_the_end(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        nonces = server.ping()
        await server.until(lambda: set(nonces) <= set(server.open[0].pongs), PATIENCE)
        await trio.sleep(45)
        assert len(server.connections) == 1
        story(server)
        await room.until("run.finished")


# --- servers that misbehave ------------------------------------------------------------------


async def test_garbage_is_counted_and_costs_nothing_else(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        garbage: list[JSONObject | str | bytes] = [
            "no json", b"\xff\x00", "[1, 2]", "null", "{}", '{"type": 7}',
            {"type": "ack", "id": [], "payload": 3}, {"type": "resync_required"},
            {"type": "turn.started", "session_id": "s1", "seq": "x", "payload": []},
        ]  # fmt: skip
        for message in garbage:
            server.send(message)
        story(server)
        await room.until("run.finished")
        assert room.core() == STORY
        assert room.server["odd"] == 7
        assert len(server.connections) == 1


async def test_a_frame_of_five_megabytes_is_taken_and_one_of_twenty_is_passed_over_as_a_gap(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home, ceilings=DEFAULT) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        turns.call(server, "s1", "c1")
        turns.result(server, "s1", "c1", output="x" * (5 << 20))
        await room.until("tool.completed")
        assert len(server.connections) == 1
        server.say("s1", "context.spliced", {"messages": "x" * (20 << 20)})
        await room.until("x.kimi-code.web.gap")
        assert room.data("x.kimi-code.web.gap") == {"count": 1, "reason": "too-large"}
        turns.end(server, "s1")
        await room.until("run.finished")
        assert room.core() == ["run.started", "tool.requested", "tool.completed", "run.finished"]


async def test_a_flood_of_volatile_frames_becomes_nothing(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        await server.flood("s1")
        turns.end(server, "s1")
        await room.so(lambda: room.types().count("run.finished"), 600)  # a busy machine is slow
        assert room.core() == ["run.started", "run.finished"]
        frames = room.server["frames"]
        assert isinstance(frames, int)
        assert frames > 50_000


@pytest.mark.parametrize(
    ("switches", "said"),
    [
        (Switches(never_shakes_hands=True), "no WebSocket handshake"),
        (Switches(hang_up=True), ""),
        (Switches(instead={"GET /api/v1/meta": b"HTTP/1.1 200 OK\r\n\r\nhello"}), "envelope"),
    ],
    ids=["no handshake", "hangs up", "no envelope"],
)
async def test_a_server_that_cannot_be_watched_says_why_and_is_tried_again(
    tmp_path: Path, home: KapHome, fast_clock: MockClock, switches: Switches, said: str
) -> None:
    async with serving(home, switches=switches) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await room.so(lambda: room.status["servers"] and room.server["last_error"])
        assert said in str(room.server["last_error"])
        switches.never_shakes_hands = switches.hang_up = False
        switches.instead.clear()
        await watched(room, server, "s1")
        story(server)
        await room.until("run.finished")


async def test_goodbyes_in_every_odd_way_leave_the_bridge_running(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    odd = Switches(never_close=True, ping_at_goodbye=True)
    async with bridged(tmp_path, home) as room:
        async with serving(home, switches=odd, is_mortal=True) as server:
            server.session("s1")
            await watched(room, server, "s1")
            server.stop()
            await server.ended(PATIENCE)
        async with serving(home) as server:
            server.session("s1")
            await watched(room, server, "s1")
            story(server)
            await room.until("run.finished")


async def test_a_home_that_cannot_be_looked_at_is_said_and_not_the_end(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with bridged(tmp_path, home) as room:
        for odd in ("{", "[]", '{"pid": 1}'):
            (home.instances / f"{len(odd)}.json").write_text(odd)
        (home.instances / "gone.json").write_text(
            json.dumps({"pid": 2**22 + os.getpid(), "host": "127.0.0.1", "port": 1})
        )
        await trio.sleep(3)
        assert room.status["servers"] == []
        async with serving(home) as server:
            server.session("s1")
            await watched(room, server, "s1")


# --- the two writes --------------------------------------------------------------------------


async def asked(room: BridgeRoom, server: KapServer) -> JSONObject:
    server.session("s1")
    await watched(room, server, "s1")
    turns.begin(server, "s1")
    turns.ask(server, "s1", "c1")
    await room.until("attention.requested")
    return room.only("attention.requested")


async def test_an_approval_is_offered_and_answered_once(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home, control=True) as room:
        ask = await asked(room, server)
        data = ask["data"]
        assert isinstance(data, dict)
        options = data["options"]
        assert isinstance(options, list)
        assert [one["id"] for one in options if isinstance(one, dict)] == [
            "approved", "approved_session", "rejected",
        ]  # fmt: skip
        assert data["respond_via"] == ["control"]
        first = room.respond(ask, {"option": "approved_session"}, "cmd1")
        again = room.respond(ask, {"option": "rejected"}, "cmd2")
        assert first
        assert first.reason is None
        assert again
        assert again.reason == "invalid"
        await room.until("attention.resolved")
        answer = room.only("attention.answered")
        assert answer["cause"] == "cmd1"
        assert room.data("attention.answered") == {
            "answer": {"option": "approved_session"}, "via": "control",
        }  # fmt: skip
        (write,) = server.writes
        assert write.json() == {"decision": "approved", "scope": "session"}
        assert room.respond(ask, {"option": "approved"}, "cmd3") is None  # it is over


async def test_words_that_name_no_option_refuse_and_reach_the_model(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home, control=True) as room:
        ask = await asked(room, server)
        room.respond(ask, {"text": "rather not today"})
        await room.until("attention.answered")
        (write,) = server.writes
        assert write.json() == {"decision": "rejected", "feedback": "rather not today"}
        assert room.data("attention.answered")["answer"] == {
            "option": "rejected", "text": "rather not today",
        }  # fmt: skip


async def test_an_answer_that_comes_after_another_s_is_an_error_and_not_its_cause(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    refusal = b'{"code":40902,"msg":"already resolved","data":{"resolved":false}}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    async with serving(home) as server, bridged(tmp_path, home, control=True) as room:
        ask = await asked(room, server)
        name = "POST /api/v1/sessions/s1/approvals/approval_c1"
        server.switches.instead[name] = head % len(refusal) + refusal
        room.respond(ask, {"option": "approved"})
        await room.until("error.raised")
        turns.resolve(server, "s1", "approval_c1", {"decision": "rejected"})
        await room.until("attention.answered")
        error, answer = room.only("error.raised"), room.only("attention.answered")
        assert error["cause"] == "cmd1"
        assert room.data("error.raised")["code"] == "web-already-resolved"
        assert (answer["cause"], room.data("attention.answered")["via"]) == (ask["id"], "oob")


async def test_an_answer_that_nobody_takes_is_an_error_and_the_ask_can_be_answered_again(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home, control=True) as room:
        ask = await asked(room, server)
        name = "POST /api/v1/sessions/s1/approvals/approval_c1"
        server.switches.instead[name] = None
        room.respond(ask, {"option": "approved"}, "cmd1")
        await room.until("error.raised")
        assert room.data("error.raised") == {"code": "web-no-answer", "fatal": False}
        server.switches.instead.clear()
        room.respond(ask, {"option": "approved"}, "cmd2")
        await room.until("attention.answered")
        assert room.only("attention.answered")["cause"] == "cmd2"


async def test_a_run_is_cancelled_and_says_by_whom(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home, control=True) as room:
        server.session("s1")
        await watched(room, server, "s1")
        assert room.cancel().reason == "invalid"  # nothing runs
        turns.begin(server, "s1")
        await room.until("run.started")
        assert room.cancel(scope="session").reason == "refused"
        assert room.cancel(run="another").reason == "invalid"
        assert room.cancel(scope="run", command="cmd2").reason is None
        await room.until("run.cancelled")
        over = room.only("run.cancelled")
        assert (over["cause"], room.data("run.cancelled")["by"]) == ("cmd2", "control")
        assert [write.name for write in server.writes] == ["POST /api/v1/sessions/s1:abort"]


async def test_a_question_is_told_and_never_offered(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home, control=True) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        turns.question(server, "s1")
        await room.until("attention.requested")
        said: dict[str, JSON] = room.data("attention.requested")
        assert said["kind"] == "form"
        assert "respond_via" not in said


async def test_without_control_nothing_is_offered(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        await asked(room, server)
        assert {"options", "respond_via"} & room.data("attention.requested").keys() == set()
