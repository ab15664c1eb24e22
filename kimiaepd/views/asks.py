"""The asks that are open, folded from events: what waits for a person, and how each one ended.

Rules:
- An ask is open from its attention.requested until an event says how it ended. One that was said to
  have ended is not opened again, whatever comes late.
- It can be answered where its emitter says so (`respond_via`); any other is only looked at.
- What is known of a call is as much as the capture level lets be seen: nothing is made up.
- A deadline is the emitter's word, by its clock. It ends no ask here: an event does. Only what
  `FORGOTTEN` ago should have ended is not listed any more.

Worst case in memory: 90 MiB where every name is as long as it may be, and in letters of four bytes;
2 MiB as a rule. Pure; it never raises, whatever JSON comes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypeVar

from attrs import define, field, frozen

from kimiaepd.gate.answers import Option
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.views import words
from kimiaepd.views.relay_seen import moment_of

TYPES: tuple[JSON, ...] = ("attention.*", "tool.requested", "session.ended", "error.raised")
"""The events that asks are folded from, and that say what became of an answer."""

MOST_OPEN = 1_000
MOST_ENDED = 4_096
MOST_CALLS = 4_096
"""Of open asks, of those whose end is remembered, of calls that an ask may be about."""

MOST_OPTIONS = 16
LONGEST_NAME = 256
LONGEST_PROMPT = 4_000
"""Characters: of an id or a label; of what is asked."""

FORGOTTEN = timedelta(minutes=10)

Key: TypeAlias = tuple[str, str]
"""An ask: its session, and the id of its request."""

How: TypeAlias = Literal["answered", "timeout", "dismissed"]

Item = TypeVar("Item")


@frozen
class Ask:
    """Something that waits for a person.

    Attributes:
        id: of its attention.requested; what an answer is about.
        kind: permission, input, and so on, as the standard has it.
        prompt: what is asked, as it came: it is untrusted.
        options: what can be said.
        is_answerable: whether an answer can be sent, or the agent's own screen is the place.
        run: the run that it belongs to.
        tool: the tool that it is about.
        call: the vendor's id of the call.
        given: what that call is given, in a harmless line; may be empty.
        requested_at: when it was asked.
        expires_at: until when somebody waits for the answer.
    """

    id: str
    session: str
    kind: str
    prompt: str = field(repr=False)
    options: tuple[Option, ...]
    is_answerable: bool
    run: str | None = None
    tool: str | None = None
    call: str | None = None
    given: str = field(default="", repr=False)
    requested_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.session, self.id

    def left(self, now: datetime) -> float | None:
        """The seconds until its deadline, negative after it; None where it has none."""
        return None if self.expires_at is None else (self.expires_at - now).total_seconds()


@frozen
class Ending:
    """How an ask ended.

    Attributes:
        how: somebody answered, nobody did in time, or it was given up.
        option: the answer, where the option is known.
        cause: the event that led to it; of an answer over a relay, the command.
        via: "control": over a relay; "oob": at the agent's own screen; None: it does not say.
    """

    how: How
    option: str | None = None
    cause: str | None = None
    via: str | None = None


@frozen
class Asked:
    """An ask came."""

    ask: Ask


@frozen
class Ended:
    """An ask ended."""

    ask: Ask
    ending: Ending


@define(eq=False)
class Asks:
    """All that was asked, as far as events were seen.

    Attributes:
        open: those that wait, in the order in which they came.
        ended: how the newest of the others ended; an ask whose request was not seen is among them.
        dropped: open ones that were forgotten because there were too many.
    """

    open: OrderedDict[Key, Ask] = field(factory=OrderedDict)
    ended: OrderedDict[Key, Ending] = field(factory=OrderedDict)
    dropped: int = 0
    _calls: OrderedDict[Key, tuple[str | None, str]] = field(factory=OrderedDict)

    def take(self, event: JSONObject) -> list[Asked | Ended]:
        """Fold an event; what came of it."""
        session = _name(event.get("session"))
        if session is None:
            return []
        match event.get("type"):
            case "tool.requested":
                self._requested_call(session, event)
            case "attention.requested":
                return self._requested(session, event)
            case "session.ended":
                return self._session_ended(session)
        ending = _ending(event)
        return self._end(session, event, ending) if ending else []

    def listed(self, now: datetime) -> list[Ask]:
        """The open ones: those that can be answered first, by their deadlines, then the others."""
        return sorted(
            (ask for ask in self.open.values() if not _is_forgotten(ask, now)), key=_order
        )

    def find(self, typed: str) -> list[Ask]:
        """The open asks that a person may mean by an id, its beginning or its end."""
        return [ask for ask in self.open.values() if _is_meant(ask.id, typed)]

    def find_call(self, typed: str) -> list[Ask]:
        """The open asks about a call of this id."""
        return [ask for ask in self.open.values() if ask.call == typed]

    def find_ended(self, typed: str) -> list[Ending]:
        """How those ended that a person may mean."""
        return [ending for (_, name), ending in self.ended.items() if _is_meant(name, typed)]

    def _requested_call(self, session: str, event: JSONObject) -> None:
        if (name := _name(event.get("id"))) is not None:
            data = event.get("data")
            call = _name(words.said(data, "tool.call_id"))
            _keep(self._calls, (session, name), (call, words.call_input(data)), MOST_CALLS)

    def _requested(self, session: str, event: JSONObject) -> list[Asked | Ended]:
        name = _name(event.get("id"))
        if name is None or (session, name) in self.ended or (session, name) in self.open:
            return []
        call, given = self._calls.get((session, str(event.get("cause"))), (None, ""))
        ask = _ask(session, name, event, call, given)
        self.open[ask.key] = ask
        if len(self.open) > MOST_OPEN:
            self.open.popitem(last=False)
            self.dropped += 1
        return [Asked(ask)]

    def _end(self, session: str, event: JSONObject, ending: Ending) -> list[Asked | Ended]:
        subject = _name(event.get("subject"))
        if subject is None or (session, subject) in self.ended:
            return []  # the first to say so says how: attention.resolved comes after the answer
        key = (session, subject)
        _keep(self.ended, key, ending, MOST_ENDED)
        ask = self.open.pop(key, None)
        return [Ended(ask, ending)] if ask else []

    def _session_ended(self, session: str) -> list[Asked | Ended]:
        over = [ask for ask in self.open.values() if ask.session == session]
        ended: list[Asked | Ended] = []
        for ask in over:
            del self.open[ask.key]
            _keep(self.ended, ask.key, Ending("dismissed"), MOST_ENDED)
            ended.append(Ended(ask, Ending("dismissed")))
        return ended


def _ask(session: str, name: str, event: JSONObject, call: str | None, given: str) -> Ask:
    data = event.get("data")
    respond_via = words.said(data, "respond_via")
    prompt = words.said(data, "prompt")
    return Ask(
        id=name,
        session=session,
        kind=_name(words.said(data, "kind")) or "",
        prompt=prompt[:LONGEST_PROMPT] if isinstance(prompt, str) else "",
        options=tuple(_options(words.said(data, "options"))),
        is_answerable=isinstance(respond_via, list) and "control" in respond_via,
        run=_name(event.get("run")),
        tool=_name(event.get("subject")),
        call=call,
        given=given,
        requested_at=moment_of(event.get("time")),
        expires_at=moment_of(words.said(data, "expires_at")),
    )


def _options(value: JSON) -> Iterable[Option]:
    for one in value[:MOST_OPTIONS] if isinstance(value, list) else ():
        if isinstance(one, dict) and (name := _name(one.get("id"))):
            label = one.get("label")
            yield Option(name, label[:LONGEST_NAME] if isinstance(label, str) and label else name)


def _ending(event: JSONObject) -> Ending | None:
    data, cause = event.get("data"), _name(event.get("cause"))
    match event.get("type"):
        case "attention.answered":
            option, via = words.said(data, "answer.option"), words.said(data, "via")
            return Ending("answered", _name(option), cause, _name(via))
        case "attention.timeout":
            return Ending("timeout", cause=cause)
        case "attention.resolved":
            is_answered = words.said(data, "resolution") in ("answered", "auto")
            return Ending("answered" if is_answered else "dismissed", cause=cause)
    return None


def _name(value: JSON) -> str | None:
    """A name that is one; a longer one than any of ours is none."""
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME else None


def _is_meant(name: str, typed: str) -> bool:
    return bool(typed) and (name.startswith(typed) or name.endswith(typed))


def _is_forgotten(ask: Ask, now: datetime) -> bool:
    left = ask.left(now)
    return left is not None and left < -FORGOTTEN.total_seconds()


def _order(ask: Ask) -> tuple[bool, float]:
    until = ask.expires_at or ask.requested_at
    return (not ask.is_answerable, _stamp(until))


def _stamp(moment: datetime | None) -> float:
    try:
        return moment.timestamp() if moment else 0.0
    except (OverflowError, ValueError, OSError):
        return 0.0


def _keep(items: OrderedDict[Key, Item], key: Key, item: Item, most: int) -> None:
    items[key] = item
    items.move_to_end(key)
    if len(items) > most:
        items.popitem(last=False)
