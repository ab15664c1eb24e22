"""One `kimi web` server asked over REST: what it does, what it waits for, and two writes.

Rules:
- The token goes to this machine alone, and only to what has just answered `healthz` as such a
  server does: ports are given to other programs.
- The token is read at each call; one that was rotated in the middle is taken at once, because what
  was refused for its token had no effect.
- Every call is bounded in time and in bytes, has its own connection, and follows no redirect.
- What would wake a cold session asks for a `LiveSession`. Listing wakes none.
- Two writes, and no other: an approval is answered, a turn is aborted. Neither is tried again: one
  that got no answer may have had its effect, and the stream tells.

It keeps no state and starts no task. Which server, how often and when to give up: its caller's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote

from attrs import frozen

from kimiaepd.http_call import UnreachableError, call
from kimiaepd.mapping.json_value import JSON, JSONObject, dump, without_surrogates
from kimiaepd.web.answers import (
    Aborted,
    Approval,
    Approvals,
    LiveSession,
    Meta,
    Question,
    Questions,
    Resolved,
    Session,
    SessionPage,
    Snapshot,
    opened,
    read,
)
from kimiaepd.web.errors import NoAnswerError, OddAnswerError, Refusal, RefusedError
from kimiaepd.web.home import Instance, read_token

ANSWER_SECONDS = 2.0
"""For each step of a call, such as to connect; `http_call.STEPS` times as many for all of it."""

LONGEST = 4 << 20
"""Bytes of an answer. A snapshot has a page of messages, and is the longest that is asked for."""

PAGE = 100
"""Sessions in a part of the list: the most that the vendor gives."""

MOST_SESSIONS = 500
"""Sessions that are listed, the last used first: who is live is among them."""

Decision: TypeAlias = Literal["approved", "rejected", "cancelled"]


@frozen
class Verdict:
    """An answer to an approval.

    Attributes:
        decision: the vendor's word.
        for_session: it also answers what is asked alike later in the session.
        feedback: what the model is told beside it.
    """

    decision: Decision
    for_session: bool = False
    feedback: str | None = None

    def body(self) -> JSONObject:
        """As it is sent."""
        body: JSONObject = {"decision": self.decision}
        if self.for_session:
            body["scope"] = "session"
        if self.feedback is not None:
            body["feedback"] = self.feedback
        return body


@frozen
class Client:
    """The calls to one server. All raise `NoAnswerError` and `OddAnswerError`.

    Those that need the token raise `NoTokenError`, and `RefusedError` with the server's code.

    Attributes:
        instance: where the server is.
        home: the Kimi home that its token is in.
        seconds: for each step of a call.
    """

    instance: Instance
    home: Path
    seconds: float = ANSWER_SECONDS

    # --- what wakes no session -------------------------------------------------------------------

    async def healthz(self) -> None:
        """Ask whether a `kimi web` server answers there; no token is sent.

        Raises:
            NoAnswerError: with `is_refused`, it wants to exit, or has.
        """
        try:
            await self._call("GET", "/healthz")
        except RefusedError as error:
            raise OddAnswerError(f"healthz answers with code {error.number}") from None

    async def meta(self) -> Meta:
        """What the server is; who has a wrong token is told so here."""
        return read(Meta, await self._ask("GET", "/meta"))

    async def sessions(self, most: int = MOST_SESSIONS) -> tuple[Session, ...]:
        """The home's sessions, the last used first; archived ones are left out.

        All of the home, also what is cold or runs at another server.

        Args:
            most: sessions that are asked for.
        """
        found: dict[str, Session] = {}
        path = f"/sessions?page_size={PAGE}"
        for _ in range(-(-most // PAGE)):
            page = read(SessionPage, await self._ask("GET", path))
            # The order changes with every turn, so a session may be on two pages.
            found |= {session.id: session for session in page.items}
            if not page.has_more or not page.items:
                break
            path = f"/sessions?page_size={PAGE}&before_id={_part(page.items[-1].id)}"
        return tuple(session for session in found.values() if not session.archived)[:most]

    async def session(self, session: str) -> Session:
        """One session, live or cold.

        Raises:
            RefusedError: `NO_SESSION`.
        """
        return read(Session, await self._ask("GET", f"/sessions/{_part(session)}"))

    # --- what would ------------------------------------------------------------------------------

    async def snapshot(self, session: LiveSession) -> Snapshot:
        """How a session stands, such as after a gap in its stream."""
        return read(Snapshot, await self._ask("GET", f"/sessions/{_part(session)}/snapshot"))

    async def pending_approvals(self, session: LiveSession) -> tuple[Approval, ...]:
        """What waits for a person's approval; nothing where another server runs the session."""
        path = f"/sessions/{_part(session)}/approvals?status=pending"
        return read(Approvals, await self._ask("GET", path)).items

    async def pending_questions(self, session: LiveSession) -> tuple[Question, ...]:
        """What a person was asked; nothing where another server runs the session."""
        path = f"/sessions/{_part(session)}/questions?status=pending"
        return read(Questions, await self._ask("GET", path)).items

    # --- the two writes --------------------------------------------------------------------------

    async def respond(self, session: LiveSession, approval_id: str, verdict: Verdict) -> None:
        """Answer an approval; it returns where this was the answer that counted.

        Raises:
            RefusedError: `ALREADY_RESOLVED` where somebody was faster or the turn was aborted,
                `NO_APPROVAL`, `NO_SESSION`.
            NoAnswerError: unless `is_refused`, it may have been taken.
        """
        path = f"/sessions/{_part(session)}/approvals/{_part(approval_id)}"
        if not read(Resolved, await self._ask("POST", path, verdict.body())).resolved:
            raise OddAnswerError("an approval is neither resolved nor refused")

    async def abort(self, session: LiveSession) -> bool:
        """Abort the turn that runs, and whatever it asks; a session without one is left as it is.

        Returns:
            What the vendor calls aborted: it says so of an idle session too. The stream tells.

        Raises:
            RefusedError: `NO_SESSION`.
            NoAnswerError: unless `is_refused`, it may have been aborted.
        """
        return read(Aborted, await self._ask("POST", f"/sessions/{_part(session)}:abort")).aborted

    # --- one call --------------------------------------------------------------------------------

    async def _ask(self, method: str, path: str, body: JSONObject | None = None) -> JSON:
        await self.healthz()
        token = read_token(self.home)
        try:
            return await self._call(method, path, body, bearer=token.value)
        except RefusedError as error:
            if error.refusal is not Refusal.UNAUTHORIZED:
                raise
            rotated = read_token(self.home)
            if rotated.value == token.value:
                raise
        return await self._call(method, path, body, bearer=rotated.value)

    async def _call(
        self, method: str, path: str, body: JSONObject | None = None, *, bearer: str | None = None
    ) -> JSON:
        base = self.instance.base_url()
        if base is None:
            raise NoAnswerError("it has no address on this machine yet", is_refused=True)
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            answer = await call(
                method,
                base + path,
                headers=headers,
                content=None if body is None else dump(body),
                seconds=self.seconds,
                longest=LONGEST,
            )
        except UnreachableError as error:
            raise NoAnswerError(str(error), is_refused=error.is_refused) from None
        return opened(answer)


def _part(name: str) -> str:
    """An id as one part of a path: 0.28.0 has tool call ids there, which may be of any letters."""
    # A part that is ".." would be taken for a step up.
    return quote(without_surrogates(name), safe="").replace(".", "%2E")
