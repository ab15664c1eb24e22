"""Commands: an event that wants something of a session, and what became of it (AEP-0004).

Rules:
- A command is an event without a `seq`: the session that it names is another's (AEP-0001 section
  5.2). Its id is its identity: sent again, it is done once.
- Who answers is the session's emitter, by an event whose `cause` is the command; or the relay, by
  an error of the connection, where there is no way there; or nobody, in time.

Sending it is `relay_consumer.py`'s business.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TypeAlias
from urllib.parse import quote

from attrs import frozen
from ulid import ULID

from kimiaepd.log_lines import tame
from kimiaepd.mapping.event import VERSION, Capture
from kimiaepd.mapping.json_value import JSON, JSONObject, without_surrogates

AGENT = "kimiaepd"
"""Who we are, as a sender of commands."""

RESPOND = "control.attention.respond"
CANCEL = "control.cancel"
INSTRUCT = "x.kimi-code.control.instruct"

ACCEPTED, REJECTED = "control.accepted", "control.rejected"
ACKS: tuple[JSON, ...] = (ACCEPTED, REJECTED)

By: TypeAlias = Literal["session", "relay", "nobody"]


@frozen
class Outcome:
    """What became of a command.

    Attributes:
        by: who said so: the session's emitter; the relay, which found no way there; or nobody did.
        reason: "accepted"; the standard's word for why not ("unsupported", "unauthorized", "busy",
            "refused", "invalid", and of a relay "ambiguous" and "no-route"); or "timeout".
        detail: for people, fit for a terminal; may be empty.
        ack: the event that says so, where one does.
    """

    by: By
    reason: str
    detail: str = ""
    ack: JSONObject | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether it was accepted."""
        return self.reason == "accepted"


def build(
    kind: str,
    session: str,
    *,
    subject: str | None = None,
    cause: str | None = None,
    run: str | None = None,
    data: JSONObject | None = None,
    capture: Capture = Capture.METADATA,
    new_id: Callable[[], object] = ULID,
) -> JSONObject:
    """A command, complete.

    Args:
        kind: its type, such as `RESPOND`.
        session: whom it is for.
        subject: the event that it is about: of an answer, the id of the ask.
        cause: the event that led to it.
        run: the run that it is about.
        data: its payload.
        capture: the level of what is in it: a person's words are `REDACTED`.
        new_id: makes its id.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    said: JSONObject = {
        "aep": VERSION,
        "id": str(new_id()),
        "type": kind,
        "subject": subject,
        "time": f"{now}Z",
        "source": f"aep://{quote(host(), safe='')}/agent/{AGENT}",
        "agent": AGENT,
        "session": session,
        "run": run,
        "cause": cause,
        "capture": capture.word,
        "data": data,
    }
    return {key: value for key, value in said.items() if value is not None}


def host() -> str:
    """This machine, as a URI has it."""
    return without_surrogates(socket.gethostname()) or "localhost"


def outcome_of(ack: JSONObject) -> Outcome:
    """What an acknowledgement says."""
    if ack.get("type") == ACCEPTED:
        return Outcome("session", "accepted", ack=ack)
    data = ack.get("data")
    said = data if isinstance(data, dict) else {}
    reason, detail = said.get("reason"), said.get("detail")
    return Outcome(
        "session",
        tame(reason) if isinstance(reason, str) and reason != "accepted" else "invalid",
        tame(detail) if isinstance(detail, str) else "",
        ack,
    )
