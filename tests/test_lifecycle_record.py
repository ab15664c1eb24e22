"""After a restart: a session goes on from its record, or from its log alone, as if nothing was."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimiaepd.lifecycle.fold import TAIL, fold, refill
from kimiaepd.lifecycle.machine import Machine
from kimiaepd.lifecycle.record import from_record, to_record
from kimiaepd.lifecycle.state import PAST, State
from kimiaepd.mapping.json_value import JSON, JSONObject
from made_story import RUN_TERMINALS, Telling, Told, anything, check, outline, sessions
from story import Logged, Story

MARKER = "PLANTED-6c1e"
PAUSE = 2.1
"""Longer than anything waits."""

stories = st.one_of(anything, sessions())
cuts = st.integers(0, 10_000)
quickly = settings(max_examples=100, deadline=None)


def restart(story: Story) -> None:
    """Another process goes on with the story from its record."""
    record: JSONObject = json.loads(json.dumps(to_record(story.machine.state)))
    carry_on(story, from_record(record))
    story.machine.settle()


def carry_on(story: Story, state: State) -> None:
    """Another machine goes on with the story from this state."""
    duplicates = story.machine.duplicates
    story.machine = Machine(state, story._emit, story._new_run)
    story.machine.duplicates = duplicates


def halves(hooks: list[Told], cut: int) -> tuple[list[Told], list[Told]]:
    """The hooks before a cut and those after it; every number is a place."""
    place = cut % (len(hooks) + 1)
    return hooks[:place], hooks[place:]


def told(hooks: list[Told]) -> Telling:
    """A story of these hooks."""
    return Telling().tell_all(hooks)


# --- the record ---


@quickly
@given(hooks=stories, cut=cuts)
def test_the_rules_hold_whenever_the_process_changes(hooks: list[Told], cut: int) -> None:
    before, after = halves(hooks, cut)
    story = told(before)
    restart(story)
    story.tell_all(after)
    story.machine.settle()
    check(story.events)


@quickly
@given(hooks=stories, cut=cuts)
def test_a_restart_in_a_quiet_moment_changes_nothing(hooks: list[Told], cut: int) -> None:
    before, after = halves(hooks, cut)
    outlines = []
    for is_restarted in (False, True):
        story = told(before)
        story.wait(PAUSE)
        if is_restarted:
            restart(story)
        story.tell_all(after)
        story.machine.settle()
        outlines.append((outline(story.events), story.machine.duplicates))
    assert outlines[0] == outlines[1]


@quickly
@given(hooks=stories, cut=cuts)
def test_what_waited_is_decided_as_if_its_time_were_up(hooks: list[Told], cut: int) -> None:
    before, _ = halves(hooks, cut)
    story, restarted = told(before), told(before)
    unanswered = {w.hook.payload.tool_call_id for w in story.machine.state.waits if not w.logged}
    logged = len(story.events)
    story.machine.settle()
    restart(restarted)
    expected = [
        event
        for event in story.events[logged:]
        if event.type != "tool.failed" or event.data["tool.call_id"] not in unanswered
    ]
    assert without_ids(restarted.events[logged:], logged) == without_ids(expected, logged)


def without_ids(events: list[Logged], logged: int) -> list[tuple[str, str | None, bool]]:
    """The outline of events after a point; a cause is whether it is one from before it."""
    before = {f"e{number}" for number in range(1, logged + 1)}
    return [(event.type, event.run, event.cause in before) for event in events]


@quickly
@given(hooks=stories, cut=cuts)
def test_the_open_run_closes_as_itself(hooks: list[Told], cut: int) -> None:
    story = told(halves(hooks, cut)[0])
    run = story.machine.state.run
    restart(story)
    story.hook("Interrupt", after=1)
    started = [event.run for event in story.events if event.type == "run.started"]
    ended = [event.run for event in story.events if event.type in RUN_TERMINALS]
    assert sorted(map(str, started)) == sorted(map(str, ended))
    assert run is None or run.id in ended


@quickly
@given(hooks=stories, times=st.integers(1, 3))
def test_a_record_of_a_record_is_the_same(hooks: list[Told], times: int) -> None:
    first = to_record(told(hooks).machine.state)
    record = first
    for _ in range(times):
        record = to_record(from_record(json.loads(json.dumps(record))))
    assert record == first


def agent(call: str, *, background: bool = False) -> JSONObject:
    """The fields of an `Agent` call."""
    given: JSON = {"run_in_background": background}
    return {"tool_name": "Agent", "tool_call_id": call, "tool_input": given}


def test_a_subagents_stop_is_its_own_after_a_restart_too() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("SubagentStart", after=0.1)
    restart(story)
    story.hook("Stop", after=1)
    assert "run.finished" not in story.types
    story.hook("PostToolUse", after=0.1, **agent("a1"))
    story.hook("SubagentStop", after=0.1)
    story.hook("Stop", after=1)
    assert story.types[-1] == "run.finished"


def test_a_call_that_ended_without_a_name_has_ended_after_a_restart_too() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("SubagentStop", after=0.1)
    restart(story)
    story.hook("Stop", after=1)
    assert story.types[-1] == "run.finished"


def test_a_background_subagent_is_at_work_after_a_restart_too() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("SubagentStart", after=0.1)
    restart(story)
    story.hook("Stop", after=1)
    assert story.types[-1] == "x.kimi-code.session.stop"
    story.hook("SubagentStop", after=0.1)
    story.hook("Stop", after=1)
    assert story.types[-1] == "run.finished"


def test_a_subagent_that_had_begun_stops_late_after_a_restart_too() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("SubagentStart", after=0.1)
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("SubagentStart", after=0.1)
    restart(story)
    story.hook("PostToolUse", after=1, **agent("a1"))
    story.hook("SubagentStop", after=0.1)
    story.hook("Stop", after=1)
    assert story.types[-1] == "x.kimi-code.session.stop", "the one in the background is at work"


@pytest.mark.parametrize("event", ["PermissionRequest", "PermissionResult", "PostToolUse"])
def test_what_has_ended_does_not_end_or_begin_twice_after_a_restart(event: str) -> None:
    story = asking()
    story.hook("PermissionResult", after=1, decision="approved", **ASK)
    story.hook("PostToolUse", after=1, **BASH)
    restart(story)
    logged = len(story.events)
    fields = BASH if event == "PostToolUse" else ASK | {"decision": "approved"}
    story.hook(event, after=0.1, **fields)
    assert (len(story.events), story.machine.duplicates) == (logged, 1)


def test_what_waited_says_after_a_restart_what_it_would_have_said() -> None:
    story = Telling()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **BASH)
    story.hook("PermissionRequest", after=0.1, **ASK)
    story.hook("PostToolUseFailure", after=1, error={"code": "internal", "message": "m"}, **BASH)
    failed_ns = story.sources[-1]
    story.hook("SessionEnd", after=0.1, reason="archive")
    ended_ns = story.sources[-1]
    restart(story)
    failed, ended = story.only("tool.failed"), story.only("session.ended")
    assert failed.data["error.type"] == "internal"
    assert "error.message" not in failed.data, "content is not kept"
    assert ended.data == {"reason": "normal", "detail": "archive"}
    moments = dict(zip((event.id for event in story.events), story.sources, strict=True))
    assert (moments[failed.id], moments[ended.id]) == (failed_ns, ended_ns)


def test_a_reply_that_waited_takes_no_hook_with_it_that_was_answered() -> None:
    """Its shim is gone without an answer; what others wait for is decided all the same."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("SubagentStart", after=0.1)
    story.hook("PreToolUse", after=1, **BASH)
    story.hook("Stop", after=1)
    assert story.hook("PostToolUseFailure", after=0.1, **BASH) is not None
    restart(story)
    assert story.core[-1] == "run.finished"
    assert "tool.failed" not in story.types


CONTENT: tuple[tuple[str, JSON], ...] = (
    ("prompt", [{"type": "text", "text": MARKER}]),
    ("tool_input", {"command": MARKER, MARKER: 1}),
    ("tool_output", MARKER),
    ("error", {"code": "internal", "message": MARKER}),
    ("error_message", MARKER),
    ("action", MARKER),
    ("display", {"kind": "command", "command": MARKER, "cwd": MARKER}),
    ("feedback", MARKER),
    ("selected_label", MARKER),
    ("response", MARKER),
    ("title", MARKER),
    ("body", MARKER),
    ("description", MARKER),
    ("session_title", MARKER),
    ("cwd", MARKER),
)


@quickly
@given(hooks=stories)
def test_a_record_holds_no_content(hooks: list[Told]) -> None:
    story = Telling()
    for hook in hooks:
        story.tell(Told(hook.after, hook.payload | dict(CONTENT)))
        assert MARKER not in json.dumps(to_record(story.machine.state))


@pytest.mark.parametrize("name", [name for name, _ in CONTENT])
def test_no_hook_that_waits_or_stays_open_puts_content_in_the_record(name: str) -> None:
    fields = {name: dict(CONTENT)[name]}
    bash: JSONObject = {"tool_name": "Bash", "tool_call_id": "c1"}
    story = Story()
    story.hook("UserPromptSubmit", after=0, **fields)
    story.hook("SubagentStart", after=0, **fields)
    story.hook("PreToolUse", after=0, **(bash | fields))
    story.hook("PermissionRequest", after=0, **(bash | {"agent_id": "a"} | fields))
    story.hook("PostToolUseFailure", after=0, **(bash | fields))
    story.hook("Stop", after=0, **fields)
    early: JSONObject = {"decision": "rejected", "tool_call_id": "c2", **fields}
    story.hook("PermissionResult", after=0, **early)
    record = to_record(story.machine.state)
    waits, calls, asks = record["waits"], record["calls"], record["asks"]
    assert isinstance(waits, list)
    assert len(waits) == 3
    assert calls
    assert asks
    assert MARKER not in json.dumps(record)


_NAMES = (
    *("run", "calls", "past_calls", "asks", "past_asks", "waits", "delegating", "background"),
    *("ended", "asked_ever", "other"),
)
_INNER = st.sampled_from(("id", "key", "kind", "run", "logged", "event", "other"))
records: st.SearchStrategy[JSONObject] = st.dictionaries(
    st.sampled_from(_NAMES),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_INNER, inner),
        max_leaves=6,
    ),
)


@settings(max_examples=150, deadline=None)
@given(records)
def test_a_record_of_any_other_shape_is_read_and_never_raises(record: JSONObject) -> None:
    story = Story()
    carry_on(story, from_record(record))
    story.machine.settle()
    story.hook("UserPromptSubmit", after=1, prompt="p")
    story.hook("Stop", after=1)
    assert json.dumps(to_record(story.machine.state))


def test_a_member_of_another_shape_takes_no_other_with_it() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, tool_name="Bash", tool_call_id="c1", tool_input={})
    record = to_record(story.machine.state) | {"calls": 7, "waits": [{"kind": "of another age"}]}
    carry_on(story, from_record(record))
    story.hook("Stop", after=1)
    assert story.only("run.finished").run == "run1"


def test_the_record_of_an_idle_session_is_small() -> None:
    story = Story()
    for number in range(100):
        story.hook("UserPromptSubmit", after=1, prompt="p")
        fields: JSONObject = {"tool_name": "Bash", "tool_call_id": f"c{number}", "tool_input": {}}
        story.hook("PreToolUse", after=1, **fields)
        story.hook("PostToolUse", after=1, **fields)
        story.hook("Stop", after=1)
    assert len(json.dumps(to_record(story.machine.state))) < 5_000


# --- the log alone ---


def at_metadata(event: Logged) -> JSONObject:
    """The event as the log has it at capture metadata, as far as a restart can use it."""
    data: JSONObject = {}
    for name in ("args_digest", "by", "resolution"):
        if name in event.data:
            data[name] = event.data[name]
    if "answer.option" in event.data:
        data["answer"] = {"option": event.data["answer.option"]}
    if "tool.name" in event.data:
        tool = {"name": event.data["tool.name"], "call_id": event.data.get("tool.call_id")}
        data["tool"] = {key: value for key, value in tool.items() if value is not None}
    return at_none(event) | ({"data": data} if data else {})


def at_none(event: Logged) -> JSONObject:
    """The event as the log has it at capture none."""
    wire: JSONObject = {
        "id": event.id,
        "type": event.type,
        "time": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds"),
        "subject": event.subject,
        "run": event.run,
        "cause": event.cause,
    }
    return {key: value for key, value in wire.items() if value is not None}


def carry_on_from_the_log(story: Story, *, data: bool) -> None:
    """Another process goes on with the story, and has nothing but its log."""
    state = State()
    for event in story.events:
        fold(state, at_metadata(event) if data else at_none(event))
    carry_on(story, state)


@quickly
@given(hooks=stories, cut=cuts, data=st.booleans())
def test_from_the_log_alone_no_terminal_comes_twice_and_the_end_once(
    hooks: list[Told], cut: int, *, data: bool
) -> None:
    before, after = halves(hooks, cut)
    story = told(before)
    carry_on_from_the_log(story, data=data)
    story.tell_all(after)
    story.machine.settle()
    story.hook("SessionEnd", after=1)
    story.wait(2)
    check(story.events, by_call=data)
    assert story.core.count("session.ended") == 1


@quickly
@given(hooks=stories, cut=cuts, data=st.booleans(), lost=st.integers(0, 3))
def test_from_a_log_cut_anywhere_the_open_run_closes_as_itself(
    hooks: list[Told], cut: int, lost: int, *, data: bool
) -> None:
    """The last events of a log can be lost with the process that wrote them."""
    story = told(halves(hooks, cut)[0])
    del story.events[len(story.events) - min(lost, len(story.events)) :]
    open_run = run_open_after(story.events)
    carry_on_from_the_log(story, data=data)
    story.hook("Interrupt", after=1)
    assert run_open_after(story.events) is None
    last = story.events[-1]
    if open_run:
        ended, started = last, next(e for e in story.events if e.run == open_run)
        assert (ended.type, ended.run, ended.cause) == ("run.cancelled", open_run, started.id)
    else:
        assert last.type == "x.kimi-code.session.interrupt"


def run_open_after(events: list[Logged]) -> str | None:
    """The run that has begun and not ended in these events."""
    open_run = None
    for event in events:
        if event.type == "run.started":
            open_run = event.run
        elif event.type in RUN_TERMINALS:
            open_run = None
    return open_run


def asking() -> Story:
    """A run with one call, whose approval is asked for."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **BASH)
    story.hook("PermissionRequest", after=0.1, **ASK)
    return story


BASH: dict[str, JSON] = {"tool_name": "Bash", "tool_call_id": "c1", "tool_input": {"command": "ls"}}
ASK: dict[str, JSON] = BASH | {"id": "approval-1", "agent_id": "main"}
_S: JSONObject = {"session_id": "s"}
PROMPT = _S | {"hook_event_name": "UserPromptSubmit", "prompt": "p"}
PRE = _S | BASH | {"hook_event_name": "PreToolUse"}
REQUEST = _S | ASK | {"hook_event_name": "PermissionRequest"}


def test_from_the_log_a_call_ends_because_of_its_request() -> None:
    story = asking()
    carry_on_from_the_log(story, data=True)
    story.hook("PostToolUse", after=1, **BASH)
    completed = story.only("tool.completed")
    assert (completed.cause, completed.run) == (story.only("tool.requested").id, "run1")


def test_from_the_log_an_ask_is_answered_by_its_call() -> None:
    story = asking()
    carry_on_from_the_log(story, data=True)
    story.hook("PermissionResult", after=1, decision="rejected", **ASK)
    assert story.core[3:] == ["attention.answered", "attention.resolved", "tool.denied"]
    assert story.only("attention.answered").subject == story.only("attention.requested").id


@pytest.mark.parametrize("data", [True, False])
def test_from_the_log_an_open_ask_is_dismissed_when_its_run_is_interrupted(*, data: bool) -> None:
    story = asking()
    carry_on_from_the_log(story, data=data)
    story.hook("Interrupt", after=1)
    assert story.core[3:] == ["attention.resolved", "run.cancelled"]


def test_from_the_log_a_session_that_has_asked_is_known_as_one() -> None:
    story = asking()
    story.hook("PermissionResult", after=1, decision="approved", **ASK)
    story.hook("PostToolUse", after=1, **BASH)
    carry_on_from_the_log(story, data=True)
    other = BASH | {"tool_call_id": "c2"}
    story.hook("PreToolUse", after=1, **other)
    assert story.hook("PostToolUseFailure", after=1, **other) is None


def test_from_the_log_the_same_request_is_still_a_duplicate() -> None:
    story = asking()
    carry_on_from_the_log(story, data=True)
    story.hook("PreToolUse", after=1, **BASH)
    assert (story.machine.duplicates, story.types.count("tool.requested")) == (1, 1)


def test_from_the_log_the_same_end_is_still_a_duplicate() -> None:
    story = asking()
    story.hook("PostToolUse", after=1, **BASH)
    carry_on_from_the_log(story, data=True)
    story.hook("PostToolUse", after=0.1, **BASH)
    assert (story.machine.duplicates, story.types.count("tool.completed")) == (1, 1)


def test_from_the_log_two_asks_of_one_call_are_two() -> None:
    story = asking()
    story.hook("PermissionRequest", after=0.1, **(ASK | {"id": "approval-2"}))
    carry_on_from_the_log(story, data=True)
    story.hook("SessionEnd", after=1)
    story.wait(2)
    assert story.core.count("attention.resolved") == 2


def test_the_log_may_be_ahead_of_the_record() -> None:
    """A record is as old as the hook that was handled when the process died."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **agent("a1"))
    record = to_record(story.machine.state)
    told_of = len(story.events)
    story.hook("Interrupt", after=1)
    state = from_record(record)
    for event in story.events[told_of:]:
        fold(state, at_metadata(event))
    carry_on(story, state)
    story.hook("PermissionRequest", after=1, **ASK)
    story.hook("Stop", after=1)
    assert story.core[2:] == ["run.cancelled", "attention.requested", "attention.resolved"], (
        "its delegating call is over with it, so the Stop is the main agent's"
    )


def test_an_ask_that_timed_out_is_not_dismissed_again() -> None:
    story = asking()
    timed_out = Logged("e9", "attention.timeout", story.events[-1].id, "run1", None, {}, story.now)
    story.events.append(timed_out)
    carry_on_from_the_log(story, data=True)
    story.hook("Interrupt", after=1)
    assert "attention.resolved" not in story.types


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("Interrupt", "x.kimi-code.session.permission_request"),
        ("UserPromptSubmit", "attention.requested"),
    ],
)
def test_from_the_log_only_a_run_that_was_interrupted_takes_its_late_requests_with_it(
    end: str, expected: str
) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **BASH)
    story.hook(end, after=1)
    carry_on_from_the_log(story, data=True)
    story.hook("PermissionRequest", after=0.1, **ASK)
    assert story.types[-1] == expected


@pytest.mark.parametrize("data", [True, False])
def test_from_the_log_a_call_that_has_ended_is_not_open(*, data: bool) -> None:
    story = Story()
    story.hook("PreToolUse", after=1, **BASH)
    story.hook("PostToolUse", after=1, **BASH)
    carry_on_from_the_log(story, data=data)
    assert not story.machine.state.is_open


# --- the record, and the log before it ---


def refilled(story: Story, *, length: int | None = None) -> None:
    """Another process goes on from the record, and from the last events of the log."""
    state = from_record(json.loads(json.dumps(to_record(story.machine.state))))
    refill(state, [at_metadata(event) for event in story.events[-length if length else None :]])
    carry_on(story, state)
    story.machine.settle()


@quickly
@given(hooks=stories, cut=cuts)
def test_a_restart_that_reads_the_log_changes_nothing_either(hooks: list[Told], cut: int) -> None:
    before, after = halves(hooks, cut)
    outlines = []
    for is_restarted in (False, True):
        story = told(before)
        story.wait(PAUSE)
        if is_restarted:
            refilled(story)
        story.tell_all(after)
        story.machine.settle()
        outlines.append((outline(story.events), story.machine.duplicates))
    assert outlines[0] == outlines[1]


def many(count: int) -> Story:
    """A run in which so many calls are open at once."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    for number in range(count):
        story.hook("PreToolUse", after=0, **bash(number))
    return story


def bash(number: int) -> dict[str, JSON]:
    """The fields of one of many calls."""
    return BASH | {"tool_call_id": f"c{number}"}


@pytest.mark.parametrize("count", [12, PAST])
def test_no_call_that_ended_before_the_restart_ends_twice(count: int) -> None:
    story = many(count)
    for number in range(count):
        story.hook("PostToolUse", after=0, **bash(number))
    assert len(story.events) <= TAIL
    refilled(story)
    for number in range(count):
        story.hook("PostToolUse", after=0, **bash(number))
    assert (story.core.count("tool.completed"), story.machine.duplicates) == (count, count)


@pytest.mark.parametrize("length", [None, 1 + 12], ids=["whole", "without the run's start"])
def test_what_comes_late_of_an_interrupted_run_is_known_after_a_restart(length: int | None) -> None:
    story = many(12)
    story.hook("Interrupt", after=1)
    refilled(story, length=length)
    story.hook("PermissionRequest", after=0.1, **bash(0))
    assert story.types[-1] == "x.kimi-code.session.permission_request"
    story.hook("PostToolUse", after=0.1, **bash(1))
    completed = story.only("tool.completed")
    assert (completed.run, completed.cause) == ("run1", story.events[2].id)


def test_a_call_that_is_open_by_the_record_is_not_remembered_as_ended() -> None:
    story = many(12)
    for number in range(12):
        story.hook("PostToolUse", after=0, **bash(number))
    story.hook("PreToolUse", after=1, **bash(0))
    refilled(story)
    story.hook("PostToolUse", after=1, **bash(0))
    assert story.core.count("tool.completed") == 13


def test_the_log_is_not_read_where_the_record_had_room_for_all() -> None:
    story = many(7)
    story.hook("Stop", after=1)
    events = iter([at_metadata(event) for event in story.events])
    refill(from_record(to_record(story.machine.state)), events)
    assert next(events, None) is not None


def test_no_more_is_refilled_than_a_session_keeps() -> None:
    story = Story()
    for number in range(PAST + 20):
        story.hook("PreToolUse", after=0, **bash(number))
        story.hook("PostToolUse", after=0, **bash(number))
    refilled(story)
    assert story.machine.state.past_calls.keys() == {f"c{n}" for n in range(20, PAST + 20)}


def test_without_data_nothing_is_guessed() -> None:
    story = many(12)
    story.hook("Stop", after=1)
    state = from_record(to_record(story.machine.state))
    before = list(state.past_calls)
    refill(state, [at_none(event) for event in story.events])
    assert list(state.past_calls) == before


@pytest.mark.parametrize("decision", ["approved", "rejected"])
@pytest.mark.parametrize("data", [True, False])
def test_an_answer_at_which_the_process_died_is_completed(decision: str, *, data: bool) -> None:
    """The log may end between attention.answered and attention.resolved."""
    story = Telling().tell_all([Told(0.0, PROMPT), Told(1.0, PRE), Told(0.1, REQUEST)])
    record = to_record(story.machine.state)
    story.hook("PermissionResult", after=1, decision=decision, **ASK)
    answered = story.only("attention.answered")
    del story.events[story.events.index(answered) + 1 :]
    state = from_record(json.loads(json.dumps(record)))
    fold(state, at_metadata(answered) if data else at_none(answered))
    assert state.is_unsettled
    carry_on(story, state)
    story.machine.settle()
    assert not story.machine.state.is_unsettled
    resolved = story.only("attention.resolved")
    assert (resolved.cause, resolved.data) == (answered.id, {"resolution": "answered"})
    assert (resolved.subject, resolved.run) == (answered.subject, "run1")
    assert story.sources[-1] == round(story.now * 1e9), "it is of the moment of the answer"
    assert ("tool.denied" in story.types) == (data and decision == "rejected")
    story.hook("PermissionResult", after=0.1, decision=decision, **ASK)
    story.hook("Stop", after=1)
    check(story.events)


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_failure_that_waits_by_the_record_and_is_decided_in_the_log_is_over(
    *, is_refused: bool
) -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=0.1, error={"code": "x"}, **BASH)
    record = to_record(story.machine.state)
    told_of = len(story.events)
    if is_refused:
        story.hook("PermissionResult", after=0.1, decision="rejected", **ASK)
    story.wait(3)
    state = from_record(record)
    for event in story.events[told_of:]:
        fold(state, at_metadata(event))
    carry_on(story, state)
    story.machine.settle()
    check(story.events)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_refusal_is_told_whole_wherever_the_log_ends(lost: int) -> None:
    """attention.answered, attention.resolved, tool.denied: the last two can be lost."""
    story = asking()
    record = to_record(story.machine.state)
    told_of = len(story.events)
    story.hook("PermissionResult", after=1, decision="rejected", **ASK)
    whole = outline(story.events)
    del story.events[len(story.events) - lost :]
    state = from_record(record)
    for event in story.events[told_of:]:
        fold(state, at_metadata(event))
    assert state.is_unsettled == (lost > 0)
    carry_on(story, state)
    story.machine.settle()
    assert outline(story.events) == whole
    story.hook("PostToolUseFailure", after=0.1, **BASH)
    story.hook("Stop", after=1)
    assert story.core[len(whole) :] == ["run.finished"]
    check(story.events)


_MEMBERS = ("id", "type", "run", "data", "tool", "cause", "subject", "call_id", "name", "time")
lines: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(_MEMBERS), inner),
)
FOLDED = (
    *("session.ended", "run.started", "run.finished", "tool.requested", "tool.completed"),
    *("tool.denied", "attention.requested", "attention.answered", "attention.resolved"),
    "x.kimi-code.session.stop",
)


@settings(max_examples=150, deadline=None)
@given(lines)
def test_a_line_of_any_shape_is_folded_and_never_raises(value: JSON) -> None:
    state = State()
    for word in FOLDED:
        line: JSONObject = value if isinstance(value, dict) else {"data": value}
        fold(state, line | {"type": word})
        fold(state, line)
        refill(state, [line | {"type": word}, line])
    assert json.dumps(to_record(state))
