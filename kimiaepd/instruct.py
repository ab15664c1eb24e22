"""Steering: what a person says to a session from elsewhere, for the model at its next prompt.

Rules:
- An instruction is a command, `x.kimi-code.control.instruct {text}`. It is acknowledged first, and
  queued by an event after that, so that a log tells them in the order of their causes.
- It goes with the reply to the session's next UserPromptSubmit: `{"message": ...}`, which the CLI
  appends to the model's context; all that wait, in order, with blank lines between them. Where none
  waits the reply is empty: any other byte would be put before the model.
- Delivered is what the shim took, whole. A reply that did not arrive leaves its instructions where
  they were, and one that is still on its way is not sent a second time.
- The text is cleaned of what a terminal would obey, and of what would show it in another order.
- It is in no log and in no record. A stop of the daemon drops what waits ("daemon-restarted"; after
  a crash the next start says so), and so does the end of its session.

Worst case: `SESSIONS` sessions with `MOST` texts of `LONGEST` characters, four bytes each: 20 MiB.

What an instruction is in a session's order stands in `lifecycle.instructions`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import trio
from attrs import define

from kimiaepd.commands import Command, Decision
from kimiaepd.hook_socket.conversation import Reply
from kimiaepd.lifecycle.state import Instruction
from kimiaepd.mapping.event import AGENT
from kimiaepd.mapping.json_value import JSON, JSONObject, dump, without_surrogates
from kimiaepd.mapping.payloads import UNKNOWN_SESSION
from kimiaepd.sessions import Session, SessionBook

INSTRUCT = f"x.{AGENT}.control.instruct"

MOST = 20
LONGEST = 4_000
"""Instructions that wait in one session, and characters of each."""

SESSIONS = 64
"""Sessions that instructions wait in at once."""

_LINE_ENDS = re.compile("\r\n?")
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and newline; and what turns the direction of text around."""


@define(eq=False)
class Instructions:
    """All sessions' instructions.

    Attributes:
        book: the sessions; each has its own queue.
        queued: how many were taken.
        delivered: how many arrived.
        kept: how many went back to their queue, because a reply did not arrive.
    """

    book: SessionBook
    queued: int = 0
    delivered: int = 0
    kept: int = 0

    def take(self, command: Command) -> Decision:
        """Take an instruction; it waits for the next prompt of its session."""
        text = command.data.get("text")
        cleaned = clean(text) if isinstance(text, str) and len(text) <= LONGEST else ""
        if not cleaned:
            return Decision("invalid", f"give a text of {LONGEST} characters at most")
        if command.session == UNKNOWN_SESSION:
            return Decision("invalid", "hooks that name no session cannot be told apart")
        session = self.book.get(command.session, trio.current_time(), is_heard=False)
        return self._refusal(session) or Decision(
            then=partial(self._queue, session, command.id, cleaned)
        )

    def reply(self, session: Session) -> Reply | None:
        """What to reply to a prompt of this session; None where nothing waits.

        Whoever asks for it sends it, without a checkpoint before that.
        """
        given = [one for one in session.state.instructions if not one.is_in_hand]
        if not given:
            return None
        for one in given:
            one.is_in_hand = True
        message = "\n\n".join(one.text for one in given)
        return Reply(dump({"message": message}), partial(self._over, session, given))

    def status(self) -> JSONObject:
        """What `kimiaepd status` says of it."""
        waiting: JSON = sum(len(session.state.instructions) for session in self.book)
        return {
            "queued": self.queued,
            "delivered": self.delivered,
            "kept": self.kept,
            "waiting": waiting,
        }

    def _refusal(self, session: Session) -> Decision | None:
        if session.is_over:
            return Decision("invalid", "the session has ended")
        if len(session.state.instructions) >= MOST:
            return Decision("invalid", f"{MOST} instructions wait already")
        others = sum(bool(one.state.instructions) for one in self.book if one is not session)
        if others >= SESSIONS:
            return Decision("busy", f"instructions wait in {SESSIONS} sessions already")
        return None

    def _queue(self, session: Session, command: str, text: str) -> None:
        now = trio.current_time()
        session.machine.instruct(Instruction(command, text, now), now)
        self.queued += 1
        self._kept(session)

    def _over(self, session: Session, given: Sequence[Instruction], arrived: bool) -> None:
        waiting = [one for one in given if one in session.state.instructions]
        if arrived and waiting:
            session.machine.deliver(waiting, trio.current_time())
            self.delivered += len(waiting)
            self._kept(session)
        elif waiting:
            for one in waiting:
                one.is_in_hand = False
            self.kept += len(waiting)

    def _kept(self, session: Session) -> None:
        """What a person said is on disk soon, as far as it is written at all."""
        self.book.keep(session)
        self.book.journal.hasten()


def clean(text: str) -> str:
    """The text with nothing in it that a terminal would obey, and fit for UTF-8."""
    lines = _LINE_ENDS.sub("\n", text)
    return without_surrogates(_OBEYED.sub("", lines)).strip()
