"""`kimiaepd answer`, `cancel`, `instruct`: commands to a session, for scripts.

With `--json` each prints one object, also where it was not accepted: `result` ("accepted",
"unseen", "rejected", "late", "unauthorized", "not-found", "timeout"), `why`, `session`, and as far
as they are known `ask`, `option` (the one that took effect), `reason` (the standard's), `by`,
`detail`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import click
import trio

from kimiaepd import settings
from kimiaepd.cli.completion import session_names
from kimiaepd.errors import (
    EXIT_NOT_ALLOWED,
    EXIT_NOT_FOUND,
    EXIT_REJECTED,
    EXIT_SILENT,
    UsageError,
)
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.views import orders, words
from kimiaepd.views.asks import Ask
from kimiaepd.views.desk import ANSWER_SECONDS, Desk, Result, Verdict, wish
from kimiaepd.views.relay import Relay, find
from kimiaepd.views.relay_consumer import Consumer, consuming

_STATUSES: dict[Result, int] = {
    "accepted": 0,
    "unseen": EXIT_SILENT,
    "timeout": EXIT_SILENT,
    "rejected": EXIT_REJECTED,
    "late": EXIT_REJECTED,
    "not-found": EXIT_NOT_FOUND,
    "unauthorized": EXIT_NOT_ALLOWED,
}

_Send: TypeAlias = Callable[[Consumer, str], Awaitable[Verdict]]

_MOST_TEXT = 1 << 16
"""Bytes that are read from standard input: far more than are taken."""

_NOBODY = "no daemon claims such a session now; its name stands in: kimiaepd status"

_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0.1, max=600),
    default=ANSWER_SECONDS,
    show_default=True,
    help="Seconds to wait in all.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command()
@click.argument("what", nargs=-1, metavar="[ASK] [OPTION]")
@click.option("--call", metavar="ID", help="The ask about this call, in the place of ASK.")
@click.option("--reason", metavar="TEXT", help="Why; a refused call is told.")
@click.option("--text", metavar="TEXT", help="An answer in words, in the place of OPTION.")
@_TIMEOUT
@_JSON
def answer(
    *,
    what: tuple[str, ...],
    call: str | None,
    reason: str | None,
    text: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Answer an ask: allow a held call, or deny it.

    ASK is its id as `kimiaepd inbox --once` shows it, or enough of its beginning or its end. OPTION
    is one of those that it offers. Words that are no option deny, and are the reason.

    Exit status 0: it took effect; 3: nothing was heard in time; 4: rejected, or too late; 66: no
    such ask; 77: the token may only look.
    """
    typed, option = _what(what, call, text)
    if text is not None and reason is not None:
        raise UsageError("--text is an answer of its own, and --reason goes with an OPTION")
    relay = find(settings.load(os.environ), os.environ, may_control=True)
    words_said = text if text is not None else reason
    choose = partial(orders.said, option=option, words_said=words_said)
    verdict, ask = trio.run(partial(_answer, relay, typed, call, choose, timeout))
    _tell(verdict, ask.session if ask else None, ask, as_json=as_json)


def _what(
    what: tuple[str, ...], call: str | None, text: str | None
) -> tuple[str | None, str | None]:
    """The ask and the option that were typed."""
    given = list(what)
    typed = given.pop(0) if call is None and given else None
    option = given.pop(0) if text is None and given else None
    if given:
        raise UsageError(f"too much: {words.harmless(given[0])}; see: kimiaepd answer --help")
    if typed is None and call is None:
        raise UsageError("say which ASK; to see those that wait: kimiaepd inbox --once")
    if option is None and text is None:
        raise UsageError("say an OPTION, such as allow or deny, or --text")
    return typed, option


async def _answer(
    relay: Relay,
    typed: str | None,
    call: str | None,
    choose: Callable[[Ask], JSONObject],
    seconds: float,
) -> tuple[Verdict, Ask | None]:
    async with (
        consuming(relay, wish(), "kimiaepd-answer") as consumer,
        trio.open_nursery() as desk_nursery,
    ):
        desk = Desk(consumer)
        desk_nursery.start_soon(desk.run)
        await desk.catch_up()
        ask: Ask | None = None
        match orders.pick(desk.asks, typed, call):
            case Verdict() as verdict:
                pass
            case found:
                ask = found
                verdict = await desk.answer(ask, choose(ask), seconds=seconds)
        desk_nursery.cancel_scope.cancel()
    return verdict, ask


@click.command()
@click.argument("session", shell_complete=session_names)
@click.option("--run", metavar="RUN", help="Only if this run is the one that is open.")
@_TIMEOUT
@_JSON
def cancel(*, session: str, run: str | None, timeout: float, as_json: bool) -> None:
    """Cancel what a session does now.

    Kimi lets that be done from outside for sessions of `kimi web` alone; it needs web.mode
    "primary" and web.control. SESSION is a name, or how it begins.

    Exit status 0: accepted; 3: nothing was heard in time; 4: rejected; 66: no such session; 77: the
    token may only look.
    """
    _command(session, partial(orders.cancel, run=run, seconds=timeout), as_json=as_json)


@click.command()
@click.argument("session", shell_complete=session_names)
@click.argument("text")
@_TIMEOUT
@_JSON
def instruct(*, session: str, text: str, timeout: float, as_json: bool) -> None:
    """Tell a session's agent something; it goes with the session's next prompt.

    It needs instruct.enabled. SESSION is a name, or how it begins. TEXT is the text, or - for
    standard input.

    Exit status 0: it is queued; 3: nothing was heard in time; 4: rejected; 66: no such session; 77:
    the token may only look.
    """
    if text == "-":
        text = sys.stdin.buffer.read(_MOST_TEXT).decode("utf-8", "replace")
    _command(session, partial(orders.instruct, text=text, seconds=timeout), as_json=as_json)


def _command(typed: str, send: _Send, *, as_json: bool) -> None:
    relay = find(settings.load(os.environ), os.environ, may_control=True)
    verdict, session = trio.run(_send, relay, typed, send)
    _tell(verdict, session, None, as_json=as_json)


async def _send(relay: Relay, typed: str, send: _Send) -> tuple[Verdict, str | None]:
    async with consuming(relay, None, "kimiaepd-command") as consumer:
        session = await orders.session_of(consumer, typed)
        if session is None:
            return Verdict("not-found", _NOBODY), None
        return await send(consumer, session), session


def _tell(verdict: Verdict, session: str | None, ask: Ask | None, *, as_json: bool) -> None:
    """Say what became of a command, and end with the status that says it too."""
    status = _STATUSES[verdict.result]
    if as_json:
        click.echo(json.dumps(_facts(verdict, session, ask)))
    else:
        line = (
            verdict.why
            if verdict.result in ("accepted", "unseen")
            else f"not accepted: {verdict.why}"
        )
        click.echo(line if not status else f"kimiaepd: {line}", err=bool(status))
    sys.exit(status)


def _facts(verdict: Verdict, session: str | None, ask: Ask | None) -> JSONObject:
    outcome, ending = verdict.outcome, verdict.ending
    facts: JSONObject = {
        "result": verdict.result,
        "why": verdict.why,
        "session": session,
        "ask": ask.id if ask else None,
        "option": ending.option if ending else None,
        "reason": outcome.reason if outcome else None,
        "by": outcome.by if outcome else None,
        "detail": (outcome.detail or None) if outcome else None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}
