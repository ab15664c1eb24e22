"""Runs: one a prompt, one terminal a run, and nobody else's Stop."""

from __future__ import annotations

from itertools import product

import pytest

from kimiaepd.mapping.json_value import JSON
from story import Story

ENDS = {"Stop": "run.finished", "StopFailure": "run.failed", "Interrupt": "run.cancelled"}
FALLBACKS = {
    "Stop": "x.kimi-code.session.stop",
    "StopFailure": "x.kimi-code.session.stop_failure",
    "Interrupt": "x.kimi-code.session.interrupt",
}
BASH: dict[str, JSON] = {"tool_name": "Bash", "tool_call_id": "c1", "tool_input": {"command": "ls"}}


def running() -> Story:
    """A story with its first run open."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="first")
    return story


def test_a_prompt_opens_a_run() -> None:
    story = running()
    assert story.types == ["run.started"]
    assert story.only("run.started").run == "run1"
    assert story.only("run.started").data["trigger"] == "user"


def test_a_prompt_that_is_a_steer_rides_the_open_run_and_opens_none() -> None:
    story = running()
    story.hook("UserPromptSubmit", after=1, prompt="and this", is_steer=True)
    assert story.types == ["run.started", "x.kimi-code.run.steer_submitted"]
    assert story.only("x.kimi-code.run.steer_submitted").run == "run1"
    story.hook("Stop", after=1)
    assert story.only("run.finished").run == "run1"


def test_a_steer_with_no_run_open_opens_none_either() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="and this", is_steer=True)
    story.hook("Stop", after=1)
    assert story.core == []


@pytest.mark.parametrize(("hook", "terminal"), ENDS.items())
def test_stop_stop_failure_and_interrupt_close_the_run_because_of_its_start(
    hook: str, terminal: str
) -> None:
    story = running()
    story.hook(hook, after=1.25)
    end = story.only(terminal)
    assert (end.run, end.cause) == ("run1", story.only("run.started").id)
    assert end.data["duration_ms"] == 1250


@pytest.mark.parametrize(("hook", "fallback"), FALLBACKS.items())
def test_with_no_run_open_they_degrade(hook: str, fallback: str) -> None:
    story = Story()
    story.hook("SessionStart", source="startup")
    story.hook(hook, after=1)
    assert story.types == ["session.started", fallback]
    assert story.only(fallback).run is None


@pytest.mark.parametrize(("first", "second"), list(product(ENDS, ENDS)))
def test_a_run_has_one_terminal_for_good(first: str, second: str) -> None:
    story = running()
    story.hook(first, after=1)
    story.hook(second, after=0.01)
    story.hook(second, after=60)
    assert story.core == ["run.started", ENDS[first]]
    assert story.types[2:] == [FALLBACKS[second]] * 2


def test_a_run_still_open_at_the_next_prompt_is_cancelled_first() -> None:
    story = running()
    story.hook("UserPromptSubmit", after=3, prompt="second")
    assert story.types == ["run.started", "run.cancelled", "run.started"]
    first, cancelled, second = story.events
    assert (cancelled.run, cancelled.cause) == (first.run, first.id)
    assert cancelled.data == {"duration_ms": 3000}, "nobody cancelled it, so there is no `by`"
    assert second.run != first.run
    story.hook("Stop", after=1)
    assert story.only("run.finished").cause == second.id


def test_a_turn_that_background_work_starts_has_no_run_and_its_stop_degrades() -> None:
    story = running()
    story.hook("Stop", after=1)
    story.hook("Notification", after=1, notification_type="task.completed", severity="info")
    story.hook("TurnStarted", after=0.1, turn_id=1, origin_kind="task")
    story.hook("Stop", after=1)
    assert story.core == ["run.started", "run.finished", "progress.status"]
    assert [event.run for event in story.events[2:]] == [None] * 3


def test_the_vendors_turn_id_is_never_the_run() -> None:
    story = running()
    story.hook("TurnStarted", after=0.1, turn_id=7, origin_kind="user")
    story.hook("Interrupt", after=1, turn_id=7, reason="cancelled")
    assert {event.run for event in story.events} == {"run1"}


def test_what_has_no_run_of_its_own_rides_the_open_one() -> None:
    story = Story()
    story.hook("SessionStart", source="startup")
    story.hook("UserPromptSubmit", after=1, prompt="p")
    story.hook("Notification", after=1, notification_type="n")
    story.hook("PreCompact", after=1, trigger="auto")
    story.hook("SomethingNew", after=1)
    story.hook("Stop", after=1)
    story.hook("SessionHeartbeat", after=1, uptime_ms=1)
    runs = [event.run for event in story.events]
    assert runs == [None, "run1", "run1", "run1", "run1", "run1", None]


def test_a_call_keeps_its_own_run_also_when_the_next_one_is_open() -> None:
    story = running()
    story.hook("PreToolUse", after=1, **BASH)
    story.hook("UserPromptSubmit", after=1, prompt="second")
    story.hook("PostToolUse", after=1, **BASH)
    assert story.only("tool.completed").run == "run1"


def test_a_failed_turn_says_how() -> None:
    story = running()
    story.hook("StopFailure", after=1, error_type="APIStatusError", error_message="500")
    failed = story.only("run.failed").data
    assert (failed["reason"], failed["error.type"]) == ("APIStatusError", "APIStatusError")


# --- the end of the session with a run open ---


def ended_after(seconds: float, hook: str) -> Story:
    """SessionEnd while a run is open, and the run's own terminal so much later."""
    story = running()
    story.hook("SessionEnd", after=1, reason="exit")
    story.hook(hook, after=seconds)
    return story


@pytest.mark.parametrize("seconds", [0.0, 0.16, 1.999])
@pytest.mark.parametrize(("hook", "terminal"), ENDS.items())
def test_session_end_waits_for_the_runs_own_terminal(
    hook: str, terminal: str, seconds: float
) -> None:
    story = ended_after(seconds, hook)
    assert story.core == ["run.started", terminal, "session.ended"]
    assert story.only(terminal).cause == story.only("run.started").id
    assert story.events[-1].at == story.now


@pytest.mark.parametrize("seconds", [2.0, 2.001])
@pytest.mark.parametrize(("hook", "fallback"), FALLBACKS.items())
def test_after_two_seconds_the_run_drains_and_its_terminal_degrades(
    hook: str, fallback: str, seconds: float
) -> None:
    story = ended_after(seconds, hook)
    assert story.core == ["run.started", "run.cancelled", "session.ended"]
    assert story.types[-1] == fallback
    assert story.only("session.ended").at == 1003.0


def test_a_session_end_that_waits_is_logged_at_once_and_is_the_cause_of_the_end() -> None:
    story = running()
    story.hook("SessionEnd", after=1, reason="exit")
    assert story.types == ["run.started", "x.kimi-code.session.session_end"]
    waited = story.events[-1]
    assert (waited.run, waited.at) == ("run1", 1001.0)
    story.wait(1.999)
    assert len(story.events) == 2
    story.wait(0.002)
    assert story.only("session.ended").cause == waited.id
    cancelled = story.only("run.cancelled")
    assert (cancelled.cause, cancelled.data) == ("e1", {"duration_ms": 1000})


def test_a_second_session_end_from_a_second_install_takes_no_time_from_the_run() -> None:
    story = running()
    story.hook("SessionEnd", after=1, reason="exit")
    story.hook("SessionEnd", after=0.01, reason="exit")
    story.hook("StopFailure", after=0.16, error_type="APIStatusError")
    assert story.core == ["run.started", "run.failed", "session.ended"]
    assert story.types.count("x.kimi-code.session.session_end") == 2


def test_a_prompt_within_the_wait_ends_the_session_before_its_own_run() -> None:
    story = running()
    story.hook("SessionEnd", after=1, reason="exit")
    story.hook("UserPromptSubmit", after=0.5, prompt="second")
    assert story.core == ["run.started", "run.cancelled", "session.ended", "run.started"]
