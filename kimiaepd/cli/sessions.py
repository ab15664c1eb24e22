"""`kimiaepd sessions` and `kimiaepd timeline`: what the log tells, with or without a daemon."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import click

from kimiaepd import settings
from kimiaepd.cli.completion import session_names
from kimiaepd.errors import UsageError, UserError
from kimiaepd.views import story_log
from kimiaepd.views.paper import paper, show
from kimiaepd.views.timeline import overview, session_object, timeline_object
from kimiaepd.views.timeline import timeline as lines_of

_MOST = 20


@click.command()
@click.option("--all", "every", is_flag=True, help="All that have a log.")
@click.option("-n", "--most", type=click.IntRange(min=1), default=_MOST, show_default=True,
              help="So many at most, those that were written to last.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="A list of JSON objects.")
def sessions(*, every: bool, most: int, as_json: bool) -> None:
    """List the sessions in the log, the newest first, with how each of them is.

    A session awaits approval, runs, is idle, has ended, or is stale: it sends no heartbeats any
    more, or said nothing for a day.
    """
    log_dir = settings.load(os.environ).paths.log_dir
    names = story_log.sessions(log_dir)
    told = [story_log.tell(log_dir, name) for name in names[: None if every else most]]
    for one in told:
        _say(one.damage)
    now = datetime.now(UTC)
    if as_json:
        found = [session_object(one.story, now) for one in told]
        click.echo(json.dumps(found, indent=2))
        return
    if not names:
        _say(f"no session is in the log yet ({log_dir})")
        return
    show(paper(), overview([one.story for one in told], now))
    if len(names) > len(told):
        _say(f"{len(names) - len(told)} older sessions are not shown; to see them: --all")


@click.command()
@click.argument("session", required=False, shell_complete=session_names)
@click.option("--last", is_flag=True, help="The session that was written to last.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def timeline(session: str | None, *, last: bool, as_json: bool) -> None:
    """Tell the story of a SESSION from the log: its runs, calls and asks, and who answered.

    SESSION is its name or how it begins, with or without `session_`: 31aa is enough where no other
    one begins so.
    """
    if (session is None) != last:
        raise UsageError("say a SESSION, or --last; to see which there are: kimiaepd sessions")
    log_dir = settings.load(os.environ).paths.log_dir
    names = story_log.sessions(log_dir)
    if session is None and not names:
        raise UserError(f"no session is in the log yet ({log_dir})")
    told = story_log.tell(log_dir, names[0] if session is None else story_log.meant(session, names))
    _say(told.damage)
    now = datetime.now(UTC)
    if as_json:
        click.echo(json.dumps(timeline_object(told.story, now), indent=2))
        return
    console = paper()
    for line in lines_of(told.story, now):
        show(console, line)


def _say(line: str | None) -> None:
    if line is not None:
        click.echo(f"kimiaepd: {line}", err=True)
