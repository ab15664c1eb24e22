"""Control intake (AEP-0004): dedupe, decide, acknowledge once, and remember the answer.

Rules:
- One decision a command, whatever is repeated: `(source, id)` is the key. A repeated command gets
  the recorded acknowledgement again, byte for byte, and nothing is done twice (section 3).
- What is accepted is what somebody registered: with nothing registered, everything is
  "unsupported". Without an authenticated connection everything is "unauthorized" (section 4).
- The acknowledgement is an ordinary event of its session, with `cause` the command. For a session
  that is not known it is sent and not logged; it has a place in its order all the same, because an
  event about a session without one is none (AEP-0001 section 5.2).
- The answer does not wait: a handler decides at once, and what comes of it are events of its own,
  after the acknowledgement (`Decision.then`): so a log tells them in the order of their causes.
- Nobody needs many commands: beyond `BURST` at once and `PER_SECOND` they are "busy", and that is
  not logged, so that no relay can fill the disk.

It does not know what a command means; `gate`, `instruct` and the web channel register that. The
dedupe memory lives as long as the daemon: `MOST` commands, the oldest forgotten first. With the
acknowledgements that is 4 MiB where ids are as they should be, and 30 MiB at worst.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, TypeAlias

import structlog
from attrs import define, field, frozen

from kimiaepd.mapping.event import Capture, Draft, Field, is_command
from kimiaepd.mapping.json_value import JSON, JSONObject

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MOST = 4_096
LONGEST_KEY = 256
"""Characters of a command's id, source and session each; a longer one is no command."""

BURST = 200
PER_SECOND = 2.0
"""Commands that are decided: so many at once, and so many a second later on."""

Reason: TypeAlias = Literal["unsupported", "unauthorized", "busy", "refused", "invalid"]
"""Why a command is rejected: the standard's closed set."""


@frozen
class Command:
    """A command as it came.

    Attributes:
        id: its id; with `source` the key of the dedupe.
        source: who sent it, as it says itself.
        type: `control.{verb}` or a vendor's own.
        session: the session that it is for.
        subject: the event that it is about: the ask that it answers.
        data: its payload.
    """

    id: str
    source: str
    type: str
    session: str
    subject: str | None
    data: JSONObject = field(repr=False)  # a person's words, which no traceback may show


@frozen
class Decision:
    """The answer to a command.

    Attributes:
        reason: None where it is accepted.
        detail: for people; rides at `redacted`.
        then: what is done once the answer is in the log.
    """

    reason: Reason | None = None
    detail: str | None = None
    then: Callable[[], object] | None = field(default=None, eq=False, repr=False)


ACCEPTED = Decision()
TOO_MUCH = Decision("busy", "too many commands")

Handler: TypeAlias = Callable[[Command], Decision]

Acknowledge: TypeAlias = Callable[[Command, Draft], bytes]
"""Logs or sends an acknowledgement; gives back its line, without a newline."""


def read_command(event: JSONObject) -> Command | None:
    """The command that an event is; None where it is none, or lacks what makes one."""
    kind = event.get("type")
    if not isinstance(kind, str) or not _wants_an_answer(kind):
        return None
    key = [_key(event.get(name)) for name in ("id", "source", "session")]
    subject, data = event.get("subject"), event.get("data")
    if not (key[0] and key[1] and key[2]):
        return None
    return Command(
        id=key[0],
        source=key[1],
        type=kind,
        session=key[2],
        subject=subject if isinstance(subject, str) else None,
        data=data if isinstance(data, dict) else {},
    )


_ANSWERS = ("control.accepted", "control.rejected")
"""Somebody else's, which a relay fans out."""


def _wants_an_answer(kind: str) -> bool:
    """Whether it is a command, or a verb that the standard does not know yet: "unsupported"."""
    return is_command(kind) or (kind.startswith("control.") and kind not in _ANSWERS)


def _key(value: JSON) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_KEY else None


@define(eq=False)
class Commands:
    """The commands of all sessions.

    Attributes:
        is_known: whether there is, or was, a session of this id.
        acknowledge: see `Acknowledge`.
        decline: the same for an answer that is not logged.
        again: sends a recorded acknowledgement once more.
        is_authenticated: whether the connection they come over is.
        came: told of each one, whatever becomes of it: somebody is there.
        clock: seconds, monotonic.
        taken: commands that were decided, by what came of it.
        repeated: commands that came again.
        ignored: events from the relay that are no command.
    """

    is_known: Callable[[str], bool]
    acknowledge: Acknowledge
    again: Callable[[bytes], object]
    is_authenticated: Callable[[], bool]
    decline: Acknowledge
    came: Callable[[], object] = lambda: None
    clock: Callable[[], float] = time.monotonic
    taken: dict[str, int] = field(factory=dict)
    repeated: int = 0
    ignored: int = 0
    _allowance: float = BURST
    _counted_at: float = float("-inf")
    _handlers: dict[str, Handler] = field(factory=dict)
    _recorded: OrderedDict[tuple[str, str], bytes] = field(factory=OrderedDict)

    def register(self, kind: str, handler: Handler) -> None:
        """Accept commands of a type from now on; `hello` says so at the next connection."""
        self._handlers[kind] = handler

    @property
    def accepts(self) -> tuple[str, ...]:
        """The types that are accepted, in order."""
        return tuple(sorted(self._handlers))

    def take(self, event: JSONObject) -> None:
        """Take what the relay sent; it never raises."""
        command = read_command(event)
        if command is None:
            self.ignored += 1
            return
        self.came()
        key = (command.source, command.id)
        if recorded := self._recorded.get(key):
            self.repeated += 1
            self.again(recorded)
            return
        is_too_much = self._is_too_much()
        decision = TOO_MUCH if is_too_much else self._decide(command)
        outcome = decision.reason or "accepted"
        self.taken[outcome] = self.taken.get(outcome, 0) + 1
        answer = self.decline if is_too_much else self.acknowledge
        self._recorded[key] = answer(command, _draft(decision))
        if len(self._recorded) > MOST:
            self._recorded.popitem(last=False)
        if decision.then:
            self._do(command, decision.then)

    def _is_too_much(self) -> bool:
        now = self.clock()
        regained = (now - self._counted_at) * PER_SECOND
        self._allowance = min(BURST, self._allowance + regained)
        self._counted_at = now
        if self._allowance < 1:
            return True
        self._allowance -= 1
        return False

    def _decide(self, command: Command) -> Decision:
        handler = self._handlers.get(command.type)
        if not self.is_authenticated():
            return Decision("unauthorized")
        if handler is None:
            return Decision("unsupported")
        if not self.is_known(command.session):
            return Decision("invalid", "no such session")
        try:
            return handler(command)
        except Exception:
            # A defect of one handler must not end delivery.
            log.exception("a command's handler failed", type=command.type)
            return Decision("refused", "the handler failed")

    def _do(self, command: Command, then: Callable[[], object]) -> None:
        try:
            then()
        except Exception:
            log.exception("what comes of a command failed", type=command.type)


def _draft(decision: Decision) -> Draft:
    if decision.reason is None:
        return Draft("control.accepted")
    fields = [Field(("reason",), Capture.METADATA, decision.reason)]
    if decision.detail:
        fields.append(Field(("detail",), Capture.REDACTED, decision.detail))
    return Draft("control.rejected", None, tuple(fields))
