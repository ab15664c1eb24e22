"""`kimiaepd token`: the tokens of the embedded relay, shown and renewed.

What it prints on stdout is the token alone, so that `$(kimiaepd token show)` is one.
"""

from __future__ import annotations

import os

import click

from kimiaepd import settings
from kimiaepd.collector.access import token_files
from kimiaepd.collector.token_file import TokenFile
from kimiaepd.storage.private_directory import create_private

read_only_option = click.option(
    "--read-only", is_flag=True, help="The token that may observe, and not control."
)


@click.group()
def token() -> None:
    """Show or renew the tokens that clients of kimiaepd's own relay need."""


@token.command()
@read_only_option
def show(*, read_only: bool) -> None:
    """Print the token; where there is none yet, it is made."""
    click.echo(_file(read_only=read_only).ensure())


@token.command()
@read_only_option
def rotate(*, read_only: bool) -> None:
    """Make a new token and print it; the old one opens no new connection.

    A daemon that runs takes it at once. Connections that are open stay. What browsers were given
    ends with the token that may control.
    """
    click.echo(_file(read_only=read_only).renew())


def _file(*, read_only: bool) -> TokenFile:
    state_dir = settings.load(os.environ).paths.state_dir
    create_private(state_dir)
    control, observe = token_files(state_dir)
    return observe if read_only else control
