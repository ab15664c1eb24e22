"""`kimiaepd tail`: what agents do, as they do it."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Literal

import click
import trio
from rich.console import Console
from rich.text import Text

from kimiaepd import settings
from kimiaepd.cli import EXIT_INTERRUPTED
from kimiaepd.cli.completion import session_names
from kimiaepd.errors import UsageError
from kimiaepd.mapping.event import SEVERITIES, Capture
from kimiaepd.views.paper import paper, show
from kimiaepd.views.relay import Relay, find
from kimiaepd.views.relay_consumer import Item, Wish, consuming
from kimiaepd.views.tail import Tail, Wanted, filter_of, since_of

_LEVELS = [level.word for level in Capture]
_LOOK_SECONDS = 1.0
"""How often a reader that has gone is looked for, while there is nothing to write."""


@click.command()
@click.option("--session", "sessions", multiple=True, metavar="NAME", shell_complete=session_names,
              help="Only this session: its name, or how it begins. May be repeated.")  # fmt: skip
@click.option("--type", "kinds", multiple=True, metavar="TYPE",
              help="Only such events: run.failed, tool.*, or tool. May be repeated.")  # fmt: skip
@click.option("--severity", type=click.Choice(SEVERITIES), help="Only of this severity or more.")
@click.option("--agent", "agents", multiple=True, metavar="NAME",
              help="Only of this agent. May be repeated.")  # fmt: skip
@click.option("--capture", type=click.Choice(_LEVELS), help="Show no more than this level has.")
@click.option("--from", "start", type=click.Choice(["all", "now"]), default="now",
              show_default=True, help="All that the relay holds first, or what comes.")  # fmt: skip
@click.option("--since", metavar="WHEN", help="What it holds since then: 10m, 2h, 1d, or a time.")
@click.option("--json", "in_json", is_flag=True, help="Print each event as a line of JSON.")
def tail(
    *,
    sessions: tuple[str, ...],
    kinds: tuple[str, ...],
    severity: str | None,
    agents: tuple[str, ...],
    capture: str | None,
    start: Literal["all", "now"],
    since: str | None,
    in_json: bool,
) -> None:
    """Show what agents do, as they do it, until Ctrl-C.

    Events come from the relay that is configured, the daemon's own by default. Where the
    connection is lost, it goes on where it was once that is back.
    """
    if since is not None and start == "all":
        raise UsageError("--from all and --since cannot both be; leave one out")
    wish = Wish(
        filter_of(kinds, severity, agents),
        since=start if since is None else since_of(since, datetime.now().astimezone()),
        ceiling=None if capture is None else Capture(_LEVELS.index(capture)),
    )
    relay = find(settings.load(os.environ), os.environ)
    console = paper()
    # Or a person would look at an empty screen and wonder.
    greeting = f"looking at {relay.spot().address.url}; Ctrl-C ends" if console.is_terminal else ""
    shown = Tail(Wanted(sessions), partial(_print, console), _say, in_json, greeting)
    try:
        trio.run(_follow, relay, wish, shown.take)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


async def _follow(relay: Relay, wish: Wish, take: Callable[[Item], None]) -> None:
    async with consuming(relay, wish, "kimiaepd-tail") as consumer:
        while True:
            item = None
            with trio.move_on_after(_LOOK_SECONDS):
                item = await consumer.next()
            if item is not None:
                take(item)
            elif _has_nobody_who_reads():
                raise BrokenPipeError(errno.EPIPE, "nobody reads")  # as the next line would


def _has_nobody_who_reads() -> bool:
    """Whether standard output is a pipe that nobody will read from again."""
    if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def _print(console: Console, line: Text | str) -> None:
    if isinstance(line, str):
        click.echo(line)
    else:
        show(console, line)


def _say(line: str) -> None:
    click.echo(f"kimiaepd: {line}", err=True)
