"""What a consumer waits for an answer to: its commands, and rosters that it asked for.

Rules:
- An answer settles once. A command's names it as its `cause`; a roster's, by its own name.
- What is not answered is said again, as it was, by whoever has the next connection.

Whether there is a connection is `relay_consumer.py`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import trio
from attrs import define, field

from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.views.relay_command import Outcome, outcome_of
from kimiaepd.views.relay_frames import Refusal, Roster

Answer: TypeAlias = Outcome | tuple[JSONObject, ...]
"""What became of a command; or who is there."""


@define(eq=False)
class Waiter:
    """Something that is not answered yet.

    Attributes:
        text: the message that asks.
        answer: None until there is one; where it was given up, for good.
        settled: set once it is answered, or given up.
    """

    text: str
    answer: Answer | None = field(default=None, init=False)
    settled: trio.Event = field(factory=trio.Event, init=False)

    def settle(self, answer: Answer | None) -> None:
        """Take the answer, if it is the first."""
        if not self.settled.is_set():
            self.answer = answer
            self.settled.set()


@define(eq=False)
class Pending:
    """All that waits."""

    _waiters: dict[str, Waiter] = field(factory=dict, init=False)

    @contextmanager
    def waiting(self, key: str, text: str) -> Iterator[Waiter]:
        """Something waits for as long as the block lasts.

        Args:
            key: a command's id, or a roster's name.
            text: the message that asks.
        """
        waiter = self._waiters[key] = Waiter(text)
        try:
            yield waiter
        finally:
            del self._waiters[key]

    def texts(self) -> list[str]:
        """What was asked and is not answered."""
        return [waiter.text for waiter in self._waiters.values() if not waiter.settled.is_set()]

    def on_ack(self, event: JSONObject) -> None:
        """A command was acknowledged, ours or another's."""
        self._settle(str(event.get("cause")), outcome_of(event))

    def on_roster(self, roster: Roster) -> None:
        """A roster came."""
        self._settle(roster.name, roster.entries)

    def on_refusal(self, refusal: Refusal) -> None:
        """Something is refused; it may be something of ours."""
        for key in (refusal.cause, refusal.name):
            if key is not None:
                self._settle(key, Outcome("relay", refusal.code, refusal.detail))

    def give_up(self) -> None:
        """Nothing of it will be answered."""
        for waiter in self._waiters.values():
            waiter.settle(None)

    def _settle(self, key: str, answer: Answer) -> None:
        if waiter := self._waiters.get(key):
            waiter.settle(answer)
