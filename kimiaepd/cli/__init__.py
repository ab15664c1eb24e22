"""The command line: parses, calls, prints. No logic lives here.

Rules:
- One line for each failure, on standard error, and the exit status of `errors.py`; never 2, which
  Kimi reads as a deny where a command is registered as a hook by mistake.
- Modules are imported when their command runs, so that `kimiaepd ping` costs little.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import traceback

import click

from kimiaepd import __version__
from kimiaepd.errors import EXIT_DEFECT, EXIT_NO, EXIT_USAGE, UserError

_UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EBADF)

EXIT_INTERRUPTED = 130
"""Ended by Ctrl-C, as a shell says it."""

_COMMANDS = {
    "run": ("daemon", "run"),
    "up": ("daemon", "up"),
    "status": ("talk", "status"),
    "ping": ("talk", "ping"),
    "setup": ("setup", "setup"),
    "service": ("service", "service"),
    "doctor": ("doctor", "doctor"),
    "validate": ("validate", "validate"),
    "collector": ("collector", "collector"),
    "token": ("token", "token"),
    "console": ("console", "console"),
    "gate": ("gate", "gate"),
    "demo": ("demo", "demo"),
    "tail": ("tail", "tail"),
    "inbox": ("inbox", "inbox"),
    "answer": ("answer", "answer"),
    "cancel": ("answer", "cancel"),
    "instruct": ("answer", "instruct"),
    "sessions": ("sessions", "sessions"),
    "timeline": ("sessions", "timeline"),
    "completion": ("completion", "completion"),
}


class _Commands(click.Group):
    """The commands, each in the module of its group, loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, name = place
        command = getattr(importlib.import_module(f"kimiaepd.cli.{module}"), name)
        return command if isinstance(command, click.Command) else None


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kimiaepd")
def kimiaepd() -> None:
    """Turn what Kimi Code CLI does into AEP events, and keep them.

    Begin with `kimiaepd up`: it registers the hooks and runs the daemon.
    """


def main() -> None:
    """Run the command line, and end the process with the right status."""
    _have_standard_streams()
    try:
        kimiaepd.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(EXIT_USAGE)
    except click.UsageError as error:
        where = f"; see: {error.ctx.command_path} --help" if error.ctx else ""
        said = " ".join(error.format_message().split())  # click gives each choice a line
        _fail(said.rstrip(".") + where, EXIT_USAGE)
    except click.ClickException as error:
        _fail(error.format_message(), EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", EXIT_INTERRUPTED)
    except BaseExceptionGroup as group:
        # A nursery of Trio's puts a Ctrl-C into a group.
        if group.split(KeyboardInterrupt)[1]:
            _defect()
        _fail("interrupted", EXIT_INTERRUPTED)
    except UserError as error:
        _fail(str(error), error.status)
    except OSError as error:  # not of a reader that has gone: click ends us for that, with 1
        _unwritten(error)
    except Exception:  # noqa: BLE001 - a defect is said as what it is, with all that helps to mend it
        _defect()


def _defect() -> None:
    traceback.print_exc()
    _fail("this is a defect of kimiaepd; please report the lines above", EXIT_DEFECT)


def _unwritten(error: OSError) -> None:
    if error.filename is not None or error.errno not in _UNWRITABLE:
        _defect()
    # What is still in Python's buffer goes nowhere, or it would complain at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _fail(f"cannot write to standard output: {error.strerror}", EXIT_NO)


def _have_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed, or the next file we open would be it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # A file may have a name that the terminal's encoding cannot spell: that must not end us.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _fail(line: str, status: int) -> None:
    click.echo(f"kimiaepd: {line}", err=True)
    sys.exit(status)
