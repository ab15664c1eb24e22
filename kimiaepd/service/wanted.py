"""What a service is told: its command, its variables, and where it may write.

Rules:
- What decides places and settings is carried over from the shell of the install, because a service
  manager knows nothing of that shell. `CARRIED` is the whole list.
- A secret is never in it: a unit is a file that others may read, and its variables are shown by the
  manager to whoever asks. The relay's token stands in `relay.token_file`.
- Text that a unit or a plist cannot hold is refused here, with the name of where it came from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from kimiaepd.errors import ConfigError
from kimiaepd.settings import VARIABLES, Settings

CARRIED = (
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "KIMIAEPD_CONFIG",
    *VARIABLES,
)
"""The variables that a service gets, where they are set at the install."""

EMPTIED = ("/tmp", "/var/tmp", "/run/user/{uid}")  # noqa: S108 - where sockets may be, not a file of ours
"""Trees whose directories do not outlive a boot or a login."""


@frozen
class Service:
    """What a unit says, whichever manager reads it.

    Attributes:
        program: the command, its interpreter by an absolute path.
        environment: the variables that it gets.
        writable: the directories that it writes in; nothing else needs to be writable.
        state_dir: where a manager without a journal puts what the daemon says.
        stop_seconds: how long the daemon's own stop may take.
    """

    program: tuple[str, ...]
    environment: Mapping[str, str]
    writable: tuple[Path, ...]
    state_dir: Path
    stop_seconds: int


def wanted(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    kimi_home: Path | None = None,
    python: str | None = None,
) -> Service:
    """The service of this instance, run by this interpreter.

    Args:
        settings: the instance's.
        environ: the environment that they come from.
        kimi_home: a flag's word on the vendor's home, which the service keeps to.
        python: the interpreter; the running one by default, with the environment it is in.

    Raises:
        ConfigError: the interpreter does not know its own path, or a text cannot stand in a unit.
    """
    python = sys.executable if python is None else python
    if not python.startswith("/"):
        raise ConfigError(
            "this Python does not know its own path, so no service can name it;"
            " install kimiaepd with an ordinary Python"
        )
    environment = {name: environ[name] for name in CARRIED if environ.get(name)}
    # A relative XDG path is ignored by its specification, and by `paths.py`.
    environment = {
        name: value
        for name, value in environment.items()
        if not name.startswith("XDG_") or value.startswith("/")
    }
    if kimi_home:
        environment["KIMI_CODE_HOME"] = str(kimi_home.absolute())
    writable = _writable(settings)
    for origin, text in (
        ("the interpreter", python),
        *environment.items(),
        *(("the directory", str(path)) for path in writable),
    ):
        _check(origin, text)
    return Service(
        # -P: the manager starts it in the home directory, whose files are no modules of ours.
        program=(python, "-P", "-m", "kimiaepd", "run"),
        environment=environment,
        writable=writable,
        state_dir=settings.paths.state_dir,
        stop_seconds=settings.stop_seconds,
    )


def _writable(settings: Settings) -> tuple[Path, ...]:
    """State, log and socket, without those inside another."""
    paths = settings.paths
    places = [paths.state_dir, paths.log_dir]
    if paths.socket.parent != paths.state_dir:
        places.append(_lasting(paths.socket.parent))
    # Managers want no `..` in them, and people keep logs behind links.
    real = dict.fromkeys(Path(os.path.realpath(place)) for place in places)
    return tuple(
        place
        for place in real
        if not any(place != other and place.is_relative_to(other) for other in real)
    )


def _lasting(directory: Path) -> Path:
    """The directory; in a tree that is emptied the tree, where the daemon makes it again."""
    for pattern in EMPTIED:
        tree = pattern.format(uid=os.getuid())
        if directory.is_relative_to(tree):
            return Path(tree)
    return directory


def _check(origin: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"{origin}: {text!r} is not UTF-8, and a service needs that") from None
    if any(letter < " " or letter == "\x7f" or _is_noncharacter(letter) for letter in text):
        raise ConfigError(
            f"{origin}: {text!r} has a control character in it, which no service file can hold"
        )


def _is_noncharacter(letter: str) -> bool:
    """Code points that are no characters; systemd takes a line with one for broken UTF-8."""
    return "\ufdd0" <= letter <= "\ufdef" or (ord(letter) & 0xFFFF) in (0xFFFE, 0xFFFF)
