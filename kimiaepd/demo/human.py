"""The person of the demo: looks on as an ordinary consumer of the relay, answers, and instructs.

Rules:
- What is seen came from the relay, in its order; each event is told of once, as it comes.
- Somebody else may be faster, at the console or in the inbox: an ask that is settled is left alone.
- A view that may command is there for the whole demo, or the gate would hold nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio
from attrs import define, field

from kimiaepd.demo.story import SESSION, missing
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.views.relay_command import INSTRUCT, RESPOND, Outcome, build
from kimiaepd.views.relay_consumer import Change, Consumer

PATIENCE_SECONDS = 10.0
"""How long what must be seen may take to come; a few milliseconds on an idle machine."""

_ASK: JSONObject = {"type": "attention.requested", "data": {"respond_via": ["control"]}}


@define(eq=False)
class Human:
    """One person.

    Attributes:
        consumer: the conversation with the relay.
        told: of every event of the session, as it comes.
        events: those that came.
    """

    consumer: Consumer
    told: Callable[[JSONObject], None]
    events: list[JSONObject] = field(factory=list)
    _came: trio.Event = field(factory=trio.Event)

    async def look(self) -> None:
        """Look on until cancelled."""
        while True:
            item = await self.consumer.next()
            if not isinstance(item, Change) and item.get("session") == SESSION:
                self.events.append(item)
                self.told(item)
                self._came.set()
                self._came = trio.Event()

    async def misses(self, patterns: Iterable[JSONObject], since: int) -> list[JSONObject]:
        """Wait until all of this has come, and no longer than is reasonable; what has not.

        Args:
            patterns: of the events.
            since: how many events had come before.
        """
        wanted = list(patterns)
        with trio.move_on_after(PATIENCE_SECONDS):
            await self._until(wanted, since)
        return missing(wanted, self.events[since:])

    async def answer(
        self, answer: JSONObject, since: int, *, patience: float, asked: Callable[[], None]
    ) -> Outcome | None:
        """Answer the next ask of the gate, unless somebody else does; None where somebody did.

        Args:
            answer: what to say.
            since: how many events had come before.
            patience: how long somebody else has, in seconds.
            asked: told when there is an ask.
        """
        await self._until([_ASK], since)
        ask = next(str(one["id"]) for one in self.events[since:] if not missing([_ASK], [one]))
        asked()
        with trio.move_on_after(patience):
            await self._until([{"subject": ask}], since)
            return None
        data: JSONObject = {"answer": answer}
        return await self._send(
            build(RESPOND, SESSION, subject=ask, cause=ask, data=data, capture=Capture.REDACTED)
        )

    async def instruct(self, text: str) -> Outcome:
        """Give an instruction for the next prompt."""
        return await self._send(
            build(INSTRUCT, SESSION, data={"text": text}, capture=Capture.REDACTED)
        )

    async def _send(self, command: JSONObject) -> Outcome:
        return await self.consumer.send(command, seconds=PATIENCE_SECONDS, attempts=1)

    async def _until(self, wanted: list[JSONObject], since: int) -> None:
        while missing(wanted, self.events[since:]):
            await self._came.wait()
