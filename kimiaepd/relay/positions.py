"""How far each session was delivered to one relay: proven, durable, and always behind the truth.

Rules (operations I41):
- What is kept here the relay is known to have. A position that is lost, or older than the truth,
  costs repetitions alone, which is why nothing waits for the disk: what was put survives the death
  of the process (`storage.ledger`).
- A relay's positions are its own: another URL begins from nothing.
- `MOST` sessions are kept, more than a log ever has; of the others everything is sent again.

Worst case in memory: 32 MiB of records, and 300 bytes a session.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

import structlog
from attrs import define, frozen

from kimiaepd.storage.journal import Position
from kimiaepd.storage.ledger import Ledger, LedgerError
from kimiaepd.storage.log_reader import LogReader, position_from

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MOST = 100_000


@frozen
class Start:
    """A session of the log that the relay is to have.

    Attributes:
        session: which.
        before: the event after which it is to have it, whatever it was given; None: where it is
            proven to be.
    """

    session: str
    before: Position | None = None


class Proven(Protocol):
    """The position of every session at one relay, durable (below) or not (`recent.py`)."""

    def get(self, session: str) -> Position | None:
        """The last event of a session that the relay is known to have; None where none is."""
        ...

    def put(self, session: str, at: Position) -> None:
        """Keep what was proven."""
        ...

    def starts(self, directory: Path) -> list[Start]:
        """The sessions of a log that the relay is to have; it blocks.

        Raises:
            JournalError: the directory cannot be read.
            OSError: the same.
        """
        ...


@define(eq=False)
class Positions:
    """The proven position of every session, at one relay.

    Attributes:
        ledger: where they are kept.
    """

    ledger: Ledger

    @classmethod
    def open(cls, state_dir: Path, url: str) -> Positions:
        """The positions at the relay of this URL.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return cls(Ledger.open(state_dir / f"delivered-{name}.jsonl", most=MOST))

    def get(self, session: str) -> Position | None:
        """The last event of a session that the relay is known to have; None where none is."""
        record = self.ledger.get(session)
        return position_from(record.get("at")) if record else None

    def put(self, session: str, at: Position) -> None:
        """Keep what was proven."""
        try:
            self.ledger.put(session, {"at": list(at)})
        except LedgerError as error:
            log.warning("delivered position not kept", session=session, why=error.code)

    def starts(self, directory: Path) -> list[Start]:
        """All sessions of the log, each from where it is.

        Raises:
            JournalError: the directory cannot be read.
        """
        return [Start(session) for session in LogReader(directory).sessions()]

    def close(self) -> None:
        """Close the file."""
        self.ledger.close()
