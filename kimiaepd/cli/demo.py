"""`kimiaepd demo`: everything in a minute, without Kimi, on an instance of its own."""

from __future__ import annotations

import os
import signal
from functools import partial

import click
import trio

from kimiaepd.cli.own_name import own_name
from kimiaepd.demo import story
from kimiaepd.demo.performance import perform
from kimiaepd.demo.player import Terms, Who
from kimiaepd.errors import UserError


@click.command()
@click.option(
    "--speed",
    type=click.FloatRange(min=0.1, max=1000),
    default=1.0,
    show_default=True,
    help="How fast; 2: twice as fast.",
)
@click.option("--wait", is_flag=True, help="Leave the first held call to you, for 45 s.")
@click.option("--keep", is_flag=True, help="Keep the instance: its daemon until Ctrl-C, its files.")
def demo(*, speed: float, wait: bool, keep: bool) -> None:
    """Play a recorded session through real hooks to a real daemon, and show what comes of it.

    Nothing of yours is touched: no Kimi is needed, and the instance is gone at the end. Exit status
    0: every step was seen; 1: the line says which was not.
    """
    terms = Terms(speed=speed, waits=wait, program=own_name())
    verdict = trio.run(partial(perform, story.load(), os.environ, terms, _say, keep=keep))
    if verdict.signal is not None:
        signal.raise_signal(verdict.signal)
    gaps = verdict.gaps or {}
    missing = [step for step, what in gaps.items() if what]
    if missing:
        raise UserError(f"the demo did not show: {'; '.join(missing)}")
    click.echo(f"\nall {len(gaps)} steps were seen")


def _say(who: Who, text: str) -> None:
    if who == "step":
        click.echo()
        click.secho(text, bold=True)
    elif who == "demo":
        click.echo(text)
    else:
        click.echo(f"  {who:<7} {text}")
