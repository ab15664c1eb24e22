"""`kimiaepd completion`: the script that makes a shell complete our commands and sessions."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, get_completion_class

from kimiaepd import settings
from kimiaepd.errors import UserError
from kimiaepd.views import story_log
from kimiaepd.views.words import is_meant

_PROGRAM = "kimiaepd"
_VARIABLE = "_KIMIAEPD_COMPLETE"
"""By which the script asks; click makes it of the program's name."""

_MOST = 100


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    r"""Print the script that makes a SHELL complete kimiaepd's commands.

    \b
    bash, in ~/.bashrc:    eval "$(kimiaepd completion bash)"
    zsh, in ~/.zshrc:      eval "$(kimiaepd completion zsh)"
    fish:                  kimiaepd completion fish > ~/.config/fish/completions/kimiaepd.fish
    """
    kind = get_completion_class(shell)
    if kind is None:  # click knows all three
        raise UserError(f"this version of click does not know {shell}")
    script = kind(context.find_root().command, {}, _PROGRAM, _VARIABLE)
    click.echo(script.source_template % script.source_vars())


def session_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The sessions in the log that begin so, the newest first; none where it cannot be read."""
    try:
        names = story_log.sessions(settings.load(os.environ).paths.log_dir)
    except UserError:
        return []
    found = [name for name in names if is_meant(name, incomplete)][:_MOST]
    # A shell takes only what begins as it was typed.
    begun = (
        name if name.startswith(incomplete) else name[name.index(incomplete) :] for name in found
    )
    return [CompletionItem(name) for name in begun if name.isprintable()]
