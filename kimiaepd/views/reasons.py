"""What becomes of a command, in words for people: one table of reasons, and how late is late.

Rules:
- A reason says what it means for this kind of command, and what to do where something can be done.
- A session's emitter may say more (`detail`, where its capture level lets it): that stands beside.

Pure.
"""

from __future__ import annotations

from kimiaepd.views import words
from kimiaepd.views.asks import Ending
from kimiaepd.views.relay_command import CANCEL, INSTRUCT, RESPOND, Outcome

REASONS = {
    "unsupported": "the session's daemon takes no such command",
    "unauthorized": "not allowed: this token may only look",
    "busy": "there are too many commands; try again in a moment",
    "refused": "the session's daemon refuses it",
    "invalid": "it does not fit what is there now",
    "ambiguous": "two daemons claim this session, so neither was told",
    "no-route": "no daemon claims this session now: it is not connected, or the session is over",
    "timeout": "nobody answered in time; it may have been taken all the same",
}
"""By the standard's word; "timeout" is ours."""

REASONS_OF = {
    (RESPOND, "unsupported"): "nothing can be answered there: gate.enabled is not set",
    (RESPOND, "invalid"): "it is none of the answers that are offered, or the ask is over",
    (CANCEL, "unsupported"): (
        "runs cannot be cancelled there: only those of kimi web can,"
        ' with web.mode = "primary" and web.control = true'
    ),
    (CANCEL, "invalid"): "no run of kimi web is open there, or not this one",
    (INSTRUCT, "unsupported"): "no instructions are taken there: instruct.enabled is not set",
    (INSTRUCT, "invalid"): (
        "it is empty, has more than 4000 characters, 20 wait already, or the session is over"
    ),
}
"""The same where it means more for one kind of command."""


def why(kind: str, outcome: Outcome) -> str:
    """Why a command was not accepted.

    Args:
        kind: its type.
        outcome: what became of it.
    """
    reason = outcome.reason
    said = REASONS_OF.get((kind, reason)) or REASONS.get(reason) or words.harmless(reason)
    has_more = outcome.detail and outcome.by == "session"
    return f"{said} ({words.harmless(outcome.detail)})" if has_more else said


def late(ending: Ending) -> str:
    """Why an answer to an ask that has ended came too late."""
    if ending.how == "timeout":
        return "too late: it was let go at its deadline"
    if ending.how == "dismissed":
        return "too late: the call was given up"
    option = f": {words.harmless(ending.option)}" if ending.option else ""
    if ending.via == "oob":
        return f"too late: it was answered at the agent's own screen{option}"
    return f"somebody answered first{option}"


def ended(ending: Ending) -> str:
    """How an ask ended, where nobody is too late for it."""
    match ending.how:
        case "timeout":
            return "let go at its deadline"
        case "dismissed":
            return "given up"
    option = words.harmless(ending.option) if ending.option else "answered"
    return f"{option}, at the agent's own screen" if ending.via == "oob" else option
