"""An observer on real ground: journal, ledger and sessions, in a scratch folder.

Only the socket and the nursery are left out, so it runs in virtual time. The end of the block is as
a `kill -9`: nothing is settled. Opening the folder again in another epoch is the next start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import trio
from attrs import define

from kimiaepd.emitter import Emitter
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.redaction import Redactor
from kimiaepd.observer import Observer
from kimiaepd.sessions import SessionBook
from kimiaepd.storage.journal import Journal, LogPolicy
from kimiaepd.storage.ledger import Ledger

DEFAULT = Ceilings(Capture.METADATA, {"attention": Capture.REDACTED})


@define
class Room:
    """One life of a daemon's inside."""

    observer: Observer
    book: SessionBook
    journal: Journal
    ledger: Ledger

    async def hook(
        self, event: str, fields: Mapping[str, JSON] | None = None, *, session: str = "s"
    ) -> bytes:
        """One hook as the vendor sends it."""
        return await self.raw(
            json.dumps({"hook_event_name": event, "session_id": session, **(fields or {})}).encode()
        )

    async def raw(self, body: bytes, started_ns: int | None = None) -> bytes:
        """One hook of any bytes."""
        said = await self.observer.hook(body, started_ns or time.time_ns())
        return said if isinstance(said, bytes) else said.body

    def events(self, session: str = "s") -> list[JSONObject]:
        """What the log of a session holds."""
        return [json.loads(line) for line in self.journal.read(session)]

    def types(self, session: str = "s") -> list[JSON]:
        """The types of a session's events, in order."""
        return [event["type"] for event in self.events(session)]


@contextmanager
def opened(
    folder: Path,
    *,
    epoch: int = 1,
    ceilings: Ceilings = DEFAULT,
    policy: LogPolicy | None = None,
    idle_seconds: float = 86_400.0,
) -> Iterator[Room]:
    """A room on this folder, until the block ends; what waits then is as after a `kill -9`."""
    folder.mkdir(exist_ok=True)
    journal = Journal.open(folder / "log", policy=policy or LogPolicy(sync="os"))
    ledger = Ledger.open(folder / "ledger.jsonl")
    redactor = Redactor(home="/home/user", secret_names=frozenset(), secret_values=())
    emitter = Emitter(journal, ceilings, redactor)
    book = SessionBook(emitter, journal, ledger, "host", epoch, idle_seconds)
    try:
        book.bring_back(trio.current_time())
        yield Room(Observer(book, journal), book, journal, ledger)
    finally:
        ledger.close()
        journal.close()
