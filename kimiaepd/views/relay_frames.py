"""The frames of AEP-0003 as a consumer has them: a relay's text in, values out, and ours.

Rules:
- A frame's type has no dot, an event's has one; frames that nobody knows are ignored (section 2).
- What a relay sends is never trusted to be whole: any member may be missing or of another type.

Pure. The emitter's side of the same is `kimiaepd/relay/frames.py`, which reads what both hear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen

from kimiaepd.log_lines import tame
from kimiaepd.mapping.event import VERSION, Capture
from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, dump, parse

_CODE = 100
"""Characters of an error's code that are kept."""

_LONGEST_T = 1_024
"""Bytes of a ping's `t`; a ping with more is ignored, because its answer would have to be kept."""


@frozen
class Hello:
    """The relay's hello.

    Attributes:
        versions: of the standard, that it speaks with us.
        has_roster: whether it says who is connected.
    """

    versions: tuple[str, ...]
    has_roster: bool


@frozen
class Subscribed:
    """A subscription stands."""

    name: str


@frozen
class Roster:
    """Who claims what; the answer to `name`."""

    name: str
    entries: tuple[JSONObject, ...]


@frozen
class Missing:
    """Of a session, something before what comes next is held no more."""

    session: str


@frozen
class Refusal:
    """An `error` frame.

    Attributes:
        code: its code; "unknown" where it has none.
        name: the subscription or the roster that it is about.
        cause: the id of the event that it is about.
        detail: the relay's words, cut, fit for a terminal.
    """

    code: str
    name: str | None
    cause: str | None
    detail: str


@frozen
class Ping:
    """The relay asks whether we live; `t` goes back as it came."""

    t: JSON


@frozen
class Closing:
    """The relay is about to close."""

    reason: str


@frozen
class Came:
    """An event."""

    event: JSONObject


Frame: TypeAlias = Hello | Subscribed | Roster | Missing | Refusal | Ping | Closing | Came


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
    return Came(value) if "." in kind else _read(kind, value)


def _read(kind: str, value: JSONObject) -> Frame | None:
    reader = _READERS.get(kind)
    return reader(value) if reader else None


def _hello(value: JSONObject) -> Hello:
    capabilities = value.get("capabilities")
    has_roster = isinstance(capabilities, dict) and "roster" in capabilities
    return Hello(_texts(value.get("versions")), has_roster)


def _missing(value: JSONObject) -> Missing | None:
    session = _text(value.get("session"))
    return None if session is None else Missing(session)


def _refusal(value: JSONObject) -> Refusal:
    code, detail = _text(value.get("code")), _text(value.get("detail"))
    return Refusal(
        tame(code or "unknown")[:_CODE],
        _text(value.get("id")),
        _text(value.get("cause")),
        tame(detail or ""),
    )


def _ping(value: JSONObject) -> Ping | None:
    t = value.get("t")
    try:
        return Ping(t) if len(dump(t)) <= _LONGEST_T else None
    except RecursionError:  # nested as deep as can be read, and deeper than can be written
        return None


_READERS: dict[str, Callable[[JSONObject], Frame | None]] = {
    "hello": _hello,
    "subscribed": lambda value: Subscribed(_text(value.get("id")) or ""),
    "roster": lambda value: Roster(_text(value.get("id")) or "", _objects(value.get("entries"))),
    "replay-exhausted": _missing,
    "error": _refusal,
    "ping": _ping,
    "closing": lambda value: Closing(tame(_text(value.get("reason")) or "it does not say why")),
}


def _text(value: JSON) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: JSON) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _objects(value: JSON) -> tuple[JSONObject, ...]:
    return tuple(one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


# --- ours ----------------------------------------------------------------------------------------


def hello(agent: str, instance: str) -> str:
    """Our first frame: a consumer that claims nothing."""
    return _frame(
        {
            "type": "hello",
            "versions": [VERSION],
            "role": "consumer",
            "identity": {"agent": agent, "instance": instance, "card": None},
            "capabilities": {},
        }
    )


def subscribe(name: str, filter_: JSONObject, since: JSON = None, ceiling: JSON = None) -> str:
    """Ask for events.

    Args:
        name: of the subscription.
        filter_: which events (attr-match).
        since: "all", or a list of positions; None: from now on.
        ceiling: how much of them at most, by its word; None: as they came.
    """
    frame: JSONObject = {"type": "subscribe", "id": name, "filter": filter_}
    if since is not None:
        frame["from"] = since
    if ceiling is not None:
        frame["capture"] = ceiling
    return _frame(frame)


def roster(name: str) -> str:
    """Ask who claims what."""
    return _frame({"type": "roster", "id": name})


def ping(t: int) -> str:
    """Ask whether the relay lives."""
    return _frame({"type": "ping", "t": t})


def pong(t: JSON) -> str:
    """The answer to theirs."""
    return _frame({"type": "pong", "t": t})


def event(value: JSONObject) -> str:
    """An event of ours: a command."""
    return _frame(value)


def ceiling_word(ceiling: Capture | None) -> JSON:
    """A ceiling as the wire writes it."""
    return None if ceiling is None else ceiling.word


def positions(found: Sequence[tuple[str, tuple[int, int]]]) -> JSON:
    """Positions as `from` wants them."""
    return [{"session": name, "epoch": epoch, "seq": seq} for name, (epoch, seq) in found]


def _frame(value: JSONObject) -> str:
    return dump(value).decode("utf-8")
