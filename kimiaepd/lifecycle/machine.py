"""The hooks of one session in their order of arrival: what waits for what, what a boundary settles.

Rules:
- **Waiting loses nothing.** A hook whose meaning depends on what may still come is logged first
  under its fallback name; what is decided later adds the core event with `cause` that one, and if
  it stays degraded nothing is added.
- What waits: a Stop while a background subagent runs (it may be the subagent's); a
  PostToolUseFailure that may be a refused approval; a PermissionResult before its request; a
  SessionEnd before its run's own terminal. Each at most `SETTLE_SECONDS`; but a failure whose
  refusal has come waits as long as that one does for its request.
- The one exception: in a session that has never asked for anything, a failure is not logged first.
  The hook's own reply waits instead, at most `REPLY_SECONDS`.
- Every boundary (prompt, Stop that ends a run, failure, interrupt, end) settles what waits before
  its own event, as the run's own. Where the end itself waits, so does the rest, each its own time.
- What came twice is counted and dropped where that can be told (an id, or the same bytes within
  `TWICE_NS`); else it degrades. A second terminal is never logged.
- What our own gate holds ends with its session, before anything else of that, and by nothing else
  here. A PreToolUse leaves behind what the gate is to decide about (`Machine.begun`).
- Instructions that are queued are dropped last of all, just before the session's end itself.
- Where the stream of `kimi web` tells a session's story, hooks go on with what hooks began, and the
  rest of what both would say is the stream's (`stream.py`). But a prompt of which it says nothing
  within `SETTLE_SECONDS`, or before its turn's end, begins a run all the same: such a stream is
  silent, and hooks tell of the session until it speaks of a turn.

It reads no clock: time comes with each hook and with `tick`. The observer owns the waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from attrs import evolve

from kimiaepd.lifecycle import asks, calls, holds, instructions, runs, stream, subagents, waits
from kimiaepd.lifecycle.calls import Standing
from kimiaepd.lifecycle.state import (
    NOW_NS,
    Ask,
    Call,
    Emit,
    Hold,
    Hook,
    Instruction,
    State,
    Wait,
    WaitKind,
    with_short_names,
)
from kimiaepd.mapping.event import Draft
from kimiaepd.mapping.hooks import fallback, seen
from kimiaepd.mapping.payloads import HookPayload

SETTLE_SECONDS = 2.0
REPLY_SECONDS = 0.2
TWICE_NS = 100_000_000

_BEFORE_A_TERMINAL = (WaitKind.PROMPT, WaitKind.STOP, WaitKind.FAILURE, WaitKind.RESULT)
_EVERYTHING = tuple(WaitKind)
_TURN_ENDS = ("Stop", "StopFailure", "Interrupt")


def _by_us(now: float) -> Hook:
    """The moment of what no hook stands behind."""
    return Hook(HookPayload(), Draft(""), now, NOW_NS)


class Machine:
    """One session's lifecycles.

    Args:
        state: what is open; the machine alone changes it.
        emit: logs an event of this session.
        new_run_id: makes the id of a run.

    Attributes:
        begun: the call that the last hook wants to begin, for the gate; None where it begins none.
            One that no later hook can be paired with has no id.
        duplicates: hooks that came twice and were dropped.
        is_streamed: whether the stream of `kimi web` tells of this session's runs, calls and asks:
            what a hook says of those is then visibility, unless a hook began them.
    """

    def __init__(self, state: State, emit: Emit, new_run_id: Callable[[], str]) -> None:
        self.state = state
        self.begun: Call | None = None
        self.duplicates = 0
        self.is_streamed = False
        self._is_silent = False
        self._spoken_ns = 0  # when the stream last spoke of a turn
        self._emit = emit
        self._new_run_id = new_run_id

    def hook(self, hook: Hook) -> Wait | None:
        """Take one hook in; a `Wait` where its reply must wait for what is decided."""
        self.begun = None
        self.tick(hook.at)  # a deadline holds also where the caller's clock is late
        hook = with_short_names(hook)
        if hook.payload.event in stream.TWINS and not self._is_ours(hook):
            self._see(hook)
            return None
        handler = self._HANDLERS.get(hook.payload.event)
        if handler is None:
            self._log(hook)
            return None
        return handler(self, hook)

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to decide (monotonic seconds); None while nothing waits."""
        return waits.deadline(self.state)

    def tick(self, now: float) -> None:
        """Decide what has waited long enough, oldest first."""
        while wait := waits.due(self.state, now):
            self._settle(wait)

    def settle(self, now: float = 0.0, why: str = "daemon-restarted") -> None:
        """Decide everything that waits, as if its time were up, and let go what is held or queued.

        In a state that was brought back it also completes the answers at which a process died.

        Args:
            now: monotonic seconds.
            why: the reason that dropped instructions give.
        """
        for ask in [ask for ask in self.state.asks.values() if ask.answered]:
            self._finish(ask)
        self._settle_all(_EVERYTHING)
        self._dismiss_holds(now)
        instructions.drop(self.state, self._emit, _by_us(now), why)

    # --- the stream ---

    def frame(self, said: stream.Said) -> None:
        """Take in what the stream says."""
        self.tick(said.at)
        self._heard(said)
        if said.draft.type == "run.started":
            self._settle_all(_EVERYTHING)
        stream.take(self.state, self._emit, said)
        if self.state.run is None:
            self._settle_all((WaitKind.END,))

    def stream_idle(self, now: float) -> None:
        """No turn runs, by what the server says after a gap."""
        stream.idle(self.state, self._emit, now)

    def server_gone(self, now: float) -> None:
        """The session's server is gone, and what was open in it is over."""
        self._settle_all(_EVERYTHING)
        stream.gone(self.state, self._emit, now)

    def _heard(self, said: stream.Said) -> None:
        """The stream speaks of the session: what it is prompted is the stream's to tell."""
        if said.mapped.run:
            self._is_silent = False
            if said.said_ns < NOW_NS:
                self._spoken_ns = max(self._spoken_ns, said.said_ns)
        if not said.is_of_no_turn:
            for wait in [wait for wait in self.state.waits if wait.kind is WaitKind.PROMPT]:
                waits.forget(self.state, wait)

    def _is_ours(self, hook: Hook) -> bool:
        """Whether one of the stream's twins is for the lifecycles of hooks."""
        if hook.payload.event in _TURN_ENDS:
            self._settle_all((WaitKind.PROMPT,))
        if self.is_streamed and not self._is_silent:
            return stream.is_the_hooks(self.state, hook.payload)
        self._told_by_hooks(hook)
        return True

    def _told_by_hooks(self, hook: Hook) -> None:
        self.state.hooks_ns = max(self.state.hooks_ns, min(hook.started_ns, NOW_NS - 1))

    def _see(self, hook: Hook) -> None:
        """Log that a hook came; the gate may still hold what it would begin."""
        payload, run = hook.payload, self.state.run.id if self.state.run else None
        logged = self._emit(seen(payload), hook, run=run)
        if payload.event == "PreToolUse" and payload.tool_name:
            self.begun = Call(
                payload.tool_call_id or "",
                payload.tool_name,
                calls.fingerprint(payload),
                logged,
                run,
                by_stream=True,
            )
        if self._is_unspoken(hook):
            self._keep(Wait(WaitKind.PROMPT, hook, hook.at + SETTLE_SECONDS, logged))

    def _is_unspoken(self, hook: Hook) -> bool:
        """Whether it is a prompt of which the stream has said nothing yet."""
        is_prompt = hook.payload.event == "UserPromptSubmit" and not hook.payload.is_steer
        is_waiting = waits.first(self.state, (WaitKind.PROMPT,)) is not None
        is_new = hook.started_ns > self._spoken_ns
        return is_prompt and is_new and self.state.run is None and not is_waiting

    # --- instructions ---

    def instruct(self, instruction: Instruction, now: float) -> None:
        """Queue an instruction."""
        instructions.queue(self.state, self._emit, _by_us(now), instruction)

    def deliver(self, given: Sequence[Instruction], now: float) -> None:
        """Say that instructions have arrived with a reply."""
        instructions.deliver(self.state, self._emit, _by_us(now), given)

    # --- the gate's ---

    def hold(self, hook: Hook, call: Call) -> Hold:
        """Begin to hold a call; the hook's draft is what is asked."""
        return holds.begin(self.state, self._emit, with_short_names(hook), call)

    def conclude(
        self, hold: Hold, now: float, otherwise: Literal["timeout", "dismissed"]
    ) -> holds.Outcome | None:
        """End a hold by its answer, or `otherwise`; None where it had ended before."""
        payload = HookPayload(event="PreToolUse", tool_call_id=hold.call_id)
        hook = Hook(payload, Draft("attention.resolved"), now, NOW_NS)
        ended = holds.conclude(self.state, self._emit, hook, hold, otherwise)
        if ended:
            self._end_refused(hold.call_id, now)
        return ended

    def refuse(self, hook: Hook, call: Call, rule: str) -> None:
        """Deny a call by a rule, at once."""
        hook = with_short_names(hook)
        calls.refuse(self.state, self._emit, hook, call, cause=call.requested, rule=rule)
        self._end_refused(call.id, hook.at)

    def _end_refused(self, call_id: str | None, now: float) -> None:
        """Where the call was refused, its subagent never begins."""
        call = calls.find(self.state, call_id)
        if call and call.terminal:
            subagents.call_ended(self.state.subagents, call.id, now, failed=True)

    def _dismiss_holds(self, now: float) -> None:
        for hold in list(self.state.holds.values()):
            self.conclude(hold, now, "dismissed")

    # --- sessions ---

    def _session_start(self, hook: Hook) -> None:
        if self._is_twice(hook):
            return
        self._settle_all((WaitKind.END,))
        self._log(hook)

    def _session_end(self, hook: Hook) -> None:
        self._dismiss_holds(hook.at)
        if self.state.run and not waits.first(self.state, (WaitKind.STOP,)):
            self._wait(WaitKind.END, hook)
        else:
            self._end_session(hook, logged=None)

    def _end_session(self, hook: Hook, *, logged: str | None) -> None:
        state = self.state
        self._dismiss_holds(hook.at)  # of a call that came while the end waited
        asks.dismiss(state, self._emit, hook, list(state.asks.values()))
        self._settle_all(_BEFORE_A_TERMINAL)
        runs.drain(state, self._emit, hook)
        state.subagents.background = 0
        instructions.drop(state, self._emit, hook, "session-ended")
        if not state.ended:
            state.ended = True
            self._emit(hook.draft, hook, cause=logged)
        elif logged is None:
            self._emit(fallback(hook.payload), hook)

    # --- runs ---

    def _prompt(self, hook: Hook) -> None:
        if self._is_twice(hook):
            return
        if hook.payload.is_steer:
            self._log(hook)
        else:
            self._settle_all(_EVERYTHING)
            runs.drain(self.state, self._emit, hook)
            runs.open_run(self.state, self._emit, hook, self._new_run_id())

    def _stop(self, hook: Hook) -> None:
        state = self.state
        if subagents.working(state.subagents):
            self._degrade(hook)
        elif state.subagents.background:
            self._wait(WaitKind.STOP, hook)
        else:
            self._end_turn(hook, asks.of_main_agent)

    def _stop_failure(self, hook: Hook) -> None:
        if subagents.working(self.state.subagents):
            self._degrade(hook)
            subagents.failed(self.state.subagents)
            return
        self._end_turn(hook, lambda _: [])

    def _interrupt(self, hook: Hook) -> None:
        self._end_turn(hook, lambda s: asks.of_run(s, s.run.id if s.run else None))

    def _end_turn(self, hook: Hook, dismissing: Callable[[State], list[Ask]]) -> None:
        """The hook is the main agent's: a Stop that still waits was the run's own before it."""
        self._settle_all((WaitKind.STOP,))
        self._close_run(hook, dismissing)

    def _close_run(
        self,
        hook: Hook,
        dismissing: Callable[[State], list[Ask]],
        cause: str | None = None,
    ) -> None:
        """The run's terminal, and the session's own end if that has waited for it."""
        self._settle_all((WaitKind.FAILURE, WaitKind.RESULT))
        state = self.state
        runs.close(state, self._emit, hook, dismissing=dismissing(state), cause=cause)
        self._settle_all((WaitKind.END,))

    # --- subagents ---

    def _subagent_start(self, hook: Hook) -> None:
        subagents.started(self.state.subagents)
        self._log(hook)

    def _subagent_stop(self, hook: Hook) -> None:
        is_background = subagents.stopped(self.state.subagents, hook.at)
        if is_background and (stop := waits.latest_stop(self.state)):
            waits.forget(self.state, stop)
        self._log(hook)

    # --- tool calls ---

    def _pre_tool_use(self, hook: Hook) -> None:
        payload = hook.payload
        standing = calls.standing_of_request(self.state, payload)
        if payload.tool_name is None:
            self._log(hook)
        elif standing is Standing.DUPLICATE:
            self.duplicates += 1
            self.begun = calls.find(self.state, payload.tool_call_id)
        elif standing is Standing.SECOND:
            requested = self._degrade(hook)
            run = self.state.run.id if self.state.run else None
            self.begun = Call("", payload.tool_name, requested=requested, run=run)
        else:
            self.begun = calls.request(self.state, self._emit, hook)
            if payload.tool_call_id and subagents.delegates(payload):
                subagents.opened(self.state.subagents, payload.tool_call_id)

    def _post_tool_use(self, hook: Hook) -> None:
        if hook.payload.tool_name is None:
            self._log(hook)
            return
        if failure := waits.failure_of(self.state, hook.payload.tool_call_id):
            self._settle(failure)
        if self._is_first_end(hook):
            calls.end(self.state, self._emit, hook)
        self._call_ended(hook)

    def _post_tool_use_failure(self, hook: Hook) -> Wait | None:
        payload = hook.payload
        if payload.tool_name is None:
            self._log(hook)
            return None
        if waits.failure_of(self.state, payload.tool_call_id):
            self.duplicates += 1
            return None
        wait: Wait | None = None
        if self._is_first_end(hook):
            call = calls.find(self.state, payload.tool_call_id)
            if call and call.requested and not call.decided:
                wait = self._wait_for_result(hook)
            else:
                calls.end(self.state, self._emit, hook)
        self._call_ended(hook)
        return wait

    def _wait_for_result(self, hook: Hook) -> Wait | None:
        if self.state.asked_ever:
            self._wait(WaitKind.FAILURE, hook)
            return None
        return self._keep(Wait(WaitKind.FAILURE, hook, hook.at + REPLY_SECONDS))

    def _is_first_end(self, hook: Hook) -> bool:
        """Whether this ends its call; if not, it is dropped or degraded here."""
        standing = calls.standing_of_end(self.state, hook.payload)
        if standing is Standing.DUPLICATE:
            self.duplicates += 1
        elif standing is Standing.SECOND:
            calls.degrade(self.state, self._emit, hook)
        return standing is Standing.NEW

    def _call_ended(self, hook: Hook) -> None:
        if hook.payload.tool_call_id:
            failed = hook.payload.event != "PostToolUse"
            subagents.call_ended(
                self.state.subagents, hook.payload.tool_call_id, hook.at, failed=failed
            )

    # --- asks ---

    def _permission_request(self, hook: Hook) -> None:
        state, payload = self.state, hook.payload
        if payload.tool_name is None:
            self._log(hook)
            return
        key = asks.key_of(payload)
        call = calls.find(state, payload.tool_call_id)
        state.asked_ever = True
        if key in state.asks:
            self._repeated(hook, same=state.asks[key].print == calls.fingerprint(payload))
        elif asks.is_repeated(state, hook):
            self.duplicates += 1
        elif call and call.abandoned:
            self._degrade(hook)
        else:
            self._log_failure_of(payload.tool_call_id)
            ask = asks.request(state, self._emit, hook)
            if result := waits.result_of(self.state, key):
                waits.forget(self.state, result)
                self._answer(result.hook, ask, cause=result.logged)

    def _permission_result(self, hook: Hook) -> None:
        state, payload = self.state, hook.payload
        key = asks.key_of(payload)
        state.asked_ever = True
        self._log_failure_of(payload.tool_call_id)
        if hook.draft.type.startswith("x."):
            self._no_answer(hook)
        elif ask := asks.open_ask(state, payload):
            self._answer(hook, ask, cause=None)
        elif key and key in state.past_asks:
            self._repeated(hook, same=state.past_asks[key].decision == payload.decision)
        elif earlier := waits.result_of(state, key):
            self._repeated(hook, same=earlier.hook.payload.decision == payload.decision)
        elif key:
            self._wait_for_request(hook)
        else:
            self._degrade(hook)

    def _wait_for_request(self, hook: Hook) -> None:
        """A result overtook its request; a failure of the call has then waited long enough.

        But where it is a refusal, it takes its request to make a denial of the failure.
        """
        self._wait(WaitKind.RESULT, hook)
        if hook.payload.decision != "rejected":
            self._decided(hook)
        elif failure := waits.failure_of(self.state, hook.payload.tool_call_id):
            failure.until = hook.at + SETTLE_SECONDS

    def _answer(self, hook: Hook, ask: Ask, *, cause: str | None) -> None:
        if hook.payload.tool_call_id is None:
            hook = evolve(hook, payload=evolve(hook.payload, tool_call_id=ask.call_id))
        answered = asks.answer(self.state, self._emit, hook, ask, cause)
        if hook.payload.decision == "rejected":
            self._deny(hook, answered)
        self._decided(hook)

    def _finish(self, ask: Ask) -> None:
        """Log what was still to follow from an answer, as of the moment of that."""
        answered = ask.answered or ""
        payload = HookPayload(
            event="PermissionResult",
            tool_call_id=ask.call_id,
            id=ask.key,
            decision=ask.decision or None,
        )
        hook = Hook(payload, Draft("attention.resolved"), at=0.0, started_ns=ask.answered_ns)
        asks.finish(self.state, self._emit, hook, ask, answered)
        if ask.decision == "rejected":
            self._deny(hook, answered)
        self._decided(hook)

    def _no_answer(self, hook: Hook) -> None:
        """A decision that is none (an error of the vendor's own gate): the failure stands."""
        call = calls.find(self.state, hook.payload.tool_call_id)
        self._log(hook, call.run if call else None)
        self._decided(hook)

    def _decided(self, hook: Hook) -> None:
        """Nothing more comes of the call's approval: a failure that still waits is one."""
        if asks.others_of_call(self.state, hook.payload):
            return
        if call := calls.find(self.state, hook.payload.tool_call_id):
            call.decided = True
        if failure := waits.failure_of(self.state, hook.payload.tool_call_id):
            self._settle(failure)

    def _deny(self, hook: Hook, answered: str) -> None:
        failure = waits.failure_of(self.state, hook.payload.tool_call_id)
        calls.deny(self.state, self._emit, hook, cause=answered)
        if failure:
            waits.forget(self.state, failure)

    def _repeated(self, hook: Hook, *, same: bool) -> None:
        if same:
            self.duplicates += 1
        else:
            self._degrade(hook)

    # --- what waits ---

    def _wait(self, kind: WaitKind, hook: Hook) -> None:
        logged = self._degrade(hook)
        self._keep(Wait(kind, hook, hook.at + SETTLE_SECONDS, logged))

    def _keep(self, wait: Wait) -> Wait | None:
        """Let a hook wait, at the cost of the oldest where too many do; None if it is decided."""
        waits.keep(self.state, wait)
        while waits.too_many(self.state):
            self._settle(self.state.waits[0])
        return wait if wait in self.state.waits else None

    def _settle_all(self, kinds: tuple[WaitKind, ...]) -> None:
        while wait := waits.first(self.state, kinds):
            self._settle(wait)

    def _settle(self, wait: Wait) -> None:
        """Decide one hook, as if nothing more came."""
        waits.forget(self.state, wait)
        if wait.kind is WaitKind.FAILURE:
            calls.end(self.state, self._emit, wait.hook, cause=wait.logged)
        elif wait.kind is WaitKind.STOP and self.state.run:
            self._close_run(wait.hook, asks.of_main_agent, cause=wait.logged)
        elif wait.kind is WaitKind.PROMPT:
            self._begin_silent(wait)
        elif wait.kind is WaitKind.RESULT:
            self._decided(wait.hook)
        elif wait.kind is WaitKind.END:
            self._end_session(wait.hook, logged=wait.logged)

    def _begin_silent(self, wait: Wait) -> None:
        """The stream said nothing of what a prompt began."""
        self._is_silent = True
        self._told_by_hooks(wait.hook)
        if self.state.run is None:
            run = self._new_run_id()
            runs.open_run(self.state, self._emit, wait.hook, run, cause=wait.logged)

    def _log_failure_of(self, call_id: str | None) -> None:
        """The failure whose reply waits turns into one that is logged: an ask is coming."""
        failure = waits.failure_of(self.state, call_id)
        if failure and failure.logged is None:
            failure.logged = calls.degrade(self.state, self._emit, failure.hook)
            failure.until = failure.hook.at + SETTLE_SECONDS
            waits.free(failure)

    # --- logging ---

    def _log(self, hook: Hook, run: str | None = None) -> None:
        """Log a hook as it is mapped: of this run, else of the open one."""
        current = self.state.run
        self._emit(hook.draft, hook, run=run or (current.id if current else None))

    def _degrade(self, hook: Hook) -> str:
        return calls.degrade(self.state, self._emit, hook)

    def _is_twice(self, hook: Hook) -> bool:
        """Whether the same bytes came a moment ago, from a second install."""
        same, started_ns = self.state.last_of.get(hook.payload.event, ("", 0))
        self.state.last_of[hook.payload.event] = (hook.print, hook.started_ns)
        twice = same == hook.print and abs(hook.started_ns - started_ns) <= TWICE_NS
        self.duplicates += twice
        return twice

    _HANDLERS: ClassVar[dict[str, Callable[[Machine, Hook], Wait | None]]] = {
        "SessionStart": _session_start,
        "SessionEnd": _session_end,
        "UserPromptSubmit": _prompt,
        "Stop": _stop,
        "StopFailure": _stop_failure,
        "Interrupt": _interrupt,
        "SubagentStart": _subagent_start,
        "SubagentStop": _subagent_stop,
        "PreToolUse": _pre_tool_use,
        "PostToolUse": _post_tool_use,
        "PostToolUseFailure": _post_tool_use_failure,
        "PermissionRequest": _permission_request,
        "PermissionResult": _permission_result,
    }
    """The hooks that lifecycles turn on; every other is logged as it is mapped."""
