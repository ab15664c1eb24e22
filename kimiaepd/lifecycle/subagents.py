"""Whose Stop is it: subagents fire Stop and StopFailure as their parent, without a mark.

Rules (behaviour observed on 0.28.0 to 2.1.0):
- A *delegating call* is a PreToolUse `Agent` that does not run in the background. While one is
  open, Stop and StopFailure are its subagent's, and SubagentStart and SubagentStop belong to it.
- It is open until its PostToolUse or PostToolUseFailure, the next SubagentStop, a StopFailure
  taken as the subagent's, or the end of its run, whichever comes first.
- With none open, SubagentStart counts a background subagent and SubagentStop discounts one.

A subagent's hooks carry no call, so each delegating call has a stage: asked, begun (SubagentStart),
stopped (SubagentStop or StopFailure), and a hook moves on the oldest call that it can be of. A call
that ends by name ran as far as any did: it takes the further stage from the call that was given it
by mistake, unless it failed before its subagent began. Where a subagent began, its SubagentStop may
come up to `LATE_SECONDS` after its call's own end: it is that call's, and ends or discounts no
other. Once no call is at work nothing is kept of them: an end by name that comes later, or never,
means nothing to the calls after it.

Known limit: 0.28.0's background subagents can fire Stop twice.
"""

from __future__ import annotations

from kimiaepd.lifecycle.state import OPEN_CALLS, PAST, Stage, Subagents, remember
from kimiaepd.mapping.payloads import HookPayload

DELEGATING_TOOL = "Agent"
LATE_SECONDS = 2.0


def delegates(payload: HookPayload) -> bool:
    """Whether this PreToolUse hands the turn to a subagent until it ends."""
    if payload.tool_name != DELEGATING_TOOL:
        return False
    given = payload.tool_input
    return not (isinstance(given, dict) and given.get("run_in_background") is True)


def working(state: Subagents) -> bool:
    """Whether a delegating call is open: the next Stop is its subagent's."""
    return any(stage is not Stage.STOPPED for stage in state.delegating.values())


def opened(state: Subagents, call_id: str) -> None:
    """A delegating call was requested."""
    if call_id not in state.delegating:
        remember(state.delegating, call_id, Stage.ASKED, OPEN_CALLS)


def call_ended(state: Subagents, call_id: str, now: float, *, failed: bool) -> None:
    """A call ended by name; calls that do not delegate are no business of this room."""
    stage = state.delegating.pop(call_id, None)
    if stage is None:
        return
    ran = stage is Stage.BEGUN or not failed
    if ran and stage is not Stage.STOPPED:
        stage = _taken(state, Stage.STOPPED, stage) or _taken(state, Stage.BEGUN, stage) or stage
    if stage is Stage.BEGUN:
        state.late = [*state.late, now + LATE_SECONDS][-PAST:]
    _forget_if_over(state)


def _taken(state: Subagents, stage: Stage, given: Stage) -> Stage | None:
    """The stage, taken from a call that gets another for it; None where no call has it."""
    call_id = _oldest(state, stage)
    if call_id is None:
        return None
    state.delegating[call_id] = given
    return stage


def _oldest(state: Subagents, *stages: Stage) -> str | None:
    """The oldest call of the first stage that any call is at."""
    for stage in stages:
        for call_id, reached in state.delegating.items():
            if reached is stage:
                return call_id
    return None


def _stop_one(state: Subagents) -> None:
    if call_id := _oldest(state, Stage.BEGUN, Stage.ASKED):
        state.delegating[call_id] = Stage.STOPPED
    _forget_if_over(state)


def _forget_if_over(state: Subagents) -> None:
    if not working(state):
        state.delegating.clear()


def failed(state: Subagents) -> None:
    """A StopFailure was taken as the subagent's: its call is over."""
    _stop_one(state)


def started(state: Subagents) -> None:
    """SubagentStart: a delegating call's own, or one more in the background."""
    if not working(state):
        state.background += 1
    elif call_id := _oldest(state, Stage.ASKED):
        state.delegating[call_id] = Stage.BEGUN


def stopped(state: Subagents, now: float) -> bool:
    """SubagentStop; True where it was one in the background (or nobody's that we know)."""
    state.late = [until for until in state.late if until > now]
    if state.late:
        state.late.pop(0)
        return False
    if working(state):
        _stop_one(state)
        return False
    state.background = max(0, state.background - 1)
    return True


def run_ended(state: Subagents) -> None:
    """The run is over, and with it every delegating call in it."""
    state.delegating.clear()
