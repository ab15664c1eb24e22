"""Stories made by hypothesis, and the rules that hold for whatever they log.

`anything` is any hooks in any order. `sessions` is what a vendor might do: turns of prompts, calls,
approvals, subagents and ends, in their order, and then what hooks do to it: each one late by up to
some 100 ms, some twice, some lost. Few ids, so that hooks meet one another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attrs import define, field, frozen
from hypothesis import strategies as st

from kimiaepd.lifecycle.state import Hook
from kimiaepd.mapping.event import Draft
from kimiaepd.mapping.json_value import JSON, JSONObject
from story import Logged, Story

RUN_TERMINALS = ("run.finished", "run.failed", "run.cancelled")
TOOL_TERMINALS = ("tool.completed", "tool.failed", "tool.denied")
TICK = 1e-6
"""Between the starts of two shims at least, so that a moment names its hook."""


@frozen
class Told:
    """One hook of a story: how long after the one before it, and what it says."""

    after: float
    payload: JSONObject


@define
class Telling(Story):
    """A story that knows which hooks its events are of."""

    hooks: int = 0
    sources: list[int] = field(factory=list)

    def tell(self, told: Told) -> None:
        """Let time pass, then take the hook in."""
        self.wait(told.after)
        self.hooks += 1
        self.take(told.payload, started=self.now + self.hooks * TICK)

    def tell_all(self, hooks: Iterable[Told]) -> Telling:
        """Tell them one after the other."""
        for told in hooks:
            self.tell(told)
        return self

    @property
    def unheard(self) -> int:
        """How many hooks have no event of their own."""
        return self.hooks - len(set(self.sources))

    def _emit(
        self, draft: Draft, hook: Hook, *, run: str | None = None, cause: str | None = None
    ) -> str:
        self.sources.append(hook.started_ns)
        return super()._emit(draft, hook, run=run, cause=cause)


def outline(events: Iterable[Logged]) -> list[tuple[str, str | None, str | None, str | None]]:
    """What a lifecycle decides of each event."""
    return [(event.type, event.subject, event.run, event.cause) for event in events]


# --- any hooks at all ---

_GAPS = st.sampled_from((0.0, 0.01, 0.09, 0.11, 0.199, 0.2, 0.5, 1.0, 1.999, 2.0, 2.5, 3.0))
_CALLS = st.sampled_from(("c1", "c2", "c3", None))
_INPUTS: st.SearchStrategy[JSON] = st.sampled_from(
    ({"command": "ls"}, {"run_in_background": True}, None)
)
_TOOL = {
    "tool_name": st.sampled_from(("Bash", "Bash", "Agent", "Agent", None)),
    "tool_call_id": _CALLS,
    "tool_input": _INPUTS,
}
_ASK = _TOOL | {
    "id": st.sampled_from(("approval1", "approval2", None)),
    "agent_id": st.sampled_from(("main", "agent-7", None)),
}
_DECISIONS = ("approved", "rejected", "rejected", "cancelled", "error")
_FIELDS: dict[str, dict[str, st.SearchStrategy[JSON]]] = {
    "SessionStart": {"source": st.sampled_from(("startup", "resume"))},
    "SessionEnd": {},
    "UserPromptSubmit": {
        "prompt": st.sampled_from(("p", "q")),
        "is_steer": st.sampled_from((False, False, True)),
    },
    "PreToolUse": _TOOL,
    "PostToolUse": _TOOL,
    "PostToolUseFailure": _TOOL,
    "PermissionRequest": _ASK,
    "PermissionResult": _ASK | {"decision": st.sampled_from(_DECISIONS)},
    **{event: {} for event in ("Stop", "StopFailure", "Interrupt", "SubagentStart")},
    **{event: {} for event in ("SubagentStop", "PreCompact", "PostCompact", "Notification")},
    **{event: {} for event in ("UserPromptQueued", "TurnStarted", "TaskStarted")},
    "SessionHeartbeat": {},
    "SomethingNew": {},
}


def _payload(event: str, **fields: JSON) -> JSONObject:
    given = {name: value for name, value in fields.items() if value is not None}
    return {"hook_event_name": event, "session_id": "s", **given}


@st.composite
def _any_hook(draw: st.DrawFn) -> Told:
    event = draw(st.sampled_from(sorted(_FIELDS)))
    return Told(draw(_GAPS), _payload(event, **draw(st.fixed_dictionaries(_FIELDS[event]))))


anything = st.lists(_any_hook(), max_size=40)


# --- what a vendor might do ---

_Timed = tuple[float, JSONObject]
_FORGOTTEN = (
    *("PermissionRequest", "PermissionResult", "PostToolUse", "PostToolUseFailure"),
    *("Notification", "SubagentStop", "StopFailure", "Interrupt"),
)
"""Fired and forgotten by the vendor: they arrive when they do."""


def _call(draw: st.DrawFn, call: str) -> list[JSONObject]:
    bash: JSONObject = {"tool_name": "Bash", "tool_call_id": call, "tool_input": {"command": "ls"}}
    ask = bash | draw(st.sampled_from(({}, {"id": f"approval-{call}", "agent_id": "main"})))
    ending = draw(st.sampled_from(("done", "failed", "approved", "rejected", "cancelled", "never")))
    hooks = [_payload("PreToolUse", **bash)]
    if ending in ("approved", "rejected", "cancelled"):
        hooks.append(_payload("PermissionRequest", **ask))
        hooks.append(_payload("PermissionResult", decision=ending, **ask))
    if ending in ("done", "approved"):
        hooks.append(_payload("PostToolUse", **bash))
    elif ending != "never":
        hooks.append(_payload("PostToolUseFailure", **bash))
    return hooks


def _agent(draw: st.DrawFn, call: str) -> list[JSONObject]:
    background = draw(st.booleans())
    given: JSON = {"run_in_background": background}
    agent: JSONObject = {"tool_name": "Agent", "tool_call_id": call, "tool_input": given}
    start, stop = _payload("SubagentStart"), _payload("SubagentStop")
    asked, ended = _payload("PreToolUse", **agent), _payload("PostToolUse", **agent)
    inner = [_payload("Stop")] * draw(st.integers(1, 2))
    if background:
        return [asked, ended, start, *inner, stop]
    ends = draw(st.sampled_from(([stop, ended], [ended, stop], [stop], [ended])))  # some are killed
    return [asked, start, *_call(draw, f"{call}-inner"), *inner, *ends]


def _turn(draw: st.DrawFn, number: int) -> list[JSONObject]:
    hooks: list[JSONObject] = []
    if draw(st.integers(0, 3)):
        hooks.append(_payload("UserPromptSubmit", prompt=f"prompt {number}"))
    for index in range(draw(st.integers(0, 2))):
        work = draw(st.sampled_from((_call, _call, _agent)))
        hooks += work(draw, f"c{number}{index}")
    end = draw(st.sampled_from(("Stop", "Stop", "StopFailure", "Interrupt", "")))
    return [*hooks, _payload(end)] if end else hooks


@st.composite
def sessions(draw: st.DrawFn) -> list[Told]:
    """The hooks of one session as they might arrive."""
    hooks = [_payload("SessionStart", source="startup")]
    for number in range(draw(st.integers(1, 3))):
        hooks += _turn(draw, number)
        if draw(st.integers(0, 3)) == 0:
            hooks.append(_payload("SessionEnd", reason="exit"))
    step = draw(st.sampled_from((0.02, 0.2, 1.0, 2.5)))
    timed: list[_Timed] = []
    for index, hook in enumerate(hooks):
        late = hook["hook_event_name"] in _FORGOTTEN
        times = draw(st.sampled_from((1, 1, 1, 1, 1, 1, 2, 2, 0)))
        for _ in range(times):
            delay = draw(st.integers(0, 150 if late else 20)) / 1000
            timed.append((index * step + delay, hook))
    timed.sort(key=lambda pair: pair[0])
    moments = [0.0, *(at for at, _ in timed)]
    return [Told(at - before, hook) for before, (at, hook) in zip(moments, timed, strict=False)]


# --- what holds for all of them ---


def check(events: list[Logged], *, by_call: bool = True) -> None:
    """Assert the rules that hold for the events of one session, whatever its hooks were.

    `by_call` is False where the lifecycles could not know which call was which.
    """
    check_causes(events)
    check_runs(events)
    check_asks(events)
    check_requests(events)
    if by_call:
        check_calls(events)
    assert Counter(event.type for event in events)["session.ended"] <= 1


def check_causes(events: list[Logged]) -> None:
    """A cause names an earlier event."""
    earlier: set[str] = set()
    for event in events:
        assert event.cause is None or event.cause in earlier, event
        earlier.add(event.id)


def check_runs(events: list[Logged]) -> None:
    """One run at a time, started before it ends, ended once."""
    started: list[str | None] = []
    ended: list[str | None] = []
    for event in events:
        if event.type == "run.started":
            assert started == ended, "one run is open at most"
            started.append(event.run)
        elif event.type in RUN_TERMINALS:
            assert event.run in started, event
            assert event.run not in ended, event
            ended.append(event.run)
    assert None not in started
    assert len(set(started)) == len(started)


def check_requests(events: list[Logged]) -> None:
    """Each request of a call has one terminal at most that names it."""
    requests = {event.id for event in events if event.type == "tool.requested"}
    causes = Counter(
        event.cause for event in events if event.type in TOOL_TERMINALS and event.cause in requests
    )
    assert not causes or max(causes.values()) == 1
    answers = {event.id: event for event in events if event.type == "attention.answered"}
    for event in events:
        if event.type == "tool.denied":
            assert event.cause is not None
            assert answers[event.cause].data["answer.option"] == "rejected"


def check_calls(events: list[Logged]) -> None:
    """One terminal at most between a request of a call and the next one of the same id."""
    ended: set[JSON] = set()
    for event in events:
        call = event.data.get("tool.call_id")
        if event.type == "tool.requested":
            ended.discard(call)
        elif event.type in TOOL_TERMINALS and call is not None:
            assert call not in ended, event
            ended.add(call)


def check_asks(events: list[Logged]) -> None:
    """Each ask answered once at most and resolved once at most; none open when the session ends."""
    open_asks: set[str] = set()
    answered: set[str] = set()
    for event in events:
        if event.type == "attention.requested":
            open_asks.add(event.id)
        elif event.type == "attention.answered":
            assert event.subject in open_asks, event
            assert event.subject not in answered, event
            answered.add(event.subject)
        elif event.type == "attention.resolved":
            assert event.subject in open_asks, event
            open_asks.remove(event.subject)
            is_answer = event.data["resolution"] == "answered"
            assert is_answer == (event.subject in answered), event
        elif event.type == "session.ended":
            assert not open_asks
