"""The held gate: one PreToolUse, one cancel scope, one outcome.

Rules:
- Its deadline is Trio's clock: no jump of the wall clock, and no relay, makes a hold longer than it
  says. What `expires_at` tells people is the same moment by the wall clock.
- An answer, the shim's going, the session's end, a stop and the deadline race. What comes first
  wins: an accepted answer is the outcome whatever comes after it; at the deadline it is too late.
- A hold goes on under the terms that it began with, whatever is reloaded meanwhile, and whether the
  relay is there or not: somebody may come back.
- Nobody waits for a person who is not there: a call is held only where somebody could answer and
  the session's gate stands (`standing.py`). Else it passes, and is counted. Without a relay, or a
  token for it, no answer could ever come, so nothing is held whatever is set.
- Only a refusal replies anything. What passes here is still the vendor's to ask about.

Events are `lifecycle`'s to log, and a command is acknowledged by whoever passes it on: before its
outcome is logged, because `respond` only accepts, and the task that holds the call concludes.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import structlog
import trio
from attrs import define, evolve, field

from kimiaepd.commands import ACCEPTED, Command, Decision
from kimiaepd.emitter import timestamp
from kimiaepd.gate import wording
from kimiaepd.gate.answers import ALLOW_SESSION, OPTIONS, Option, read_answer
from kimiaepd.gate.real_path import Looker
from kimiaepd.gate.standing import TIMEOUTS, Standing
from kimiaepd.gate.twins import Shared, Twins
from kimiaepd.lifecycle import holds
from kimiaepd.lifecycle.state import NOW_NS, Call, Hold, HoldAnswer, Hook
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.own_levels import STOOD_DOWN
from kimiaepd.mapping.payloads import HookPayload
from kimiaepd.policy import Call as PolicyCall
from kimiaepd.policy import Rule, allow_session_rule, decide, path_argument
from kimiaepd.sessions import Session, SessionBook
from kimiaepd.settings import GateSettings

log: structlog.stdlib.BoundLogger = structlog.get_logger()

RESPOND = "control.attention.respond"

NOTHING = b""
"""The reply that says nothing: the call goes on, and the CLI's own approval stays in place."""

SESSIONS = 2_000
"""Sessions whose rules are kept, the oldest forgotten first: it asks again."""


@define(eq=False)
class _Held:
    """One call that is held, and the terms that it is held under.

    Attributes:
        scope: what its task waits in; cancelled as an answer comes, or as the hold is over.
        labelled: whether the labels of its options were shown.
        until: when it ends at the latest (seconds of Trio's clock).
        told: what whoever is notified is told of it.
        unseen: whether the log did not take the request, so that nobody is asked.
    """

    session: Session
    hold: Hold
    call: PolicyCall
    shared: Shared
    options: Sequence[Option]
    labelled: bool
    until: float
    scope: trio.CancelScope
    told: JSONObject = field(repr=False)
    unseen: bool = False


@define(eq=False)
class Gate:
    """All sessions' gates.

    Attributes:
        book: the sessions.
        terms: what is set now; another hold begins under these.
        is_reachable: whether somebody could answer now.
        is_controlled: whether an answer could come at all, sooner or later.
        notify: is told as a hold begins and ends; it neither waits nor raises.
        standing: which sessions' gates stand.
        counts: what became of calls, by outcome.
        is_stopping: nothing is held any more.
    """

    book: SessionBook
    terms: GateSettings
    is_reachable: Callable[[], bool]
    is_controlled: Callable[[], bool] = lambda: True
    notify: Callable[[JSONObject], None] = lambda _: None
    standing: Standing = field(factory=Standing)
    counts: Counter[str] = field(factory=Counter)
    is_stopping: bool = False
    _held: dict[str, _Held] = field(factory=dict)
    _twins: Twins = field(factory=Twins)
    _looker: Looker = field(factory=Looker)
    _rules: OrderedDict[str, tuple[Rule, ...]] = field(factory=OrderedDict)

    # --- hooks ---

    async def twin(
        self, session: Session, hook: Hook, gone: Callable[[], Awaitable[None]]
    ) -> bytes | None:
        """The reply to a hook that comes a second time; None where it is the first of its call.

        It waits for what the first one waits for, unless its own shim goes.
        """
        shared = self._twins.of(session.id, hook)
        if shared is None:
            return None
        session.machine.duplicates += 1
        return await shared.wait(gone)

    async def ask(
        self, session: Session, hook: Hook, call: Call, gone: Callable[[], Awaitable[None]]
    ) -> bytes:
        """Decide about one call, and hold it where that takes a person; the reply to its hook.

        Args:
            session: its session.
            hook: its PreToolUse, which is logged.
            call: what the lifecycles made of that.
            gone: returns when its shim is gone.
        """
        if not self.terms.enabled:
            return NOTHING
        shared = self._twins.first(session.id, hook)
        try:
            asked = await self._seen(session, hook.payload)
            verdict = decide(self.terms.policy, asked, self._rules.get(session.id, ()))
            if verdict.kind == "deny" and verdict.rule:
                self._deny(session, hook, call, verdict.rule.id)
                shared.reply = wording.denial(verdict.reason)
            elif verdict.kind == "pass":
                self.counts["passed"] += 1
            elif why := self._why_not(session):
                self._not_held(why)
            else:
                await self._hold(self._begin(session, hook, call, asked, shared), gone)
        finally:
            shared.settle()
        return shared.reply

    def over(self, session: str) -> None:
        """The session has ended: what was allowed for it is over, too."""
        self.standing.over(session)
        self._rules.pop(session, None)

    def somebody_came(self) -> None:
        """Any command came, or a consumer: whoever stood down stands again."""
        self.standing.somebody_came()

    def stop(self) -> None:
        """Let everything go that is held, and hold nothing more: the daemon stops."""
        self.is_stopping = True
        for held in list(self._held.values()):
            self._conclude(held, "dismissed")

    def status(self) -> JSONObject:
        """What `kimiaepd status` says of it."""
        counts: dict[str, JSON] = dict(self.counts)
        return {
            "enabled": self.terms.enabled,
            "mode": self.terms.policy.mode.value,
            "controlled": self.is_controlled(),
            "answerable": self._is_answerable,
            "held": len(self._held),
            "stood_down": self.standing.down,
            "calls": counts,
        }

    # --- commands ---

    def respond(self, command: Command) -> Decision:
        """Take an answer (control.attention.respond); what comes of it is logged after the ack."""
        held = self._held.get(command.subject or "")
        if held is None or held.session.id != command.session:
            return Decision("invalid", "no such call is held: it is decided, or never was")
        if held.hold.answer:
            return Decision("invalid", "another answer came first")
        if trio.current_time() >= held.until:
            return Decision("invalid", "too late: the call is not held any more")
        answer = read_answer(command.data, held.options, labelled=held.labelled)
        if answer is None:
            return Decision("invalid", "give one of the options offered, or a text")
        held.hold.answer = HoldAnswer(answer.option, command.id, answer.text)
        held.scope.cancel()
        return ACCEPTED

    # --- what is not held ---

    async def _seen(self, session: Session, payload: HookPayload) -> PolicyCall:
        """The call as rules see it; where a path really leads only if one looks at paths."""
        call = PolicyCall(payload.tool_name or "", payload.tool_input, session.id, payload.cwd)
        path = path_argument(call)
        rules = self.terms.policy.rules_of(session.id)
        if path is None or not any(rule.matcher.kind == "path_glob" for rule in rules):
            return call
        directory = call.cwd if call.cwd and call.cwd.startswith("/") else None
        whole = os.path.join(directory or "", path)  # noqa: PTH118 - a Path tidies what a rule must see
        if not whole.startswith("/"):
            return call
        real_path, real_cwd = await self._looker.real(whole, directory or "/")
        return evolve(call, real_path=real_path, real_cwd=real_cwd if directory else None)

    def _deny(self, session: Session, hook: Hook, call: Call, rule: str) -> None:
        self.counts["denied by rule"] += 1
        session.machine.refuse(hook, call, rule)
        self._kept(session)

    @property
    def _is_answerable(self) -> bool:
        is_wanted = self.terms.when_unreachable == "hold" or self.is_reachable()
        return is_wanted and self.is_controlled()

    def _why_not(self, session: Session) -> str | None:
        if self.is_stopping:
            return "stopping"
        if not self.is_controlled():
            return "no relay with a token"
        if not self._is_answerable:
            return "nobody there"
        return "stood down" if self.standing.is_down(session.id) else None

    def _not_held(self, why: str) -> None:
        self.counts[why] += 1
        if self.counts[why] == 1:
            log.warning("a call is not held; more are only counted", why=why)

    # --- what is held ---

    async def _hold(self, held: _Held, gone: Callable[[], Awaitable[None]]) -> None:
        if held.unseen:
            self._conclude(held, "dismissed")
            self._not_held("not logged")
            return
        how: Literal["timeout", "dismissed"] = "dismissed"
        try:
            self.notify({"event": "held", **held.told})
            with held.scope:
                await gone()
            if held.scope.cancelled_caught:  # by the deadline, where nobody concluded it before
                how = "timeout"
        finally:
            self._conclude(held, how)

    def _begin(
        self, session: Session, hook: Hook, call: Call, asked: PolicyCall, shared: Shared
    ) -> _Held:
        terms, emitter = self.terms, self.book.emitter
        until = trio.current_time() + terms.hold_ms / 1000
        expires_at = timestamp(emitter.clock_ns() + terms.hold_ms * 1_000_000)
        options = OPTIONS[terms.options]
        prompt = wording.prompt(hook.payload, path_argument(asked), emitter.redactor)
        draft = wording.request(hook.payload, prompt, options, expires_at)
        labelled = emitter.ceilings.of(draft.type) >= Capture.REDACTED
        lost = emitter.counts.lost
        hold = session.machine.hold(evolve(hook, draft=draft), call)
        told: JSONObject = {
            "session": session.id,
            "ask": hold.requested,
            "tool": call.name,
            "prompt": prompt if labelled else draft.fields[1].below,
            "expires_at": expires_at,
        }
        scope = trio.CancelScope(deadline=until)
        held = _Held(
            session=session,
            hold=hold,
            call=asked,
            shared=shared,
            options=options,
            labelled=labelled,
            until=until,
            scope=scope,
            told=told,
            unseen=emitter.counts.lost > lost,
        )
        hold.on_over = scope.cancel
        self._held[hold.requested] = held
        self._kept(session)
        self.counts["held"] += 1
        return held

    def _conclude(self, held: _Held, how: Literal["timeout", "dismissed"]) -> None:
        """End a hold, once: log its outcome, and know what its hooks are told."""
        if self._held.pop(held.hold.requested, None) is None:
            return
        session, answer = held.session, held.hold.answer
        ended = session.machine.conclude(held.hold, trio.current_time(), how)
        if answer and answer.option in holds.REFUSING:
            held.shared.reply = wording.denial(answer.text)
        elif answer and answer.option == ALLOW_SESSION.id and not session.is_over:
            self._allow(held.call)
        # The end of the session is logged by whoever took that in, the answer's with it.
        outcome: holds.Outcome = ended or ("answered" if answer else "dismissed")
        if outcome == "timeout" and self.standing.timed_out(session.id):
            self._stand_down(held)
        if ended:
            self._kept(session)
        self.counts[outcome] += 1
        if not held.unseen:  # else nobody was told that it began
            option = answer.option if answer else None
            self.notify({"event": "over", "outcome": outcome, "option": option, **held.told})

    def _stand_down(self, held: _Held) -> None:
        """Say that this session's calls are not held any more, until somebody comes."""
        draft = Draft(STOOD_DOWN, None, (Field(("timeouts",), Capture.METADATA, TIMEOUTS),))
        hook = Hook(HookPayload(), draft, trio.current_time(), NOW_NS)
        hold = held.hold
        self.book.emitter.emit(held.session.stream, draft, hook, run=hold.run, cause=hold.requested)
        log.warning("nobody answers: calls are not held any more", session=held.session.id)

    def _allow(self, call: PolicyCall) -> None:
        emitter = self.book.emitter
        rule = allow_session_rule(
            call, rule_id=emitter.new_id(), created_at=timestamp(emitter.clock_ns())
        )
        self._rules[call.session] = (*self._rules.pop(call.session, ()), rule)
        if len(self._rules) > SESSIONS:
            self._rules.popitem(last=False)

    def _kept(self, session: Session) -> None:
        """What a person is asked and says is on disk soon, whatever else is not (I23)."""
        self.book.keep(session)
        self.book.journal.hasten()
