"""What waits for one consumer: bounded, shed by weight, and given up rather than cut short.

Rules (AEP-0003 section 8.4):
- Above `SOFT_BYTES` events of severity debug and info are dropped, and counted.
- Above `HARD_BYTES` the consumer is left: an event of more weight is never silently dropped. It
  comes back and resumes by its positions.
- Putting waits for nobody: a consumer that reads nothing costs its own queue.
- A replay is no part of the queue: its messages are made as they are asked for, and come first.

Worst case a consumer: `HARD_BYTES` and the one message by which it is exceeded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import trio
from attrs import define, field

from kimiaepd.mapping.event import SEVERITIES
from kimiaepd.mapping.json_value import JSON

SOFT_BYTES = 1 << 20
HARD_BYTES = 8 << 20

_LIGHT = SEVERITIES[: SEVERITIES.index("notice")]


def is_light(severity: JSON) -> bool:
    """Whether an event may be dropped before a slow consumer; one without a severity is "info"."""
    return severity is None or severity in _LIGHT


@define(eq=False)
class Outgoing:
    """The messages of one consumer, in order.

    Attributes:
        soft: bytes above which light messages are dropped.
        hard: bytes above which nothing more is taken.
        dropped: how many light ones were.
        is_over: whether the consumer is too far behind to be served.
    """

    soft: int = SOFT_BYTES
    hard: int = HARD_BYTES
    dropped: int = 0
    is_over: bool = False
    _waiting: deque[str] = field(factory=deque)
    _replays: deque[Iterator[str]] = field(factory=deque)
    _size: int = 0
    _woken: trio.Event = field(factory=trio.Event)

    def put(self, message: str, *, light: bool = False) -> None:
        """Take a message on, drop it, or give the consumer up."""
        if self.is_over:
            return
        if light and self._size > self.soft:
            self.dropped += 1
            return
        if self._size > self.hard:
            self.is_over = True
            self._waiting.clear()
        else:
            self._waiting.append(message)
            self._size += len(message)
        self._woken.set()

    def replay(self, messages: Iterator[str]) -> None:
        """Hand these out before anything that waits."""
        self._replays.append(messages)
        self._woken.set()

    def get_nowait(self) -> str | None:
        """The next message; None where there is none now."""
        return None if self.is_over else self._next()

    async def get(self) -> str | None:
        """The next message; None where the consumer is given up."""
        while True:
            if self.is_over:
                return None
            if (message := self._next()) is not None:
                return message
            self._woken = trio.Event()
            await self._woken.wait()

    def _next(self) -> str | None:
        while self._replays:
            if (message := next(self._replays[0], None)) is not None:
                return message
            self._replays.popleft()
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        self._size -= len(message)
        return message
