"""Holds as lifecycles: one outcome each, whatever else the session does, and after a restart."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from kimiaepd.lifecycle.fold import fold
from kimiaepd.lifecycle.machine import Machine
from kimiaepd.lifecycle.record import from_record, to_record
from kimiaepd.lifecycle.state import Call, Hold, HoldAnswer, Hook
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.payloads import HookPayload
from story import Logged, Story

BASH: dict[str, Any] = {
    "tool_name": "Bash", "tool_call_id": "c1", "tool_input": {"command": "ls"},
}  # fmt: skip
AGENT: dict[str, Any] = {
    "tool_name": "Agent", "tool_call_id": "c2", "tool_input": {"prompt": "look"},
}  # fmt: skip


def held(story: Story, given: dict[str, Any] = BASH) -> Hold:
    """A call that is held, in a run."""
    story.hook("UserPromptSubmit")
    story.hook("PreToolUse", **given)
    return hold_now(story)


def hold_now(story: Story) -> Hold:
    """Hold the call that the last hook begins."""
    call = story.machine.begun
    assert isinstance(call, Call)
    facts: JSONObject = {"expires_at": "2026-12-01T00:00:00.000Z", "respond_via": ["control"]}
    fields = tuple(Field((name,), Capture.METADATA, fact) for name, fact in facts.items())
    draft = Draft("attention.requested", call.name, fields)
    payload = HookPayload(event="PreToolUse", tool_name=call.name, tool_call_id=call.id or None)
    return story.machine.hold(Hook(payload, draft, story.now, 0), call)


def answered(hold: Hold, option: str, text: str | None = None) -> None:
    hold.answer = HoldAnswer(option, "command-1", text)


def links(event: Logged) -> tuple[str | None, str | None, str | None]:
    return event.subject, event.cause, event.run


def test_a_refusal_is_answered_resolved_and_denied_each_by_the_one_before() -> None:
    story = Story()
    hold = held(story)
    requested = story.only("attention.requested")
    assert links(requested) == ("Bash", story.only("tool.requested").id, "run1")
    answered(hold, "deny", "not today")
    assert story.machine.conclude(hold, story.now + 3, "timeout") == "answered"
    said, resolved, denied = story.events[-3:]
    assert said.type == "attention.answered"
    assert links(said) == (requested.id, "command-1", "run1")
    assert said.data == {"answer.option": "deny", "answer.text": "not today", "via": "control"}
    assert resolved.type == "attention.resolved"
    assert links(resolved) == (requested.id, said.id, "run1")
    assert resolved.data == {"resolution": "answered", "latency_ms": 3000}
    assert denied.type == "tool.denied"
    assert links(denied) == ("Bash", said.id, "run1")
    assert denied.data == {"tool.name": "Bash", "tool.call_id": "c1", "by": "policy"}


def test_the_failure_of_a_refused_call_is_no_second_terminal() -> None:
    story = Story()
    hold = held(story)
    answered(hold, "deny")
    story.machine.conclude(hold, story.now, "dismissed")
    assert story.hook("PostToolUseFailure", **BASH, error={"code": "internal"}) is None
    story.hook("PostToolUse", **BASH)
    story.hook("Stop", after=3)
    assert story.core[-2:] == ["tool.denied", "run.finished"]


def test_an_allowed_call_is_the_vendors_to_ask_about() -> None:
    story = Story()
    hold = held(story)
    answered(hold, "allow")
    story.machine.conclude(hold, story.now, "dismissed")
    story.hook("PermissionRequest", **BASH, id="a1")
    story.hook("PermissionResult", **BASH, id="a1", decision="rejected")
    story.hook("PostToolUseFailure", **BASH, error={"code": "internal"})
    story.hook("Stop", after=3)
    ours, theirs = (event for event in story.events if event.type == "attention.requested")
    ends = [event.subject for event in story.events if event.type == "attention.resolved"]
    assert ends == [ours.id, theirs.id]
    assert story.only("tool.denied").data["by"] == "runtime"


@pytest.mark.parametrize("otherwise", ["timeout", "dismissed"])
def test_a_hold_ends_once(otherwise: Literal["timeout", "dismissed"]) -> None:
    story = Story()
    hold = held(story)
    over: list[bool] = []
    hold.on_over = lambda: over.append(True)
    assert story.machine.conclude(hold, story.now + 50, otherwise) == otherwise
    answered(hold, "deny")
    assert story.machine.conclude(hold, story.now + 51, "dismissed") is None
    assert over == [True]
    assert "tool.denied" not in story.types
    end = story.events[-1]
    assert links(end) == (hold.requested, hold.requested, "run1")
    expected = {
        "timeout": ("attention.timeout", {"after_ms": 50_000}),
        "dismissed": ("attention.resolved", {"resolution": "dismissed", "latency_ms": 50_000}),
    }
    assert (end.type, end.data) == expected[otherwise]


def test_the_end_of_the_session_lets_go_at_once_and_before_its_own_event() -> None:
    story = Story()
    hold = held(story)
    over: list[bool] = []
    hold.on_over = lambda: over.append(True)
    story.hook("SessionEnd", reason="exit")
    assert over == [True]
    story.hook("PreToolUse", **AGENT)  # while the end waits for the run's own
    hold_now(story)
    story.wait(3)
    ends = [event.data["resolution"] for event in story.events if "resolved" in event.type]
    assert ends == ["dismissed", "dismissed"]
    assert story.types[-1] == "session.ended"


def test_an_answer_that_was_accepted_stands_though_the_session_ends() -> None:
    story = Story()
    hold = held(story)
    answered(hold, "deny")
    story.hook("SessionEnd", reason="exit")
    story.wait(3)
    assert story.core[-5:] == [
        "attention.answered", "attention.resolved", "tool.denied", "run.cancelled", "session.ended",
    ]  # fmt: skip


@pytest.mark.parametrize("event", ["Stop", "Interrupt", "StopFailure", "UserPromptSubmit"])
def test_nothing_else_of_the_session_ends_a_hold(event: str) -> None:
    story = Story()
    hold = held(story)
    story.hook(event)
    assert hold.requested in story.machine.state.holds
    assert "attention.resolved" not in story.types


def test_a_refused_subagent_never_begins_so_the_next_stop_is_the_runs() -> None:
    story = Story()
    hold = held(story, AGENT)
    answered(hold, "cancel")
    story.machine.conclude(hold, story.now, "dismissed")
    story.hook("Stop")
    assert story.core[-2:] == ["tool.denied", "run.finished"]


def test_a_rule_denies_at_once() -> None:
    story = Story()
    story.hook("PreToolUse", **BASH)
    call = story.machine.begun
    assert call is not None
    payload = HookPayload(event="PreToolUse", tool_name="Bash", tool_call_id="c1")
    story.machine.refuse(Hook(payload, Draft("x"), story.now, 0), call, "rule-7")
    denied = story.only("tool.denied")
    assert denied.data == {
        "tool.name": "Bash", "tool.call_id": "c1", "by": "policy", "rule": "rule-7",
    }  # fmt: skip
    assert denied.cause == story.only("tool.requested").id
    story.hook("PostToolUseFailure", **BASH, error={"code": "internal"})
    assert story.core[-1] == "tool.denied"


def test_a_call_that_no_later_hook_can_be_paired_with_ends_nothing_by_name() -> None:
    story = Story()
    story.hook("PreToolUse", tool_name="Bash", tool_input={})
    hold = hold_now(story)
    answered(hold, "deny")
    story.machine.conclude(hold, story.now, "dismissed")
    assert story.only("tool.denied").data == {"tool.name": "Bash", "by": "policy"}


def test_another_call_under_an_open_calls_id_is_held_for_itself() -> None:
    story = Story()
    story.hook("PreToolUse", **BASH)
    story.hook("PreToolUse", **{**BASH, "tool_input": {"command": "rm -rf ."}})
    hold = hold_now(story)
    assert story.only("attention.requested").cause == story.events[1].id
    answered(hold, "deny")
    story.machine.conclude(hold, story.now, "dismissed")
    story.hook("PostToolUse", **BASH)  # the first one's
    assert story.only("tool.completed").data["tool.call_id"] == "c1"
    assert "tool.call_id" not in story.only("tool.denied").data


@pytest.mark.parametrize(
    "event", ["SessionStart", "SessionEnd", "Stop", "PostToolUse", "Notification", "Other"]
)
def test_no_other_hook_begins_a_call(event: str) -> None:
    story = Story()
    story.hook("PreToolUse", **BASH)
    story.hook(event, **BASH)
    assert story.machine.begun is None


# --- after a restart ---


def of_the_log(event: Logged) -> JSONObject:
    """An event as the log has it at metadata."""
    data: dict[str, JSON] = {}
    for path, value in event.data.items():
        *outer, last = path.split(".")
        inner = data
        for name in outer:
            found = inner.setdefault(name, {})
            assert isinstance(found, dict)
            inner = found
        inner[last] = value
    return {
        "id": event.id, "type": event.type, "subject": event.subject, "run": event.run,
        "cause": event.cause, "data": data,
    }  # fmt: skip


@pytest.mark.parametrize("option", ["allow", "deny"])
@pytest.mark.parametrize("recorded", [0, 2, 3])
def test_wherever_a_process_dies_its_hold_is_whole_in_the_end(option: str, recorded: int) -> None:
    """The record is of the first events, the log ends anywhere after them."""
    whole = Story()
    hold = held(whole)
    answered(hold, option)
    whole.machine.conclude(hold, whole.now, "dismissed")
    for logged in range(max(3, recorded), len(whole.events) + 1):
        story = Story()
        records = [to_record(story.machine.state)]
        for event in ("UserPromptSubmit", "PreToolUse"):
            story.hook(event, **BASH)
            records.append(to_record(story.machine.state))
        hold_now(story)
        records.append(to_record(story.machine.state))
        state = from_record(json.loads(json.dumps(records[recorded])))
        story.events = whole.events[:logged]
        for seen in story.events[recorded:]:
            fold(state, of_the_log(seen))
        assert state.is_unsettled == (logged < len(whole.events))
        story.machine = Machine(state, story._emit, story._new_run)
        story.machine.settle()
        if logged > 3:
            assert story.types == whole.types
        else:
            assert story.events[-1].data == {"resolution": "dismissed"}
        assert not story.machine.state.is_unsettled
        story.hook("PostToolUseFailure", **BASH, error={"code": "internal"})
        assert story.types.count("tool.denied") == (logged > 3 and option == "deny")
