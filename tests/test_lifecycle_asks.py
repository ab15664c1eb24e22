"""Asks: the vendor's own approvals. One request, at most one answer, one resolution."""

from __future__ import annotations

import pytest

from kimiaepd.mapping.json_value import JSON
from story import Logged, Story

REQUEST = "x.kimi-code.session.permission_request"
RESULT = "x.kimi-code.session.permission_result"


def bash(call: str = "c1") -> dict[str, JSON]:
    """The fields of a Bash call."""
    return {"tool_name": "Bash", "tool_call_id": call, "tool_input": {"command": "rm -rf build"}}


def approval(call: str = "c1", agent: str | None = "main") -> dict[str, JSON]:
    """The fields of its approval as 0.42.0 and later send them."""
    fields = bash(call) | {"id": f"approval_{call}", "action": "Running: rm -rf build"}
    return fields | {"agent_id": agent} if agent else fields


def old(call: str = "c1") -> dict[str, JSON]:
    """The fields of its approval as 0.28.0 sends them: no id of its own, no agent."""
    return bash(call) | {"action": "Running: rm -rf build", "turn_id": 0}


def asking(*asked: dict[str, JSON]) -> Story:
    """A run in which each of these approvals is asked for, of a call of its own."""
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    for fields in asked:
        story.hook("PreToolUse", after=1, **bash(str(fields["tool_call_id"])))
        story.hook("PermissionRequest", after=0.2, **fields)
    return story


def of_ask(story: Story, call: str = "c1") -> list[Logged]:
    """The request of a call's ask, and every later event of it."""
    requested = next(
        event
        for event in story.events
        if event.type == "attention.requested" and event.cause == request_of(story, call).id
    )
    return [requested, *(event for event in story.events if event.subject == requested.id)]


def request_of(story: Story, call: str) -> Logged:
    """The call's own request."""
    return next(
        event
        for event in story.events
        if event.type == "tool.requested" and event.data["tool.call_id"] == call
    )


def resolutions(story: Story) -> list[JSON]:
    """How the asks ended, in order."""
    return [e.data["resolution"] for e in story.events if e.type == "attention.resolved"]


# --- what an ask is, and what ends it ---


@pytest.mark.parametrize("fields", [approval(), old()], ids=["2.1.0", "0.28.0"])
def test_a_request_is_caused_by_its_call_and_its_later_events_have_it_as_subject(
    fields: dict[str, JSON],
) -> None:
    story = asking(fields)
    story.hook("PermissionResult", after=2.5, decision="approved", **fields)
    requested, answered, resolved = of_ask(story)
    assert (requested.cause, requested.subject) == (request_of(story, "c1").id, "Bash")
    assert answered.type == "attention.answered"
    assert answered.cause == requested.id
    assert (answered.data["answer.option"], answered.data["via"]) == ("approved", "oob")
    assert (resolved.type, resolved.cause) == ("attention.resolved", answered.id)
    assert resolved.data == {"resolution": "answered", "latency_ms": 2500}
    assert {event.run for event in (requested, answered, resolved)} == {"run1"}


def test_an_ask_is_known_by_its_approvals_id_where_it_has_one() -> None:
    story = asking(approval())
    other = approval() | {"id": "approval_other"}
    story.hook("PermissionRequest", after=0.1, **other)
    assert story.types.count("attention.requested") == 2, "one call, two asks"
    story.hook("PermissionResult", after=0.1, decision="approved", **other)
    answered = story.only("attention.answered")
    second = [event for event in story.events if event.type == "attention.requested"][1]
    assert answered.subject == second.id


def test_two_asks_at_once_keep_apart() -> None:
    story = asking(approval("c1"), approval("c2"))
    story.hook("PermissionResult", after=1, decision="rejected", **approval("c2"))
    story.hook("PermissionResult", after=1, decision="approved", **approval("c1"))
    assert [event.data.get("answer.option") for event in of_ask(story, "c1")][1] == "approved"
    assert [event.data.get("answer.option") for event in of_ask(story, "c2")][1] == "rejected"
    assert story.only("tool.denied").data["tool.call_id"] == "c2"


def test_an_approval_adds_no_terminal_of_the_call() -> None:
    story = asking(approval())
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    assert story.core[-2:] == ["attention.answered", "attention.resolved"]


def test_a_cancelled_result_dismisses_and_answers_nothing() -> None:
    story = asking(approval())
    story.hook("PermissionResult", after=1, decision="cancelled", **approval())
    requested, resolved = of_ask(story)
    assert (resolved.type, resolved.cause) == ("attention.resolved", requested.id)
    assert resolved.data == {"resolution": "dismissed", "latency_ms": 1000}


@pytest.mark.parametrize("decision", ["error", "postponed", None, 1])
def test_any_other_result_is_no_answer(decision: JSON) -> None:
    story = asking(approval())
    story.hook("PermissionResult", after=1, **(approval() | {"decision": decision}))
    assert story.types[-1] == RESULT
    assert story.events[-1].run == "run1"
    story.hook("Stop", after=1)
    assert resolutions(story) == ["dismissed"], "it stayed open until then"


def test_a_result_of_an_approval_id_that_is_lost_finds_its_ask_by_the_call() -> None:
    story = asking(old())
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    assert resolutions(story) == ["answered"]


def test_a_request_without_a_call_before_it_has_no_cause() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PermissionRequest", after=1, **approval())
    requested = story.only("attention.requested")
    assert (requested.cause, requested.run) == (None, "run1")


def test_a_request_after_its_calls_completion_still_names_it() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PostToolUse", after=1, **bash())
    story.hook("PermissionRequest", after=0.1, **approval())
    assert story.only("attention.requested").cause == story.only("tool.requested").id


def test_a_request_without_a_tool_falls_back_and_opens_nothing() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PermissionRequest", after=1, id="approval_c1")
    story.hook("Stop", after=1)
    assert story.types[1:] == [REQUEST, "run.finished"]


def test_a_request_without_any_id_is_an_ask_that_its_run_ends() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PermissionRequest", after=1, tool_name="Bash")
    story.hook("PermissionRequest", after=1, tool_name="Bash")
    story.hook("PermissionResult", after=1, tool_name="Bash", decision="approved")
    assert story.types[-1] == RESULT, "whose result it is cannot be told"
    story.hook("Stop", after=1)
    assert resolutions(story) == ["dismissed", "dismissed"]


# --- a result before its request ---


@pytest.mark.parametrize(("seconds", "answered"), [(0.0, True), (1.999, True), (2.0, False),
                                                   (2.001, False)])  # fmt: skip
def test_a_result_waits_two_seconds_for_its_request(seconds: float, answered: bool) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    assert story.types[-1] == RESULT
    story.hook("PermissionRequest", after=seconds, **approval())
    expected = ["attention.answered", "attention.resolved"] if answered else []
    assert story.core[2:] == ["attention.requested", *expected]
    story.wait(10)
    assert story.types.count(RESULT) == 1


def test_what_such_a_result_adds_has_it_as_cause() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    logged = story.only(RESULT)
    assert (logged.run, logged.data["tool.call_id"]) == ("run1", "c1")
    story.hook("PermissionRequest", after=0.1, **approval())
    requested, answered, resolved = of_ask(story)
    assert (answered.cause, resolved.cause) == (logged.id, answered.id)
    assert answered.subject == resolved.subject == requested.id
    assert resolved.data["latency_ms"] == 0, "never negative"


def test_a_result_whose_request_never_comes_adds_nothing() -> None:
    story = Story()
    story.hook("PermissionResult", after=0, decision="approved", **approval())
    story.wait(60)
    assert story.types == [RESULT]


def test_a_boundary_lets_a_result_that_waits_degrade() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PermissionResult", after=0.1, decision="rejected", **approval())
    story.hook("Stop", after=0.1)
    story.hook("PermissionRequest", after=0.1, **approval())
    assert story.core[2:] == ["run.finished", "attention.requested"]


# --- what nobody answers ---


@pytest.mark.parametrize("fields", [approval(), old()], ids=["main", "absent"])
@pytest.mark.parametrize(("end", "own"), [("Stop", "run.finished"),
                                          ("UserPromptSubmit", "run.cancelled")])  # fmt: skip
def test_stop_and_a_drained_run_dismiss_the_main_agents_asks_before_their_own_event(
    end: str, own: str, fields: dict[str, JSON]
) -> None:
    story = asking(fields)
    story.hook(end, after=30)
    requested, resolved = of_ask(story)
    assert (resolved.type, resolved.cause) == ("attention.resolved", requested.id)
    assert resolved.data == {"resolution": "dismissed", "latency_ms": 30000}
    assert resolved.run == "run1"
    assert story.types.index("attention.resolved") == story.types.index(own) - 1


@pytest.mark.parametrize("end", ["Stop", "UserPromptSubmit"])
def test_they_leave_a_subagents_ask_open(end: str) -> None:
    story = asking(approval(agent="agent-7"))
    story.hook(end, after=1)
    assert resolutions(story) == []
    story.hook("PermissionResult", after=1, decision="approved", **approval(agent="agent-7"))
    assert resolutions(story) == ["answered"]


def test_they_leave_an_ask_of_nobody_open_while_a_background_subagent_runs() -> None:
    story = asking(old())
    story.hook("SubagentStart", after=0.1, agent_name="explore")
    story.hook("Stop", after=1)
    story.wait(2)
    assert story.types[-1] == "run.finished"
    assert resolutions(story) == []


def test_a_waiting_stop_dismisses_when_it_is_the_runs_and_not_before() -> None:
    story = asking(approval())
    story.hook("SubagentStart", after=0.1, agent_name="explore")
    story.hook("Stop", after=1)
    story.wait(1.9)
    assert resolutions(story) == []
    story.wait(0.2)
    assert story.types[-2:] == ["attention.resolved", "run.finished"]


def test_a_subagents_stop_dismisses_nothing() -> None:
    story = asking(approval())
    story.hook("PreToolUse", after=0.1, tool_name="Agent", tool_call_id="a1", tool_input={})
    story.hook("Stop", after=1)
    assert resolutions(story) == []


def test_a_failed_run_dismisses_nothing() -> None:
    story = asking(approval())
    story.hook("StopFailure", after=1)
    assert story.core[-1] == "run.failed"
    assert resolutions(story) == []


@pytest.mark.parametrize("agent", ["main", "agent-7", None])
def test_interrupt_dismisses_those_of_its_run_whoever_asks(agent: str | None) -> None:
    story = asking(approval(agent=agent))
    story.hook("Interrupt", after=1)
    assert story.types[-2:] == ["attention.resolved", "run.cancelled"]
    assert resolutions(story) == ["dismissed"]


def test_interrupt_leaves_those_of_another_run_open() -> None:
    story = asking(approval(agent="agent-7"))
    story.hook("Stop", after=1)
    story.hook("UserPromptSubmit", after=1, prompt="next")
    story.hook("Interrupt", after=1)
    assert resolutions(story) == []


def test_interrupt_outside_a_run_dismisses_what_was_asked_outside_one() -> None:
    """A turn that background work started has no run, but its approval ends with it too."""
    story = Story()
    story.hook("TurnStarted", turn_id=1, origin_kind="task")
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PermissionRequest", after=1, **approval())
    story.hook("Interrupt", after=1)
    assert story.types[-2:] == ["attention.resolved", "x.kimi-code.session.interrupt"]
    assert resolutions(story) == ["dismissed"]


def test_a_stop_outside_a_run_dismisses_the_main_agents_asks_too() -> None:
    story = Story()
    story.hook("PreToolUse", after=0, **bash())
    story.hook("PermissionRequest", after=1, **approval())
    story.hook("Stop", after=1)
    assert story.types[-2:] == ["attention.resolved", "x.kimi-code.session.stop"]


def test_session_end_dismisses_all() -> None:
    story = asking(approval("c1"), approval("c2", agent="agent-7"), old("c3"))
    story.hook("SubagentStart", after=0.1, agent_name="explore")
    story.hook("SessionEnd", after=1)
    story.wait(2)
    assert resolutions(story) == ["dismissed"] * 3
    assert story.core[-2:] == ["run.cancelled", "session.ended"]
    assert not story.machine.state.asks


def test_also_those_of_no_run() -> None:
    story = asking(approval("c1", agent="agent-7"))
    story.hook("Stop", after=1)
    story.hook("SessionEnd", after=1)
    assert story.core[-2:] == ["attention.resolved", "session.ended"]


@pytest.mark.parametrize("end", ["Stop", "Interrupt", "SessionEnd", "UserPromptSubmit"])
@pytest.mark.parametrize("decision", ["approved", "rejected", "cancelled"])
def test_a_result_after_its_ask_was_dismissed_degrades(end: str, decision: str) -> None:
    story = asking(approval())
    story.hook(end, after=1)
    story.wait(2)
    story.hook("PermissionResult", after=1, decision=decision, **approval())
    story.wait(5)
    assert story.types[-1] == RESULT
    assert resolutions(story) == ["dismissed"]


# --- a request that comes late ---


@pytest.mark.parametrize("end", ["Interrupt", "SessionEnd"])
@pytest.mark.parametrize("completed", [False, True], ids=["open", "completed"])
def test_a_request_degrades_when_its_calls_run_was_ended_by(end: str, completed: bool) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    if completed:
        story.hook("PostToolUse", after=0.1, **bash())
    story.hook(end, after=1)
    story.wait(2)
    story.hook("PermissionRequest", after=0.06, **approval())
    assert story.types[-1] == REQUEST
    assert story.events[-1].run == "run1"
    assert "attention.requested" not in story.types


@pytest.mark.parametrize("end", ["Stop", "StopFailure", "UserPromptSubmit"])
def test_a_request_stands_when_its_calls_run_ended_in_another_way(end: str) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    story.hook(end, after=1)
    story.hook("PermissionRequest", after=0.06, **approval())
    requested = story.only("attention.requested")
    assert (requested.cause, requested.run) == (story.only("tool.requested").id, "run1")


def test_a_session_end_whose_run_stopped_by_itself_lets_a_late_request_stand() -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PreToolUse", after=1, **bash())
    story.hook("SessionEnd", after=1)
    story.hook("StopFailure", after=0.1)
    story.hook("PermissionRequest", after=0.06, **approval())
    assert story.types[-1] == "attention.requested"


# --- duplicates ---


def test_the_same_request_while_its_ask_is_open_is_counted_and_dropped() -> None:
    story = asking(approval())
    story.hook("PermissionRequest", after=20, **approval())
    assert story.types.count("attention.requested") == 1
    assert story.machine.duplicates == 1


def test_another_request_under_an_open_id_degrades() -> None:
    story = asking(approval())
    story.hook("PermissionRequest", after=1, **(approval() | {"tool_input": {"command": "ls"}}))
    assert story.types[-1] == REQUEST
    assert story.machine.duplicates == 0


def test_the_same_request_after_its_answer_asks_nobody_again() -> None:
    story = asking(approval())
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    story.hook("PermissionRequest", after=0.01, **approval())
    assert story.types.count("attention.requested") == 1
    assert story.machine.duplicates == 1


@pytest.mark.parametrize("decision", ["approved", "rejected", "cancelled"])
def test_the_same_result_twice_is_counted_and_dropped(decision: str) -> None:
    story = asking(approval())
    story.hook("PermissionResult", after=1, decision=decision, **approval())
    logged = len(story.events)
    story.hook("PermissionResult", after=0.01, decision=decision, **approval())
    assert (len(story.events), story.machine.duplicates) == (logged, 1)


def test_another_result_after_the_answer_degrades() -> None:
    story = asking(approval())
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    story.hook("PermissionResult", after=0.01, decision="rejected", **approval())
    assert story.types[-1] == RESULT
    assert "tool.denied" not in story.types


def test_the_same_result_twice_before_its_request_is_counted_and_dropped() -> None:
    story = Story()
    story.hook("PermissionResult", after=0, decision="approved", **approval())
    story.hook("PermissionResult", after=0.01, decision="approved", **approval())
    assert (story.types, story.machine.duplicates) == ([RESULT], 1)


def test_another_result_while_one_waits_for_its_request_is_not_dropped() -> None:
    story = Story()
    story.hook("PermissionResult", after=0, decision="approved", **approval())
    story.hook("PermissionResult", after=0.01, decision="rejected", **approval())
    assert (story.types, story.machine.duplicates) == ([RESULT, RESULT], 0)
    story.hook("PermissionRequest", after=0.01, **approval())
    assert story.only("attention.answered").data["answer.option"] == "approved", "the first counts"
    story.wait(5)
    assert resolutions(story) == ["answered"]


def test_a_new_call_under_an_old_id_can_be_asked_for_again() -> None:
    """0.28.0 has no approval ids: the ask of a new call is known by the same id as the old one."""
    story = asking(old())
    story.hook("PermissionResult", after=1, decision="approved", **old())
    story.hook("PostToolUse", after=0.1, **bash())
    story.hook("PreToolUse", after=1, **bash())
    story.hook("PermissionRequest", after=0.1, **old())
    assert story.types.count("attention.requested") == 2
    story.hook("PermissionResult", after=1, decision="rejected", **old())
    assert story.only("tool.denied").data["tool.call_id"] == "c1"


def test_another_question_under_an_id_that_has_ended_is_asked() -> None:
    story = asking(old())
    story.hook("PermissionResult", after=1, decision="approved", **old())
    other: dict[str, JSON] = old() | {"tool_input": {"command": "rm -rf /"}}
    story.hook("PermissionRequest", after=1, **other)
    story.hook("PermissionResult", after=1, decision="rejected", **other)
    assert story.machine.duplicates == 0
    assert story.core.count("attention.requested") == 2
    assert resolutions(story) == ["answered", "answered"]
    assert story.only("tool.denied").data["tool.call_id"] == "c1"


@pytest.mark.parametrize(("seconds", "asked"), [(10.0, 1), (10.001, 2), (60.0, 2)])
def test_the_same_question_is_another_once_the_call_is_over_and_time_has_passed(
    seconds: float, asked: int
) -> None:
    story = Story()
    story.hook("UserPromptSubmit", prompt="p")
    story.hook("PermissionRequest", after=0, **old())
    story.hook("Stop", after=0)
    story.hook("PermissionRequest", after=seconds, **old())
    assert story.core.count("attention.requested") == asked


def test_a_failure_waits_for_a_second_ask_of_its_call() -> None:
    story = asking(approval())
    story.hook("PermissionResult", after=1, decision="approved", **approval())
    second = approval() | {"id": "approval_second"}
    story.hook("PermissionRequest", after=0.1, **second)
    story.hook("PostToolUseFailure", after=0.1, error={"code": "x"}, **bash())
    story.hook("PermissionResult", after=0.1, decision="rejected", **second)
    story.wait(5)
    assert story.core[-3:] == ["attention.answered", "attention.resolved", "tool.denied"]
    assert "tool.failed" not in story.types


def test_the_answer_of_one_ask_does_not_decide_while_another_of_the_call_is_open() -> None:
    story = asking(approval())
    second = approval() | {"id": "approval_second"}
    story.hook("PermissionRequest", after=0.1, **second)
    story.hook("PermissionResult", after=0.1, decision="approved", **approval())
    story.hook("PostToolUseFailure", after=0.1, error={"code": "x"}, **bash())
    story.hook("PermissionResult", after=0.1, decision="rejected", **second)
    story.wait(5)
    assert "tool.failed" not in story.types
    assert story.core.count("tool.denied") == 1
