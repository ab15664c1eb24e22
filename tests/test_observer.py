"""What one hook does, from its bytes to the log, in virtual time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon_room import Room, opened
from faults import Faults
from judge import judge
from kimiaepd import probe
from kimiaepd.lifecycle.fold import TAIL
from kimiaepd.lifecycle.machine import REPLY_SECONDS, SETTLE_SECONDS
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.observer import ACKNOWLEDGE_SECONDS
from kimiaepd.sessions import MOST, last_hook_s
from kimiaepd.storage.journal import Journal, JournalError, LogPolicy
from kimiaepd.storage.ledger import Ledger, peek

BASH: JSONObject = {
    "tool_name": "Bash", "tool_call_id": "c1", "tool_input": {"command": "ls"},
}  # fmt: skip
FAILED: JSONObject = {**BASH, "error": {"code": "internal", "message": "no"}}
ASK: JSONObject = {**BASH, "id": "a1", "agent_id": "main", "action": "Running: ls"}


def prompt(text: str = "hello") -> JSONObject:
    return {"prompt": [{"type": "text", "text": text}]}


async def test_one_session_is_a_valid_log_in_table_order(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await room.hook("SessionStart", {"source": "startup", "client_type": "kimi_code_cli"})
        await room.hook("UserPromptSubmit", prompt())
        await room.hook("PreToolUse", BASH)
        await room.hook("PermissionRequest", ASK)
        await room.hook("PermissionResult", {**ASK, "decision": "approved"})
        await room.hook("PostToolUse", {**BASH, "tool_output": "a\nb"})
        await room.hook("Stop")
        await room.hook("SessionEnd", {"reason": "exit"})
        events = room.events()
    judge(events)
    assert [event["type"] for event in events] == [
        "session.started", "run.started", "tool.requested", "attention.requested",
        "attention.answered", "attention.resolved", "tool.completed", "run.finished",
        "session.ended",
    ]  # fmt: skip
    assert [event["seq"] for event in events] == list(range(9))
    assert {event["epoch"] for event in events} == {1}
    table = ["aep", "id", "type", "subject", "time", "source", "agent", "session", "run", "seq",
             "epoch", "cause", "severity", "capture", "data"]  # fmt: skip
    for event in events:
        assert list(event) == [name for name in table if name in event]
        assert event["source"] == "aep://host/agent/kimi-code/session/s"
    asked = events[3]
    assert asked["capture"] == "redacted"
    assert asked["severity"] == "notice"
    assert asked["cause"] == events[2]["id"]
    assert {event["subject"] for event in events[4:6]} == {asked["id"]}
    assert {event.get("run") for event in events[1:8]} == {events[1]["run"]}


async def test_every_reply_is_zero_bytes(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        for event in (
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "Stop",
            "SessionEnd",
            "New",
        ):
            assert await room.hook(event, BASH) == b""


async def test_an_events_time_is_the_start_of_its_shim_and_never_later_than_now(
    tmp_path: Path,
) -> None:
    body = b'{"hook_event_name":"SessionHeartbeat","session_id":"s"}'
    ahead = time.time_ns() + 3_600 * 10**9
    with opened(tmp_path) as room:
        await room.raw(body, 1_700_000_000_123_000_000)
        await room.raw(body, ahead)
        first, second = room.events()
    assert first["time"] == "2023-11-14T22:13:20.123Z"
    now = time.strftime("%Y-%m-%dT%H:%M", time.gmtime())
    assert str(second["time"])[:16] <= now


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "empty"),
        (b'{"hook_event_name":"Stop","sess', "malformed"),
        (b"[]", "not-an-object"),
        (b"7", "not-an-object"),
        (b'{"a":' * 100_000, "too-deep"),
    ],
)
async def test_what_is_no_payload_is_an_error_event_and_a_counter(
    tmp_path: Path, body: bytes, code: str
) -> None:
    with opened(tmp_path) as room:
        assert await room.raw(body) == b""
        assert room.observer.bad == {code: 1}
        (event,) = room.events("unknown")
        judge([event])
        assert await room.hook("SessionStart") == b""
    assert event["type"] == "error.raised"
    assert event["data"] == {"code": f"hook-{code}", "bytes": len(body), "fatal": False}


async def test_bytes_that_are_not_utf8_are_read_with_replacements(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await room.raw(b'{"hook_event_name":"Noti\xffce","session_id":"s"}')
        assert room.types() == ["x.kimi-code.session.noti_ce"]


async def test_an_oversized_hook_is_said_in_its_own_session_where_its_head_tells(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as room:
        head = b'{"hook_event_name":"PreToolUse","session_id":"s","cwd":"/x","tool_in'
        room.observer.oversized(head, 40_000_000, time.time_ns())
        room.observer.oversized(b"garbage", 50_000_000, time.time_ns())
        for session, size in (("s", 40_000_000), ("unknown", 50_000_000)):
            (event,) = room.events(session)
            assert event["data"] == {"code": "hook-too-large", "bytes": size, "fatal": False}


@pytest.mark.parametrize("session", ["../../x", ".", "x" * 1024, "a\0b", "CON", "A", "ä \ud800"])
async def test_a_hostile_session_id_is_only_a_name(tmp_path: Path, session: str) -> None:
    with opened(tmp_path) as room:
        await room.hook("SessionStart", session=session)
        written = session.replace("\ud800", "\ufffd")
        (event,) = room.events(written)
    judge([event])
    assert event["session"] == written
    assert [file.parent for file in tmp_path.rglob("*.jsonl")].count(tmp_path / "log") == 1


async def test_a_session_id_that_is_absurdly_long_is_cut_and_told_apart(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        for last in "ab":
            await room.hook("SessionStart", session="x" * 5_000_000 + last)
            await room.hook("SessionHeartbeat", session="x" * 5_000_000 + last)
        sessions = [session.id for session in room.book]
        assert len(set(sessions)) == 2
        for session in sessions:
            assert len(session) == 1024
            assert len(room.events(session)) == 2
            judge(room.events(session))


@given(st.binary(max_size=200))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_cost_no_more_than_themselves(tmp_path: Path, body: bytes) -> None:
    async def take() -> None:
        with opened(tmp_path) as room:
            assert await room.raw(body) == b""

    trio.run(take)


# --- waiting --------------------------------------------------------------------------------------


async def told(room: Room, events: Sequence[tuple[str, Mapping[str, JSON]]]) -> None:
    for event, fields in events:
        await room.hook(event, fields)


async def test_a_failure_in_a_session_that_never_asked_holds_its_own_reply(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with opened(tmp_path) as room:
        async with trio.open_nursery() as nursery:
            await nursery.start(room.observer.run)
            await told(room, [("UserPromptSubmit", prompt()), ("PreToolUse", BASH)])
            began = trio.current_time()
            await room.hook("PostToolUseFailure", FAILED)
            assert trio.current_time() - began == pytest.approx(REPLY_SECONDS)
            assert room.types()[-1] == "tool.failed"
            nursery.cancel_scope.cancel()


async def test_a_refusal_frees_the_reply_that_waits(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with opened(tmp_path) as room:
        async with trio.open_nursery() as nursery:
            await nursery.start(room.observer.run)
            await told(room, [("UserPromptSubmit", prompt()), ("PreToolUse", BASH)])
            began = trio.current_time()
            freed: list[float] = []

            async def fail() -> None:
                await room.hook("PostToolUseFailure", FAILED)
                freed.append(trio.current_time() - began)

            nursery.start_soon(fail)
            await trio.sleep(0.1)
            await room.hook("PermissionRequest", ASK)
            await wait_all_tasks_blocked()
            assert freed == [pytest.approx(0.1)]
            await room.hook("PermissionResult", {**ASK, "decision": "rejected", "feedback": "no"})
            assert room.types()[-3:] == ["attention.answered", "attention.resolved", "tool.denied"]
            assert "tool.failed" not in room.types()
            judge(room.events())
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("after", "terminal"), [(1.999, False), (2.001, True)])
async def test_a_stop_beside_a_background_subagent_closes_the_run_when_its_time_is_up(
    tmp_path: Path, autojump_clock: MockClock, after: float, terminal: bool
) -> None:
    agent: JSONObject = {"agent_name": "explore"}
    with opened(tmp_path) as room:
        async with trio.open_nursery() as nursery:
            await nursery.start(room.observer.run)
            await told(room, [("UserPromptSubmit", prompt()), ("SubagentStart", agent)])
            await room.hook("Stop")
            await trio.sleep(after)
            assert ("run.finished" in room.types()) is terminal
            nursery.cancel_scope.cancel()


async def test_a_session_that_ends_with_its_run_open_ends_within_two_seconds(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with opened(tmp_path) as room:
        async with trio.open_nursery() as nursery:
            await nursery.start(room.observer.run)
            await told(room, [("UserPromptSubmit", prompt()), ("SessionEnd", {"reason": "exit"})])
            await trio.sleep(SETTLE_SECONDS)
            await wait_all_tasks_blocked()
            assert room.types()[-2:] == ["run.cancelled", "session.ended"]
            judge(room.events())
            nursery.cancel_scope.cancel()


# --- restarts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", list(Capture))
@pytest.mark.parametrize("keep_ledger", [True, False])
async def test_after_a_crash_the_open_run_closes_as_itself(
    tmp_path: Path, level: Capture, keep_ledger: bool
) -> None:
    ceilings = Ceilings(level, {})
    with opened(tmp_path, ceilings=ceilings) as room:
        await told(room, [("SessionStart", {}), ("UserPromptSubmit", prompt())])
        await told(room, [("PreToolUse", BASH), ("PermissionRequest", ASK)])
        before = room.events()
    if not keep_ledger:
        (tmp_path / "ledger.jsonl").unlink()
    with opened(tmp_path, epoch=2, ceilings=ceilings) as room:
        await room.hook("PostToolUse", {**BASH, "tool_output": "x"})
        await told(room, [("Stop", {}), ("SessionEnd", {}), ("SessionEnd", {})])
        events = room.events()
    after = events[len(before) :]
    types = [event["type"] for event in after]
    assert types.count("run.finished") == types.count("session.ended") == 1
    assert types.count("attention.resolved") == 1
    finished = after[types.index("run.finished")]
    assert finished["run"] == before[1]["run"]
    assert finished["cause"] == before[1]["id"]
    assert [(event["epoch"], event["seq"]) for event in after] == [
        (2, n) for n in range(len(after))
    ]
    if level is not Capture.NONE:
        judge(events)


async def test_what_waited_in_a_dead_daemon_is_decided_at_the_next_start(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await told(room, [("UserPromptSubmit", prompt()), ("PreToolUse", BASH)])
        await told(room, [("PermissionRequest", ASK), ("PostToolUseFailure", FAILED)])
        await told(room, [("SubagentStart", {"agent_name": "x"}), ("Stop", {})])
        waited = {event["type"]: event["id"] for event in room.events()}
    with opened(tmp_path, epoch=2) as room:
        events = room.events()
    judge(events)
    by_type = {event["type"]: event for event in events if event["epoch"] == 2}
    failure = by_type["tool.failed"]
    assert failure["cause"] == waited["x.kimi-code.session.post_tool_use_failure"]
    assert failure["data"] == {
        "tool": {"name": "Bash", "call_id": "c1"},
        "error": {"type": "internal"},
    }
    assert by_type["run.finished"]["cause"] == waited["x.kimi-code.session.stop"]


APPROVED: JSONObject = {**ASK, "decision": "approved"}
AGENT: JSONObject = {
    "tool_name": "Agent", "tool_call_id": "g", "tool_input": {"run_in_background": True},
}  # fmt: skip
ASKED = [
    ("UserPromptSubmit", prompt()), ("PreToolUse", BASH), ("PermissionRequest", ASK),
    ("PermissionResult", APPROVED), ("PostToolUse", BASH),
]  # fmt: skip
OTHER: JSONObject = {**BASH, "tool_call_id": "c2"}
WAITING: dict[str, list[tuple[str, JSONObject]]] = {
    "failure": [("PreToolUse", OTHER), ("PostToolUseFailure", {**OTHER, "error": {"code": "e"}})],
    "stop": [("PreToolUse", AGENT), ("PostToolUse", AGENT), ("SubagentStart", {}), ("Stop", {})],
    "end": [("SessionEnd", {"reason": "exit"})],
}


@pytest.mark.parametrize("waiting", WAITING)
async def test_what_was_decided_before_a_kill_is_not_decided_again(
    tmp_path: Path, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as room:
        await told(room, ASKED)
        await told(room, WAITING[waiting])
        before = len(room.events())
        monkeypatch.setattr(Ledger, "put", lambda *_: None)  # killed between event and record
        room.observer.settle()
        assert len(room.events()) > before
        monkeypatch.undo()
    with opened(tmp_path, epoch=2) as room:
        await room.hook("UserPromptSubmit", prompt("and on"))
        judge(room.events())


async def test_an_ended_session_never_ends_again_over_all_epochs(tmp_path: Path) -> None:
    types: list[JSON] = []
    for epoch in (1, 2, 3):
        with opened(tmp_path, epoch=epoch) as room:
            await told(room, [("SessionStart", {"source": "resume"}), ("SessionEnd", {})])
            types = room.types()
    assert types.count("session.ended") == 1
    assert types.count("x.kimi-code.session.session_end") == 2


async def test_a_removed_log_leaves_the_knowledge_that_the_session_ended(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await told(room, [("SessionStart", {}), ("SessionEnd", {})])
        room.book.bury("s", room.journal.last_position("s"))
    for file in (tmp_path / "log").glob("*.jsonl"):
        file.unlink()
    with opened(tmp_path, epoch=2) as room:
        await told(room, [("SessionEnd", {})])
        assert room.types() == ["x.kimi-code.session.session_end"]


async def test_twins_of_calls_that_ended_long_before_a_restart_end_nothing_twice(
    tmp_path: Path,
) -> None:
    def call(number: int) -> JSONObject:
        return {**BASH, "tool_call_id": f"c{number}"}

    with opened(tmp_path) as room:
        await room.hook("UserPromptSubmit", prompt())
        for number in range(40):
            await room.hook("PreToolUse", call(number))
            await room.hook("PostToolUse", call(number))
    with opened(tmp_path, epoch=2) as room:
        for number in range(40):
            await room.hook("PostToolUse", call(number))
        await room.hook("Stop")
        judge(room.events())
        assert room.types().count("tool.completed") == 40
        assert room.book.duplicates == 40


async def test_a_record_far_behind_its_log_is_made_up_for_by_the_whole_of_it(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as room:
        await room.hook("SessionStart")
        record = room.ledger.get("s")
        assert record
        await room.hook("UserPromptSubmit", prompt())
        for _ in range(TAIL + 10):
            await room.hook("SessionHeartbeat", {"uptime_ms": 1})
        room.ledger.put("s", record)
    with opened(tmp_path, epoch=2) as room:
        await room.hook("Stop")
        assert room.types()[-1] == "run.finished"


async def test_a_log_that_cannot_be_read_costs_neither_the_start_nor_the_hooks(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as room:
        await told(room, [("UserPromptSubmit", prompt()), ("SubagentStart", {"agent_name": "x"})])
        record = room.ledger.get("s")
        assert record
        await room.hook("Stop")
        room.ledger.put("s", {**record, "at": [0, 0]})
    log = tmp_path / "log/s.jsonl"
    log.rename(tmp_path / "elsewhere")
    log.with_name("s@1.jsonl").symlink_to(tmp_path / "elsewhere")
    with opened(tmp_path, epoch=2) as room:
        await room.hook("SessionHeartbeat", {"uptime_ms": 1})
        assert room.book.emitter.counts.logged == 1


async def test_a_start_shows_what_was_open_and_for_how_long_it_was_quiet(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await told(room, [("UserPromptSubmit", prompt()), ("SessionHeartbeat", {})])
        await room.hook("SessionStart", session="idle")
    with opened(tmp_path, epoch=2) as room:
        (session,) = room.book
        assert session.id == "s"
        assert session.state.run
        assert session.is_stale(session.seen_at + 126)
        assert not session.is_stale(session.seen_at + 124)


async def test_a_resumed_session_is_not_shown_as_ended(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await told(room, [("SessionStart", {}), ("SessionEnd", {})])
        (session,) = room.book
        ended = [session.is_over]
        for event in ("Notification", "SessionStart", "Notification", "SessionEnd"):
            await room.hook(event)
            ended.append(session.is_over)
        assert ended == [True, True, False, False, True]


@pytest.mark.parametrize(
    ("hooks", "quiet_days", "live"),
    [
        ([("SessionStart", {})], 0.9, True),
        ([("SessionStart", {})], 1.1, False),
        ([("SessionStart", {}), ("SessionEnd", {})], 0.0, False),
        ([("SessionEnd", {}), ("SessionStart", {"source": "resume"})], 0.9, True),
        ([("UserPromptSubmit", prompt())], 6.9, True),
        ([("UserPromptSubmit", prompt())], 7.1, False),
    ],
)
async def test_the_log_of_a_live_session_stays(
    tmp_path: Path, hooks: list[tuple[str, JSONObject]], quiet_days: float, live: bool
) -> None:
    with opened(tmp_path) as room:
        await told(room, hooks)
        now_ns = time.time_ns() + round(quiet_days * 86_400e9)
        room.book.emitter.clock_ns = lambda: now_ns
        assert room.book.is_live("s") is live
        assert not room.book.is_live("never seen")
    with opened(tmp_path, epoch=2) as room:
        room.book.emitter.clock_ns = lambda: now_ns
        assert room.book.is_live("s") is live


def full(*_: object, **__: object) -> bool:
    raise JournalError("ENOSPC", "no room")


async def test_events_lost_before_a_crash_are_told_of_after_it(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await room.hook("SessionStart")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "append", full)  # for the log alone, not for the record
            await room.hook("SessionHeartbeat", {"uptime_ms": 1})
    with opened(tmp_path, epoch=2) as room:
        await room.hook("SessionHeartbeat", {"uptime_ms": 2})
        assert room.types()[1] == "x.kimi-code.log.gap"


async def hang(*_: object) -> None:
    await trio.sleep_forever()


async def test_a_hook_is_not_kept_by_a_disk_that_hangs(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, policy=LogPolicy(sync="always")) as room:
        monkeypatch.setattr(Journal, "synced", hang)
        began = trio.current_time()
        assert await room.hook("SessionStart") == b""
        assert trio.current_time() - began == pytest.approx(ACKNOWLEDGE_SECONDS)
        assert room.observer.unsynced == 1


# --- bounds ---------------------------------------------------------------------------------------


async def test_a_quiet_session_leaves_memory_and_comes_back_as_it_was(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with opened(tmp_path, idle_seconds=3600) as room:
        async with trio.open_nursery() as nursery:
            await nursery.start(room.observer.run)
            await told(room, [("UserPromptSubmit", prompt())])
            await trio.sleep(2 * 3600)
            assert len(room.book) == 0
            await room.hook("Stop")
            started, finished = room.events()
            assert finished["type"] == "run.finished"
            assert (finished["epoch"], finished["seq"]) == (1, 1)
            assert finished["run"] == started["run"]
            nursery.cancel_scope.cancel()


async def test_sessions_in_memory_are_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        for number in range(MOST + 20):
            await room.hook("UserPromptSubmit", prompt(), session=f"s{number}")
        assert len(room.book) == MOST
        await room.hook("Stop", session="s0")
        assert room.types("s0") == ["run.started", "run.finished"]


async def test_what_cannot_be_written_is_counted_and_told_of_once(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await room.hook("SessionStart")
        with Faults() as faults:
            faults.disk_takes(0)
            assert await room.hook("UserPromptSubmit", prompt()) == b""
            assert await room.hook("Stop") == b""
        assert room.book.emitter.counts.lost == 2
        await room.hook("SessionHeartbeat", {"uptime_ms": 1})
        events = room.events()
    judge(events)
    assert [event["type"] for event in events] == [
        "session.started",
        "x.kimi-code.log.gap",
        "x.kimi-code.session.session_heartbeat",
    ]
    assert events[1]["data"] == {"count": 2}
    assert [event["seq"] for event in events] == [0, 1, 2]


async def test_a_session_that_beats_is_stale_when_it_misses_two_heartbeats(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    with opened(tmp_path) as room:
        await room.hook("SessionStart", session="old")
        await room.hook("SessionHeartbeat", {"uptime_ms": 1}, session="new")
        for seconds, stale in ((119.0, False), (7.0, True)):
            mock_clock.jump(seconds)
            status = room.observer.status(trio.current_time())
            assert [one.is_stale(trio.current_time()) for one in room.book] == [False, stale]
            assert f'"stale": {str(stale).lower()}' in json.dumps(status["sessions"])


async def test_planted_secrets_are_nowhere_on_disk(tmp_path: Path) -> None:
    secrets = ["sk-proj-AbCdEf123456GhIjKl789012", "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz012345"]
    with opened(tmp_path, ceilings=Ceilings(Capture.REDACTED, {})) as room:
        command = f"deploy --key {secrets[0]} and {secrets[1]}"
        call: JSONObject = {
            **BASH,
            "tool_input": {"command": command, "token": "plainlooking0value"},
        }
        await told(room, [("UserPromptSubmit", prompt(command)), ("PreToolUse", call)])
        await room.hook("PermissionRequest", {**ASK, "action": command})
        await room.hook("PostToolUse", {**call, "tool_output": command})
        await room.hook("Stop")
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"deploy --key" in written
    for secret in [*secrets, "plainlooking0value"]:
        assert secret.encode() not in written


async def test_ids_are_ulids_and_unique(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        for _ in range(300):
            await room.hook("SessionHeartbeat", {"uptime_ms": 1})
        ids = [str(event["id"]) for event in room.events()]
    assert len(set(ids)) == 300
    assert all(re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", one) for one in ids)


def test_the_pinned_json_is_what_is_written(tmp_path: Path) -> None:
    """A lone surrogate is in the digest as JavaScript escapes it, and U+FFFD on the wire."""

    async def take() -> bytes:
        with opened(tmp_path, ceilings=Ceilings(Capture.FULL, {})) as room:
            body = json.dumps(
                {"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": "T",
                 "tool_output": "a" * 1999 + "\ud83d"}
            )  # fmt: skip
            await room.raw(body.encode())
            return b"".join(room.journal.read("s"))

    line = trio.run(take)
    assert "\ufffd".encode() in line
    line.decode("utf-8")


async def test_a_probe_is_answered_as_a_hook_and_leaves_no_trace(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        assert await room.raw(probe.payload("abc123")) == b""
        status = room.observer.status(trio.current_time())
        assert (status["probes"], status["last_probe"]) == (1, "abc123")
        assert (status["hooks"], status["last_hook_ms"], status["sessions"]) == (0, None, [])
        assert len(room.ledger) == 0
    assert list((tmp_path / "log").glob("*.jsonl")) == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"hook_event_name":"kimiaepd.probe"}',
        b'{"hook_event_name":"kimiaepd.probe","nonce":""}',
        b'{"hook_event_name":"kimiaepd.probe","nonce":"a\\"b"}',
        b'{"hook_event_name":"kimiaepd.probe","nonce":"%b"}' % (b"a" * 65),
        b' {"hook_event_name":"kimiaepd.probe","nonce":"a"}',
    ],
)
async def test_what_only_looks_like_a_probe_is_a_hook(tmp_path: Path, body: bytes) -> None:
    with opened(tmp_path) as room:
        await room.raw(body)
        assert (room.observer.probes, room.observer.hooks) == (0, 1)


async def test_the_time_of_the_last_hook_outlives_the_daemon(tmp_path: Path) -> None:
    assert not (tmp_path / "ledger.jsonl").exists()
    with opened(tmp_path) as room:
        assert room.book.last_heard_ns() is None
        before = time.time_ns()
        await room.hook("Stop")
    with opened(tmp_path, epoch=2) as room:
        heard = room.book.last_heard_ns()
    assert heard is not None
    assert before // 10**9 <= heard // 10**9 <= time.time_ns() // 10**9
    assert last_hook_s(record for _, record in peek(tmp_path / "ledger.jsonl")) == heard // 10**9
