"""The configs that have hooks of ours, so that the program they share stays while one needs it.

Rules:
- One small file beside the program. What it lists is a hint: a config counts only where hooks of
  ours are found in it (`install._in_use`).
- A list that cannot be read or written costs that hint, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from kimiaepd.storage.file_safety import write_atomically

NAME = "homes.json"


def known(shim: Path) -> list[Path]:
    """Every config in which hooks were registered that name this program, as far as is known."""
    try:
        found = json.loads(shim.with_name(NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    listed = found if isinstance(found, list) else []
    return [Path(one) for one in listed if isinstance(one, str) and one.startswith("/")]


def remember(shim: Path, config: Path) -> None:
    """Note a config that has hooks now."""
    config = config.absolute()
    before = known(shim)
    if config not in before:
        _write(shim, [*before, config])


def forget(shim: Path, config: Path) -> None:
    """Note that a config has none any more; the list goes with its last one."""
    config = config.absolute()
    before = known(shim)
    if config in before:
        _write(shim, [one for one in before if one != config])


def clear(shim: Path) -> None:
    """Forget everything: the program goes, and nobody needs it."""
    with contextlib.suppress(OSError):
        shim.with_name(NAME).unlink()


def _write(shim: Path, configs: list[Path]) -> None:
    file = shim.with_name(NAME)
    with contextlib.suppress(OSError):
        if configs:
            write_atomically(file, json.dumps([os.fspath(one) for one in configs]).encode("ascii"))
        else:
            file.unlink()
