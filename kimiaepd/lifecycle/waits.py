"""The hooks that wait: kept in order of arrival, found by what they wait for, bounded in number.

It keeps and finds; what a hook means when its time is up is `machine.py`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kimiaepd.lifecycle.asks import key_of
from kimiaepd.lifecycle.state import WAITING, WAITING_CHARACTERS, Hook, State, Wait, WaitKind
from kimiaepd.mapping.payloads import HookPayload


def keep(state: State, wait: Wait) -> None:
    """Let one more hook wait: its draft, and of its payload what the decision needs."""
    given = wait.hook.payload
    payload = HookPayload(
        event=given.event,
        session=given.session,
        tool_name=given.tool_name,
        tool_call_id=given.tool_call_id,
        id=given.id,
        decision=given.decision,
        error=evolve(given.error, message=None),
        reason=given.reason,
    )
    wait.hook = evolve(wait.hook, payload=payload, print="")
    state.waits.append(wait)


def too_many(state: State) -> bool:
    """Whether more waits than may, by number or by the text in their drafts."""
    if len(state.waits) > WAITING:
        return True
    values = (member.value for wait in state.waits for member in wait.hook.draft.fields)
    return sum(len(value) for value in values if isinstance(value, str)) > WAITING_CHARACTERS


def forget(state: State, wait: Wait) -> None:
    """The hook waits no more; whoever waits for it goes on."""
    state.waits.remove(wait)
    free(wait)


def free(wait: Wait) -> None:
    """Let the hook's own reply go, once."""
    done, wait.on_done = wait.on_done, _nothing
    done()


def _nothing() -> None:
    pass


def first(state: State, kinds: tuple[WaitKind, ...]) -> Wait | None:
    """The oldest of some kinds."""
    return next((wait for wait in state.waits if wait.kind in kinds), None)


def latest_stop(state: State) -> Wait | None:
    """The Stop that came last."""
    return next((wait for wait in reversed(state.waits) if wait.kind is WaitKind.STOP), None)


def due(state: State, now: float) -> Wait | None:
    """The one whose time was up first, of those whose time is up."""
    late = [wait for wait in state.waits if wait.until <= now]
    return min(late, key=lambda wait: wait.until, default=None)


def deadline(state: State) -> float | None:
    """When the next one's time is up (monotonic seconds)."""
    return min((wait.until for wait in state.waits), default=None)


def failure_of(state: State, call_id: str | None) -> Wait | None:
    """The failure of a call that waits for its approval's result."""
    if call_id is None:
        return None
    return _find(state, WaitKind.FAILURE, lambda hook: hook.payload.tool_call_id == call_id)


def result_of(state: State, key: str) -> Wait | None:
    """The result of an ask that waits for its request."""
    return _find(state, WaitKind.RESULT, lambda hook: key_of(hook.payload) == key)


def _find(state: State, kind: WaitKind, matches: Callable[[Hook], bool]) -> Wait | None:
    return next((w for w in state.waits if w.kind is kind and matches(w.hook)), None)
