"""Where views print: coloured on a terminal that wants it, plain everywhere else.

Rules:
- No escape sequence goes into a pipe, nor anywhere where NO_COLOR is set or the terminal is dumb.
- On a terminal a line is as wide as that at most; in a pipe it is as long as it is.
- rich's markup, emoji and highlighting are off: what is printed came from outside.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click
from rich.console import Console, RenderableType
from rich.text import Text

ENDLESS = 1_000
"""Columns of what is no terminal; no line of ours is longer."""


def paper(file: TextIO | None = None) -> Console:
    """A console for what people read; `file` is standard output by default."""
    to = sys.stdout if file is None else file
    is_terminal = to.isatty()
    is_plain = not is_terminal or bool(os.environ.get("NO_COLOR"))
    return Console(
        file=to,
        force_terminal=is_terminal,
        color_system=None if is_plain else "auto",
        no_color=is_plain,
        width=None if is_terminal else ENDLESS,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


def show(console: Console, what: RenderableType) -> None:
    """Print; a line is cut where the terminal ends, and has no blanks at its end.

    Raises:
        OSError: it cannot be written; of a reader that has gone, BrokenPipeError.
    """
    with console.capture() as captured:
        if isinstance(what, Text):
            console.print(what, no_wrap=True, overflow="ellipsis")
        else:
            console.print(what)
    lines = (line.rstrip() for line in captured.get().splitlines())
    text = "\n".join(lines) + "\n"
    click.echo(text, nl=False, file=console.file, color=console.color_system is not None)


def line(*parts: tuple[str, str]) -> Text:
    """One line of parts, each a text and its style."""
    return Text.assemble(*parts)
