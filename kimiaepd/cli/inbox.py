"""`kimiaepd inbox`: what waits for a person, and the keys that answer it."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime

import click
import trio

from kimiaepd import settings
from kimiaepd.views import ask_lines
from kimiaepd.views.asks import Ask
from kimiaepd.views.desk import Desk, wish
from kimiaepd.views.inbox_run import run
from kimiaepd.views.paper import paper, show
from kimiaepd.views.relay import Relay, find
from kimiaepd.views.relay_consumer import consuming


@click.command()
@click.option("--once", is_flag=True, help="Print what waits now, and end.")
@click.option("--json", "as_json", is_flag=True, help="The same, each ask as a line of JSON.")
@click.option("--bell", is_flag=True, help="Ring the terminal's bell as an ask comes.")
def inbox(*, once: bool, as_json: bool, bell: bool) -> None:
    """Show what waits for a person, and answer it by a key.

    While an inbox is open somebody could answer, so tool calls are held where the gate is on. Where
    standard input or output is no terminal, it prints what waits once, as with --once.
    """
    loaded = settings.load(os.environ)
    if once or as_json or not _is_a_terminal():
        now = datetime.now(UTC)
        waiting = trio.run(_waiting, find(loaded, os.environ))
        _print(waiting, now, as_json=as_json)
        return
    sys.exit(trio.run(run, find(loaded, os.environ, may_control=True), bell))


def _is_a_terminal() -> bool:
    return (
        sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", None)
    )


async def _waiting(relay: Relay) -> list[Ask]:
    """What waits now; whoever only looks keeps no call waiting."""
    async with (
        consuming(relay, wish(), "kimiaepd-inbox") as consumer,
        trio.open_nursery() as desk_nursery,
    ):
        desk = Desk(consumer)
        desk_nursery.start_soon(desk.run)
        await desk.catch_up()
        desk_nursery.cancel_scope.cancel()
    return desk.asks.listed(datetime.now(UTC))


def _print(waiting: list[Ask], now: datetime, *, as_json: bool) -> None:
    console = paper()
    for ask in waiting:
        if as_json:
            click.echo(json.dumps(ask_lines.facts(ask, now)))
        else:
            show(console, ask_lines.row(ask, now))
    if not waiting and not as_json:
        click.echo("nothing waits")
