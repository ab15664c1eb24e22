"""Cursors: how far each session's stream of `kimi web` was read, durably.

Rules:
- A cursor moves on after the frame's events are in the log, so a process that dies in between sees
  one frame again, and none is lost; what a session has open tells that frame from a new one.
- It is what a subscription begins with after a reconnect or a restart. All servers of a home share
  it: they write to one journal a session, and a frame that came from one is not new from another.
- Without a disk it lives as long as the daemon.

A journal's positions count from 1; `epoch` names the journal, where the server says so.
"""

from __future__ import annotations

import structlog
from attrs import define, field, frozen

from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.storage.ledger import Ledger, LedgerError

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CURSORS = "web-cursors.jsonl"
"""The file, in the state directory."""


@frozen
class Cursor:
    """A place in a journal: what comes after it is new."""

    seq: int
    epoch: str | None = None

    def wire(self) -> JSONObject:
        """As a subscription names it."""
        return {"seq": self.seq, **({"epoch": self.epoch} if self.epoch else {})}


BEGINNING = Cursor(0)


@define(eq=False)
class Cursors:
    """The cursors of one home, by the session that the envelope names."""

    _ledger: Ledger
    _is_failing: bool = field(default=False, init=False)

    def get(self, session: str) -> Cursor | None:
        """How far a session was read; None where it never was."""
        record = self._ledger.get(session) or {}
        seq, epoch = record.get("seq"), record.get("epoch")
        if not isinstance(seq, int):
            return None
        return Cursor(seq, epoch if isinstance(epoch, str) else None)

    def put(self, session: str, cursor: Cursor) -> None:
        """A session was read so far."""
        record: JSONObject = {"seq": cursor.seq, "epoch": cursor.epoch}
        try:
            self._ledger.put(session, record)
        except LedgerError as error:
            if not self._is_failing:
                log.warning("cursors of kimi web are not kept", why=error.code)
            self._is_failing = True
        else:
            self._is_failing = False
