"""Where events meet consumers: ingest, hold, fan out, and route commands (AEP-0003, AEP-0004).

Rules:
- An event is checked, admitted once by `(source, id)`, and fanned out as received, also where it
  was admitted before: redelivery must be able to traverse the hop (section 5).
- `agent.*` events are live only.
- A command that found its target is held as well, so that who comes later sees what an answer
  answers (AEP-0004 section 4); one that was refused leaves no trace but its sender's error.
- A subscription gets an event once, in the order of ingest, and down-leveled to its ceiling. What
  many want is made once, and waits in memory once.
- Nothing here waits: consumers have queues of their own (`outgoing.py`).

It knows no transport: `routes.py`, `stream.py` and `duplex.py` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from attrs import define, field, frozen

from kimiaepd.collector.attr_match import Filter
from kimiaepd.collector.downlevel import downlevel
from kimiaepd.collector.envelope import envelope_fault, is_command
from kimiaepd.collector.history import BEGINNING, History, own_place
from kimiaepd.collector.outgoing import Budget, Outgoing, Replayed, is_light
from kimiaepd.collector.roster import Refusal, Roster
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject, dump
from kimiaepd.storage.journal import Position

LOOKED_BYTES = 64 << 10
"""Of what is held, looked at by a replay before others have their turn: about a millisecond."""

Frame: TypeAlias = Callable[[JSONObject, bytes], str]
"""Makes a message of an event and its line: how it is said on a transport."""

Made: TypeAlias = dict[tuple[Frame, Capture | None], str]
"""The messages that were made of one event: consumers that want the same share one."""


@frozen
class Demand:
    """What a subscription wants.

    Attributes:
        filter: which events.
        ceiling: how much of them at most; None: as they came.
        since: from which positions on, by session; None: from now on.
        everything: from the earliest that is held, of every session (section 5, replay-all).
    """

    filter: Filter
    ceiling: Capture | None = None
    since: tuple[tuple[str, Position], ...] = ()
    everything: bool = False


@define(eq=False)
class Subscription:
    """A consumer's standing wish, and where what it gets is put.

    Attributes:
        demand: what it wants.
        outgoing: the consumer's queue.
        frame: makes a message of an event: how it is said on this transport.
        exhausted: makes the message that says where replay had to begin.
        replayed: what it gets of what is held.
    """

    demand: Demand
    outgoing: Outgoing
    frame: Frame
    exhausted: Callable[[str, Position], str]
    replayed: Replayed | None = field(default=None, init=False)

    def offer(self, event: JSONObject, line: bytes, made: Made) -> None:
        """Put an event that it wants into the queue; a message that was made for others is used."""
        if not self.demand.filter.matches(event):
            return
        key = self.frame, self.demand.ceiling
        message = made.get(key)
        if message is None:
            message = made[key] = self._message(event, line)
        self.outgoing.put(message, light=is_light(event.get("severity")))

    def message(self, event: JSONObject, line: bytes) -> str | None:
        """What an event is for it; None where it does not want it."""
        return self._message(event, line) if self.demand.filter.matches(event) else None

    def _message(self, event: JSONObject, line: bytes) -> str:
        ceiling = self.demand.ceiling
        if ceiling is not None and (lower := downlevel(event, ceiling)) is not event:
            event, line = lower, dump(lower)
        return self.frame(event, line)


@define(eq=False)
class Emitter:
    """A duplex connection that may be sent commands; the roster holds what it claims.

    Attributes:
        outgoing: its queue.
    """

    outgoing: Outgoing


@define(eq=False)
class Hub:
    """One collector.

    Attributes:
        history: what is held.
        roster: which connection claims what.
        commanders: connections that may command and are no emitters: somebody may be there.
        came: told when one comes.
        budget: what the queues of all consumers hold.
        taken: events taken in.
        refused: events that were none.
    """

    history: History = field(factory=History)
    roster: Roster[Emitter] = field(factory=Roster)
    commanders: set[Emitter] = field(factory=set)
    came: Callable[[], object] = lambda: None
    budget: Budget = field(factory=Budget)
    taken: int = 0
    refused: int = 0
    _subscriptions: dict[Subscription, None] = field(factory=dict)

    def ingest(
        self,
        event: JSON,
        line: bytes,
        *,
        sender: Emitter | None = None,
        is_authenticated: bool = True,
    ) -> str | Refusal | None:
        """Take in what an emitter or a commander sent.

        Args:
            event: what it is.
            line: the same as bytes, on one line, as received.
            sender: the duplex connection that it came over; it claims the event's session.
            is_authenticated: whether that one may command.

        Returns:
            None where it was taken; why it is no event; or why a command goes nowhere.
        """
        fault = envelope_fault(event)
        if fault is not None or not isinstance(event, dict):
            self.refused += 1
            return fault or "not an object"
        return self.take(event, line, sender=sender, is_authenticated=is_authenticated)

    def take(
        self,
        event: JSONObject,
        line: bytes,
        *,
        sender: Emitter | None = None,
        is_authenticated: bool = True,
    ) -> Refusal | None:
        """The same for an event that its caller has checked (`envelope.py`)."""
        self.taken += 1
        kind = str(event["type"])
        if is_command(kind):
            return self._command(event, line, is_authenticated=is_authenticated)
        if not kind.startswith("agent."):
            if sender is not None and own_place(event):  # another's words claim nothing
                self.roster.claimed(sender, str(event["session"]))
            self.history.admit(event, line)
        self._fan_out(event, line)
        return None

    def _command(self, event: JSONObject, line: bytes, *, is_authenticated: bool) -> Refusal | None:
        target = self.roster.route(event, is_authenticated=is_authenticated)
        if isinstance(target, Refusal):
            return target
        target.outgoing.put(line.decode("utf-8", "replace"))
        self.history.admit(event, line)
        self._fan_out(event, line)
        return None

    def _fan_out(self, event: JSONObject, line: bytes) -> None:
        made: Made = {}
        for subscription in self._subscriptions:
            subscription.offer(event, line, made)

    # --- consumers -------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, *, live: bool = True) -> None:
        """Give a subscription what is held since its positions, and then what comes.

        What is held is read as it is asked for, up to what was there now: what comes after that is
        live, so that nothing is missed and nothing comes twice.
        """
        demand = subscription.demand
        since = demand.since
        if demand.everything:
            since = tuple((session, BEGINNING) for session in self.history.sessions())
        replay = self._replay(subscription, since, self.history.taken)
        subscription.replayed = subscription.outgoing.replay(replay)
        if live:
            self._subscriptions[subscription] = None

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription, and what it did not get yet of what is held."""
        self._subscriptions.pop(subscription, None)
        if subscription.replayed:
            subscription.replayed.end()

    @property
    def subscriptions(self) -> int:
        """How many there are."""
        return len(self._subscriptions)

    def _replay(
        self, subscription: Subscription, since: tuple[tuple[str, Position], ...], until: int
    ) -> Iterator[str]:
        looked = 0
        for session, position in since:
            for replay in self.history.pieces(session, position, until=until):
                if replay.exhausted is not None:
                    yield subscription.exhausted(session, replay.exhausted)
                for held in replay.held:
                    looked += held.weight
                    if looked > LOOKED_BYTES:
                        looked = 0
                        yield ""
                    message = subscription.message(held.event, held.line)
                    if message is not None:
                        yield message
