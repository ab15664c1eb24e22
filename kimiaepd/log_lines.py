"""What the daemon says on stderr: lines for people, or JSON lines for a service manager.

Rules:
- A line that nobody takes is dropped. A full disk, a reader that has gone or one that does not read
  must neither end the daemon nor hold it up: hooks are waiting.
- A line is one write of at most `PIPE_BUF` bytes, so that a pipe that is ready takes it at once.
- A traceback names no values: a token may be among them.
- What came from outside is cut and stripped of control characters: ids are the vendor's, and a
  terminal obeys what is printed on it.

What is said, and how often, is for those who say it: the first of a kind, and the rest counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import sys

import structlog

LONGEST_VALUE = 300
"""Characters of one value in a line."""

_STDERR = 2
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class StderrLines:
    """A structlog logger that writes to stderr, if stderr takes it."""

    def __init__(self, *_: object) -> None:
        pass

    def msg(self, line: str) -> None:
        """Write one line, as far as it fits."""
        raw = line.encode("utf-8", "backslashreplace")[: select.PIPE_BUF - 1] + b"\n"
        with contextlib.suppress(OSError, ValueError):
            if select.select((), (_STDERR,), (), 0)[1]:
                os.write(_STDERR, raw)

    debug = info = warning = error = critical = exception = msg


def configure(*, verbose: bool) -> None:
    """Make structlog say its lines this way."""
    renderer: structlog.typing.Processor = (
        # Never rich's, which shows every local variable, tokens too.
        structlog.dev.ConsoleRenderer(
            colors=not os.environ.get("NO_COLOR"),
            exception_formatter=structlog.dev.plain_traceback,
        )
        if sys.stderr and sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            _tame,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if verbose else logging.INFO
        ),
        logger_factory=StderrLines,
        cache_logger_on_first_use=True,
    )


def _tame(
    _: structlog.typing.WrappedLogger, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Cut and clean every value but a traceback, which is ours and may be long."""
    for key, value in event.items():
        if isinstance(value, str) and key != "exception":
            event[key] = tame(value)
    return event


def tame(text: str) -> str:
    """The text fit for a terminal: no control characters, and not too long."""
    clean = _CONTROL.sub("\ufffd", text[: LONGEST_VALUE + 1]).replace("\n", " ").replace("\t", " ")
    return clean if len(clean) <= LONGEST_VALUE else clean[: LONGEST_VALUE - 3] + "..."
