"""The frames of AEP-0003 sections 2 to 4, as far as an emitter needs them: text in, values out.

Rules:
- A frame's type has no dot, an Event's has one; frames that nobody knows are ignored (section 2).
- What a relay sends is never trusted to be whole: any member may be missing or of another type.
- Binary messages are reserved (section 3.5 rule 2), and ignored.

Pure. What a frame leads to is `link.py`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen

from kimiaepd.mapping.event import AGENT, VERSION, Capture
from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, dump, parse

ACK_WINDOW_MS = 10_000
"""Within which a command gets its answer (AEP-0004 section 3)."""

EMITS = (
    "agent",
    "session",
    "run",
    "tool",
    "delegation",
    "attention",
    "progress",
    "error",
    "control",
    "x",
)

_DETAIL = 200
"""Characters of a relay's own words that are kept."""

_LONGEST_T = 1_024
"""Bytes of a ping's `t`; a ping with more is ignored, because its answer would have to be kept."""


@frozen
class PeerHello:
    """The relay's hello.

    Attributes:
        versions: what it says of versions; in an answer exactly one.
    """

    versions: tuple[str, ...]


@frozen
class Ping:
    """The relay asks whether we live; `t` goes back as it came."""

    t: JSON


@frozen
class Pong:
    """The answer to our own ping."""

    t: JSON


@frozen
class Closing:
    """The relay is about to close."""

    reason: str


@frozen
class Refusal:
    """An `error` frame.

    Attributes:
        code: its code; "unknown" where it has none.
        cause: the id of the event that it is about, where it is about one.
        detail: the relay's words, cut.
    """

    code: str
    cause: str | None
    detail: str


@frozen
class Incoming:
    """An Event from the relay: a command, or something that is not for us."""

    event: JSONObject


Frame: TypeAlias = PeerHello | Ping | Pong | Closing | Refusal | Incoming


def read_frame(message: str | bytes) -> Frame | None:
    """What a message is; None for what is to be ignored: garbage, binary, unknown frames."""
    if isinstance(message, bytes):
        return None
    try:
        value = parse(message.encode("utf-8", "replace"))
    except MalformedJSONError:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        return None
    if "." in kind:
        return Incoming(value)
    reader = _READERS.get(kind)
    try:
        return reader(value) if reader else None
    except RecursionError:  # nested as deep as can be read, and deeper than can be written
        return None


def _read_hello(value: JSONObject) -> PeerHello:
    versions = value.get("versions")
    found = versions if isinstance(versions, list) else []
    return PeerHello(tuple(one for one in found if isinstance(one, str)))


def _read_error(value: JSONObject) -> Refusal:
    cause = value.get("cause")
    return Refusal(
        code=_text(value.get("code")) or "unknown",
        cause=cause if isinstance(cause, str) else None,
        detail=_text(value.get("detail")),
    )


def _read_ping(value: JSONObject) -> Ping | None:
    t = value.get("t")
    return Ping(t) if len(dump(t)) <= _LONGEST_T else None


_READERS: dict[str, Callable[[JSONObject], Frame | None]] = {
    "hello": _read_hello,
    "ping": _read_ping,
    "pong": lambda value: Pong(value.get("t")),
    "closing": lambda value: Closing(_text(value.get("reason"))),
    "error": _read_error,
}


def hello(instance: str, highest: Capture, accepts: Sequence[str]) -> str:
    """Our first frame.

    Args:
        instance: which process of this agent we are: host and epoch.
        highest: the highest level at which anything is ever sent.
        accepts: the command types that are answered; none without a token.
    """
    capabilities: JSONObject = {
        "emits": list(EMITS),
        "capture": [level.word for level in Capture if level <= highest],
        "control": {"accepts": list(accepts), "ack_window_ms": ACK_WINDOW_MS},
        "replay": {"buffer": 0},
        "filters": [],
        "experimental": {},
    }
    return _frame(
        {
            "type": "hello",
            "versions": [VERSION],
            "role": "emitter",
            "identity": {"agent": AGENT, "instance": instance, "card": None},
            "capabilities": capabilities,
        }
    )


def ping(t: int) -> str:
    """Our own ping."""
    return _frame({"type": "ping", "t": t})


def pong(t: JSON) -> str:
    """The answer to theirs."""
    return _frame({"type": "pong", "t": t})


def closing(reason: str) -> str:
    """The word before an orderly close (section 3.5 rule 4); an emitter delivers to nobody."""
    return _frame({"type": "closing", "reason": reason, "delivered": []})


def _frame(value: JSONObject) -> str:
    return dump(value).decode("utf-8")


def _text(value: JSON) -> str:
    if isinstance(value, str):
        return value[:_DETAIL]
    return "" if value is None else json.dumps(value)[:_DETAIL]
