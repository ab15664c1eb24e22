"""Everything that can happen to held calls, in any order: hypothesis against a model, virtual time.

Trio runs in a thread of its own, its clock stands still between steps, and each step ends when
every task waits again. The model knows what was asked, answered and freed, and when; the log and
the replies must say the same. Beside the calls people instruct the same sessions: a prompt is told
what was queued for it, once, and a call never is.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import trio
from aep_sdk.projection import project_state
from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from gate_room import GateRoom, Shim, gated
from judge import judge
from kimiaepd.gate import wording
from kimiaepd.gate.gate import NOTHING
from kimiaepd.instruct import MOST
from kimiaepd.lifecycle.holds import REFUSING
from kimiaepd.mapping.json_value import JSON, JSONObject, parse
from kimiaepd.policy import Mode, Rule
from kimiaepd.settings import GateSettings, HoldMs
from test_gate import reason

T = TypeVar("T")

SESSIONS = st.sampled_from(["s", "t"])
Meant: TypeAlias = "tuple[str, str | None] | None"
"""An option, and the reason of a refusal where it has one; None: it is no answer."""

Meaning: TypeAlias = "tuple[JSON, Meant, Meant]"
ALLOW, DENY = ("allow", None), ("deny", None)
MEANINGS: tuple[Meaning, ...] = (
    # an answer; what it means where two options are offered, and where four are
    ({"option": "allow"}, ALLOW, ALLOW),
    ({"option": "deny"}, DENY, DENY),
    ({"option": "cancel"}, None, ("cancel", None)),
    ({"option": "allow_session"}, None, ("allow_session", None)),
    ({"option": "deny", "text": " use another "}, ("deny", "use another"), ("deny", "use another")),
    ({"option": "allow", "text": "deny"}, ALLOW, ALLOW),
    ({"text": "allow"}, ALLOW, ALLOW),
    ({"text": " No objection"}, ALLOW, ALLOW),
    ({"text": "allow_session"}, ("deny", "allow_session"), ("allow_session", None)),
    ({"text": "DENY "}, DENY, DENY),
    ({"text": "Cancel"}, ("deny", "Cancel"), ("cancel", None)),
    ({"text": "yes"}, ("deny", "yes"), ("deny", "yes")),
    ({"text": "allow, but slowly"}, ("deny", "allow, but slowly"), ("deny", "allow, but slowly")),
)  # fmt: skip
NOTHINGS: tuple[JSON, ...] = (
    {"text": ""}, {"text": 1}, {"option": "Allow"}, {"option": None, "text": "allow"}, {},
    {"option": "yes", "text": "allow"}, None, "allow", {"values": {"option": "allow"}},
)  # fmt: skip
"""What may be answered, and what is meant by it: said here once more, and not by `answers.py`."""

ANSWERS = st.sampled_from([*MEANINGS, *((nothing, None, None) for nothing in NOTHINGS)])
MOMENT = 1 / 1024
"""About a millisecond: sums of these are exact, so that model and clock agree on a deadline."""

MANY = 4
"""Calls before a stop: what comes after it is the same whatever came before."""

DENYING_RULE = "rule-for-write"


class Portal:
    """A Trio of its own in a thread, with a room in it and a clock that only we move."""

    def __init__(self, folder: Path, terms: GateSettings) -> None:
        self.clock = MockClock()
        self._ready: queue.Queue[tuple[trio.lowlevel.TrioToken, GateRoom]] = queue.Queue()
        self._thread = threading.Thread(
            target=lambda: trio.run(self._main, folder, terms, clock=self.clock)
        )
        self._thread.start()
        self._token, self.room = self._ready.get(timeout=10)

    async def _main(self, folder: Path, terms: GateSettings) -> None:
        self._end = trio.Event()
        async with gated(folder, terms) as room:
            self._ready.put((trio.lowlevel.current_trio_token(), room))
            await self._end.wait()

    def __call__(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function there to its end."""
        return trio.from_thread.run(work, *args, trio_token=self._token)

    def close(self) -> None:
        """End it."""
        trio.from_thread.run_sync(self._end.set, trio_token=self._token)
        self._thread.join()


@define
class Expected:
    """What the model knows of one call that was asked about."""

    ask: str
    session: str
    shims: list[Shim]
    options: str
    until: float
    outcome: str | None = None
    option: str | None = None
    reason: str | None = None
    commands: list[str] = field(factory=list)


class Held(RuleBasedStateMachine):
    """The gate, beside a model of it."""

    asked: Bundle[Expected] = Bundle("asked")
    commands: Bundle[Callable[[], None]] = Bundle("commands")

    @initialize(options=st.sampled_from(["two", "four"]))
    def begin(self, options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kg"))
        self.options, self.hold_s, self.mode = options, 50.0, Mode.MANUAL
        self.portal = Portal(self.folder, self.terms())
        self.room = self.portal.room
        self.now = 0.0
        self.numbers = 0
        self.calls: list[Expected] = []
        self.passed: list[Shim] = []
        self.ruled: list[Shim] = []
        self.queued: dict[str, list[str]] = {"s": [], "t": []}
        self.fates: dict[str, list[str]] = {}
        self.known: set[str] = set()
        self.over: set[str] = set()
        self.running: set[str] = set()
        self.in_a_row: dict[str, int] = {}
        self.allowed: set[str] = set()
        self.stopping = False

    def terms(self) -> GateSettings:
        rules = (Rule(id=DENYING_RULE, tool_name="Write", decision="rejected", reason="read only"),)
        return GateSettings(
            enabled=True,
            hold_ms=HoldMs(round(self.hold_s * 1000)),
            options=self.options,  # type: ignore[arg-type]
            mode=self.mode,
            rules=rules,
        )

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    # --- calls ---

    @rule(target=asked, session=SESSIONS, has_id=st.booleans())
    def call(self, session: str, *, has_id: bool) -> Any:
        return self._call(session, has_id=has_id) or multiple()

    @rule(target=asked, session=SESSIONS, answer=ANSWERS, other=ANSWERS)
    def call_that_is_answered_twice(self, session: str, answer: Meaning, other: Meaning) -> Any:
        found = self._call(session, has_id=True)
        if found is None:
            return multiple()
        self._answered(found, answer, elsewhere=False)
        self._answered(found, other, elsewhere=False)
        return found

    def _call(self, session: str, *, has_id: bool) -> Expected | None:
        call_id = f"c{self.number()}" if has_id else None
        is_held = self._is_held(session)
        shim: Shim = self.portal(lambda: self.room.call(call_id, session=session))
        return self._expected(session, [shim], is_held=is_held)

    def _is_held(self, session: str) -> bool:
        """Whether a call that comes now is to be held."""
        is_wanted = self.mode is Mode.MANUAL and session not in self.allowed
        stands = self.in_a_row.get(session, 0) < 2
        return is_wanted and stands and self.room.reachable and not self.stopping

    def _expected(self, session: str, shims: list[Shim], *, is_held: bool) -> Expected | None:
        self.known.add(session)
        if not is_held:
            self.passed += shims
            return None
        ask = self.portal(self._last_ask, session)
        found = Expected(ask, session, shims, self.options, self.now + self.hold_s)
        self.calls.append(found)
        return found

    async def _last_ask(self, session: str) -> str:
        return self.room.ask(session)

    @rule(session=SESSIONS)
    def call_that_a_rule_denies(self, session: str) -> None:
        call_id = f"c{self.number()}"
        self.known.add(session)
        self.ruled.append(
            self.portal(lambda: self.room.call(call_id, session=session, tool="Write"))
        )

    @rule(session=SESSIONS)
    def call_of_two_installs(self, session: str) -> None:
        """The second one while the first is held, or right after it passed."""
        call_id = f"c{self.number()}"

        async def both() -> tuple[Shim, Shim]:
            one = await self.room.call(call_id, session=session, started_ns=10**18)
            return one, await self.room.call(call_id, session=session, started_ns=10**18 + 1)

        is_held = self._is_held(session)
        self._expected(session, list(self.portal(both)), is_held=is_held)

    # --- answers ---

    @rule(
        target=commands, call=asked, answer=ANSWERS, elsewhere=st.sampled_from([False] * 7 + [True])
    )
    def answer(self, call: Expected, answer: Meaning, *, elsewhere: bool) -> Any:
        return self._answered(call, answer, elsewhere=elsewhere) or multiple()

    def _answered(
        self, call: Expected, answer: Meaning, *, elsewhere: bool
    ) -> Callable[[], None] | None:
        """Answer; gives back what sends the same command once more."""
        command = f"command{self.number()}"
        session = call.session if not elsewhere else {"s": "t", "t": "s"}[call.session]
        if session not in self.known:
            return None
        said, of_two, of_four = answer

        async def send() -> JSONObject:
            return await self.room.answer(call.ask, said, session=session, command=command)

        async def again() -> None:
            data: JSONObject = {"answer": said}
            self.room.command(call.ask, data, session=session, command=command)
            await wait_all_tasks_blocked()

        ack = self.portal(send)
        self.in_a_row.clear()
        meant = of_two if call.options == "two" else of_four
        is_accepted = session == call.session and meant is not None and call.outcome is None
        assert ack["type"] == ("control.accepted" if is_accepted else "control.rejected")
        if is_accepted and meant:
            call.outcome, (call.option, call.reason) = "answered", meant
            call.commands.append(command)
            if call.option == "allow_session" and session not in self.over:
                self.allowed.add(session)
        return lambda: self.portal(again)

    @rule(call=asked)
    def answer_at_the_deadline(self, call: Expected) -> None:
        """Time is up, and the task that holds the call has not run yet."""
        if call.outcome is not None:
            return
        command, after = f"command{self.number()}", call.until - self.now

        async def send() -> JSONObject:
            self.portal.clock.jump(after)
            return await self.room.answer(
                call.ask, {"option": "deny"}, session=call.session, command=command
            )

        ack = self.portal(send)
        self.in_a_row.clear()  # it came before the first task could time out
        assert ack["type"] == "control.rejected"
        self._passed(after)

    @rule(call=asked)
    def two_answers_at_once(self, call: Expected) -> None:
        """Both come before the task that holds the call runs."""
        if call.outcome is not None:
            return
        first, second = f"command{self.number()}", f"command{self.number()}"

        async def send() -> list[JSON]:
            for command, option in ((first, "deny"), (second, "allow")):
                answer: JSONObject = {"answer": {"option": option}}
                self.room.command(call.ask, answer, session=call.session, command=command)
            acks = [ack["type"] for ack in self.room.acks[-2:]]
            await wait_all_tasks_blocked()
            return acks

        assert self.portal(send) == ["control.accepted", "control.rejected"]
        call.outcome, call.option, call.commands = "answered", "deny", [first]
        self.in_a_row.clear()

    @rule(again=commands)
    def command_again(self, again: Callable[[], None]) -> None:
        before = len(self.room.acks)
        again()
        self.in_a_row.clear()
        assert len(self.room.acks) == before, "it was decided once"

    # --- instructions ---

    @rule(target=commands, session=SESSIONS)
    def instruct(self, session: str) -> Any:
        if session not in self.known:
            return multiple()
        text = f"instruction {self.number()}"

        async def send() -> str:
            ack = self.room.instruct(text, session=session, command=text)
            await wait_all_tasks_blocked()
            return str(ack["type"])

        async def again() -> None:
            self.room.instruct(text, session=session, command=text)
            await wait_all_tasks_blocked()

        is_taken = session not in self.over and len(self.queued[session]) < MOST
        assert self.portal(send) == ("control.accepted" if is_taken else "control.rejected")
        self.in_a_row.clear()
        if is_taken:
            self.queued[session].append(text)
            self.fates[text] = ["queued"]
        return lambda: self.portal(again)

    @rule(session=SESSIONS, is_deaf=st.sampled_from([False, False, True]))
    def prompt(self, session: str, *, is_deaf: bool) -> None:
        given: JSONObject = {"prompt": f"prompt {self.number()}"}
        shim = self._hook("UserPromptSubmit", session, given, is_deaf=is_deaf)
        self.running.add(session)
        self.over.discard(session)
        queued = self.queued[session]
        if not queued:
            assert shim.reply == NOTHING
            return
        assert parse(shim.reply) == {"message": "\n\n".join(queued)}
        if not is_deaf:
            self._fate(session, "delivered")

    def _fate(self, session: str, fate: str) -> None:
        for text in self.queued[session]:
            self.fates[text].append(fate)
        self.queued[session] = []

    # --- what else ends them ---

    @rule(call=consumes(asked))
    def shim_goes(self, call: Expected) -> None:
        async def leave() -> None:
            call.shims[0].leave()
            await wait_all_tasks_blocked()

        self.portal(leave)
        self._dismissed([call])

    @rule(seconds=st.sampled_from([MOMENT, 1.0, 24.0, 50.0 - MOMENT, 50.0]))
    def time_passes(self, seconds: float) -> None:
        async def pass_() -> None:
            self.portal.clock.jump(seconds)
            await wait_all_tasks_blocked()

        self.portal(pass_)
        self._passed(seconds)

    def _passed(self, seconds: float) -> None:
        self.now += seconds
        for call in sorted(self.calls, key=lambda call: call.until):
            if call.outcome is None and call.until <= self.now:
                call.outcome = "timeout"
                self.in_a_row[call.session] = self.in_a_row.get(call.session, 0) + 1

    @rule(session=SESSIONS)
    def session_ends(self, session: str) -> None:
        if session in self.running:  # else the end itself waits for the run's own
            self.session_goes_on(session, "Interrupt")
        self._hook("SessionEnd", session, {"reason": "exit"})
        self.over.add(session)
        self._fate(session, "dropped")
        self._dismissed([call for call in self.calls if call.session == session])
        self.allowed.discard(session)
        self.in_a_row.pop(session, None)

    @rule(session=SESSIONS, event=st.sampled_from(["Stop", "Interrupt", "SessionStart"]))
    def session_goes_on(self, session: str, event: str) -> None:
        self._hook(event, session, {"model": f"model {self.number()}"})
        if event == "SessionStart":
            self.over.discard(session)
        else:
            self.running.discard(session)

    def _hook(self, event: str, session: str, given: JSONObject, *, is_deaf: bool = False) -> Shim:
        self.known.add(session)
        return self.portal(lambda: self.room.start(event, given, session=session, is_deaf=is_deaf))

    @precondition(lambda self: not self.stopping and len(self.calls) > MANY)
    @rule()
    def stop(self) -> None:
        async def stop() -> None:
            self.room.gate.stop()
            await wait_all_tasks_blocked()

        self.portal(stop)
        self.stopping = True
        self._dismissed(self.calls)

    async def _settle(self) -> None:
        self.room.room.observer.settle()

    def _dismissed(self, calls: list[Expected]) -> None:
        for call in calls:
            call.outcome = call.outcome or "dismissed"

    # --- what ends none ---

    @rule(is_there=st.sampled_from([True, True, False]))
    def relay(self, *, is_there: bool) -> None:
        self.room.reachable = is_there

    @rule()
    def consumer_connects(self) -> None:
        self.room.gate.somebody_came()
        self.in_a_row.clear()

    @rule(
        options=st.sampled_from(["two", "four"]),
        hold_s=st.sampled_from([1.0, 50.0]),
        mode=st.sampled_from([Mode.MANUAL, Mode.MANUAL, Mode.YOLO]),
    )
    def reload(self, options: str, hold_s: float, mode: Mode) -> None:
        self.options, self.hold_s, self.mode = options, hold_s, mode
        self.room.gate.terms = self.terms()

    @rule(seconds=st.integers(-100_000, 100_000))
    def wall_clock_jumps(self, seconds: int) -> None:
        self.room.wall_ahead_ns = seconds * 10**9

    # --- what must hold ---

    @invariant()
    def the_log_and_the_replies_say_what_the_model_does(self) -> None:
        if not hasattr(self, "room"):
            return
        events = [event for name in ("s", "t") for event in self._events(name)]
        for call in self.calls:
            self._check(call, [event for event in events if event.get("subject") == call.ask])
        for shim in self.passed:
            assert shim.reply == NOTHING
        for shim in self.ruled:
            assert reason(shim.reply) == "read only"
        denials = [event for event in events if event["type"] == "tool.denied"]
        refused = [call for call in self.calls if call.option in REFUSING]
        assert len(denials) == len(refused) + len(self.ruled)
        assert len(self.room.gate._held) == sum(call.outcome is None for call in self.calls)
        found: dict[str, list[str]] = {}
        for event in events:
            if str(event["type"]).startswith("x.kimi-code.instruction."):
                fate = str(event["type"]).rpartition(".")[2]
                found.setdefault(str(event["cause"]), []).append(fate)
        assert found == self.fates

    def _events(self, session: str) -> list[JSONObject]:
        return self.room.room.events(session)

    def _check(self, call: Expected, events: list[JSONObject]) -> None:
        types = [event["type"] for event in events]
        if call.outcome is None:
            assert types == []
            assert all(shim.waits for shim in call.shims)
            return
        replies = {shim.reply for shim in call.shims}
        if call.outcome == "answered":
            assert types == ["attention.answered", "attention.resolved"]
            answered, resolved = events
            assert answered["cause"] == call.commands[0]
            data: Any = answered["data"]
            assert data["answer"]["option"] == call.option
            assert resolved["cause"] == answered["id"]
        else:
            ended = {"timeout": "attention.timeout", "dismissed": "attention.resolved"}
            assert types == [ended[call.outcome]]
        if call.option in REFUSING:
            (reply,) = replies
            assert reason(reply) == (call.reason or wording.DENIED)
        else:
            assert replies == {NOTHING}

    def teardown(self) -> None:
        if not hasattr(self, "room"):
            return
        try:
            if not self.stopping:
                self.stop()
            self.portal(self._settle)
            for session in ("s", "t"):
                self._fate(session, "dropped")
            self.the_log_and_the_replies_say_what_the_model_does()
            for session in ("s", "t"):
                events = self._events(session)
                judge(events)
                projected = project_state(events)
                assert projected["violations"] == []
                assert all(one["pending"] == [] for one in projected["sessions"])
            assert all(len(fates) == 2 for fates in self.fates.values())
            counts = self.room.gate.counts
            assert counts["held"] == len(self.calls)
            for how in ("answered", "timeout", "dismissed"):
                assert counts[how] == sum(call.outcome == how for call in self.calls)
        finally:
            self.portal.close()
            shutil.rmtree(self.folder, ignore_errors=True)


Held.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHeld = Held.TestCase
