"""What waits for one consumer: bounded, shed by weight, and given up rather than cut short.

Rules (AEP-0003 section 8.4):
- Above `SOFT_BYTES` events of severity debug and info are dropped, and counted.
- Above `HARD_BYTES` the consumer is left: an event of more weight is never silently dropped. It
  comes back and resumes by its positions.
- Putting waits for nobody: a consumer that reads nothing costs its own queue.
- All queues share `ALL_BYTES`: above that, whoever has the longest queue is left.
- A replay has its turn in the queue, and costs nothing there: its messages are made as they are
  asked for. One is read at a time, a piece of it, however many consumers want one: what is held may
  take seconds to look through, and hooks are waiting.

Worst case a consumer: `HARD_BYTES` and the one message by which it is exceeded. Of all together:
`ALL_BYTES` and one message; mostly far less, because those who want the same share each message
(`hub.py`). What is counted are characters: a message costs 60 bytes besides, and one with letters
beyond Latin up to four times as much.
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
ALL_BYTES = 256 << 20

_LIGHT = SEVERITIES[: SEVERITIES.index("notice")]


def is_light(severity: JSON) -> bool:
    """Whether an event may be dropped before a slow consumer; one without a severity is "info"."""
    return severity is None or severity in _LIGHT


@define(eq=False)
class Budget:
    """What all queues of one collector hold.

    Attributes:
        most: bytes above which whoever has the longest queue is left.
        size: bytes that wait now.
        turn: whoever reads a replay has it.
    """

    most: int = field(factory=lambda: ALL_BYTES)
    size: int = 0
    turn: trio.Lock = field(factory=trio.Lock)
    _queues: set[Outgoing] = field(factory=set)
    """Those in which something waits."""

    def grew(self, queue: Outgoing, size: int) -> None:
        """A message was put into a queue."""
        self._queues.add(queue)
        self.size += size
        while self.size > self.most and self._queues:
            max(self._queues, key=_size).give_up()

    def shrank(self, queue: Outgoing, size: int) -> None:
        """Messages left it."""
        self.size -= size
        if not queue.size:
            self._queues.discard(queue)


@define(eq=False)
class Replayed:
    """A replay in a queue.

    Attributes:
        messages: made as they are asked for; "" where some were looked for and none was found yet.
    """

    messages: Iterator[str]

    def end(self) -> None:
        """Nobody wants the rest; nothing that it needed is held any longer."""
        self.messages = iter(())


@define(eq=False)
class Outgoing:
    """The messages of one consumer, in order.

    Attributes:
        budget: what it shares with others.
        soft: bytes above which light messages are dropped.
        hard: bytes above which nothing more is taken.
        dropped: how many light ones were.
        over: set when the consumer is too far behind to be served: whoever writes to it may be
            stuck in that, and has to be told.
        size: bytes that wait.
    """

    budget: Budget = field(factory=Budget)
    soft: int = field(factory=lambda: SOFT_BYTES)
    hard: int = field(factory=lambda: HARD_BYTES)
    dropped: int = 0
    over: trio.Event = field(factory=trio.Event)
    size: int = 0
    _waiting: deque[str | Replayed] = field(factory=deque)
    _woken: trio.Event = field(factory=trio.Event)

    def put(self, message: str, *, light: bool = False) -> None:
        """Take a message on, drop it, or give the consumer up."""
        if self.over.is_set():
            return
        if light and self.size > self.soft:
            self.dropped += 1
            return
        if self.size > self.hard:
            self.give_up()
            return
        self._waiting.append(message)
        self.size += len(message)
        self._woken.set()
        self.budget.grew(self, len(message))

    def give_up(self) -> None:
        """Leave the consumer: nothing more is taken, and what waits is let go."""
        self.over.set()
        self.close()
        self._woken.set()

    def close(self) -> None:
        """Let go of what waits: the connection is over."""
        self._waiting.clear()
        size, self.size = self.size, 0
        self.budget.shrank(self, size)

    def replay(self, messages: Iterator[str]) -> Replayed:
        """Hand these out when it is their turn."""
        replayed = Replayed(messages)
        self._waiting.append(replayed)
        self._woken.set()
        return replayed

    def get_nowait(self) -> str | None:
        """The next message; "" where a replay has none yet, None where there is none now."""
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, str):
                self._waiting.popleft()
                self.size -= len(first)
                self.budget.shrank(self, len(first))
                return first
            if (message := next(first.messages, None)) is not None:
                return message
            self._waiting.popleft()
        return None

    async def get(self) -> str:
        """The next message."""
        while not (found := await self.take(1)):
            if found is None:
                self._woken = trio.Event()
                await self._woken.wait()
        return found[0]

    async def take(self, most: int, size: int = 0) -> list[str] | None:
        """The next messages; none yet where a replay was looked through in vain.

        Args:
            most: so many at most.
            size: and so many characters; the last one may exceed it.

        Returns:
            None where there is none now.
        """
        if not self._is_replaying:
            return self._take(most, size, of_replay=False)
        async with self.budget.turn:
            return self._take(most, size, of_replay=True)

    @property
    def _is_replaying(self) -> bool:
        return bool(self._waiting) and not isinstance(self._waiting[0], str)

    def _take(self, most: int, size: int, *, of_replay: bool) -> list[str] | None:
        found: list[str] = []
        while len(found) < most and size >= 0 and (of_replay or not self._is_replaying):
            message = self.get_nowait()
            if not message:
                return found or (None if message is None else [])
            found.append(message)
            size -= len(message)
        return found


def _size(queue: Outgoing) -> int:
    return queue.size
