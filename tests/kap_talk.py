"""What a scripted `kimi web` server answers on its WebSocket: `vendor/web.md`, part 3.

Rules, as observed (0.28.0 to 2.1.0):
- Only what is live can be subscribed to; what is not is in no error, but in a list.
- What came after a cursor is told before the acknowledgement. What cannot be told is said to be
  missing, and the session is subscribed to all the same.
- Nothing that a client says is an error: what is not understood has no answer.
- A cursor that is null kills a 0.28.0 server; a later one never acknowledges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from kap_journal import NOW, Session, members, words
from kimiaepd.mapping.json_value import JSON, JSONObject

if TYPE_CHECKING:
    from kap_socket import Connection


@define
class Outcome:
    """What a subscription comes to.

    Attributes:
        accepted: who is told of from now on.
        missing: who is not live.
        resync: those of the accepted whose gap is not told.
        at: where each journal stands.
    """

    accepted: list[JSON] = field(factory=list)
    missing: list[JSON] = field(factory=list)
    resync: list[JSON] = field(factory=list)
    at: JSONObject = field(factory=dict)


def answer(connection: Connection, frame: JSONObject) -> None:
    """Do what a frame says, and acknowledge it."""
    payload = members(frame.get("payload"))
    token = connection.server.home.token
    if None in members(payload.get("cursors")).values():
        connection.server.null_cursor()
        return
    match frame.get("type"):
        case "client_hello" if payload.get("token", token) != token:
            _ack(connection, frame, {}, 40112)
            connection.close(1000)
        case "client_hello":
            found = _subscribe(connection, payload, "subscriptions")
            acknowledged: JSONObject = {
                "accepted_subscriptions": found.accepted,
                "resync_required": [*found.resync, *found.missing],
                "cursors": found.at,
            }
            _ack(connection, frame, acknowledged)
        case "subscribe":
            found = _subscribe(connection, payload, "session_ids")
            acknowledged = {
                "accepted": found.accepted,
                "not_found": found.missing,
                "resync_required": found.resync,
                "cursors": found.at,
            }
            _ack(connection, frame, acknowledged)
        case "unsubscribe":
            for name in words(payload.get("session_ids")):
                connection.subscriptions.pop(name, None)
            _ack(connection, frame, {"accepted": [], "not_found": [], "resync_required": []})


def _subscribe(connection: Connection, payload: JSONObject, key: str) -> Outcome:
    found = Outcome()
    cursors = members(payload.get("cursors"))
    for name in words(payload.get(key)):
        session = connection.server.live_session(name)
        if session is None:
            found.missing.append(name)
            continue
        found.accepted.append(name)
        if name in cursors and not _replay(connection, session, members(cursors[name])):
            found.resync.append(name)
        connection.subscriptions[name] = session
        found.at[name] = session.journal.cursor()
    return found


def _replay(connection: Connection, session: Session, cursor: JSONObject) -> bool:
    """Tell what came after a cursor, or say that it cannot be told."""
    missed = session.journal.since(cursor)
    if isinstance(missed, str):
        payload: JSONObject = {
            "session_id": session.id,
            "reason": missed,
            "current_seq": session.journal.seq,
            "epoch": session.journal.epoch,
        }
        connection.send({"type": "resync_required", "timestamp": NOW, "payload": payload})
        return False
    for frame in missed:
        connection.send(frame)
    return True


def _ack(
    connection: Connection, frame: JSONObject, payload: Mapping[str, JSON], code: int = 0
) -> None:
    if connection.server.switches.no_ack:
        return
    request = frame.get("id")
    connection.send(
        {
            "type": "ack",
            "id": request if isinstance(request, str) else "",
            "code": code,
            "msg": "unauthorized" if code else "success",
            "payload": dict(payload),
        }
    )
