"""What a person types to answer, cancel or instruct, and whom that means.

Rules:
- An ask is meant by its id, the beginning or the end of it that no other open one has, or the id of
  its call. A session by its name or how it begins, among those that somebody claims now.
- What could mean two is never guessed: `UsageError` names them.
- An option is meant by its id or its label. One that is not offered is not sent.

Sending an answer, and what comes of it, is `desk.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kimiaepd.errors import UsageError
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.views import reasons, words
from kimiaepd.views.asks import Ask, Asks
from kimiaepd.views.desk import CATCH_UP_SECONDS, Verdict, verdict
from kimiaepd.views.relay_command import CANCEL, INSTRUCT, build
from kimiaepd.views.relay_consumer import Consumer

_SHOWN = 5
"""Of several that could be meant, so many are named."""

ONLY_LOOKED_AT = "it can be answered at the agent's own screen alone"


def pick(asks: Asks, typed: str | None, call: str | None) -> Ask | Verdict:
    """The ask that is meant, or why it cannot be answered.

    Args:
        asks: all of them.
        typed: its id, or a part of it.
        call: or the id of the call that it is about.

    Raises:
        UsageError: several could be meant.
    """
    found = asks.find_call(call) if call is not None else asks.find(typed or "")
    exact = [ask for ask in found if ask.id == typed]
    match exact or found:
        case [ask] if not ask.is_answerable:
            return Verdict("rejected", ONLY_LOOKED_AT)
        case [ask]:
            return ask
        case [_, *_] as several:
            raise UsageError(f"that could be several asks: {_listed(ask.id for ask in several)}")
    match asks.find_ended(typed or ""):
        case [ending]:
            return Verdict("late", reasons.late(ending), ending=ending)
    return Verdict("not-found", "no such ask is open; to see those that are: kimiaepd inbox --once")


def said(ask: Ask, option: str | None, words_said: str | None) -> JSONObject:
    """An answer.

    Args:
        ask: what it is about.
        option: one that is offered, by its id or its label; None: the words decide.
        words_said: the words, or the reason where there is an option.

    Raises:
        UsageError: no such option is offered.
    """
    answer: JSONObject = {} if words_said is None else {"text": words_said}
    if option is None:
        return answer
    folded = option.casefold()
    by_label = [one.id for one in ask.options if one.label.casefold() == folded]
    for one in ask.options:
        if one.id == option or by_label == [one.id]:
            return {"option": one.id, **answer}
    offered = _listed(one.id for one in ask.options) or "none: use --text"
    raise UsageError(f"no such option: {words.harmless(option)}; it offers {offered}")


async def session_of(consumer: Consumer, typed: str) -> str | None:
    """The session that is meant; None where nobody claims one of that name.

    Raises:
        UsageError: several could be meant.
        UserError: the relay does not take our token.
    """
    entries = await consumer.roster(seconds=CATCH_UP_SECONDS)
    if entries is None:
        return typed  # the relay does not say who is there: the whole name, then
    names = {name for one in entries if isinstance(name := one.get("session"), str)}
    meant = [typed] if typed in names else sorted(n for n in names if words.is_meant(n, typed))
    if len(meant) > 1:
        raise UsageError(f"that could be several sessions: {_listed(meant)}")
    return meant[0] if meant else None


async def cancel(consumer: Consumer, session: str, run: str | None, *, seconds: float) -> Verdict:
    """Cancel the run of a session, this one or whichever is open.

    Raises:
        UserError: the relay does not take our token.
    """
    data: JSONObject = {"scope": "run"} if run is None else {"scope": "run", "run": run}
    command = build(CANCEL, session, run=run, data=data)
    return verdict(CANCEL, await consumer.send(command, seconds=seconds / 2))


async def instruct(consumer: Consumer, session: str, text: str, *, seconds: float) -> Verdict:
    """Put a text before the model at the session's next prompt.

    Raises:
        UserError: the relay does not take our token.
    """
    command = build(INSTRUCT, session, data={"text": text}, capture=Capture.REDACTED)
    return verdict(INSTRUCT, await consumer.send(command, seconds=seconds / 2))


def _listed(names: Iterable[str]) -> str:
    found: Sequence[str] = [words.harmless(name) for name in names]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
