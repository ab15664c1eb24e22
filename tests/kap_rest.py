"""The REST calls of a scripted `kimi web` server: `vendor/web.md`, part 5.

Rules:
- HTTP 200 for nearly everything: the envelope's code says how it went.
- What wakes a cold session is what wakes it at the real server, and it is written down.
- Of the writes it knows the two that are allowed. Every other one is an unknown route, and is
  among what was asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from attrs import define, field, frozen

import kap_turns
from kap_journal import NOW, Session, Work, members, ulid
from kimiaepd.mapping.json_value import JSON, JSONObject

if TYPE_CHECKING:
    from kap_server import KapServer

API = "/api/v1"
MOST = 100
"""Sessions in a part of the list."""


@define
class Call:
    """One call that came.

    Attributes:
        path: without the query, and as it came.
        body: as it came.
        bearer: the whole header; None where there was none.
        code: what the answer said; None while there is no answer, or none in an envelope.
    """

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    bearer: str | None
    code: int | None = None

    @property
    def name(self) -> str:
        """What it is, such as "GET /api/v1/meta"."""
        return f"{self.method} {self.path}"

    def json(self) -> JSON:
        """The body's value; None where it has none."""
        value: JSON = json.loads(self.body) if self.body else None
        return value


@frozen
class Answer:
    """What goes back."""

    status: int
    body: JSON

    def bytes(self) -> bytes:
        """The whole of it, with HTTP's head."""
        content = json.dumps(self.body).encode()
        head = f"HTTP/1.1 {self.status} -\r\nContent-Type: application/json; charset=utf-8\r\n"
        return (
            f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content
        )


def success(data: JSON) -> Answer:
    """The envelope of what went well."""
    return Answer(200, {"code": 0, "msg": "success", "data": data, "request_id": ulid()})


def refusal(code: int, said: str, *, status: int = 200, data: JSON = None) -> Answer:
    """The envelope of what did not."""
    return Answer(status, {"code": code, "msg": said, "data": data, "request_id": ulid()})


@define(eq=False)
class Rest:
    """The answers of one server.

    Attributes:
        calls: what was asked, in order.
    """

    server: KapServer
    calls: list[Call] = field(factory=list)

    def answer(self, call: Call, headers: dict[bytes, bytes]) -> Answer:
        """What the real server says to it."""
        self.calls.append(call)
        answer = self._answer(call, headers)
        code = members(answer.body).get("code")
        call.code = code if isinstance(code, int) else None
        return answer

    def _answer(self, call: Call, headers: dict[bytes, bytes]) -> Answer:
        if not self.server.is_ours(headers, origin=False):
            return refusal(40301, "Invalid Host header", status=403)
        if call.name == f"GET {API}/healthz":
            return success({"ok": True})
        if call.bearer != f"Bearer {self.server.home.token}":
            return refusal(40101, "Unauthorized", status=401)
        for method, path, handler in _ROUTES:
            if method == call.method and (match := path.fullmatch(call.path)):
                return handler(self, call, *map(unquote, match.groups()))
        said = f"Route {call.method}:{call.path} not found"
        return Answer(404, {"message": said, "error": "Not Found", "statusCode": 404})

    # --- what wakes nobody -----------------------------------------------------------------------

    def meta(self, _: Call) -> Answer:
        return success(
            {
                "server_version": self.server.version,
                "server_id": self.server.own_id,
                "started_at": NOW,
                "dangerous_bypass_auth": False,
                "capabilities": {"websocket": True},
            }
        )

    def sessions(self, call: Call) -> Answer:
        size, before, after = (call.query.get(name) for name in ("page_size", *_CURSORS))
        if size is not None and not (size.isdecimal() and 0 < int(size) <= MOST):
            return refusal(40001, f"page_size: Too big: expected number to be <={MOST}")
        if before is not None and after is not None:
            return refusal(40001, "before_id: before_id and after_id are mutually exclusive")
        wants_archived = call.query.get("archived_only") == "true"
        found = [one for one in self.server.home.latest() if one.is_archived == wants_archived]
        if call.query.get("busy") == "true":
            found = [one for one in found if self.shown(one)["busy"]]
        names = [one.id for one in found]
        if before in names:
            found = found[names.index(before) + 1 :]
        if after in names:
            found = found[: names.index(after)]
        most = int(size) if size else len(found)
        items: list[JSON] = [self.shown(one) for one in found[:most]]
        return success({"items": items, "has_more": len(found) > most})

    def session(self, _: Call, name: str) -> Answer:
        session = self.server.home.sessions.get(name)
        return success(self.shown(session)) if session else _no_session(name)

    # --- what does -------------------------------------------------------------------------------

    def snapshot(self, call: Call, name: str) -> Answer:
        session = self.server.home.sessions.get(name)
        if session is None:
            return _no_session(name)
        # At 0.28.0 a snapshot leaves a cold session cold.
        if self.server.is_old:
            work = self.server.live.get(name, Work())
        else:
            work = self.server.wake(session, call.name)
        return success(
            {
                "as_of_seq": session.journal.seq,
                "epoch": session.journal.epoch,
                "session": self.shown(session),
                "messages": {"items": [], "has_more": False},
                "in_flight_turn": work.turn,
                "subagents": [],
                "pending_approvals": list(work.approvals.values()),
                "pending_questions": list(work.questions.values()),
            }
        )

    def approvals(self, call: Call, name: str) -> Answer:
        return self._pending(call, name, lambda work: work.approvals)

    def questions(self, call: Call, name: str) -> Answer:
        return self._pending(call, name, lambda work: work.questions)

    def _pending(
        self, call: Call, name: str, asks: Callable[[Work], dict[str, JSONObject]]
    ) -> Answer:
        session = self.server.home.sessions.get(name)
        if call.query.get("status") != "pending":
            return refusal(40001, 'status: Invalid input: expected "pending"')
        if session is None:
            return _no_session(name)
        return success({"items": list(asks(self.server.wake(session, call.name)).values())})

    # --- the two writes --------------------------------------------------------------------------

    def respond(self, call: Call, name: str, approval: str) -> Answer:
        body, misfit = _verdict(call)
        if misfit:
            return misfit
        session = self.server.home.sessions.get(name)
        if session is None:
            return _no_session(name)
        work = self.server.wake(session, call.name)
        if approval in work.answered:
            said = f"approval {approval} already resolved"
            return refusal(40902, said, data={"resolved": False})
        if approval not in work.approvals:
            return refusal(40404, f"approval {approval} not found")
        work.answered.add(approval)
        if self.server.switches.reacts:
            kap_turns.resolve(self.server, name, approval, body)
        return success({"resolved": True, "resolved_at": NOW})

    def abort(self, call: Call, name: str) -> Answer:
        session = self.server.home.sessions.get(name)
        if session is None:
            return _no_session(name)
        self.server.wake(session, call.name)
        if self.server.switches.reacts:
            kap_turns.abort(self.server, name)
        return success({"aborted": True})

    # --- forms -----------------------------------------------------------------------------------

    def shown(self, session: Session) -> JSONObject:
        work = self.server.live.get(session.id, Work())
        shown: JSONObject = {
            "id": session.id,
            "workspace_id": "wd_project_023185d6571d",
            "title": session.title,
            "created_at": NOW,
            "updated_at": NOW,
            "busy": work.is_busy,
            "main_turn_active": work.turn_is_active,
            "pending_interaction": work.pending,
            "archived": session.is_archived,
            "metadata": {"cwd": "/home/user/project"},
            "agent_config": {"model": "mock"},
            "last_seq": 0,
        }
        if session.last_turn_reason is not None:
            shown["last_turn_reason"] = session.last_turn_reason
        return shown


def _verdict(call: Call) -> tuple[JSONObject, Answer | None]:
    """The body of an answer to an approval, and why it is none."""
    try:
        body = members(call.json())
    except ValueError:
        return {}, refusal(50001, "Body is not valid JSON")
    if body.get("decision") not in ("approved", "rejected", "cancelled"):
        return {}, refusal(40001, "decision: Invalid option")
    if body.get("scope", "session") != "session":
        return {}, refusal(40001, 'scope: Invalid input: expected "session"')
    return body, None


def _no_session(name: str) -> Answer:
    return refusal(40401, f"session {name} does not exist")


def query(target: str) -> tuple[str, dict[str, str]]:
    """The path of a request's target, and what it asks with."""
    path, _, asked = target.partition("?")
    return path, dict(parse_qsl(asked, keep_blank_values=True))


_CURSORS: Final = ("before_id", "after_id")
_SESSION: Final = f"{API}/sessions/([^/:]+)"
_ROUTES: Final[tuple[tuple[str, re.Pattern[str], Callable[..., Answer]], ...]] = (
    ("GET", re.compile(f"{API}/meta"), Rest.meta),
    ("GET", re.compile(f"{API}/sessions"), Rest.sessions),
    ("GET", re.compile(_SESSION), Rest.session),
    ("GET", re.compile(f"{_SESSION}/snapshot"), Rest.snapshot),
    ("GET", re.compile(f"{_SESSION}/approvals"), Rest.approvals),
    ("GET", re.compile(f"{_SESSION}/questions"), Rest.questions),
    ("POST", re.compile(f"{_SESSION}/approvals/([^/:]+)"), Rest.respond),
    ("POST", re.compile(f"{_SESSION}:abort"), Rest.abort),
)
