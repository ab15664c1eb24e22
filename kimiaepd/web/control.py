"""What may be done at a `kimi web` server: an approval is answered, a turn is aborted.

Rules:
- Opt in, and in primary alone: what nobody asked for is not offered, and then not taken.
- An approval offers "approved", "approved_session" and "rejected". Text alone that names none of
  them refuses, and is told to the model: nothing is ever taken for consent by accident.
- The acknowledgement says that the command was taken. What came of it is the server's own frame: it
  has the command as its cause, and `via` "control", where our write was the one that counted. So
  the frame waits for the answer to the write, `WRITE_SECONDS` at most.
- A write that fails is one `error.raised` with the server's word for it, and the command as cause.
- A run is cancelled, never a session: nothing here ends what a person has open. Questions are never
  answered.

No write is tried again: one that got no answer may have had its effect, and the stream tells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog
import trio
from attrs import define, evolve, field

from kimiaepd.commands import Command, Decision
from kimiaepd.gate.answers import Answer, Option, offered, offered_by_position, read_answer
from kimiaepd.lifecycle.state import NOW_NS, Ask, Hook, remember
from kimiaepd.lifecycle.stream import FOR_SESSION
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.mapping.payloads import HookPayload
from kimiaepd.mapping.web import Mapped
from kimiaepd.sessions import Session, SessionBook
from kimiaepd.web.answers import LiveSession
from kimiaepd.web.client import Client, Verdict
from kimiaepd.web.errors import WebError

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CANCEL = "control.cancel"

APPROVED = Option("approved", "Approve")
APPROVED_SESSION = Option(FOR_SESSION, "Approve for this session")
REJECTED = Option("rejected", "Reject")
OPTIONS = (APPROVED, APPROVED_SESSION, REJECTED)

MOST = 256
"""Writes whose outcome is awaited; a server that died says no more of the oldest."""

WRITE_SECONDS = 10.0
"""How long a frame waits for the answer to the write that it may be the outcome of."""

_VERDICTS = {
    APPROVED.id: Verdict("approved"),
    APPROVED_SESSION.id: Verdict("approved", for_session=True),
    REJECTED.id: Verdict("rejected"),
}


@define(eq=False)
class _Write:
    """A write that was begun.

    Attributes:
        command: who asked for it.
        is_over: set once its answer came, or none will.
        counted: whether it was the one that counted.
    """

    command: str
    is_over: trio.Event = field(factory=trio.Event)
    counted: bool = False


@define(eq=False)
class WebControl:
    """The writes of all sessions.

    Attributes:
        book: the sessions.
        is_authenticated: whether the relay that commands come from is.
        counts: what became of writes.
    """

    book: SessionBook
    is_authenticated: Callable[[], bool]
    counts: dict[str, int] = field(factory=dict)
    _answering: dict[tuple[str, str], _Write] = field(factory=dict)
    _aborting: dict[tuple[str, str], _Write] = field(factory=dict)
    _nursery: trio.Nursery | None = None
    _client: Callable[[str], Client | None] = lambda _: None

    # --- where it runs ---

    def use(self, nursery: trio.Nursery, client: Callable[[str], Client | None]) -> None:
        """Write from this nursery on, to the servers that it watches."""
        self._nursery, self._client = nursery, client

    def close(self) -> None:
        """There is nowhere to write to any more."""
        self._nursery = None
        for write in (*self._answering.values(), *self._aborting.values()):
            write.is_over.set()
        self._answering.clear()
        self._aborting.clear()

    # --- what is offered ---

    def offer(self, draft: Draft) -> Draft:
        """An approval's request, with what can be answered; any other as it is."""
        kinds = [one.value for one in draft.fields if one.path == ("kind",)]
        if kinds != ["permission"] or not self.is_authenticated():
            return draft
        below = offered_by_position(OPTIONS)
        fields = (
            Field(("options",), Capture.REDACTED, offered(OPTIONS), below=below),
            Field(("respond_via",), Capture.METADATA, ["control"]),
        )
        return evolve(draft, fields=(*draft.fields, *fields))

    # --- commands ---

    def respond(self, command: Command) -> Decision | None:
        """Take an answer; None where what it answers was not offered here."""
        session = self.book.with_open(command.session, trio.current_time())
        ask = session and _asked(session, command.subject)
        if not (session and ask):
            return None
        if (session.id, ask.key) in self._answering:
            return Decision("invalid", "another answer came first")
        draft = Draft("attention.requested")
        labelled = self.book.emitter.ceilings.of(draft.type) >= Capture.REDACTED
        answer = read_answer(command.data, OPTIONS, labelled=labelled, refusing=REJECTED.id)
        if answer is None:
            return Decision("invalid", "give one of the options offered, or a text")
        client = self._client(session.id)
        if client is None or self._nursery is None:
            return Decision("refused", "the session's server is not there")
        write = _Write(command.id)
        remember(self._answering, (session.id, ask.key), write, MOST)
        work = partial(self._respond, client, session.id, ask.key, _verdict(answer), write)
        return Decision(then=partial(self._nursery.start_soon, work))

    def cancel(self, command: Command) -> Decision:
        """Abort the run that is open."""
        session = self.book.with_open(command.session, trio.current_time())
        if command.data.get("scope", "run") != "run":
            return Decision("refused", "a run can be cancelled here, and nothing more")
        run = session.state.run if session else None
        if session is None or run is None:
            return Decision("invalid", "no run is open in this session")
        if not run.by_stream or run.id != command.data.get("run", run.id):
            return Decision("invalid", "this run is not one of kimi web, or is over")
        if (session.id, run.id) in self._aborting:
            return Decision("invalid", "the run is being cancelled")
        client = self._client(session.id)
        if client is None or self._nursery is None:
            return Decision("refused", "the session's server is not there")
        write = _Write(command.id)
        remember(self._aborting, (session.id, run.id), write, MOST)
        work = partial(self._abort, client, session.id, run.id, write)
        return Decision(then=partial(self._nursery.start_soon, work))

    # --- what came of it ---

    async def outcome(self, session: str, mapped: Mapped) -> str | None:
        """The command that a frame is the outcome of."""
        kind = mapped.drafts[0].type if mapped.drafts else ""
        if kind in ("attention.answered", "attention.resolved"):
            writes, key = self._answering, (session, mapped.ask or "")
        elif kind in ("run.cancelled", "run.finished", "run.failed"):
            writes, key = self._aborting, (session, mapped.run or "")
        else:
            return None
        write = writes.get(key)
        if write is None:
            return None
        with trio.move_on_after(WRITE_SECONDS):
            await write.is_over.wait()
        writes.pop(key, None)
        return write.command if write.counted else None

    # --- the writes ---

    async def _respond(
        self, client: Client, session: str, key: str, verdict: Verdict, write: _Write
    ) -> None:
        answer = partial(client.respond, LiveSession(session), key, verdict)
        await self._write(answer, session, write, "answered")
        if not write.counted:
            # Where the ask is still open, another answer may be the one that counts.
            self._answering.pop((session, key), None)

    async def _abort(self, client: Client, session: str, run: str, write: _Write) -> None:
        await self._write(partial(client.abort, LiveSession(session)), session, write, "aborted")
        if not write.counted:
            self._aborting.pop((session, run), None)

    async def _write(
        self, call: Callable[[], Awaitable[object]], session: str, write: _Write, done: str
    ) -> None:
        try:
            await call()
            write.counted = True
            self._count(done)
        except WebError as error:
            self._count(error.code)
            log.warning("kimi web did not take a command", session=session, why=str(error))
            self._raise(session, error.code, write.command)
        except Exception:
            # A defect of one write must not end what is watched.
            self._count("failed")
            log.exception("a command to kimi web failed", session=session)
            self._raise(session, "failed", write.command)
        finally:
            write.is_over.set()

    def _raise(self, name: str, code: str, command: str) -> None:
        facts: JSONObject = {"code": f"web-{code}", "fatal": False}
        fields = tuple(Field((key,), Capture.METADATA, fact) for key, fact in facts.items())
        draft = Draft("error.raised", None, fields, "error")
        hook = Hook(HookPayload(), draft, trio.current_time(), NOW_NS)
        # Anew: one that has left memory meanwhile is another, which goes on in its place.
        session = self.book.get(name, trio.current_time(), is_heard=False)
        run = session.state.run.id if session.state.run else None
        self.book.emitter.emit(session.stream, draft, hook, run=run, cause=command)
        self.book.keep(session)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def _asked(session: Session, subject: str | None) -> Ask | None:
    asks: Sequence[Ask] = [one for one in session.state.asks.values() if one.is_offered]
    return next((ask for ask in asks if ask.requested == subject), None)


def _verdict(answer: Answer) -> Verdict:
    return evolve(_VERDICTS[answer.option], feedback=answer.text)
