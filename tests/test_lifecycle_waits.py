"""Waiting loses nothing: logged first, decided later with that as cause, or left as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kimiaepd.lifecycle.machine import REPLY_SECONDS, SETTLE_SECONDS, Machine
from kimiaepd.lifecycle.record import from_record, to_record
from kimiaepd.lifecycle.state import WAITING
from kimiaepd.mapping.json_value import JSON
from story import Story


def bash(call: str = "c1") -> dict[str, JSON]:
    """The fields of a Bash call, of its approval and of its failure."""
    return {
        "tool_name": "Bash",
        "tool_call_id": call,
        "tool_input": {"command": "ls"},
        "error": {"code": "internal", "message": "no"},
    }


def _run() -> Story:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    return story


def _stop() -> Story:
    story = _run()
    story.hook("SubagentStart", after=1, agent_name="explore")
    assert story.hook("Stop", after=1) is None
    return story


def _failure() -> Story:
    story = _run()
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PermissionRequest", after=1, agent_id="agent-7", **bash())
    assert story.hook("PostToolUseFailure", after=1, **bash()) is None
    return story


def _result() -> Story:
    story = _run()
    story.hook("PreToolUse", after=1, **bash())
    assert story.hook("PermissionResult", after=1, decision="rejected", **bash()) is None
    return story


def _session_end() -> Story:
    story = _run()
    assert story.hook("SessionEnd", after=1, reason="exit") is None
    return story


WAITING_HOOKS: dict[str, tuple[Callable[[], Story], str | None]] = {
    "stop": (_stop, "run.finished"),
    "post_tool_use_failure": (_failure, "tool.failed"),
    "permission_result": (_result, None),
    "session_end": (_session_end, "session.ended"),
}
"""What waits: how it comes about, and what it is once nothing more came."""

CASES = [(name, *case) for name, case in WAITING_HOOKS.items()]


@pytest.mark.parametrize(("name", "begin", "core"), CASES)
def test_what_waits_is_logged_at_once_and_decided_at_two_seconds(
    name: str, begin: Callable[[], Story], core: str | None
) -> None:
    assert (SETTLE_SECONDS, REPLY_SECONDS) == (2.0, 0.2)
    story = begin()
    logged = story.events[-1]
    assert (logged.type, logged.at) == (f"x.kimi-code.session.{name}", story.now)
    deadline = story.machine.deadline
    assert deadline == story.now + 2.0
    length = len(story.events)
    story.wait(1.999)
    assert len(story.events) == length
    story.wait(0.002)
    assert story.machine.deadline is None
    if core is None:
        assert len(story.events) == length, "what stays degraded adds nothing"
    else:
        assert (story.only(core).cause, story.only(core).at) == (logged.id, logged.at + 2.0)


AT_A_BOUNDARY = {
    "stop": {
        "UserPromptSubmit": ["run.finished", "run.started"],
        "StopFailure": ["run.finished"],
        "Interrupt": ["run.finished"],
        "SessionEnd": ["run.finished", "session.ended"],
    },
    "post_tool_use_failure": {
        "UserPromptSubmit": ["tool.failed", "run.cancelled", "run.started"],
        "Stop": ["tool.failed", "run.finished"],
        "StopFailure": ["tool.failed", "run.failed"],
        "Interrupt": ["tool.failed", "attention.resolved", "run.cancelled"],
        "SessionEnd": ["tool.failed", "attention.resolved", "run.cancelled", "session.ended"],
    },
    "permission_result": {
        "UserPromptSubmit": ["run.cancelled", "run.started"],
        "Stop": ["run.finished"],
        "StopFailure": ["run.failed"],
        "Interrupt": ["run.cancelled"],
        "SessionEnd": ["run.cancelled", "session.ended"],
    },
    "session_end": {
        "UserPromptSubmit": ["run.cancelled", "session.ended", "run.started"],
        "SessionStart": ["run.cancelled", "session.ended", "session.started"],
        "Stop": ["run.finished", "session.ended"],
        "StopFailure": ["run.failed", "session.ended"],
        "Interrupt": ["run.cancelled", "session.ended"],
    },
}
"""What the boundary adds to the core events while such a hook waits."""


@pytest.mark.parametrize(
    ("name", "boundary", "added"),
    [(name, boundary, row[boundary]) for name, row in AT_A_BOUNDARY.items() for boundary in row],
)
def test_every_boundary_settles_what_waits_before_its_own_event(
    name: str, boundary: str, added: list[str]
) -> None:
    begin, core = WAITING_HOOKS[name]
    story = begin()
    logged, before = story.events[-1], len(story.core)
    story.hook(boundary, after=0.5)
    if boundary == "SessionEnd":
        story.wait(2)  # it waits itself for a run that is open
    assert story.core[before:] == added
    assert story.machine.deadline is None
    assert core is None or story.only(core).cause == logged.id


@pytest.mark.parametrize(("name", "begin", "core"), CASES)
def test_after_a_restart_it_is_decided_as_if_the_time_were_up(
    name: str, begin: Callable[[], Story], core: str | None
) -> None:
    story = begin()
    logged = story.events[-1]
    length = len(story.events)
    story.machine = Machine(from_record(to_record(story.machine.state)), story._emit, lambda: "r")
    story.machine.settle()
    assert story.machine.deadline is None
    if core is None:
        assert len(story.events) == length
    else:
        assert story.only(core).cause == logged.id


@pytest.mark.parametrize(("name", "begin", "core"), CASES)
def test_settle_leaves_nothing_for_a_tick(
    name: str, begin: Callable[[], Story], core: str | None
) -> None:
    story = begin()
    story.machine.settle()
    logged = len(story.events)
    assert story.machine.deadline is None
    story.machine.tick(story.now + 1000)
    assert len(story.events) == logged
    assert core is None or core in story.types


def test_a_tick_before_the_deadline_decides_nothing() -> None:
    story = _stop()
    story.machine.tick(story.now + 1.999)
    assert "run.finished" not in story.types
    story.machine.tick(story.now + 2.0)
    assert story.only("run.finished").run == "run1"


def test_each_deadline_holds_on_its_own() -> None:
    story = _failure()
    story.hook("PreToolUse", after=0.5, **bash("c2"))
    story.hook("PostToolUseFailure", after=0.5, **bash("c2"))
    story.wait(10)
    first, second = (event for event in story.events if event.type == "tool.failed")
    assert (first.data["tool.call_id"], second.data["tool.call_id"]) == ("c1", "c2")
    assert second.at - first.at == 1.0


def test_so_many_wait_at_most_and_the_oldest_is_decided_first() -> None:
    story = _run()
    story.hook("PermissionRequest", tool_name="Bash", tool_call_id="c", agent_id="agent-7")
    for number in range(WAITING + 3):
        call = bash(f"c{number}")
        story.hook("PreToolUse", after=0, **call)
        story.hook("PostToolUseFailure", after=0, **call)
        assert len(story.machine.state.waits) <= WAITING
    failed = [event.data["tool.call_id"] for event in story.events if event.type == "tool.failed"]
    assert failed == ["c0", "c1", "c2"]


def test_what_waits_keeps_nothing_large_that_its_decision_does_not_need() -> None:
    story = _run()
    story.hook("PermissionRequest", tool_name="Bash", tool_call_id="c", agent_id="agent-7")
    big = "x" * 100_000
    call: dict[str, JSON] = bash() | {"tool_input": {"command": big}}
    story.hook("PreToolUse", after=0, **call)
    story.hook("PostToolUseFailure", after=0, display={"command": big}, tool_output=big, **call)
    (wait,) = story.machine.state.waits
    assert big not in repr(wait.hook)


@pytest.mark.parametrize(
    "event",
    ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PermissionRequest",
     "PermissionResult", "Stop", "StopFailure", "Interrupt", "SubagentStart", "SubagentStop",
     "PreCompact", "PostCompact", "Notification", "SessionEnd"],
)  # fmt: skip
def test_every_hook_but_a_headless_failure_is_answered_at_once(event: str) -> None:
    story = _run()
    story.hook("PreToolUse", after=1, **bash())
    assert story.hook(event, after=1, **bash()) is None
