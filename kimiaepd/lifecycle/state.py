"""What is open in one session: its run, calls, asks and holds, and the hooks that wait.

Rules:
- Everything here is bounded: `OPEN_CALLS` (the same of those that delegate), `OPEN_ASKS`, twice
  `PAST` and `WAITING` entries at most, the oldest forgotten first; ids and names of `LONGEST`
  characters; `WAITING_CHARACTERS` of text in what waits. At its worst, with every bound reached and
  every character one of four bytes, a session is under 1.5 MB; a few kB as a rule. There are as
  many holds as shims that wait: connections have a limit of their own.
- It holds no content: ids, names, digests, flags and moments; a hook that waits keeps its draft,
  and a hold its answer for as long as it takes to log it. An instruction is its text, until that is
  delivered; how much of that there may be is for whoever takes instructions to say (`instruct`).

What the parts mean is in the rooms beside this one; how a state is kept on disk is `record.py`'s.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, TypeVar

from attrs import define, evolve, field, frozen

from kimiaepd.mapping.digest import digest
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSON
from kimiaepd.mapping.payloads import HookPayload

OPEN_CALLS = 256
OPEN_ASKS = 128
PAST = 256
WAITING = 64
WAITING_CHARACTERS = 100_000
LONGEST = 128

NOW_NS = (1 << 63) - 1
"""`Hook.started_ns` of what comes of no shim: an event's time is never later than now."""


@frozen
class Hook:
    """One hook as the lifecycles see it.

    Attributes:
        payload: what the vendor said.
        draft: what the mapping makes of it, were it to mean the ordinary thing.
        at: when it arrived, in seconds of a monotonic clock.
        started_ns: when its shim started, in nanoseconds of the wall clock.
        print: equal for two hooks of the same bytes.
    """

    payload: HookPayload
    draft: Draft
    at: float
    started_ns: int
    print: str = ""


class Emit(Protocol):
    """Stamps a draft and logs it; gives back the event's id."""

    def __call__(
        self, draft: Draft, hook: Hook, *, run: str | None = None, cause: str | None = None
    ) -> str:
        """Log `draft` as of the moment of `hook`."""
        ...


@define
class Run:
    """One activation: from a prompt to its terminal.

    Attributes:
        id: the run's own id: a ULID, or of the stream's turn where the stream opened it.
        started: the id of its run.started.
        at: when it began (monotonic seconds); None where that was in another process.
        by_stream: whether the stream opened it, and not a hook.
        turn: of one that a hook opened, the stream's name for it, once it is known.
    """

    id: str
    started: str
    at: float | None = None
    by_stream: bool = False
    turn: str | None = None


@define
class Call:
    """One tool call, from its request to its terminal, and for a while after.

    Attributes:
        id: the vendor's `tool_call_id`.
        name: the tool's name.
        print: equal for two requests of the same tool with the same input.
        requested: the id of its tool.requested; None where none was seen.
        run: the run that it belongs to.
        decided: whether the vendor's approval of it has come to something.
        terminal: the hook that ended it, once it has ended.
        abandoned: whether its run was interrupted, or ended with its session, before it ended.
        by_stream: whether the stream said that it began, and not a hook.
    """

    id: str
    name: str
    print: str = ""
    requested: str | None = None
    run: str | None = None
    at: float | None = None
    decided: bool = False
    terminal: str | None = None
    abandoned: bool = False
    by_stream: bool = False


@define
class Ask:
    """One approval that the vendor put to its user.

    Attributes:
        key: the approval's id, else its call's id, else the request's own event id.
        requested: the id of its attention.requested: the `subject` of every later event of it.
        agent_id: the agent that asks, where the vendor says so.
        print: equal for two requests for the same tool with the same input.
        asked_ns: when the shim of its request started (wall clock); 0 where that is not known.
        answered: the id of its attention.answered, where a process died before all that follows
            from it was logged: `Machine.settle` adds what is missing.
        is_resolved: whether the resolution is not missing; then it is the tool.denied.
        answered_ns: when the shim of that answer started (wall clock).
        decision: what that answer was; empty where the log does not say.
        by_stream: whether the stream said that it is asked, and not a hook.
        is_offered: of the stream's, whether it was offered with what can be answered.
    """

    key: str
    requested: str
    call_id: str | None = None
    run: str | None = None
    agent_id: str | None = None
    print: str = ""
    at: float | None = None
    asked_ns: int = 0
    answered: str | None = None
    is_resolved: bool = False
    answered_ns: int = 0
    decision: str = ""
    by_stream: bool = False
    is_offered: bool = False


@frozen
class PastAsk:
    """What is remembered of an ask that is over.

    Attributes:
        decision: its result; empty where it was dismissed.
        print: as the ask's own.
        asked_ns: as the ask's own.
        answered: the id of its attention.answered, where the stream told of it.
    """

    decision: str
    print: str
    asked_ns: int
    answered: str | None = None


@frozen
class HoldAnswer:
    """What somebody said of a held call, and was accepted.

    Attributes:
        option: the id of the option that is really applied.
        cause: the id of the command.
        text: the reason given with it.
    """

    option: str
    cause: str
    text: str | None = field(default=None, repr=False)  # a person's words


@define(eq=False)
class Hold:
    """One call that is kept from running until somebody answers, or nobody has.

    Attributes:
        requested: the id of its attention.requested: the `subject` of every later event of it.
        tool: the tool's name.
        call_id: the call that a refusal ends; None where none is known by its id.
        run: the run of the call.
        at: when it began (monotonic seconds); None where that was in another process.
        answer: the answer that was accepted; it is logged as the hold is concluded.
        answered: the id of its attention.answered, where a process died before all that follows
            from it was logged: `Machine.settle` adds what is missing.
        is_resolved: whether the resolution is not missing; then it is the tool.denied.
        option: what that answer was; empty where the log does not say.
        on_over: called once, as the hold is over.
    """

    requested: str
    tool: str
    call_id: str | None = None
    run: str | None = None
    at: float | None = None
    answer: HoldAnswer | None = None
    answered: str | None = None
    is_resolved: bool = False
    option: str = ""
    on_over: Callable[[], None] = lambda: None


class WaitKind(enum.Enum):
    """What a hook waits for before it is decided what it means."""

    PROMPT = "prompt"
    STOP = "stop"
    FAILURE = "failure"
    RESULT = "result"
    END = "end"


@define(eq=False)
class Wait:
    """A hook whose meaning is not decided yet.

    Attributes:
        logged: the id of the event under which it is in the log meanwhile; None where the hook's
            own reply waits instead.
        until: when it is decided at the latest, in monotonic seconds.
        on_done: called once, when its reply need not wait any more.
    """

    kind: WaitKind
    hook: Hook
    until: float
    logged: str | None = None
    on_done: Callable[[], None] = lambda: None


@define(eq=False)
class Instruction:
    """What a person said to the session from elsewhere; it goes with the next prompt.

    Attributes:
        command: the id of the command that it came with.
        text: what the model is to be told; empty where that was in another process.
        at: when it came (monotonic seconds); None where that was in another process.
        is_in_hand: whether a reply that holds it is on its way.
    """

    command: str
    text: str = field(default="", repr=False)  # a person's words, which no traceback may show
    at: float | None = None
    is_in_hand: bool = False


class Stage(enum.Enum):
    """How far the subagent of a delegating call is, as far as hooks without a call tell."""

    ASKED = "asked"
    BEGUN = "begun"
    STOPPED = "stopped"


@define
class Subagents:
    """What is known of subagents at work; `subagents.py` has the rules.

    Attributes:
        delegating: the calls that delegate and have not ended by name, by id, oldest first.
        late: until when a SubagentStop may still be that of a call that ended by name.
        background: subagents at work in the background.
    """

    delegating: dict[str, Stage] = field(factory=dict)
    late: list[float] = field(factory=list)
    background: int = 0


@define
class State:
    """One session, as far as it is open.

    Attributes:
        hooks_ns: until when hooks have told of runs, calls and asks (wall clock): what the stream
            says began before that is theirs.
        last_turn: the run that the stream closed last.
    """

    ended: bool = False
    asked_ever: bool = False
    run: Run | None = None
    calls: dict[str, Call] = field(factory=dict)
    past_calls: dict[str, Call] = field(factory=dict)
    asks: dict[str, Ask] = field(factory=dict)
    past_asks: dict[str, PastAsk] = field(factory=dict)
    holds: dict[str, Hold] = field(factory=dict)
    instructions: list[Instruction] = field(factory=list)
    subagents: Subagents = field(factory=Subagents)
    waits: list[Wait] = field(factory=list)
    last_of: dict[str, tuple[str, int]] = field(factory=dict)
    hooks_ns: int = 0
    last_turn: str = ""

    @property
    def is_open(self) -> bool:
        """Whether something has begun that has not ended."""
        return bool(self.run or self.calls or self.asks or self.holds or self.waits)

    @property
    def is_of_stream(self) -> bool:
        """Whether something of that was begun by the stream of `kimi web`."""
        begun = (self.run, *self.calls.values(), *self.asks.values())
        return any(one is not None and one.by_stream for one in begun)

    @property
    def is_unsettled(self) -> bool:
        """Whether `Machine.settle` has something to say."""
        answered = any(ask.answered for ask in self.asks.values())
        return bool(self.waits or self.holds or self.instructions) or answered


def short(name: str) -> str:
    """An id or a name that a state can keep: what is longer is cut, and told apart by a digest."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 33]}~{digest(name)}"


def with_short_names(hook: Hook) -> Hook:
    """The hook with names that a state can keep, as the vendor's are; its draft is as it was."""
    given = hook.payload
    named = (given.tool_name, given.tool_call_id, given.id, given.agent_id)
    if all(len(word) <= LONGEST for word in named if word):
        return hook
    tool_name, tool_call_id, ask_id, agent_id = (word and short(word) for word in named)
    payload = evolve(
        given, tool_name=tool_name, tool_call_id=tool_call_id, id=ask_id, agent_id=agent_id
    )
    return evolve(hook, payload=payload)


_K = TypeVar("_K")
_V = TypeVar("_V")


def remember(memory: dict[_K, _V], key: _K, value: _V, limit: int) -> None:
    """Put an entry last, and forget the oldest beyond the limit."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > limit:
        del memory[next(iter(memory))]


def with_fact(draft: Draft, name: str, value: JSON) -> Draft:
    """The draft with one more member at metadata; as it is where the value is None."""
    if value is None:
        return draft
    fact = Field((name,), Capture.METADATA, value)
    return Draft(draft.type, draft.subject, (*draft.fields, fact), draft.severity)


def milliseconds(since: float | None, now: float) -> int | None:
    """Whole milliseconds between two monotonic moments; None where the first is not known."""
    return None if since is None else max(0, round((now - since) * 1000))
