"""Whose Stop is it: a subagent's turn fires Stop as its parent, and nothing tells it apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimiaepd.lifecycle.state import OPEN_CALLS, PAST
from kimiaepd.mapping.json_value import JSON
from story import Story

STOP = "x.kimi-code.session.stop"
FAILED = "x.kimi-code.session.stop_failure"

_BEGIN = ["PreToolUse", "SubagentStart"]
_ENDS = (
    ["Stop", "SubagentStop", "PostToolUse"],
    ["Stop", "SubagentStop"],
    ["Stop", "PostToolUse", "SubagentStop"],
    ["Stop", "PostToolUse"],
    ["StopFailure", "PostToolUseFailure"],
    ["StopFailure"],
    ["PostToolUseFailure"],
)
one_after_another = st.lists(
    st.sampled_from([*(_BEGIN + end for end in _ENDS), ["PreToolUse", "PostToolUseFailure"]]),
    min_size=1,
    max_size=4,
)
"""The hooks of subagents in the foreground, each with the ends that it may be left with."""


def agent(call: str = "a1", *, background: bool | None = None) -> dict[str, JSON]:
    """The fields of an `Agent` call."""
    given: dict[str, JSON] = {"prompt": "look", "subagent_type": "explore"}
    if background is not None:
        given["run_in_background"] = background
    return {"tool_name": "Agent", "tool_call_id": call, "tool_input": given}


def delegated(*calls: str) -> Story:
    """A run in which so many foreground subagents are at work."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    for call in calls:
        story.hook("PreToolUse", after=1, **agent(call))
        story.hook("SubagentStart", after=0.1, agent_name="explore")
    return story


def in_background(count: int = 1) -> Story:
    """A run in which so many background subagents are at work, and no delegating call is open."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    for number in range(count):
        fields = agent(f"b{number}", background=True)
        story.hook("PreToolUse", after=1, **fields)
        story.hook("SubagentStart", after=0.1, agent_name="explore")
        story.hook("PostToolUse", after=0.1, **fields)
    return story


def closed_by(story: Story) -> float:
    """When the Stop came that closed the run, in seconds of the story."""
    finished = story.only("run.finished")
    (cause,) = (event for event in story.events if event.id == finished.cause)
    return finished.at if cause.type == "run.started" else cause.at


# --- delegating calls ---


def test_a_foreground_subagents_stop_is_not_the_runs() -> None:
    story = delegated("a1")
    story.hook("Stop", after=1)
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("PostToolUse", after=0.1, **agent("a1"))
    assert "run.finished" not in story.types
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now
    assert story.types.count(STOP) == 1


def test_a_subagent_can_stop_twice() -> None:
    story = delegated("a1")
    story.hook("Stop", after=1)
    story.hook("Stop", after=1)
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("PostToolUse", after=0.1, **agent("a1"))
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


@pytest.mark.parametrize("background", [None, False])
def test_an_agent_call_that_is_not_in_the_background_delegates(background: bool | None) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **agent("a1", background=background))
    story.hook("Stop", after=1)
    assert story.core == ["run.started", "tool.requested"]


@pytest.mark.parametrize("given", ["true", 1, None, [True]])
def test_only_true_itself_is_in_the_background(given: JSON) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    fields = agent("a1") | {"tool_input": {"run_in_background": given}}
    story.hook("PreToolUse", after=1, **fields)
    story.hook("Stop", after=1)
    assert "run.finished" not in story.types


@pytest.mark.parametrize("given", ["text", None, 3, []])
def test_an_agent_call_without_an_object_as_input_delegates(given: JSON) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", tool_name="Agent", tool_call_id="a1", tool_input=given)
    story.hook("Stop", after=1)
    assert "run.finished" not in story.types


def test_a_call_in_the_background_does_not_delegate() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **agent("a1", background=True))
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def test_another_tool_does_not_delegate() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, tool_name="Bash", tool_call_id="c1", tool_input={})
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


@pytest.mark.parametrize("end", ["PostToolUse", "PostToolUseFailure"])
def test_it_is_open_until_its_own_end(end: str) -> None:
    story = delegated("a1")
    story.hook(end, after=1, **agent("a1"))
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def test_it_is_open_until_the_next_subagent_stop_because_its_own_end_can_be_lost() -> None:
    story = delegated("a1")
    story.hook("Stop", after=1)
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def test_it_is_open_until_a_stop_failure_that_is_the_subagents() -> None:
    story = delegated("a1")
    story.hook("StopFailure", after=1, error_type="APIStatusError")
    assert story.types[-1] == FAILED
    assert "run.failed" not in story.types
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def test_a_second_stop_failure_is_the_runs() -> None:
    story = delegated("a1")
    story.hook("StopFailure", after=1, error_type="APIStatusError")
    story.hook("StopFailure", after=1, error_type="APIStatusError")
    assert story.only("run.failed").cause == "e1"


@pytest.mark.parametrize("end", ["Interrupt", "UserPromptSubmit"])
def test_it_ends_with_its_run(end: str) -> None:
    story = delegated("a1")
    story.hook(end, after=1)
    if end == "Interrupt":
        story.hook("UserPromptSubmit", after=1, prompt="next")
    story.hook("Stop", after=1)
    assert story.only("run.finished").run == "run2"


def test_an_interrupt_is_the_runs_also_while_it_is_open() -> None:
    story = delegated("a1")
    story.hook("Interrupt", after=1)
    assert story.only("run.cancelled").data["by"] == "user"


def test_a_delegating_call_without_a_run_ends_at_the_next_prompt() -> None:
    """A turn of background work has no run; a call whose end was lost must not outlive it."""
    story = Story()
    story.hook("PreToolUse", after=0, **agent("a1"))
    story.hook("UserPromptSubmit", after=60, prompt="p")
    story.hook("Stop", after=1)
    assert story.only("run.finished").run == "run1"


def test_while_it_is_open_start_and_stop_of_a_subagent_are_its_own() -> None:
    story = delegated("a1")
    story.hook("SubagentStop", after=1, agent_name="explore")
    story.hook("Stop", after=0.1)
    assert closed_by(story) == story.now, "no background subagent was counted"


def test_a_tool_call_of_the_subagent_does_not_end_it() -> None:
    story = delegated("a1")
    bash: dict[str, JSON] = {"tool_name": "Bash", "tool_call_id": "c1", "tool_input": {}}
    story.hook("PreToolUse", after=1, **bash)
    story.hook("PostToolUse", after=1, **bash)
    story.hook("Stop", after=1)
    assert "run.finished" not in story.types


# --- several at once ---


@pytest.mark.parametrize(
    ("first_two", "last_two", "over"),
    [
        (("stop", "a1"), ("stop", "a2"), 1),
        (("a1", "stop"), ("a2", "stop"), 1),
        (("stop", "a2"), ("a1", "stop"), 1),
        (("a2", "a1"), ("stop", "stop"), 2),
        (("stop", "stop"), ("a2", "a1"), 2),
    ],
)
def test_parallel_calls_end_once_each_whatever_the_order_of_their_two_ends(
    first_two: tuple[str, str], last_two: tuple[str, str], over: int
) -> None:
    story = delegated("a1", "a2")
    told(story, first_two)
    story.hook("Stop", after=0.05)
    assert ("run.finished" in story.types) == (over == 2)
    told(story, last_two)
    story.hook("Stop", after=1)
    assert story.core.count("run.finished") == 1


def told(story: Story, ends: tuple[str, str]) -> None:
    """Each end is a SubagentStop or the end of the call that it names."""
    for end in ends:
        if end == "stop":
            story.hook("SubagentStop", after=0.05, agent_name="explore")
        else:
            story.hook("PostToolUse", after=0.05, **agent(end))


def test_the_last_stop_of_two_parallel_subagents_and_their_parent_closes_the_run() -> None:
    story = delegated("a1", "a2")
    for call in ("a1", "a2"):
        story.hook("Stop", after=1)
        story.hook("PostToolUse", after=0.1, **agent(call))
        story.hook("SubagentStop", after=0.1, agent_name="explore")
    assert "run.finished" not in story.types
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def test_a_subagents_stop_just_after_its_calls_own_end_discounts_no_background_one() -> None:
    story = in_background()
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("SubagentStart", after=0.1, agent_name="coder")
    story.hook("PostToolUse", after=1, **agent("a1"))
    story.hook("SubagentStop", after=0.02, agent_name="coder")
    story.hook("Stop", after=1)
    assert "run.finished" not in story.types, "the background one is still at work"
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def refuse(story: Story, call: str) -> None:
    """An `Agent` call that its user refuses, so that no subagent begins."""
    story.hook("PreToolUse", after=1, **agent(call))
    story.hook("PermissionRequest", after=0.1, **agent(call))
    story.hook("PermissionResult", after=1, decision="rejected", **agent(call))
    story.hook("PostToolUseFailure", after=0.1, **agent(call))


def assert_the_next_stop_is_the_background_subagents(story: Story) -> None:
    """The Stop before its SubagentStop is taken, and the one after it closes the run."""
    story.hook("Stop", after=0.5)
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("Stop", after=0.2)
    assert closed_by(story) == story.now


def test_a_refused_agent_call_had_no_subagent_and_takes_no_stop_of_another() -> None:
    story = in_background()
    refuse(story, "a1")
    assert_the_next_stop_is_the_background_subagents(story)


def test_nor_does_one_after_a_subagent_that_failed() -> None:
    story = in_background()
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("SubagentStart", after=0.1, agent_name="coder")
    story.hook("StopFailure", after=1, error_type="APIStatusError")
    story.hook("PostToolUseFailure", after=0.1, **agent("a1"))
    refuse(story, "a2")
    assert_the_next_stop_is_the_background_subagents(story)


def test_nor_one_after_a_subagent_that_was_interrupted() -> None:
    story = in_background()
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("SubagentStart", after=0.1, agent_name="coder")
    story.hook("Interrupt", after=1)
    story.hook("UserPromptSubmit", after=1, prompt="next")
    refuse(story, "a2")
    assert_the_next_stop_is_the_background_subagents(story)


@pytest.mark.parametrize(("seconds", "is_late"), [(1.999, True), (2.0, False), (2.001, False)])
def test_a_subagent_stop_is_its_calls_until_two_seconds_after_the_calls_own_end(
    seconds: float, is_late: bool
) -> None:
    story = in_background()
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("SubagentStart", after=0.1, agent_name="coder")
    story.hook("PostToolUse", after=1, **agent("a1"))
    story.hook("SubagentStop", after=seconds, agent_name="?")
    story.hook("Stop", after=0.1)
    assert ("run.finished" not in story.types) == is_late, "later, it discounts the other one"


def test_a_foreground_subagents_stop_does_not_take_a_stop_that_waits() -> None:
    story = in_background()
    story.hook("Stop", after=1)
    first_at = story.now
    story.hook("PreToolUse", after=0.1, **agent("a1"))
    story.hook("SubagentStart", after=0.1, agent_name="coder")
    story.hook("SubagentStop", after=0.1, agent_name="coder")
    story.wait(5)
    assert closed_by(story) == first_at


def test_a_subagent_that_stopped_in_one_run_ends_none_in_the_next() -> None:
    """Its call's own end was lost; what is held against the count goes with the run."""
    story = delegated("a1")
    story.hook("SubagentStop", after=1, agent_name="explore")
    story.hook("Interrupt", after=1)
    story.hook("UserPromptSubmit", after=1, prompt="next")
    story.hook("PreToolUse", after=1, **agent("a2"))
    story.hook("Stop", after=1)
    assert "run.finished" not in story.types


# --- in the background ---


def test_with_none_open_a_subagent_start_counts_one_in_the_background() -> None:
    story = in_background()
    story.hook("Stop", after=1)
    assert "run.finished" not in story.types
    assert story.types[-1] == STOP


def test_with_none_in_the_background_a_stop_closes_the_run_at_once() -> None:
    story = in_background()
    story.hook("SubagentStop", after=1, agent_name="explore")
    story.hook("Stop", after=0.1)
    assert closed_by(story) == story.now


def test_a_waiting_stop_closes_the_run_when_its_time_is_up() -> None:
    story = in_background()
    story.hook("Stop", after=1)
    stopped_at = story.now
    story.wait(1.999)
    assert "run.finished" not in story.types
    story.wait(0.002)
    finished = story.only("run.finished")
    assert finished.cause == story.only(STOP).id
    assert finished.run == "run1"
    assert finished.data["duration_ms"] == round((stopped_at - 1000.0) * 1000)


@pytest.mark.parametrize(("seconds", "taken"), [(0.0, True), (1.999, True), (2.0, False),
                                                (2.001, False)])  # fmt: skip
def test_a_subagent_stop_within_two_seconds_takes_the_waiting_stop(
    seconds: float, taken: bool
) -> None:
    story = in_background()
    story.hook("Stop", after=1)
    story.hook("SubagentStop", after=seconds, agent_name="explore")
    story.wait(10)
    assert ("run.finished" not in story.types) == taken
    assert story.types.count(STOP) == 1, "a Stop that stays the subagent's adds nothing"


def test_the_deadline_holds_also_where_the_clock_is_late() -> None:
    """The hook that comes after the deadline is told to the machine before any tick."""
    story = in_background()
    story.hook("Stop", after=1)
    story.now += 2.5
    story.take({"hook_event_name": "SubagentStop", "session_id": "s", "agent_name": "explore"})
    assert story.types[-2:] == ["run.finished", "delegation.subagent.stopped"]


def test_it_takes_exactly_one_the_latest_and_the_other_closes_the_run() -> None:
    story = in_background()
    story.hook("Stop", after=1)
    first_at = story.now
    story.hook("Stop", after=0.1)
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    assert "run.finished" not in story.types
    story.wait(1.799)
    assert "run.finished" not in story.types
    story.wait(0.002)
    assert closed_by(story) == first_at
    story.wait(10)
    assert story.types.count("run.finished") == 1


def test_a_second_waiting_stop_adds_nothing_when_its_time_is_up() -> None:
    story = in_background()
    story.hook("Stop", after=1)
    story.hook("Stop", after=0.1)
    story.wait(10)
    assert story.types[-3:] == [STOP, STOP, "run.finished"]


def test_nor_does_a_stop_with_no_run_open() -> None:
    story = Story()
    story.hook("SubagentStart", agent_name="explore")
    story.hook("Stop", after=1)
    story.wait(10)
    assert story.types == ["delegation.subagent.started", STOP]


def test_two_subagent_stops_take_two() -> None:
    story = in_background(2)
    for _ in range(3):
        story.hook("Stop", after=0.1)
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.wait(10)
    first = next(event for event in story.events if event.type == STOP)
    assert story.only("run.finished").cause == first.id


def test_the_stop_of_the_turn_that_background_work_started_is_not_the_runs() -> None:
    """2.1.0: both Stops, SubagentStop, then a turn for the result with a Stop of its own."""
    story = in_background()
    story.hook("Stop", after=0.9)
    first_at = story.now
    story.hook("Stop", after=0.107)
    story.hook("SubagentStop", after=0.172, agent_name="explore")
    story.hook("Notification", after=0.116, notification_type="task.completed")
    story.hook("Stop", after=0.816)
    assert closed_by(story) == first_at
    assert story.types[-2:] == ["run.finished", STOP]
    story.wait(10)
    assert story.types.count("run.finished") == 1


BOUNDARIES = {
    "UserPromptSubmit": ["run.started"],
    "Interrupt": ["x.kimi-code.session.interrupt"],
    "StopFailure": [FAILED],
    "SessionEnd": ["session.ended"],
}


@pytest.mark.parametrize(("boundary", "own"), BOUNDARIES.items())
def test_a_boundary_first_settles_the_waiting_stop_as_the_runs_own(
    boundary: str, own: list[str]
) -> None:
    story = in_background()
    story.hook("Stop", after=1)
    stop = story.events[-1]
    story.hook(boundary, after=0.5)
    assert story.types[-2:] == ["run.finished", *own]
    finished = story.only("run.finished")
    assert (finished.run, finished.cause, finished.at) == ("run1", stop.id, story.now)


def test_a_stop_failure_while_only_a_background_subagent_runs_is_the_runs() -> None:
    story = in_background()
    story.hook("StopFailure", after=1, error_type="APIStatusError")
    assert story.only("run.failed").run == "run1"


def test_a_background_subagent_outlives_its_run() -> None:
    story = in_background()
    story.hook("Interrupt", after=1)
    story.hook("UserPromptSubmit", after=1, prompt="next")
    story.hook("Stop", after=1)
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("Stop", after=1)
    assert story.only("run.finished").at == story.now


def test_the_end_of_the_session_forgets_subagents() -> None:
    story = in_background()
    story.hook("Stop", after=1)
    story.hook("SessionEnd", after=1, reason="exit")
    story.hook("SessionStart", after=10, source="resume")
    story.hook("UserPromptSubmit", after=1, prompt="next")
    story.hook("Stop", after=1)
    assert [event.at for event in story.events if event.type == "run.finished"][-1] == story.now


def test_a_subagent_stop_that_belongs_to_nobody_changes_nothing() -> None:
    story = Story()
    story.hook("SubagentStop", agent_name="explore")
    story.hook("UserPromptSubmit", after=1, prompt="p")
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


# --- what the vendor kills or refuses ---


def ended_without_its_name(story: Story, call: str, *, failing: bool = False) -> None:
    """A subagent whose call's own end is lost (0.42.0 and later kill its hook)."""
    story.hook("PreToolUse", after=1, **agent(call))
    story.hook("SubagentStart", after=0.1, agent_name="explore")
    if failing:
        story.hook("StopFailure", after=0.5, error_type="APIStatusError")
    else:
        story.hook("Stop", after=0.5)
        story.hook("SubagentStop", after=0.1, agent_name="explore")


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("end", ["PostToolUse", "PostToolUseFailure"])
def test_a_call_that_ended_without_its_name_is_not_reopened_by_the_end_of_another(
    end: str, *, failing: bool
) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    ended_without_its_name(story, "a1", failing=failing)
    story.hook("PreToolUse", after=1, **agent("a2"))
    story.hook(end, after=0.1, **agent("a2"))
    story.hook("Stop", after=5)
    assert closed_by(story) == story.now


def test_a_call_refused_beside_one_at_work_takes_no_subagent_from_it() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("PreToolUse", after=0, **agent("a2"))
    story.hook("SubagentStart", after=0.05, agent_name="explore")
    story.hook("PostToolUseFailure", after=0.05, **agent("a2"))
    story.hook("Stop", after=0.5)
    story.hook("SubagentStop", after=0.05, agent_name="explore")
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def test_a_call_refused_beside_one_that_has_stopped_reopens_nothing() -> None:
    story = delegated("a1", "a2")
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("PreToolUse", after=1, **agent("a3"))
    story.hook("PostToolUseFailure", after=0.1, **agent("a3"))
    story.hook("Stop", after=0.5)
    assert "run.finished" not in story.types, "one is still at work"
    story.hook("SubagentStop", after=0.1, agent_name="explore")
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def test_a_call_that_ends_well_has_run_whichever_call_was_thought_to_begin() -> None:
    """Only the later of two has begun: its SubagentStop after its own end is not the other's."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **agent("a1"))
    story.hook("PreToolUse", after=0, **agent("a2"))
    story.hook("SubagentStart", after=0.05, agent_name="explore")
    story.hook("PostToolUse", after=1, **agent("a2"))
    story.hook("SubagentStop", after=0.05, agent_name="explore")
    story.hook("SubagentStart", after=0.05, agent_name="explore")
    story.hook("Stop", after=1)
    assert "run.finished" not in story.types
    story.hook("PostToolUse", after=0.05, **agent("a1"))
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


@given(calls=one_after_another)
@settings(max_examples=150, deadline=None)
def test_whatever_is_lost_of_subagents_one_after_another_the_last_stop_closes_the_run(
    calls: list[list[str]],
) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    for number, hooks in enumerate(calls):
        for event in hooks:
            named = agent(f"a{number}") if "ToolUse" in event else {}
            story.hook(event, after=0.5, **named)
        story.wait(2.5)
    assert "run.finished" not in story.types
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now


def test_no_more_is_kept_of_delegating_calls_than_is_said() -> None:
    story = Story()
    for number in range(OPEN_CALLS + 10):
        story.hook("PreToolUse", after=0, **agent(f"a{number}"))
        story.hook("SubagentStart", after=0)
    assert len(story.machine.state.subagents.delegating) == OPEN_CALLS
    for number in range(OPEN_CALLS + 10):
        story.hook("PostToolUse", after=0, **agent(f"a{number}"))
    assert len(story.machine.state.subagents.late) <= PAST


@st.composite
def side_by_side(draw: st.DrawFn) -> list[tuple[str, str]]:
    """The hooks of subagents at work at once, each with its call, whose own end may be killed."""
    ends = st.sampled_from((["SubagentStop", "PostToolUse"], ["PostToolUse", "SubagentStop"],
                            ["SubagentStop"]))  # fmt: skip
    left = {call: [*_BEGIN, "Stop", *draw(ends)] for call in ("a1", "a2", "a3")}
    told_of: list[tuple[str, str]] = []
    while left := {call: hooks for call, hooks in left.items() if hooks}:
        call = draw(st.sampled_from(sorted(left)))
        told_of.append((left[call].pop(0), call))
    return told_of


@given(hooks=side_by_side())
@settings(max_examples=300, deadline=None)
def test_of_subagents_side_by_side_no_stop_but_the_last_closes_the_run(
    hooks: list[tuple[str, str]],
) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    for event, call in hooks:
        named = agent(call) if "ToolUse" in event else {}
        story.hook(event, after=0.01, **named)
    assert "run.finished" not in story.types
    story.hook("Stop", after=1)
    assert closed_by(story) == story.now
