"""The connection's own messages on the stream of `kimi web`: what is sent, and what is no frame.

Rules:
- A cursor is never sent as null: a 0.28.0 server dies of one (observed).
- What the server says is read leniently: an acknowledgement without a list has an empty one.

Observed at 0.28.0, 0.42.0 and 2.1.0. What journals hold is `mapping.web_frames`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.web.cursors import Cursor

PATH = "/ws"
"""Below the base of the REST calls."""


def hello(client: str) -> JSONObject:
    """The first message; it subscribes to nothing."""
    return {
        "type": "client_hello",
        "id": "hello",
        "payload": {"client_id": client, "subscriptions": []},
    }


def subscribe(request: str, wanted: Mapping[str, Cursor | None]) -> JSONObject:
    """Ask for sessions, each from after its cursor; from now on where it has none."""
    cursors: dict[str, JSON] = {name: at.wire() for name, at in wanted.items() if at is not None}
    payload: JSONObject = {"session_ids": list(wanted), "cursors": cursors}
    return {"type": "subscribe", "id": request, "payload": payload}


def pong(ping: JSONObject) -> JSONObject:
    """The answer to a ping."""
    return {"type": "pong", "payload": {"nonce": _payload(ping).get("nonce")}}


def beats(server_hello: JSONObject) -> bool:
    """Whether a server sends pings (0.42.0 and later), and global frames to every connection."""
    return "heartbeat_ms" in _payload(server_hello)


@frozen
class Ack:
    """The answer to a subscription.

    Attributes:
        request: what it answers.
        accepted: the sessions that are live there, and told of from now on.
        missing: those that are not.
        resync: those of them whose stream could not be continued from their cursor.
        at: where each of their journals stands.
    """

    request: str
    accepted: tuple[str, ...]
    missing: tuple[str, ...]
    resync: frozenset[str]
    at: Mapping[str, Cursor]


def read_ack(raw: JSONObject) -> Ack:
    """Type an acknowledgement."""
    payload = _payload(raw)
    cursors = payload.get("cursors")
    at = {
        name: cursor
        for name, value in (cursors.items() if isinstance(cursors, dict) else ())
        if (cursor := read_cursor(value, "seq"))
    }
    request = raw.get("id")
    return Ack(
        request if isinstance(request, str) else "",
        _names(payload.get("accepted")),
        _names(payload.get("not_found")),
        frozenset(_names(payload.get("resync_required"))),
        at,
    )


@frozen
class Resync:
    """The server's word that a stream could not be continued."""

    session: str
    reason: str
    at: Cursor | None


_REASONS = ("buffer_overflow", "epoch_changed", "session_recreated")


def read_resync(raw: JSONObject) -> Resync | None:
    """Type a `resync_required`; None where it names no session."""
    payload = _payload(raw)
    session, reason = payload.get("session_id"), payload.get("reason")
    if not isinstance(session, str):
        return None
    known = reason if isinstance(reason, str) and reason in _REASONS else "unknown"
    return Resync(session, known, read_cursor(payload, "current_seq"))


def read_cursor(value: JSON, name: str) -> Cursor | None:
    """A place in a journal; None where it is none."""
    if not isinstance(value, dict):
        return None
    seq, epoch = value.get(name), value.get("epoch")
    if type(seq) is not int or seq < 0:
        return None
    return Cursor(seq, epoch if isinstance(epoch, str) else None)


def _payload(raw: JSONObject) -> JSONObject:
    payload = raw.get("payload")
    return payload if isinstance(payload, dict) else {}


def _names(value: JSON) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
