r"""The registered hook command, to the byte, and how one of ours is told from anybody else's.

    trap '' TERM; [ -S 'SOCKET' ] && [ -f 'SHIM' ] && [ -r 'SHIM' ] && [ -x 'PYTHON' ] || exit 0;
    exec 'PYTHON' -I -S 'SHIM' 'SOCKET' SECONDS

Rules:
- The CLI reads exit status 2 as a deny, and Python exits 2 where its script is missing. The tests
  in front make everything that can be missing an exit 0, for the price of a shell.
- `trap '' TERM` survives `exec`: a hook that the CLI abandons has 100 ms to deliver before SIGKILL.
- Every path is in single quotes, always, and a quote in a path is `'\''`: no character of a path
  means anything to the shell.
- Ours are recognised by this shape alone. Comments cannot do it: the vendor drops them whenever it
  saves its settings. When the shape changes, the old one stays in `_SHAPES` for good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from attrs import frozen

from kimiaepd.errors import ConfigError
from kimiaepd.settings import GateSettings


@frozen
class Budget:
    """How long one hook may take.

    Attributes:
        seconds: the shim's own deadline, from the end of its input to the daemon's whole reply.
        timeout: what the CLI is told, in seconds; it kills the hook after this. A whole number from
            1 to 600, or the CLI drops every hook.

    Raises:
        ValueError: the CLI would kill the hook before the shim gave up.
    """

    seconds: float
    timeout: int

    def __attrs_post_init__(self) -> None:
        """Hold the order that makes every hook end by itself."""
        if not 0 < self.seconds < self.timeout:
            raise ValueError(f"a shim of {self.seconds:g} s under a timeout of {self.timeout} s")


OBSERVED = Budget(seconds=0.25, timeout=10)
"""For a hook that only observes. The CLI's own limit is a net that should never be needed: the
shim waits at most 5 s for its input to end, then 0.25 s for the daemon, and the rest is for an
interpreter that starts on a busy machine. Small, so that a CLI with a wedged shim goes on."""

NO_EXCEPTIONS: Mapping[str, Budget] = MappingProxyType({})

HELD_TIMEOUT = 60
"""What the CLI is told for a call that may be held, in seconds."""

AFTER_HOLD_SECONDS = 3
"""How much longer than the hold the shim waits: for the answer of a daemon that is busy."""


def budgets(gate: GateSettings) -> Mapping[str, Budget]:
    """The events that get another budget than `OBSERVED`: PreToolUse, where calls can be held.

    The hold ends before the shim gives up, and the shim before the CLI kills it; `settings.py`
    takes no hold that is too long for this.
    """
    if not gate.enabled:
        return NO_EXCEPTIONS
    seconds = gate.hold_ms / 1000 + AFTER_HOLD_SECONDS
    return {"PreToolUse": Budget(seconds=seconds, timeout=HELD_TIMEOUT)}


@frozen
class Command:
    """What a registered command runs, all of it absolute paths."""

    socket: str
    shim: str
    python: str
    seconds: float

    def render(self) -> str:
        """The command as `/bin/sh -c` gets it."""
        socket, shim, python = quote(self.socket), quote(self.shim), quote(self.python)
        return (
            f"trap '' TERM; [ -S {socket} ] && [ -f {shim} ] && [ -r {shim} ]"
            f" && [ -x {python} ] || exit 0;"
            f" exec {python} -I -S {shim} {socket} {self.seconds:g}"
        )

    @classmethod
    def recognise(cls, text: str) -> Command | None:
        """The parts of a command that has our shape, else None."""
        for shape in _SHAPES:
            if match := shape.fullmatch(text):
                return cls(
                    socket=unquote(match["socket"]),
                    shim=unquote(match["shim"]),
                    python=unquote(match["python"]),
                    seconds=float(match["seconds"]),
                )
        return None


@frozen(order=True)
class Entry:
    """One `[[hooks]]` table of ours."""

    event: str
    command: str
    timeout: int


def entries(
    *,
    socket: str,
    shim: str,
    python: str,
    events: tuple[str, ...],
    exceptions: Mapping[str, Budget] = NO_EXCEPTIONS,
) -> tuple[Entry, ...]:
    """What to register: one entry an event.

    Args:
        socket: where the daemon listens.
        shim: the installed copy of `shim.py`.
        python: the interpreter that runs it.
        events: which events.
        exceptions: the events that get another budget than `OBSERVED`.

    Raises:
        ConfigError: a path is relative, or not UTF-8, and so cannot stand in a config file.
    """
    for path in (socket, shim, python):
        _check(path)
    made = []
    for event in events:
        budget = exceptions.get(event, OBSERVED)
        command = Command(socket=socket, shim=shim, python=python, seconds=budget.seconds)
        made.append(Entry(event, command.render(), budget.timeout))
    return tuple(made)


def quote(text: str) -> str:
    """The text as one word of sh, in single quotes also where it needs none."""
    return "'" + text.replace("'", _QUOTED_QUOTE) + "'"


def unquote(word: str) -> str:
    """The text of a word that `quote` made."""
    return word[1:-1].replace(_QUOTED_QUOTE, "'")


def _check(path: str) -> None:
    if not path.startswith("/"):
        raise ConfigError(f"{path!r} cannot be registered as a hook: give an absolute path")
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            f"{path!r} cannot be registered as a hook: its name is not UTF-8, and Kimi's"
            " config.toml can hold nothing else; use another place"
        ) from None


_QUOTED_QUOTE = r"'\''"
_WORD = r"'(?:[^']|'\\'')*'"

_SHAPES = (
    re.compile(
        rf"trap '' TERM; \[ -S (?P<socket>{_WORD}) \] && \[ -f (?P<shim>{_WORD}) \]"
        rf" && \[ -r (?P=shim) \] && \[ -x (?P<python>{_WORD}) \] \|\| exit 0;"
        r" exec (?P=python) -I -S (?P=shim) (?P=socket) (?P<seconds>\d{1,4}(?:\.\d{1,6})?)"
    ),
)
"""Every shape that was ever registered, the newest first."""
