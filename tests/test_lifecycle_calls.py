"""Tool calls: one request, at most one terminal, and a refused approval is no failure."""

from __future__ import annotations

from itertools import permutations

import pytest

from kimiaepd.mapping.json_value import JSON
from story import Story

FAILURE = "x.kimi-code.session.post_tool_use_failure"
RESULT = "x.kimi-code.session.permission_result"
COMPLETION = "x.kimi-code.session.post_tool_use"
TERMINALS = {"tool.completed", "tool.failed", "tool.denied"}
UNKNOWN: dict[str, JSON] = {"tool_name": "NoSuchTool", "tool_call_id": "c9", "tool_input": {}}


def bash(call: str = "c1", command: str = "rm -rf build") -> dict[str, JSON]:
    """The fields of a Bash call."""
    return {"tool_name": "Bash", "tool_call_id": call, "tool_input": {"command": command}}


def error() -> dict[str, JSON]:
    """The fields of its failure."""
    return bash() | {"error": {"code": "internal", "message": "was not run", "retryable": False}}


def approval(call: str = "c1") -> dict[str, JSON]:
    """The fields of its approval, as 0.42.0 and later send them."""
    return bash(call) | {"id": f"approval_{call}", "agent_id": "main", "action": "Running: rm"}


def called() -> Story:
    """A run with one call requested, in a session that has never asked for anything."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    return story


def asking() -> Story:
    """A call with its approval asked for."""
    story = called()
    story.hook("PermissionRequest", after=0.2, **approval())
    return story


def terminals(story: Story) -> list[str]:
    """The tool terminals logged, in order."""
    return [event for event in story.types if event in TERMINALS]


# --- one request, one terminal ---


def test_a_call_is_requested_and_completed_because_of_its_request() -> None:
    story = called()
    story.hook("PostToolUse", after=0.25, tool_output="done", **bash())
    requested, completed = story.only("tool.requested"), story.only("tool.completed")
    assert requested.run == completed.run == "run1"
    assert completed.cause == requested.id
    assert (completed.subject, completed.data["tool.call_id"]) == ("Bash", "c1")
    assert completed.data["duration_ms"] == 250


def test_two_calls_at_once_keep_apart() -> None:
    story = called()
    story.hook("PreToolUse", after=0.1, **bash("c2"))
    story.hook("PostToolUse", after=0.1, **bash("c2"))
    story.hook("PostToolUse", after=0.1, **bash("c1"))
    causes = {e.data["tool.call_id"]: e.cause for e in story.events if e.type == "tool.completed"}
    assert causes == {"c1": "e2", "c2": "e3"}


@pytest.mark.parametrize("pair", list(permutations(["PostToolUse", "PostToolUseFailure"])))
def test_a_second_terminal_of_another_kind_degrades(pair: tuple[str, str]) -> None:
    story = called()
    story.hook(pair[0], after=1, **bash())
    story.wait(5)
    story.hook(pair[1], after=1, **bash())
    story.wait(5)
    assert len(terminals(story)) == 1
    assert story.types[-1] in (FAILURE, COMPLETION)


@pytest.mark.parametrize("end", ["PostToolUse", "PostToolUseFailure"])
def test_the_same_terminal_twice_is_a_duplicate(end: str) -> None:
    story = called()
    story.hook(end, after=1, **bash())
    story.wait(5)
    logged = len(story.events)
    story.hook(end, after=0.01, **bash())
    assert (len(story.events), story.machine.duplicates) == (logged, 1)


def test_a_completion_while_its_failure_waits_degrades_after_the_failure() -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=1, **error())
    story.hook("PostToolUse", after=0.1, **bash())
    story.wait(5)
    assert terminals(story) == ["tool.failed"]


def test_a_failure_with_no_request_before_it_is_failed_without_a_cause() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    assert story.hook("PostToolUseFailure", after=1, **UNKNOWN) is None
    failed = story.only("tool.failed")
    assert (failed.cause, failed.run, failed.subject) == (None, "run1", "NoSuchTool")
    assert failed.at == story.now, "there is nothing to wait for"
    assert "duration_ms" not in failed.data


def test_a_failure_with_no_request_does_not_wait_in_a_session_that_asks_either() -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=0.1, **UNKNOWN)
    assert story.types[-1] == "tool.failed"


def test_a_completion_with_no_request_before_it_is_not_lost() -> None:
    story = Story()
    story.hook("PostToolUse", after=0, **bash())
    assert story.only("tool.completed").cause is None


def test_a_completion_that_never_comes_invents_nothing() -> None:
    story = called()
    story.hook("Stop", after=1)
    story.wait(3600)
    assert story.core == ["run.started", "tool.requested", "run.finished"]


@pytest.mark.parametrize("end", ["Stop", "StopFailure", "Interrupt", "UserPromptSubmit"])
def test_the_call_leaves_with_its_run(end: str) -> None:
    story = called()
    story.hook(end, after=1)
    assert not story.machine.state.calls


def test_the_call_leaves_with_its_run_also_when_it_drains_at_the_sessions_end() -> None:
    story = called()
    story.hook("SessionEnd", after=1)
    story.wait(2)
    assert not story.machine.state.calls


@pytest.mark.parametrize("end", ["Stop", "StopFailure", "Interrupt", "UserPromptSubmit",
                                 "SessionEnd"])  # fmt: skip
def test_a_call_of_no_run_leaves_with_the_turn_it_was_in(end: str) -> None:
    story = Story()
    story.hook("TurnStarted", turn_id=1, origin_kind="task")
    story.hook("PreToolUse", after=1, **bash())
    story.hook(end, after=1)
    assert not story.machine.state.calls
    assert not terminals(story)


def test_a_completion_after_its_run_is_late_and_legal() -> None:
    story = called()
    story.hook("Interrupt", after=1)
    story.hook("PostToolUse", after=0.1, **bash())
    completed = story.only("tool.completed")
    assert (completed.run, completed.cause) == ("run1", story.only("tool.requested").id)
    assert story.types[-1] == "tool.completed"


def test_a_tool_hook_without_a_name_falls_back() -> None:
    story = called()
    story.hook("PreToolUse", after=1, tool_call_id="c2", tool_input={})
    story.hook("PostToolUse", after=1, tool_call_id="c1")
    story.hook("PostToolUseFailure", after=1, tool_call_id="c1")
    assert story.types[2:] == ["x.kimi-code.session.pre_tool_use", COMPLETION, FAILURE]
    story.hook("PostToolUse", after=1, **bash())
    assert terminals(story) == ["tool.completed"], "nothing of the call was decided by them"


def test_a_tool_hook_without_an_id_is_logged_as_it_comes() -> None:
    story = Story()
    story.hook("PreToolUse", tool_name="Bash", tool_input={})
    story.hook("PreToolUse", tool_name="Bash", tool_input={})
    story.hook("PostToolUse", tool_name="Bash", tool_input={})
    story.hook("PostToolUseFailure", tool_name="Bash", tool_input={})
    assert story.core == ["tool.requested"] * 2 + ["tool.completed", "tool.failed"]


# --- duplicates ---


def test_the_same_request_while_its_call_is_open_is_counted_and_dropped() -> None:
    story = called()
    story.hook("PreToolUse", after=30, **bash())
    assert story.types.count("tool.requested") == 1
    assert story.machine.duplicates == 1


@pytest.mark.parametrize(
    "other",
    [{"tool_input": {"command": "ls"}}, {"tool_name": "Read"}, {"tool_input": None}],
    ids=["input", "name", "null"],
)
def test_another_request_under_an_open_id_is_no_duplicate_but_no_second_request(
    other: dict[str, JSON],
) -> None:
    story = called()
    story.hook("PreToolUse", after=1, **(bash() | other))
    assert story.types.count("tool.requested") == 1
    assert story.types[-1] == "x.kimi-code.session.pre_tool_use"
    assert story.machine.duplicates == 0


def test_the_order_of_the_inputs_members_does_not_make_another_input() -> None:
    story = Story()
    story.hook("PreToolUse", tool_name="T", tool_call_id="c1", tool_input={"a": 1, "b": 2})
    story.hook("PreToolUse", tool_name="T", tool_call_id="c1", tool_input={"b": 2.0, "a": 1})
    assert story.machine.duplicates == 1


@pytest.mark.parametrize("end", ["PostToolUse", "PostToolUseFailure"])
def test_a_request_whose_id_has_ended_is_a_new_call(end: str) -> None:
    story = called()
    story.hook(end, after=1, **bash())
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PostToolUse", after=1, **bash())
    first, second = (event for event in story.events if event.type == "tool.requested")
    ends = [event.cause for event in story.events if event.type in TERMINALS]
    assert ends == [first.id, second.id]


def test_a_request_whose_run_has_ended_is_a_new_call() -> None:
    story = called()
    story.hook("Stop", after=1)
    story.hook("UserPromptSubmit", after=1, prompt="next")
    story.hook("PreToolUse", after=1, **bash())
    assert story.types.count("tool.requested") == 2
    story.hook("PostToolUse", after=1, **bash())
    assert story.only("tool.completed").run == "run2"


# --- a refused approval ---


def test_a_rejected_result_before_the_failure_denies_and_the_failure_degrades() -> None:
    story = asking()
    story.hook("PermissionResult", after=2.3, decision="rejected", **approval())
    story.hook("PostToolUseFailure", after=0.07, **error())
    assert story.core[3:] == ["attention.answered", "attention.resolved", "tool.denied"]
    assert story.types[-1] == FAILURE
    story.wait(10)
    assert terminals(story) == ["tool.denied"]


def test_a_rejected_result_after_the_failure_denies_and_the_failure_stays_degraded() -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=2.3, **error())
    assert story.types[-1] == FAILURE
    story.hook("PermissionResult", after=0.07, decision="rejected", **approval())
    assert story.core[3:] == ["attention.answered", "attention.resolved", "tool.denied"]
    story.wait(10)
    assert terminals(story) == ["tool.denied"]


def test_a_denial_is_by_the_runtime_because_of_the_answer() -> None:
    story = asking()
    story.hook("PermissionResult", after=1, decision="rejected", **approval())
    denied = story.only("tool.denied")
    assert denied.cause == story.only("attention.answered").id
    assert (denied.run, denied.subject) == ("run1", "Bash")
    assert denied.data == {"tool.name": "Bash", "tool.call_id": "c1", "by": "runtime"}


@pytest.mark.parametrize("order", list(permutations(["request", "result", "failure"])))
def test_request_result_and_failure_in_any_order_are_one_denial(order: tuple[str, ...]) -> None:
    story = called()
    for name in order:
        if name == "request":
            story.hook("PermissionRequest", after=0.06, **approval())
        elif name == "result":
            story.hook("PermissionResult", after=0.06, decision="rejected", **approval())
        else:
            story.hook("PostToolUseFailure", after=0.06, **error())
    story.wait(10)
    assert sorted(story.core[2:]) == [
        *("attention.answered", "attention.requested", "attention.resolved", "tool.denied")
    ]
    assert story.only("tool.denied").cause == story.only("attention.answered").id


@pytest.mark.parametrize(("seconds", "expected"), [(1.999, "tool.denied"), (2.0, "tool.failed"),
                                                   (2.001, "tool.failed")])  # fmt: skip
def test_a_failure_waits_two_seconds_for_the_result(seconds: float, expected: str) -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=1, **error())
    story.hook("PermissionResult", after=seconds, decision="rejected", **approval())
    story.wait(10)
    assert terminals(story) == [expected]
    assert story.types.count("attention.answered") == story.types.count("attention.resolved") == 1


@pytest.mark.parametrize("decision", ["approved", "cancelled", "error", None])
@pytest.mark.parametrize("first", ["failure", "result"])
def test_any_other_result_or_none_is_a_failure(first: str, decision: str | None) -> None:
    story = asking()
    for name in ("failure", "result") if first == "failure" else ("result", "failure"):
        if name == "failure":
            story.hook("PostToolUseFailure", after=1, **error())
        elif decision:
            story.hook("PermissionResult", after=1, decision=decision, **approval())
    story.wait(2)
    assert terminals(story) == ["tool.failed"]
    assert story.only("tool.failed").data["error.type"] == "internal"


@pytest.mark.parametrize("decision", ["approved", "cancelled", "error"])
def test_a_failure_that_waits_is_decided_by_the_result_at_once(decision: str) -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=1, **error())
    story.hook("PermissionResult", after=0.5, decision=decision, **approval())
    assert story.only("tool.failed").at == story.now


def test_a_call_that_was_approved_does_not_wait() -> None:
    story = asking()
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    story.hook("PostToolUseFailure", after=1, **error())
    assert story.types[-1] == "tool.failed"
    assert FAILURE not in story.types
    assert story.only("tool.failed").cause == story.only("tool.requested").id


def test_a_call_whose_approval_came_before_its_request_does_not_wait_either() -> None:
    story = asking()
    story.hook("PreToolUse", after=1, **bash("c2"))
    story.hook("PermissionResult", after=0.1, decision="approved", **approval("c2"))
    story.hook("PostToolUseFailure", after=0.1, **bash("c2"))
    assert story.types[-1] == "tool.failed"


def test_a_rejection_after_a_terminal_adds_answer_and_resolution_and_no_denial() -> None:
    story = asking()
    story.hook("PostToolUse", after=1, **bash())
    story.hook("PermissionResult", after=0.01, decision="rejected", **approval())
    assert story.core[3:] == ["tool.completed", "attention.answered", "attention.resolved"]


def test_a_result_within_the_failures_time_decides_it_also_when_the_request_comes_last() -> None:
    """Failure, 1.5 s later the rejection, 1 s later the request: each waited less than 2 s."""
    story = asking()
    story.hook("PreToolUse", after=0.1, **bash("c2"))
    story.hook("PostToolUseFailure", after=0.1, **bash("c2"))
    story.hook("PermissionResult", after=1.5, decision="rejected", **approval("c2"))
    story.hook("PermissionRequest", after=1, **approval("c2"))
    assert terminals(story) == ["tool.denied"]


def test_a_rejection_whose_request_never_comes_leaves_the_failure_a_failure() -> None:
    story = asking()
    story.hook("PreToolUse", after=0.1, **bash("c2"))
    story.hook("PostToolUseFailure", after=0.1, **bash("c2"))
    story.hook("PermissionResult", after=1.5, decision="rejected", **approval("c2"))
    story.wait(2)
    assert terminals(story) == ["tool.failed"]
    story.hook("PostToolUseFailure", after=0.1, **bash("c2"))
    assert story.machine.duplicates == 1


def test_a_failure_after_such_a_rejection_does_not_wait() -> None:
    """It has no ask, and has had its result."""
    story = asking()
    story.hook("PreToolUse", after=0.1, **bash("c2"))
    story.hook("PermissionResult", after=0.1, decision="rejected", **approval("c2"))
    story.hook("PostToolUseFailure", after=2, **bash("c2"))
    assert story.types[-1] == "tool.failed"


def test_a_rejection_without_a_call_id_denies_the_call_of_its_ask() -> None:
    story = asking()
    story.hook("PermissionResult", after=1, id="approval_c1", decision="rejected")
    story.hook("PostToolUseFailure", after=0.1, **error())
    story.wait(5)
    assert terminals(story) == ["tool.denied"]
    assert story.only("tool.denied").data["tool.call_id"] == "c1"


def test_a_failure_that_waits_says_whose_it_is_and_is_the_cause_of_what_is_decided() -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=1, **error())
    waiting = story.only(FAILURE)
    assert (waiting.run, waiting.at) == ("run1", story.now)
    assert waiting.data["tool.call_id"] == "c1"
    assert waiting.data["error.type"] == "internal"
    assert "error.message" not in waiting.data
    story.wait(2)
    failed = story.only("tool.failed")
    assert (failed.cause, failed.run) == (waiting.id, "run1")
    assert failed.data["error.message"] == "was not run"
    assert failed.data["duration_ms"] == 1200, "until it failed, not until it was decided"


def test_the_same_failure_twice_while_it_waits_is_a_duplicate() -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=1, **error())
    story.hook("PostToolUseFailure", after=0.01, **error())
    assert story.machine.duplicates == 1
    story.wait(5)
    assert terminals(story) == ["tool.failed"]


def test_in_a_session_that_asks_every_failure_without_a_result_waits() -> None:
    story = asking()
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    story.hook("PostToolUse", after=1, **bash())
    story.hook("PreToolUse", after=1, **bash("c2"))
    assert story.hook("PostToolUseFailure", after=1, **bash("c2")) is None
    assert story.types[-1] == FAILURE
    story.wait(1.999)
    assert "tool.failed" not in story.types
    story.wait(0.002)
    assert story.types[-1] == "tool.failed"


BOUNDARIES = {
    "UserPromptSubmit": "run.cancelled",
    "Stop": "run.finished",
    "StopFailure": "run.failed",
    "Interrupt": "run.cancelled",
}


@pytest.mark.parametrize(("boundary", "own"), BOUNDARIES.items())
def test_a_boundary_settles_a_waiting_failure_before_its_own_event(boundary: str, own: str) -> None:
    story = asking()
    story.hook("PostToolUseFailure", after=1, **error())
    story.hook(boundary, after=0.1)
    assert story.types.index("tool.failed") < story.types.index(own)
    story.hook("PermissionResult", after=0.1, decision="rejected", **approval())
    assert terminals(story) == ["tool.failed"]


# --- headless: the one reply that waits ---


def test_headless_sessions_never_ask_so_the_reply_waits_and_nothing_is_logged_first() -> None:
    story = called()
    wait = story.hook("PostToolUseFailure", after=1, **error())
    assert wait is not None
    freed: list[float] = []
    wait.on_done = lambda: freed.append(story.now)
    failed_at = story.now
    story.wait(0.199)
    assert story.types == ["run.started", "tool.requested"]
    assert freed == []
    story.wait(0.002)
    assert story.types == ["run.started", "tool.requested", "tool.failed"]
    assert story.only("tool.failed").cause == story.only("tool.requested").id
    assert freed == [story.only("tool.failed").at] == [failed_at + 0.2]


@pytest.mark.parametrize(("seconds", "expected"), [(0.199, "tool.denied"), (0.2, "tool.failed"),
                                                   (0.201, "tool.failed")])  # fmt: skip
def test_the_first_request_of_a_session_can_come_within_those_200_ms(
    seconds: float, expected: str
) -> None:
    story = called()
    story.hook("PostToolUseFailure", after=1, **error())
    story.hook("PermissionRequest", after=seconds, **approval())
    story.hook("PermissionResult", after=1, decision="rejected", **approval())
    story.wait(5)
    assert terminals(story) == [expected]


@pytest.mark.parametrize("hook", ["PermissionRequest", "PermissionResult"])
def test_its_ask_frees_the_reply_once_and_the_failure_is_logged_as_one_that_waits(
    hook: str,
) -> None:
    story = called()
    wait = story.hook("PostToolUseFailure", after=1, **error())
    assert wait is not None
    freed: list[float] = []
    wait.on_done = lambda: freed.append(story.now)
    story.hook(hook, after=0.1, decision="rejected", **approval())
    at = story.now
    assert story.types[2] == FAILURE
    assert freed == [at]
    story.wait(10)
    assert freed == [at]
    assert story.only("tool.failed").cause == story.only(FAILURE).id


def test_it_then_waits_two_seconds_in_all() -> None:
    story = called()
    story.hook("PostToolUseFailure", after=1, **error())
    failed_at = story.now
    story.hook("PermissionRequest", after=0.1, **approval())
    story.wait(10)
    assert story.only("tool.failed").at == failed_at + 2.0


def test_the_end_of_the_turn_frees_the_reply() -> None:
    story = called()
    wait = story.hook("PostToolUseFailure", after=1, **error())
    assert wait is not None
    freed: list[float] = []
    wait.on_done = lambda: freed.append(story.now)
    story.hook("Stop", after=0.1)
    assert story.core[2:] == ["tool.failed", "run.finished"]
    assert freed == [story.now]


def test_a_completion_replies_at_once() -> None:
    assert called().hook("PostToolUse", after=1, **bash()) is None
