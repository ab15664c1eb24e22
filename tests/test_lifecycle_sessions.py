"""Sessions: one end each over all epochs, in a fixed order; and what comes twice without an id."""

from __future__ import annotations

import pytest

from kimiaepd.lifecycle.machine import Machine
from kimiaepd.lifecycle.record import from_record, to_record
from kimiaepd.mapping.json_value import JSON, JSONObject
from story import Story

END = "x.kimi-code.session.session_end"
MS = 0.001


def bash(call: str = "c1") -> dict[str, JSON]:
    """The fields of a Bash call."""
    return {"tool_name": "Bash", "tool_call_id": call, "tool_input": {"command": "ls"}}


def over() -> Story:
    """A session that has ended."""
    story = Story()
    story.hook("SessionStart", source="startup")
    story.hook("UserPromptSubmit", after=1, prompt="p")
    story.hook("Stop", after=1)
    story.hook("SessionEnd", after=1, reason="exit")
    return story


def test_a_session_ends_when_no_run_is_open_at_once() -> None:
    story = over()
    assert story.types == ["session.started", "run.started", "run.finished", "session.ended"]
    ended = story.only("session.ended")
    assert (ended.run, ended.cause, ended.data["reason"]) == (None, None, "normal")


def test_a_resumed_session_that_ends_again_degrades() -> None:
    story = over()
    story.hook("SessionStart", after=10, source="resume")
    story.hook("UserPromptSubmit", after=1, prompt="more")
    story.hook("Stop", after=1)
    story.hook("SessionEnd", after=1, reason="exit")
    assert story.types[4:] == ["session.started", "run.started", "run.finished", END]
    assert story.core.count("session.ended") == 1


def test_also_over_all_epochs() -> None:
    story = over()
    story.machine = Machine(from_record(to_record(story.machine.state)), story._emit, lambda: "r")
    story.hook("SessionStart", after=10, source="resume")
    story.hook("SessionEnd", after=1, reason="exit")
    assert story.types[-2:] == ["session.started", END]


def test_at_its_second_end_dismissing_and_draining_happen_all_the_same() -> None:
    story = over()
    story.hook("UserPromptSubmit", after=1, prompt="more")
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PermissionRequest", after=1, agent_id="main", **bash())
    story.hook("SessionEnd", after=1, reason="exit")
    story.wait(1.999)
    assert story.types[-1] == END
    story.wait(0.002)
    assert story.types[-3:] == [END, "attention.resolved", "run.cancelled"]
    assert story.core.count("session.ended") == 1
    assert not story.machine.state.is_open


def test_the_order_at_the_end_is_asks_what_waits_the_run_the_session() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash("c1"))
    story.hook("PreToolUse", after=0.1, **bash("c2"))
    story.hook("PermissionRequest", after=1, agent_id="main", **bash("c1"))
    story.hook("PostToolUseFailure", after=1, **bash("c2"))
    story.hook("SessionEnd", after=1, reason="exit")
    story.wait(0.999)
    assert story.types[-1] == END, "a result of c2 could still come"
    story.wait(5)
    after_the_hook = story.types[story.types.index(END) + 1 :]
    assert after_the_hook == ["tool.failed", "attention.resolved", "run.cancelled", "session.ended"]


def test_what_still_waits_at_the_end_is_settled_between_the_asks_and_the_run() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash("c1"))
    story.hook("PreToolUse", after=0.1, **bash("c2"))
    story.hook("PermissionRequest", after=1, agent_id="main", **bash("c1"))
    story.hook("SessionEnd", after=1, reason="exit")
    story.hook("PostToolUseFailure", after=0.5, **bash("c2"))
    story.wait(5)
    assert story.core[-4:] == [
        "attention.resolved",
        "tool.failed",
        "run.cancelled",
        "session.ended",
    ]


def test_a_refusal_can_still_be_told_while_the_session_end_waits() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PermissionRequest", after=1, **bash())
    story.hook("PostToolUseFailure", after=1, **bash())
    story.hook("SessionEnd", after=0.01, reason="exit")
    story.hook("PermissionResult", after=0.05, decision="rejected", **bash())
    story.wait(5)
    assert story.core[3:] == [
        *("attention.answered", "attention.resolved", "tool.denied"),
        *("run.cancelled", "session.ended"),
    ]


def test_a_stop_that_waits_is_the_runs_own_at_the_end_and_the_end_need_not_wait() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("SubagentStart", after=1, agent_name="explore")
    story.hook("PermissionRequest", after=1, agent_id="agent-7", **bash())
    story.hook("Stop", after=1)
    story.hook("SessionEnd", after=1, reason="exit")
    assert story.core[-3:] == ["attention.resolved", "run.finished", "session.ended"]
    assert story.events[-1].at == story.now


def test_a_vendor_word_for_the_end_is_kept_as_detail_also_when_it_waited() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("SessionEnd", after=1, reason="archive")
    story.wait(3)
    assert story.only("session.ended").data == {"reason": "normal", "detail": "archive"}


def test_a_resume_within_the_wait_ends_the_session_first() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("SessionEnd", after=1, reason="exit")
    story.hook("SessionStart", after=0.5, source="resume")
    assert story.core == ["run.started", "run.cancelled", "session.ended", "session.started"]


def test_a_start_while_nothing_ends_is_no_boundary() -> None:
    """A resume after the vendor was killed: the open run drains at the next prompt, not before."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("SessionStart", after=60, source="resume")
    assert story.types == ["run.started", "session.started"]
    story.hook("UserPromptSubmit", after=1, prompt="next")
    assert story.core[2:] == ["run.cancelled", "run.started"]


def test_nothing_is_open_after_the_end() -> None:
    story = Story()
    story.hook("PreToolUse", tool_name="Agent", tool_call_id="a1", tool_input={})
    story.hook("SubagentStart", agent_name="coder")
    story.hook("PermissionRequest", after=1, agent_id="agent-7", **bash("c9"))
    story.hook("SessionEnd", after=1, reason="exit")
    state = story.machine.state
    assert not state.is_open
    assert (state.subagents.delegating, state.subagents.background) == ({}, 0)


def test_events_after_the_end_are_late_and_legal() -> None:
    story = over()
    story.hook("Notification", after=1, notification_type="task.completed")
    story.hook("PostToolUse", after=1, **bash())
    assert story.core[-2:] == ["progress.status", "tool.completed"]


# --- what comes twice without an id ---


def twice(payload: JSONObject, between: float, second: JSONObject | None = None) -> Story:
    """The same payload again, its shim started so much later, both told at once."""
    story = Story()
    story.take(payload, started=1000.0)
    story.take(second or payload, started=1000.0 + between)
    return story


START: JSONObject = {"hook_event_name": "SessionStart", "session_id": "s", "source": "startup"}
PROMPT: JSONObject = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "p"}
STEER: JSONObject = PROMPT | {"is_steer": True}


@pytest.mark.parametrize("payload", [START, PROMPT, STEER], ids=["start", "prompt", "steer"])
@pytest.mark.parametrize(
    ("milliseconds", "dropped"),
    [(0, 1), (99, 1), (100, 1), (101, 0), (-99, 1), (-100, 1), (-101, 0)],
)
def test_prompts_and_starts_that_started_within_100_ms_are_one(
    payload: JSONObject, milliseconds: int, dropped: int
) -> None:
    story = twice(payload, milliseconds * MS)
    assert story.machine.duplicates == dropped
    starts = [word for word in story.types if word.endswith((".started", "steer_submitted"))]
    assert len(starts) == 2 - dropped


def test_the_starts_count_and_not_the_arrivals() -> None:
    story = Story()
    story.take(PROMPT, started=1000.0)
    story.wait(0.4)
    story.take(PROMPT, started=1000.05)
    assert (story.types, story.machine.duplicates) == (["run.started"], 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [(PROMPT, PROMPT | {"prompt": "q"}), (START, START | {"source": "resume"}), (PROMPT, STEER)],
    ids=["prompt", "start", "steer"],
)
def test_different_ones_are_two_however_close(first: JSONObject, second: JSONObject) -> None:
    assert twice(first, 0.01, second).machine.duplicates == 0


def test_the_same_prompt_later_is_a_new_run() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="again")
    story.hook("Stop", after=0.05)
    story.hook("UserPromptSubmit", after=0.06, prompt="again")
    assert story.core == ["run.started", "run.finished", "run.started"]


@pytest.mark.parametrize(
    "event",
    ["Stop", "StopFailure", "Interrupt", "SessionEnd", "Notification", "SubagentStart",
     "SubagentStop", "PreCompact", "PostCompact", "TurnStarted", "SessionHeartbeat", "Unknown"],
)  # fmt: skip
def test_nothing_else_is_dropped_without_an_id(event: str) -> None:
    story = twice({"hook_event_name": event, "session_id": "s"}, 0.001)
    assert (len(story.events), story.machine.duplicates) == (2, 0)
