"""The interpreter that hooks run: the real binary, by the name that lasts longest.

Rules:
- No launcher: the start-up of a venv's or pyenv's costs five times the shim. `sys._base_executable`
  is the interpreter under a virtual environment, and links to it are followed.
- But Homebrew's binary lives under a name with its patch release in it, gone after `brew upgrade`;
  its `opt` link stays, costs nothing, and is taken instead.
- What is named in config.toml has been run once as a hook runs it: isolated, in an empty
  environment, with the module that the shim needs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kimiaepd.errors import ConfigError

PROBE_SECONDS = 10
"""How long an interpreter may take to start once; a cold disk takes one or two."""

_PROBE = ("-I", "-S", "-c", "import _socket")
_CELLAR = re.compile(r"(?P<brew>.*)/Cellar/(?P<formula>[^/]+)/[^/]+/(?P<rest>.+)")


def running_interpreter() -> Path:
    """The binary that runs this program, without the virtual environment around it.

    Raises:
        ConfigError: it cannot be told, or it does not run by itself.
    """
    # CPython documents the name only in `venv`, which makes its environments from it.
    base = getattr(sys, "_base_executable", None) or sys.executable
    if not base:
        raise ConfigError(
            "this Python does not know its own path, so no hook can name it;"
            " install kimiaepd with an ordinary Python"
        )
    return checked(lasting(os.path.realpath(base), os.path.samefile))


def lasting(real: str, is_same_file: Callable[[str, str], bool]) -> Path:
    """The name of a real binary that survives an upgrade: Homebrew's `opt` link, else itself."""
    if match := _CELLAR.fullmatch(real):
        link = f"{match['brew']}/opt/{match['formula']}/{match['rest']}"
        try:
            if is_same_file(link, real):
                return Path(link)
        except FileNotFoundError:
            pass
    return Path(real)


def checked(python: Path) -> Path:
    """The interpreter, after it has run once as a hook would run it.

    Raises:
        ConfigError: it does not start, or cannot import what the shim needs.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that we run in, or one under test
            [python, *_PROBE],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{python}: cannot run hooks: {error}; use another Python") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigError(
            f"{python}: cannot run hooks: {said[-1] if said else f'status {done.returncode}'};"
            " use another Python"
        )
    return python
