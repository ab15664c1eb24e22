"""The hooks that wait: kept in order of arrival, found by what they wait for, bounded in number.

It keeps and finds; what a hook means when its time is up is `machine.py`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kimiaepd.lifecycle.asks import key_of
from kimiaepd.lifecycle.state import Hook, State, Wait, WaitKind
from kimiaepd.mapping.payloads import ABSENT


def keep(state: State, wait: Wait) -> None:
    """Let one more hook wait, without what is large in it and not needed any more."""
    payload = evolve(
        wait.hook.payload, tool_input=ABSENT, tool_output=ABSENT, display=ABSENT, prompt=None
    )
    wait.hook = evolve(wait.hook, payload=payload)
    state.waits.append(wait)


def forget(state: State, wait: Wait) -> None:
    """The hook waits no more; whoever waits for it goes on."""
    state.waits.remove(wait)
    wait.on_done()


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
