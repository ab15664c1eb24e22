"""`kimiaepd inbox`: what waits for a person."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import click
import trio

from kimiaepd import settings
from kimiaepd.views import ask_lines
from kimiaepd.views.asks import Ask
from kimiaepd.views.desk import Desk, wish
from kimiaepd.views.paper import paper, show
from kimiaepd.views.relay import Relay, find
from kimiaepd.views.relay_consumer import consuming


@click.command()
@click.option("--once", is_flag=True, help="Print what waits now, and end.")
@click.option("--json", "as_json", is_flag=True, help="The same, each ask as a line of JSON.")
def inbox(
    *,
    once: bool,  # noqa: ARG001 - it always does, so far
    as_json: bool,
) -> None:
    """Show what waits for a person."""
    loaded = settings.load(os.environ)
    now = datetime.now(UTC)
    _print(trio.run(_waiting, find(loaded, os.environ)), now, as_json=as_json)


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
