"""Events that a relay did not take: set aside in a file, counted, and in nobody's way (I43).

Rules:
- One JSON line each: when, why, and the event as it was sent. The file is private, as the log is.
- It is bounded: beyond `MOST_BYTES` only the count goes on, and `status` says so.
- A file that cannot be written costs the copy alone; the log still has the event.
"""

from __future__ import annotations

import os
from pathlib import Path

import structlog
from attrs import define

from kimiaepd.emitter import timestamp
from kimiaepd.mapping.json_value import dump
from kimiaepd.relay.backlog import Item
from kimiaepd.relay.frames import Refusal
from kimiaepd.storage.file_safety import open_private
from kimiaepd.storage.log_files import write_line

log: structlog.stdlib.BoundLogger = structlog.get_logger()

NAME = "rejected.jsonl"
MOST_BYTES = 16 << 20


@define(eq=False)
class Rejects:
    """The events that were set aside.

    Attributes:
        path: the file.
        count: how many since the start.
        last: the last one's code and detail, for people.
    """

    path: Path
    count: int = 0
    last: str | None = None

    def put(self, item: Item, refusal: Refusal, now_ns: int) -> None:
        """Set an event aside."""
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
