"""A desk: the asks of a relay as they come and go, and the answers that go out from it.

Rules:
- One task folds what comes (`run`); others may send meanwhile, and wait for what came of it.
- An answer has its effect when the stream says so, with the command as the cause; that it was
  accepted alone is not enough. Why one came too late is in the stream, too: a rejection says only
  "invalid" below capture `redacted`.
- What the relay holds has come once it answers a question that was asked after that (`catch_up`).

What is shown of it, and where, is for its caller.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, TypeAlias

import trio
from attrs import define, field, frozen

from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.views import reasons, words
from kimiaepd.views.asks import TYPES, Ask, Asked, Asks, Ended, Ending, Key
from kimiaepd.views.relay_command import RESPOND, Outcome, build
from kimiaepd.views.relay_consumer import WAITING, Change, Consumer, Item, Wish

ANSWER_SECONDS = 20.0
"""For an answer and its effect together: kimi web has 10 s to take one."""

LATE_SECONDS = 1.0
"""After a rejection, for the event that says why: the one that was first is being logged."""

CATCH_UP_SECONDS = 3.0
QUIET_SECONDS = 0.05
"""For what is held: until its end is told, where the relay tells it; and what is on its way."""

MOST_FAILED = 256
"""Commands that failed after they were accepted."""

Result: TypeAlias = Literal[
    "accepted", "unseen", "rejected", "late", "unauthorized", "not-found", "timeout"
]
"""What became of a command: "unseen": accepted, but its effect was not seen; "late": the ask was
over, or somebody else was first."""

Came: TypeAlias = Change | Asked | Ended


def wish() -> Wish:
    """What a desk wants to see of a relay."""
    return Wish({"type": list(TYPES)}, since="all")


@frozen
class Verdict:
    """What became of a command.

    Attributes:
        result: for programs.
        why: for people, in a line.
        outcome: what was said to the command; None where it was not sent.
        ending: how the ask ended, where it is known.
    """

    result: Result
    why: str
    outcome: Outcome | None = None
    ending: Ending | None = None


@define(eq=False)
class Desk:
    """The asks of one relay.

    Attributes:
        consumer: converses with it; `wish` is what it has to be asked for.
        asks: what waits.
        came: is told what came, once it is folded.
        lost: why there is no connection now; None where there is one.
    """

    consumer: Consumer
    asks: Asks = field(factory=Asks)
    came: Callable[[Came], None] = lambda _: None
    lost: str | None = None
    _failed: OrderedDict[str, str] = field(factory=OrderedDict)
    _taken: int = 0
    _turn: trio.Event = field(factory=trio.Event)

    async def run(self) -> None:
        """Fold what comes, until cancelled.

        Raises:
            UserError: the relay does not take our token any more.
        """
        while True:
            self._take(await self.consumer.next())

    async def catch_up(self) -> None:
        """Wait until what the relay holds is folded; `run` runs meanwhile."""
        await self.consumer.roster(seconds=CATCH_UP_SECONDS)  # its answer comes after all that
        began, seen = self._taken, -1
        while seen != self._taken and self._taken - began < WAITING:
            seen = self._taken
            await trio.sleep(QUIET_SECONDS)

    async def answer(
        self, ask: Ask, answer: JSONObject, *, seconds: float = ANSWER_SECONDS
    ) -> Verdict:
        """Answer an ask, and wait for what comes of it; `run` runs meanwhile.

        Args:
            ask: which.
            answer: its `option`, its `text`, or both.
            seconds: how long that may take in all.

        Raises:
            UserError: the relay does not take our token.
        """
        command = build(
            RESPOND,
            ask.session,
            subject=ask.id,
            cause=ask.id,
            run=ask.run,
            data={"answer": answer},
            capture=Capture.REDACTED if "text" in answer else Capture.METADATA,
        )
        until = trio.current_time() + seconds
        outcome = await self.consumer.send(command, seconds=seconds / 2)
        if outcome.is_accepted:
            return await self._effect(ask.key, str(command["id"]), outcome, until)
        ending = await self._ending(ask.key) if outcome.reason == "invalid" else None
        if ending:
            return Verdict("late", reasons.late(ending), outcome, ending)
        return verdict(RESPOND, outcome)

    async def _effect(self, key: Key, command: str, outcome: Outcome, until: float) -> Verdict:
        with trio.move_on_at(until):
            while key not in self.asks.ended and command not in self._failed:
                await self._turn.wait()
        ending = self.asks.ended.get(key)
        if ending and ending.cause == command:
            return Verdict("accepted", f"accepted{_option(ending)}", outcome, ending)
        if ending:
            return Verdict("late", reasons.late(ending), outcome, ending)
        if failed := self._failed.get(command):
            return Verdict("rejected", f"it was taken, but kimi web did not: {failed}", outcome)
        return Verdict("unseen", "accepted, but what came of it was not seen in time", outcome)

    async def _ending(self, key: Key) -> Ending | None:
        with trio.move_on_after(LATE_SECONDS):
            while key not in self.asks.ended:
                await self._turn.wait()
        return self.asks.ended.get(key)

    def _take(self, item: Item) -> None:
        self._taken += 1
        if isinstance(item, Change):
            if item.kind != "missing":
                self.lost = item.why if item.kind == "lost" else None
            self.came(item)
        else:
            for happening in self.asks.take(item):
                self.came(happening)
            self._note_failure(item)
        turn, self._turn = self._turn, trio.Event()
        turn.set()

    def _note_failure(self, event: JSONObject) -> None:
        cause = event.get("cause")
        if event.get("type") == "error.raised" and isinstance(cause, str):
            self._failed[cause] = _code(words.said(event.get("data"), "code"))
            if len(self._failed) > MOST_FAILED:
                self._failed.popitem(last=False)


def verdict(kind: str, outcome: Outcome) -> Verdict:
    """What became of a command whose acknowledgement says it all.

    Args:
        kind: its type.
        outcome: what was said to it.
    """
    if outcome.is_accepted:
        return Verdict("accepted", "accepted", outcome)
    results: dict[str, Result] = {
        "unauthorized": "unauthorized",
        "no-route": "not-found",
        "timeout": "timeout",
    }
    return Verdict(results.get(outcome.reason, "rejected"), reasons.why(kind, outcome), outcome)


def _option(ending: Ending) -> str:
    return f": {words.harmless(ending.option)}" if ending.option else ""


def _code(value: JSON) -> str:
    return words.harmless(value) if isinstance(value, str) else "it does not say why"
