"""Plays the acts: runs each hook as Kimi does, says what came of it, and notes what did not.

Rules:
- A hook is run by the command that is registered for it, with its payload on stdin, and ends as
  Kimi would end it: by itself, or after the timeout that is registered.
- What a step promises is looked for; what is missing is noted and the story goes on, so that one
  run names all that is wrong.
- `Say` gets what there is to say in words; how it looks is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import trio
from attrs import define, field, frozen

from kimiaepd.demo.human import Human
from kimiaepd.demo.scratch import Registered
from kimiaepd.demo.story import Act, Fate, matches, missing
from kimiaepd.doctor.runs import Run, run
from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, dump, parse
from kimiaepd.views.words import harmless, summary

Who: TypeAlias = Literal["step", "kimi", "hook", "event", "person", "log", "demo"]
Say: TypeAlias = Callable[[Who, str], None]

MOMENT_SECONDS = 3.0
"""How long the demo's person lets somebody else answer, at the usual speed."""

WAIT_SECONDS = 45.0
"""The same with `--wait`, at any speed: five seconds before the call would go on."""


@frozen
class Terms:
    """How it is played.

    Attributes:
        speed: 2: twice as fast.
        waits: whether the user is to answer.
        program: how a command of ours is run: all but its name.
    """

    speed: float = 1.0
    waits: bool = False
    program: str = "kimiaepd"


@define(eq=False)
class Player:
    """One performance.

    Attributes:
        hooks: what is registered, by event.
        human: looks on and answers.
        terms: how it is played.
        say: where it is told.
        log: the lines of the log.
        gaps: what was missing, by step; empty where a step showed all.
        secrets: what no line of the log may have.
    """

    hooks: Mapping[str, Registered]
    human: Human
    terms: Terms
    say: Say
    log: Callable[[], list[bytes]]
    gaps: dict[str, list[str]] = field(factory=dict)
    secrets: list[str] = field(factory=list)
    _step: str = ""
    _fate: Fate | None = None

    async def play(self, acts: Sequence[Act]) -> None:
        """Play them all."""
        for act in acts:
            if act.only_if is None or act.only_if == self._fate:
                await self._play(act)

    def miss(self, what: str) -> None:
        """Note that this step did not show something."""
        self.gaps.setdefault(self._step, []).append(what)
        self.say("demo", f"MISSING: {what}")

    def begin(self, step: str) -> None:
        """Begin a step."""
        self._step = step
        self.gaps[step] = []
        self.say("step", step)

    async def _play(self, act: Act) -> None:
        await trio.sleep(act.pause / self.terms.speed)
        if act.title:
            self.begin(act.title)
        since = len(self.human.events)
        if act.hook is not None:
            await self._hook(act, act.hook, since)
        if act.instruct is not None:
            outcome = await self.human.instruct(act.instruct)
            if not outcome.is_accepted:
                self.miss(f"an instruction that is taken ({outcome.reason} {outcome.detail})")
        for pattern in await self.human.misses(act.sees, since):
            self.miss(dump(pattern).decode())
        if act.hides is not None:
            self.secrets.append(act.hides)
        if act.shows:
            self._show(act.sees, since)

    def _show(self, patterns: Sequence[JSONObject], since: int) -> None:
        """Say the line of the log that an event is."""
        for event in self.human.events[since:]:
            if len(missing(patterns, [event])) < len(patterns):
                own_id = dump(event["id"])
                for line in self.log():
                    if own_id in line:
                        self.say("log", line.decode().rstrip())
                        return

    async def _hook(self, act: Act, payload: JSONObject, since: int) -> None:
        event = str(payload["hook_event_name"])
        self.say("kimi", f"{event}  {_said(payload)}".rstrip())
        registered = self.hooks.get(event)
        if registered is None:
            self.miss(f"a hook that is registered for {event}")
            return
        async with trio.open_nursery() as hook_nursery:
            if act.answer is not None:
                hook_nursery.start_soon(self._answer, act, act.answer, since)
            ran = await run(registered.command, dump(payload), patience=registered.timeout)
            hook_nursery.cancel_scope.cancel()
        self._judge(act, ran)

    async def _answer(self, act: Act, answer: JSONObject, since: int) -> None:
        waits = self.terms.waits and act.yours
        patience = WAIT_SECONDS if waits else MOMENT_SECONDS / self.terms.speed

        def asked() -> None:
            if waits:
                where = f"in the console, or: {self.terms.program} inbox"
                self.say("person", f"held: answer within {patience:g} s, {where}")
            elif act.yours:
                self.say("person", "held: answer in the console, or the demo does in a moment")

        outcome = await self.human.answer(answer, since, patience=patience, asked=asked)
        if outcome is None:
            self.say("person", "somebody else answered")
        elif not outcome.is_accepted:
            self.miss(f"an answer that is taken ({outcome.reason} {outcome.detail})")

    def _judge(self, act: Act, ran: Run) -> None:
        """What the hook did, against what it must."""
        wrote = ran.stdout.kept
        if ran.status != 0 or ran.stderr.size:
            self.miss(f"a hook that ends with 0 and says nothing on stderr, not {ran.status}")
        if wrote:
            self.say("hook", f"writes {harmless(wrote.decode('utf-8', 'replace'))}")
        elif act.answer is not None:
            self.say("hook", "writes nothing: the call goes on")
        if act.answer is not None:
            self._fate = "denied" if wrote else "passed"
        if act.writes is None and wrote:
            self.miss("a hook that writes nothing")
        elif act.writes and not matches(act.writes, _parsed(wrote)):
            self.miss(f"a hook that writes {dump(act.writes).decode()}")


def told_of(event: JSONObject) -> str:
    """An event, in a line."""
    return f"{event.get('type')}  {summary(event)}".rstrip()


def _said(payload: JSONObject) -> str:
    """What of a payload says most."""
    match payload:
        case {"hook_event_name": "PreToolUse", "tool_name": str(tool), "tool_input": dict(given)}:
            said = given.get("command") or given.get("path") or given.get("description")
            return harmless(f"{tool}: {said}")
        case {"tool_name": str(tool), "decision": str(decision)}:
            return f"{tool}: {decision}"
        case {"tool_name": str(tool)}:
            return tool
        case {"prompt": [{"text": str(text)}]}:
            return harmless(f'"{text}"')
        case {"agent_name": str(name)}:
            return name
    return ""


def _parsed(wrote: bytes) -> JSON:
    try:
        return parse(wrote)
    except MalformedJSONError:
        return None
