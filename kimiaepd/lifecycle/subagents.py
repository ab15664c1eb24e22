"""Whose Stop is it: subagents fire Stop and StopFailure as their parent, without a mark.

Rules (behaviour observed on 0.28.0 to 2.1.0):
- A *delegating call* is a PreToolUse `Agent` that does not run in the background. While one is
  open, Stop and StopFailure are its subagent's, and SubagentStart and SubagentStop belong to it.
- It is open until its PostToolUse or PostToolUseFailure, the next SubagentStop, a StopFailure
  taken as the subagent's, or the end of its run, whichever comes first.
- With none open, SubagentStart counts a background subagent and SubagentStop discounts one.

Parallel delegating calls end twice each, once by name (PostToolUse) and once without one
(SubagentStop), in either order. So a nameless end is held against the count, and a named one takes
it back: two calls, of which one ended in both ways, leave one open. Where a subagent began, its
SubagentStop may come up to `LATE_SECONDS` after its call's own end: it is that call's, and ends or
discounts no other.

Known limit: 0.28.0's background subagents can fire Stop twice.
"""

from __future__ import annotations

from kimiaepd.lifecycle.state import Subagents
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
    return len(state.delegating) > state.stopped


def opened(state: Subagents, call_id: str) -> None:
    """A delegating call was requested."""
    if call_id not in state.delegating:
        state.delegating.append(call_id)


def call_ended(state: Subagents, call_id: str, now: float) -> None:
    """A call ended by name; calls that do not delegate are no business of this room."""
    if call_id not in state.delegating:
        return
    state.delegating.remove(call_id)
    if state.stopped:
        state.stopped -= 1
    elif state.begun:
        state.begun -= 1
        state.late.append(now + LATE_SECONDS)


def failed(state: Subagents) -> None:
    """A StopFailure was taken as the subagent's: its call is over."""
    state.stopped += 1
    state.begun = max(0, state.begun - 1)


def started(state: Subagents) -> None:
    """SubagentStart: a delegating call's own, or one more in the background."""
    if working(state):
        state.begun += 1
    else:
        state.background += 1


def stopped(state: Subagents, now: float) -> bool:
    """SubagentStop; True where it was one in the background (or nobody's that we know)."""
    state.late = [until for until in state.late if until > now]
    if state.late:
        state.late.pop(0)
        return False
    if working(state):
        state.stopped += 1
        state.begun = max(0, state.begun - 1)
        return False
    state.background = max(0, state.background - 1)
    return True


def run_ended(state: Subagents) -> None:
    """The run is over, and with it every delegating call in it."""
    state.delegating.clear()
    state.begun = state.stopped = 0
