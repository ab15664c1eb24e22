"""What a session's story is made of: runs, calls, asks, and notes of anything else.

Texts stand here as they came, cut; whoever prints them makes them harmless. Pure, and plain data:
what events make of it is `story.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from attrs import define

RunOutcome: TypeAlias = Literal["open", "finished", "failed", "cancelled"]
CallOutcome: TypeAlias = Literal["open", "completed", "failed", "denied"]
AskOutcome: TypeAlias = Literal["open", "answered", "auto", "dismissed", "timed out"]


@define(eq=False)
class Run:
    """What one prompt led to.

    Attributes:
        id: its id.
        began, ended: when; None where that was not seen.
        ms: how long it took.
        outcome: how it ended.
        trigger: what began it.
        prompt: what was asked, where the capture level has it.
        why: what its end says.
    """

    id: str
    began: datetime | None = None
    ended: datetime | None = None
    ms: float | None = None
    outcome: RunOutcome = "open"
    trigger: str = ""
    prompt: str = ""
    why: str = ""


@define(eq=False)
class Call:
    """One tool call.

    Attributes:
        id: the vendor's id of it, or its event's where it has none.
        tool: which tool.
        run: the run that it is of.
        began, ended: when; None where that was not seen.
        ms: how long it took.
        outcome: how it ended.
        what: its input, where the capture level has it.
        why: what its end says.
    """

    id: str
    tool: str
    run: str | None = None
    began: datetime | None = None
    ended: datetime | None = None
    ms: float | None = None
    outcome: CallOutcome = "open"
    what: str = ""
    why: str = ""


@define(eq=False)
class Ask:
    """Something that a person was asked.

    Attributes:
        id: of its event.
        tool: what it is about.
        run: the run that it is of.
        kind: "permission", "form", ...
        prompt: what is asked.
        is_ours: whether it can be answered from elsewhere; else at the terminal alone.
        began, ended: when.
        expires: until when it can be answered, where it says so.
        outcome: how it ended.
        option, text: the answer.
        via: "control" from elsewhere, "oob" at the terminal.
        by: who answered, where the event says so.
        ms: how long it waited.
    """

    id: str
    tool: str = ""
    run: str | None = None
    kind: str = ""
    prompt: str = ""
    is_ours: bool = False
    began: datetime | None = None
    ended: datetime | None = None
    expires: datetime | None = None
    outcome: AskOutcome = "open"
    option: str = ""
    text: str = ""
    via: str = ""
    by: str = ""
    ms: float | None = None

    def waits(self, now: datetime) -> bool:
        """Whether it still waits for an answer."""
        return self.outcome == "open" and (self.expires is None or now < self.expires)


@define(eq=False)
class Note:
    """Anything else that people should know.

    Attributes:
        at: when.
        kind: "session", "gap", "error", "gate", "instruction", "subagent" or "daemon".
        text: what happened.
        count: of what, where it is about many.
        run: the run that it is of.
    """

    at: datetime | None
    kind: str
    text: str
    count: int | None = None
    run: str | None = None


Row: TypeAlias = Run | Call | Ask | Note
