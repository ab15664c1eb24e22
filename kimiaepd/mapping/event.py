"""Event, the envelope of AEP-0001 section 5, and Draft, what a mapping yields before it is stamped.

Rules:
- A Draft knows the type, the subject, the severity and its data as fields, each with the lowest
  capture level at which it may ride. It knows no id, no time, no session: `emitter` stamps those.
- An Event is a Draft gated to a ceiling and stamped. Its attributes are written in the order of the
  standard's table, and absent optional ones are left out, never null.

It does not gate (`capture.py`) and does not validate what others wrote (`validate.py`).
"""

from __future__ import annotations

import enum
import re
from typing import Literal, TypeAlias

from attrs import field, frozen

from kimiaepd.mapping.json_value import JSON, JSONObject, dump

VERSION = "0.1"
AGENT = "kimi-code"

Severity: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical"]
SEVERITIES: tuple[Severity, ...] = ("debug", "info", "notice", "warning", "error", "critical")

CATEGORIES = (
    *("agent", "session", "run", "progress", "tool", "delegation", "attention"),
    *("resource", "error", "state", "assessment", "message", "control", "x"),
)
"""The closed set of AEP-0002 section 3: the first word of a type."""

CORE_COMMANDS = frozenset(
    f"control.{verb}" for verb in ("attention.respond", "cancel", "pause", "resume")
)
_VENDOR_COMMAND = re.compile(r"x\.[a-z0-9_-]+\.control(\.[a-z0-9_]+)+")


def is_command(event_type: str) -> bool:
    """Whether events of a type are commands: they name a session and have no `seq` in it.

    Source: AEP-0001 section 5.2, the exception, and AEP-0004 section 5. The acknowledgements,
    control.accepted and control.rejected, are ordinary events of the session that answers.
    """
    if event_type.startswith("control."):
        return event_type in CORE_COMMANDS
    return event_type.startswith("x.") and _VENDOR_COMMAND.fullmatch(event_type) is not None


class Capture(enum.IntEnum):
    """The capture levels of AEP-0001 section 8.2, ordered."""

    NONE = 0
    METADATA = 1
    REDACTED = 2
    FULL = 3

    @property
    def word(self) -> str:
        """The level as the wire writes it."""
        return self.name.lower()


@frozen
class Field:
    """One member of a draft's data.

    Attributes:
        path: where it goes, outermost key first.
        level: the lowest level at which it rides. A field of level `REDACTED` passes the redaction
            pipeline whatever the ceiling is; one of `METADATA` or `FULL` rides as it is.
        value: what rides.
        below: what rides instead at `METADATA`, for the fields that the standard wants synthesised
            there (AEP-0003 section 9.2); None where nothing does.
    """

    path: tuple[str, ...]
    level: Capture
    value: JSON
    below: JSON = None


@frozen
class Draft:
    """What a hook or a frame says, before it has a place in a session's order."""

    type: str
    subject: str | None = None
    fields: tuple[Field, ...] = ()
    severity: Severity | None = None


@frozen(kw_only=True)
class Event:
    """One AEP event, complete. Attributes stand in the standard's table order."""

    id: str
    type: str
    subject: str | None = None
    time: str
    source: str
    agent: str = AGENT
    session: str | None = None
    run: str | None = None
    seq: int | None = None
    epoch: int | None = None
    cause: str | None = None
    severity: Severity | None = None
    capture: Capture = Capture.METADATA
    data: JSONObject | None = field(default=None)

    def to_wire(self) -> JSONObject:
        """The event as a JSON object, in table order, without what is absent."""
        wire: JSONObject = {
            "aep": VERSION,
            "id": self.id,
            "type": self.type,
            "subject": self.subject,
            "time": self.time,
            "source": self.source,
            "agent": self.agent,
            "session": self.session,
            "run": self.run,
            "seq": self.seq,
            "epoch": self.epoch,
            "cause": self.cause,
            "severity": self.severity,
            "capture": self.capture.word,
            "data": self.data,
        }
        return {key: value for key, value in wire.items() if value is not None}

    def to_line(self) -> bytes:
        """The event as one line of a log, newline included."""
        return dump(self.to_wire()) + b"\n"
