"""Events that a relay did not take: set aside in a file, counted, and in nobody's way (I43).

Rules:
- One JSON line each: when, why, and the event as it was sent. The file is private, as the log is.
- It is bounded: beyond `MOST_BYTES` only the count goes on.
- An event that is refused once more, because its refusal was not yet proven when the connection was
  lost, is not set aside once more. `REMEMBERED` are more than can be under way.
- A file that cannot be written costs the copy alone; the log still has the event.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

import structlog
from attrs import define, field

from kimiaepd.emitter import timestamp
from kimiaepd.mapping.json_value import dump
from kimiaepd.relay.backlog import Item
from kimiaepd.relay.frames import Refusal
from kimiaepd.storage.file_safety import open_private
from kimiaepd.storage.journal import Position
from kimiaepd.storage.log_files import write_line

log: structlog.stdlib.BoundLogger = structlog.get_logger()

NAME = "rejected.jsonl"
MOST_BYTES = 16 << 20
REMEMBERED = 2_000


@define(eq=False)
class Rejects:
    """The events that were set aside.

    Attributes:
        path: the file.
        count: how many events since the start.
        last: the last one's code and detail, for people.
    """

    path: Path
    count: int = 0
    last: str | None = None
    _known: OrderedDict[tuple[str, Position], None] = field(factory=OrderedDict)

    def put(self, item: Item, refusal: Refusal, now_ns: int) -> None:
        """Set an event aside."""
        if (item.session, item.at) in self._known:
            return
        self._known[item.session, item.at] = None
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        self.count += 1
        self.last = f"{refusal.code} {refusal.detail}".rstrip()
        if self.count == 1:
            log.warning("the relay did not take an event", code=refusal.code, file=str(self.path))
        line = dump(
            {
                "at": timestamp(now_ns),
                "code": refusal.code,
                "detail": refusal.detail,
                "event": item.line.decode("utf-8", "replace"),
            }
        )
        try:
            self._write(line + b"\n")
        except OSError as error:
            log.warning("rejected event not kept", why=error.strerror)

    def _write(self, line: bytes) -> None:
        descriptor = open_private(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_size + len(line) <= MOST_BYTES:
                write_line(descriptor, line)
        finally:
            os.close(descriptor)
