"""The frames of `kimi web` as a type: what the envelope says, and the payload in the hooks' words.

A frame's payload says what a hook says, in other words (`toolCallId`, `args`, `output`). It is
brought to the hooks' words here, so that one lenient reader and one table of levels serve both.

    envelope        type, seq, session_id, epoch, timestamp, volatile, payload
    every payload   sessionId, agentId
    turns           turnId, origin {kind}, prompt (from 0.42.0); reason, error {code, message}
    tools           turnId, toolCallId, name, args; output, isError (absent means success)
    approvals       approval_id, tool_call_id, tool_name, action, tool_input_display, turn_id,
                    agent_id (from 0.42.0); decision, feedback, selected_label
    questions       question_id, tool_call_id, questions; answers

Rules: any field may be missing, of another type or huge. A field of the wrong type counts as
missing, what is no object is an empty frame, and nothing here raises. The payload is not looked at
before somebody asks (`words`): most frames are never more than their type.

A frame of `__global__` belongs to the session that its payload names; one that names none has the
session `UNKNOWN_SESSION`, as a hook without one has. It does not say what a frame means (`web.py`).
"""

from __future__ import annotations

from typing import Final

import cattrs
from attrs import field, frozen
from cattrs.gen import make_dict_structure_fn

from kimiaepd.mapping.digest import digest
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.moment import moment_ns
from kimiaepd.mapping.payloads import LONGEST_SESSION, UNKNOWN_SESSION, HookPayload, read_payload

MAIN: Final = "main"
"""The agent whose turns are the session's runs; a frame that names no agent is its own."""

GLOBAL: Final = "__global__"
"""The session of the frames that belong to the whole server."""

TURN: Final = "-turn-"
"""Between the journal and the number in the name of a run that the stream opens; in no ULID."""

LONGEST: Final = 128
"""Characters of an id that is remembered; a longer one is cut, and told apart by a digest."""


@frozen(kw_only=True)
class Frame:
    """One frame of the stream, as far as its envelope goes.

    Attributes:
        type: the vendor's word; empty where there is none.
        session: the session that it belongs to.
        seq: its place in the journal; None for what is no part of one.
        epoch: the journal's own; a caller who knows it better may `evolve` the frame.
        said_ns: when the server said it (wall clock); None where it does not say.
        is_volatile: whether the vendor marked it as not worth keeping.
        is_of_a_journal: whether it says a session or a seq; what says neither is the connection's.
    """

    type: str = ""
    session: str = UNKNOWN_SESSION
    seq: int | None = None
    epoch: str | None = None
    said_ns: int | None = None
    is_volatile: bool = False
    is_of_a_journal: bool = False
    payload: JSONObject = field(factory=dict, repr=False)

    @property
    def agent(self) -> str:
        """The agent that it is about."""
        return self.word("agentId") or MAIN

    def word(self, name: str) -> str | None:
        """A member of the payload that is text, and not empty."""
        return _word(self.payload.get(name), None)

    def flag(self, name: str) -> bool | None:
        """A member of the payload that is true or false."""
        return _flag(self.payload.get(name), None)


def read_frame(value: JSON) -> Frame:
    """Type one parsed frame. Never raises."""
    if not isinstance(value, dict):
        return Frame()
    frame: Frame = _CONVERTER.structure(_placed(value), Frame)
    return frame


def words(frame: Frame) -> HookPayload:
    """A frame's payload as a hook would have said it. Never raises."""
    said: JSONObject = {"session_id": frame.session}
    for there, here in _WORDS:
        if (value := frame.payload.get(there)) is not None:
            said[here] = value
    origin, error = frame.payload.get("origin"), frame.payload.get("error")
    if isinstance(origin, dict):
        said["origin_kind"] = origin.get("kind")
    if isinstance(error, dict):
        said |= {"error_type": error.get("code"), "error_message": error.get("message")}
    return read_payload(said)


def short(name: str) -> str:
    """An id that can be remembered."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 33]}~{digest(name)}"


_WORDS = (
    ("toolCallId", "tool_call_id"),
    ("tool_call_id", "tool_call_id"),
    ("name", "tool_name"),
    ("tool_name", "tool_name"),
    ("args", "tool_input"),
    ("output", "tool_output"),
    ("turnId", "turn_id"),
    ("turn_id", "turn_id"),
    ("prompt", "prompt"),
    ("reason", "reason"),
    ("approval_id", "id"),
    ("question_id", "id"),
    ("action", "action"),
    ("tool_input_display", "display"),
    ("decision", "decision"),
    ("feedback", "feedback"),
    ("selected_label", "selected_label"),
)
"""What the stream calls it, what the hooks call it."""


def _placed(envelope: JSONObject) -> JSONObject:
    """The envelope with the session that the frame really belongs to."""
    payload = envelope.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    session = envelope.get("session_id")
    placed: JSONObject = {
        **envelope,
        "payload": payload,
        "is_of_a_journal": isinstance(session, str)
        or _count(envelope.get("seq"), None) is not None,
    }
    if session == GLOBAL:
        named = payload.get("sessionId")
        placed["session_id"] = None if named == GLOBAL else named
    return placed


# --- lenient readers: the wrong type is the same as nothing ----------------------------------


def _word(value: object, _: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _text(value: object, _: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object, _: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _flag(value: object, _: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _session(value: object, _: object) -> str:
    if isinstance(value, str) and value.isascii() and 0 < len(value) <= LONGEST_SESSION:
        return value  # as nearly every frame's is; the rest is a matter for the hooks' own reader
    return read_payload({"session_id": value if isinstance(value, str) else None}).session


_CONVERTER = cattrs.Converter(detailed_validation=False)
_CONVERTER.register_structure_hook(
    Frame,
    make_dict_structure_fn(
        Frame,
        _CONVERTER,
        _cattrs_detailed_validation=False,
        type=cattrs.override(struct_hook=_text),
        session=cattrs.override(rename="session_id", struct_hook=_session),
        seq=cattrs.override(struct_hook=_count),
        epoch=cattrs.override(struct_hook=_word),
        said_ns=cattrs.override(rename="timestamp", struct_hook=lambda v, _: moment_ns(v)),
        is_volatile=cattrs.override(rename="volatile", struct_hook=lambda v, _: v is True),
        is_of_a_journal=cattrs.override(struct_hook=lambda v, _: v is True),
        payload=cattrs.override(struct_hook=lambda v, _: v),
    ),
)
