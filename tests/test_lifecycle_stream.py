"""One story told over two channels: who tells what, and that nothing is told twice or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.lifecycle.fold import fold
from kimiaepd.lifecycle.machine import SETTLE_SECONDS
from kimiaepd.lifecycle.record import from_record, to_record
from kimiaepd.lifecycle.state import Hook, State
from kimiaepd.mapping.hooks import map_hook
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.payloads import read_payload
from story import Logged
from stream_story import JOURNAL, StreamStory

BASH: dict[str, JSON] = {"tool_name": "Bash", "tool_call_id": "c1", "tool_input": {"command": "ls"}}
TURN = f"{JOURNAL}-turn-"


def watched() -> StreamStory:
    """A session that is the stream's."""
    story = StreamStory()
    story.streamed()
    return story


# --- the stream alone ------------------------------------------------------------------------


def test_a_turn_with_an_approved_call_is_the_whole_story_each_because_of_the_one_before() -> None:
    story = watched()
    story.turn(0)
    story.asks(0, "a1", "c1")
    story.answered("a1", "approved")
    story.call(0, "c1")
    story.result(0, "c1")
    story.turn_ends(0, after=1.5)
    assert story.types == [
        "run.started", "attention.requested", "attention.answered", "attention.resolved",
        "tool.requested", "tool.completed", "run.finished",
    ]  # fmt: skip
    asked, answer = story.only("attention.requested"), story.only("attention.answered")
    assert asked.cause is None  # the vendor asks before it says what it would call
    assert (asked.subject, answer.subject, answer.cause) == ("a1", asked.id, asked.id)
    assert story.only("attention.resolved").cause == answer.id
    assert story.only("tool.completed").cause == story.only("tool.requested").id
    assert story.only("run.finished").cause == story.only("run.started").id
    assert story.only("run.finished").data == {"duration_ms": 1500}
    assert {event.run for event in story.events} == {f"{TURN}0"}


def test_a_refused_call_is_denied_because_of_the_answer_and_does_not_also_fail() -> None:
    story = watched()
    story.turn(0)
    story.asks(0, "a1", "c1")
    story.answered("a1", "rejected")
    story.call(0, "c1")
    story.result(0, "c1", is_error=True)
    denied = story.only("tool.denied")
    assert denied.cause == story.only("attention.answered").id
    assert "tool.failed" not in story.types
    assert denied.data["by"] == "runtime"


def test_an_ask_that_is_open_as_its_turn_is_aborted_is_dismissed_before_that() -> None:
    story = watched()
    story.turn(0)
    story.asks(0, "a1", "c1")
    story.turn_ends(0, reason="cancelled")
    story.answered("a1", None)
    assert story.core == [
        "run.started", "attention.requested", "attention.resolved", "run.cancelled",
    ]  # fmt: skip
    assert story.types[-1] == "x.kimi-code.web.event.approval.resolved"
    assert story.only("attention.resolved").data["resolution"] == "dismissed"


def test_a_turn_whose_end_was_missed_is_cancelled_by_the_next() -> None:
    story = watched()
    story.turn(0)
    story.turn(1)
    story.turn_ends(0)
    assert story.core == ["run.started", "run.cancelled", "run.started"]
    assert [event.run for event in story.events if event.type != "x.kimi-code.web.turn.ended"] == [
        f"{TURN}0", f"{TURN}0", f"{TURN}1",
    ]  # fmt: skip


def test_a_turn_whose_end_was_missed_is_cancelled_where_the_server_says_that_none_runs() -> None:
    story = watched()
    story.turn(0)
    story.machine.stream_idle(story.now)
    assert story.core == ["run.started", "run.cancelled"]
    story.machine.stream_idle(story.now)
    assert story.core == ["run.started", "run.cancelled"]


def test_what_comes_twice_because_the_daemon_died_before_its_cursor_is_dropped() -> None:
    steps: list[Callable[[StreamStory], None]] = [
        lambda s: s.turn(0),
        lambda s: s.asks(0, "a1", "c1"),
        lambda s: s.call(0, "c1"),
        lambda s: s.result(0, "c1"),
        lambda s: s.turn_ends(0),
    ]
    once, twice = watched(), watched()
    for step in steps:
        step(once)
        step(twice)
        step(twice)
    assert twice.core == once.core


def test_a_late_result_is_of_the_run_that_it_belongs_to() -> None:
    story = watched()
    story.turn(0)
    story.call(0, "c1")
    story.turn_ends(0)
    story.result(0, "c1")
    assert story.only("tool.completed").run == f"{TURN}0"
    assert story.only("tool.completed").cause == story.only("tool.requested").id


def test_a_call_id_that_the_model_uses_again_is_another_call() -> None:
    story = watched()
    for turn in (0, 1):
        story.turn(turn)
        story.call(turn, "call_1")
        story.result(turn, "call_1")
        story.turn_ends(turn)
    assert story.core.count("tool.requested") == story.core.count("tool.completed") == 2


def test_an_outcome_of_ours_says_so_and_has_the_command_as_its_cause() -> None:
    story = watched()
    story.turn(0)
    story.asks(0, "a1", "c1")
    story.answered("a1", "approved", command="cmd1")
    story.turn_ends(0, reason="cancelled", command="cmd2")
    answer, over = story.only("attention.answered"), story.only("run.cancelled")
    assert (answer.cause, answer.data["via"]) == ("cmd1", "control")
    assert (over.cause, over.data["by"]) == ("cmd2", "control")


def test_a_turn_that_ended_by_itself_before_it_was_cancelled_is_not_because_of_that() -> None:
    story = watched()
    story.turn(0)
    story.turn_ends(0, command="cmd1")
    over = story.only("run.finished")
    assert over.cause == story.only("run.started").id
    assert "by" not in over.data


def test_a_server_that_is_gone_ends_what_is_open_and_nothing_else() -> None:
    story = watched()
    story.turn(0)
    story.call(0, "c1")
    story.asks(0, "a1", "c2")
    story.machine.server_gone(story.now)
    assert story.core[-2:] == ["attention.resolved", "run.cancelled"]
    assert story.only("run.cancelled").data["by"] == "shutdown"
    story.machine.server_gone(story.now)
    assert story.core.count("run.cancelled") == 1
    assert not story.machine.state.is_open


# --- hooks beside it -------------------------------------------------------------------------


def test_hooks_of_a_watched_session_say_only_that_they_came() -> None:
    story = watched()
    story.hook("SessionStart", source="startup")
    story.hook("UserPromptSubmit", prompt="go")
    story.turn(0)
    story.told("PreToolUse", {**BASH})
    story.asks(0, "a1", "c1")
    story.told("PermissionRequest", {**BASH, "action": "Running"})
    story.answered("a1", "approved")
    story.call(0, "c1")
    story.told("PermissionResult", {**BASH, "decision": "approved"})
    story.result(0, "c1")
    story.told("PostToolUse", {**BASH, "tool_output": "x"})
    story.hook("Stop")
    story.turn_ends(0)
    story.hook("SessionEnd", reason="exit")
    assert story.core == [
        "session.started", "run.started", "attention.requested", "attention.answered",
        "attention.resolved", "tool.requested", "tool.completed", "run.finished", "session.ended",
    ]  # fmt: skip
    seen = [event for event in story.events if event.type.startswith("x.kimi-code.hook.")]
    assert [event.type.removeprefix("x.kimi-code.hook.") for event in seen] == [
        "user_prompt_submit", "pre_tool_use", "permission_request", "permission_result",
        "post_tool_use", "stop",
    ]  # fmt: skip
    assert [event.data for event in seen] == [{}] * len(seen)


def test_a_run_that_hooks_opened_stays_theirs_as_the_bridge_comes() -> None:
    story = StreamStory()
    story.hook("UserPromptSubmit", prompt="go")
    story.told("PreToolUse", {**BASH})
    story.streamed()
    story.turn(0, after=0.1)
    story.call(0, "c1")
    story.call(0, "c2")
    story.result(0, "c1")
    story.told("PostToolUse", {**BASH, "tool_output": "x"})
    story.result(0, "c2")
    story.hook("Stop")
    story.turn_ends(0)
    assert story.core == [
        "run.started", "tool.requested", "tool.requested", "tool.completed", "tool.completed",
        "run.finished",
    ]  # fmt: skip
    assert {event.run for event in story.events if event.type != "x.kimi-code.web.turn.ended"} == {
        "run1"
    }
    story.hook("UserPromptSubmit", prompt="more")
    story.turn(1)
    story.turn_ends(1)
    assert story.core[-2:] == ["run.started", "run.finished"]
    assert story.events[-1].run == f"{TURN}1"


def test_the_next_turn_ends_a_run_of_hooks_whose_own_end_was_lost() -> None:
    story = StreamStory()
    story.hook("UserPromptSubmit", prompt="go")
    story.streamed()
    story.turn(0, after=0.1)
    story.turn_ends(0, after=1)
    story.turn(1, after=1)
    assert story.core == ["run.started", "run.cancelled", "run.started"]


def test_a_run_that_the_stream_opened_is_ended_by_a_hook_once_the_bridge_is_gone() -> None:
    story = watched()
    story.turn(0)
    story.call(0, "c1")
    story.streamed(is_streamed=False)
    story.told("PostToolUse", {**BASH, "tool_output": "x"})
    story.hook("Stop")
    story.streamed()
    story.result(0, "c1")
    story.turn_ends(0)
    assert story.core == ["run.started", "tool.requested", "tool.completed", "run.finished"]


def test_what_hooks_have_told_is_not_told_again_by_a_replay() -> None:
    """The bridge was away for two turns, and hooks have told of them."""
    story = watched()
    story.turn(0)
    story.turn_ends(0)
    story.streamed(is_streamed=False)
    began = story.now + 1
    story.hook("UserPromptSubmit", after=1, prompt="go")
    story.told("PreToolUse", {**BASH}, after=1)
    story.told("PostToolUse", {**BASH, "tool_output": "x"}, after=1)
    story.hook("Stop", after=1)
    story.streamed()
    story.wait(10)
    before = story.core
    story.turn(1, said_at=began + 0.1)
    story.call(1, "c1", said_at=began + 1.1)
    story.result(1, "c1")
    story.turn_ends(1)
    assert story.core == before
    story.turn(2)
    story.turn_ends(2)
    assert story.core[len(before) :] == ["run.started", "run.finished"]


def test_a_gate_holds_a_watched_session_s_call_because_of_the_hook_that_was_seen() -> None:
    story = watched()
    story.turn(0)
    story.told("PreToolUse", {**BASH})
    call = story.machine.begun
    assert call is not None
    assert call.requested == story.only("x.kimi-code.hook.pre_tool_use").id
    assert (call.id, call.run) == ("c1", f"{TURN}0")


def test_a_call_that_the_gate_refused_has_its_end_whatever_the_stream_says_of_it() -> None:
    story = watched()
    story.turn(0)
    payload: JSONObject = {"hook_event_name": "PreToolUse", "session_id": "s", **BASH}
    story.take(payload)
    call = story.machine.begun
    assert call is not None
    refused = _last_hook(story, payload)
    story.machine.refuse(refused, call, "rule-1")
    story.call(0, "c1")
    story.result(0, "c1", is_error=True)
    story.told("PostToolUseFailure", {**BASH, "error": {"code": "x", "message": "no"}})
    assert story.core == ["run.started", "tool.denied"]


def _last_hook(story: StreamStory, payload: JSONObject) -> Hook:
    read = read_payload(payload)
    return Hook(read, map_hook(read), story.now, round(story.now * 1e9))


def test_a_session_s_end_that_waited_for_its_run_follows_the_stream_s_terminal() -> None:
    story = watched()
    story.turn(0)
    story.hook("SessionEnd", reason="exit")
    story.turn_ends(0, after=0.5)
    assert story.core == ["run.started", "run.finished", "session.ended"]


# --- after a crash ---------------------------------------------------------------------------


def test_a_run_of_the_stream_goes_on_as_itself_from_its_record() -> None:
    story = watched()
    story.turn(0)
    story.call(0, "c1")
    story.asks(0, "a1", "c2")
    again = StreamStory(now=story.now, memory=story.memory)
    again.machine.state = from_record(to_record(story.machine.state))
    again.streamed()
    again.result(0, "c1")
    again.answered("a1", "approved")
    again.turn_ends(0)
    assert again.core == [
        "tool.completed", "attention.answered", "attention.resolved", "run.finished",
    ]  # fmt: skip
    assert {event.run for event in again.events} == {f"{TURN}0"}


def test_a_run_of_the_stream_goes_on_as_itself_from_its_log_alone() -> None:
    story = watched()
    story.turn(0)
    story.call(0, "c1")
    story.asks(0, "a1", "c2")
    again = StreamStory(now=story.now, memory=story.memory)
    for event in story.events:
        fold(again.machine.state, _wire(event))
    again.streamed()
    again.turn(0)
    again.result(0, "c1")
    again.answered("a1", "approved")
    again.turn_ends(0)
    again.turn_ends(0)
    assert again.core == [
        "tool.completed", "attention.answered", "attention.resolved", "run.finished",
    ]  # fmt: skip


def test_a_state_without_the_stream_in_it_has_a_record_without_it() -> None:
    assert to_record(State()) == {}


def _wire(event: Logged) -> JSONObject:
    data: dict[str, JSON] = {}
    for path, value in event.data.items():
        inner = data
        *outer, last = path.split(".")
        for name in outer:
            below = inner.setdefault(name, {})
            assert isinstance(below, dict)
            inner = below
        inner[last] = value
    wire: JSONObject = {
        "id": event.id, "type": event.type, "subject": event.subject, "run": event.run,
        "cause": event.cause, "data": data, "time": "2026-12-01T00:00:00.000Z",
    }  # fmt: skip
    return {key: value for key, value in wire.items() if value is not None}


# --- whatever comes in whatever order --------------------------------------------------------

CALLS = ("c1", "c2", "c3")
CALL = st.sampled_from(CALLS)
NUMBER = st.integers(0, 2)


def tool(call_id: str) -> dict[str, JSON]:
    return {"tool_name": "Bash", "tool_call_id": call_id, "tool_input": {"command": call_id}}


def restart(story: StreamStory) -> None:
    """The daemon dies, and goes on from the record."""
    story.machine.state = from_record(to_record(story.machine.state))
    story.machine.settle()


STEP: st.SearchStrategy[Callable[[StreamStory], object]] = st.one_of(
    st.booleans().map(lambda on: lambda s: s.streamed(is_streamed=on)),
    NUMBER.map(lambda n: lambda s: s.turn(n)),
    st.tuples(NUMBER, st.sampled_from(["completed", "cancelled", "failed"])).map(
        lambda given: lambda s: s.turn_ends(given[0], reason=given[1])
    ),
    st.tuples(NUMBER, CALL).map(lambda given: lambda s: s.call(*given)),
    st.tuples(NUMBER, CALL, st.booleans()).map(
        lambda given: lambda s: s.result(given[0], given[1], is_error=given[2])
    ),
    st.tuples(NUMBER, CALL).map(
        lambda given: lambda s: s.asks(given[0], f"a-{given[1]}", given[1])
    ),
    st.tuples(CALL, st.sampled_from(["approved", "rejected", None])).map(
        lambda given: lambda s: s.answered(f"a-{given[0]}", given[1])
    ),
    st.sampled_from(["Stop", "Interrupt", "StopFailure"]).map(
        lambda event: lambda s: s.hook(event, after=0.5)
    ),
    st.just(lambda s: s.hook("UserPromptSubmit", after=0.5, prompt="go")),
    st.tuples(st.sampled_from(["PreToolUse", "PostToolUse"]), CALL).map(
        lambda given: lambda s: s.told(given[0], tool(given[1]), after=0.1)
    ),
    CALL.map(
        lambda call: (
            lambda s: s.hook(
                "PermissionRequest", **tool(call), id=f"a-{call}", action="Running", agent_id="main"
            )
        )
    ),
    st.tuples(CALL, st.sampled_from(["approved", "rejected"])).map(
        lambda given: (
            lambda s: s.hook(
                "PermissionResult", **tool(given[0]), id=f"a-{given[0]}", decision=given[1]
            )
        )
    ),
    st.just(lambda s: s.machine.server_gone(s.now)),
    st.just(restart),
    st.just(lambda s: s.wait(1.5)),
    NUMBER.map(lambda n: lambda s: s.frame("turn.step.completed", turnId=n)),
    NUMBER.map(lambda n: lambda s: s.turn(n, said_at=s.now - 3)),
    st.just(lambda s: s.hook("SessionEnd", after=0.2, reason="exit")),
)


@given(st.lists(STEP, max_size=40))
def test_nothing_ends_twice_or_without_a_beginning_whoever_tells_of_it(
    steps: list[Callable[[StreamStory], object]],
) -> None:
    story = StreamStory()
    for step in steps:
        step(story)
    story.wait(10)
    run: str | None = None
    asked: set[str] = set()
    ended: Counter[str] = Counter()
    requests: dict[JSON, str] = {}
    for event in story.events:
        if event.type == "run.started":
            assert run is None
            run = event.run
        elif event.type in ("run.finished", "run.failed", "run.cancelled"):
            assert event.run == run
            run = None
        elif event.type == "attention.requested":
            asked.add(event.id)
        elif event.type == "attention.resolved":
            assert event.subject in asked
            ended[event.subject or ""] += 1
        elif event.type == "tool.requested":
            requests[event.data["tool.call_id"]] = event.id
        elif event.type in ("tool.completed", "tool.failed", "tool.denied"):
            ended[requests.get(event.data["tool.call_id"], event.id)] += 1
    assert set(ended.values()) <= {1}


def test_a_turn_whose_beginning_was_not_said_begins_with_what_it_does() -> None:
    """A prompt that wakes a session begins such a turn, at every version."""
    story = watched()
    story.turn(0)
    story.turn_ends(0)
    story.asks(1, "a1", "c1")
    story.answered("a1", "approved")
    story.call(1, "c1")
    story.result(1, "c1")
    story.turn_ends(1)
    story.frame("turn.step.completed", turnId=2)
    story.turn_ends(2)
    runs = [event.run for event in story.events if not event.type.startswith("x.")]
    assert runs == [f"{TURN}0"] * 2 + [f"{TURN}1"] * 7 + [f"{TURN}2"] * 2


def test_what_is_late_of_a_turn_that_is_over_begins_no_run() -> None:
    story = watched()
    for turn in (0, 1):
        story.turn(turn)
        story.turn_ends(turn)
    before = story.core
    for turn in (0, 1):
        story.frame("turn.step.completed", turnId=turn)
    assert story.core == before
    assert [event.run for event in story.events[-2:]] == [None, f"{TURN}1"]


def test_a_turn_that_hooks_have_ended_is_not_begun_again_by_what_the_stream_says_later() -> None:
    story = StreamStory()
    story.hook("UserPromptSubmit", prompt="go")
    story.streamed()
    story.frame("turn.step.started", 0.1, turnId=4)
    story.hook("Stop", after=1)
    story.frame("turn.step.completed", 0.1, turnId=4)
    story.turn_ends(4)
    assert story.core == ["run.started", "run.finished"]


@pytest.mark.parametrize("kind", ["turn.ended", "tool.result", "event.approval.resolved"])
def test_an_end_of_what_never_began_is_only_shown(kind: str) -> None:
    story = watched()
    story.frame(kind, turnId=7, toolCallId="c9", approval_id="a9", decision="approved", output="x")
    assert story.types == [f"x.kimi-code.web.{kind}"]


# --- a stream that is silent -----------------------------------------------------------------


def test_a_prompt_of_which_the_stream_says_nothing_is_the_hooks_story() -> None:
    """As in a session that was restored, and in one that goes on in a terminal."""
    story = watched()
    story.hook("UserPromptSubmit", prompt="go")
    story.frame("session.meta.updated", 0.1)
    story.wait(SETTLE_SECONDS)
    story.told("PreToolUse", {**BASH})
    story.told("PostToolUse", {**BASH, "tool_output": "x"})
    story.hook("Stop")
    story.hook("UserPromptSubmit", after=0.1, prompt="on")
    story.hook("Stop", after=0.1)
    assert story.core == [
        "run.started", "tool.requested", "tool.completed", "run.finished",
        "run.started", "run.finished",
    ]  # fmt: skip
    first = next(event for event in story.events if event.type == "run.started")
    assert first.cause == story.only("x.kimi-code.hook.user_prompt_submit").id


def test_a_turn_that_is_over_before_it_is_known_that_the_stream_is_silent_is_told_too() -> None:
    story = watched()
    story.hook("UserPromptSubmit", prompt="go")
    story.hook("Stop", after=0.5)
    story.wait(2 * SETTLE_SECONDS)
    assert story.core == ["run.started", "run.finished"]


def test_a_stream_that_speaks_again_tells_the_next_turn() -> None:
    story = watched()
    story.hook("UserPromptSubmit", prompt="go")
    story.wait(SETTLE_SECONDS)
    story.turn(3)  # late: it is of the run that hooks tell
    story.call(3, "c1")
    story.told("PreToolUse", {**BASH})
    story.result(3, "c1")
    story.hook("Stop")
    story.turn_ends(3)
    story.hook("UserPromptSubmit", after=1, prompt="on")
    story.turn(4, after=0.1)
    story.wait(2 * SETTLE_SECONDS)
    story.hook("Stop")
    story.turn_ends(4)
    assert story.core == [
        "run.started", "tool.requested", "tool.completed", "run.finished",
        "run.started", "run.finished",
    ]  # fmt: skip
    assert [event.run for event in story.events if event.type == "run.started"][1] == f"{TURN}4"


@pytest.mark.parametrize("kind", ["event.session.work_changed", "prompt.completed"])
def test_a_prompt_of_which_the_stream_says_anything_is_the_stream_s(kind: str) -> None:
    """Such as one that another hook refused."""
    story = watched()
    story.hook("UserPromptSubmit", prompt="go")
    story.frame(kind, 0.1, busy=False)
    story.wait(2 * SETTLE_SECONDS)
    assert story.core == []


def test_a_prompt_whose_hook_comes_after_its_turn_is_the_stream_s() -> None:
    """As on a busy machine, where its shim has given up."""
    story = watched()
    prompted = story.now
    story.turn(0, after=0.1)
    story.turn_ends(0, after=0.1)
    said: JSONObject = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "go"}
    story.take(said, started=prompted)
    story.wait(2 * SETTLE_SECONDS)
    assert story.core == ["run.started", "run.finished"]


def test_a_session_that_ends_before_its_prompt_is_decided_ends_with_it() -> None:
    story = watched()
    story.hook("UserPromptSubmit", prompt="go")
    story.hook("SessionEnd", after=0.1, reason="exit")
    story.wait(2 * SETTLE_SECONDS)
    assert story.core == ["run.started", "run.cancelled", "session.ended"]


def test_a_prompt_that_waits_as_we_die_is_decided_at_the_next_start() -> None:
    story = watched()
    story.hook("UserPromptSubmit", prompt="go")
    again = StreamStory(now=story.now, memory=story.memory)
    again.machine.state = from_record(to_record(story.machine.state))
    again.machine.settle()
    assert again.core == ["run.started"]
    again.streamed()
    again.turn(0)
    again.hook("Stop")
    again.turn_ends(0)
    assert again.core == ["run.started", "run.finished"]
