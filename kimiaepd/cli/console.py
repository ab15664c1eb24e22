"""`kimiaepd console`: what opens the daemon's own relay to a browser, or to another client.

What it prints is good for a minute, or for as long as the daemon runs. The tokens that stay are
`kimiaepd token`'s.
"""

from __future__ import annotations

import json
import os
from functools import partial

import click
import trio

from kimiaepd import settings
from kimiaepd.errors import UserError
from kimiaepd.hook_socket.client import request

_ANSWER_SECONDS = 2.0


@click.command()
@click.option("--read-only", is_flag=True, help="To observe alone: no answer, no other command.")
@click.option(
    "--token",
    "with_token",
    is_flag=True,
    help="Print a token, for a client that can send it in a URL alone; it ends with the daemon.",
)
@click.option("--json", "as_json", is_flag=True, help="The place and the code as one JSON object.")
def console(*, read_only: bool, with_token: bool, as_json: bool) -> None:
    """Print where the daemon's own relay is, with a code that lets one browser in.

    The code is good once, within 60 s. It stands in the URL's fragment, which no browser sends to
    anybody; POST /session exchanges it for a token that ends with the daemon.
    """
    words = [b"read-only"] * read_only + [b"token"] * with_token
    where = settings.load(os.environ).paths.socket
    asked = partial(request, where, "console", b" ".join(words), timeout=_ANSWER_SECONDS)
    answer = trio.run(asked)
    if (error := answer.get("error")) is not None:
        raise UserError(f"there is no console here: {error}")
    if as_json:
        click.echo(json.dumps(answer))
    elif with_token:
        click.echo(answer["token"])
    else:
        click.echo(f"{answer['url']}/#code={answer['code']}")
