"""Where the daemon's own relay listens: one small file in the state directory, for its clients.

Rules:
- A client reads the port here and never guesses it: a token is given to nobody else's listener.
- The file is believed only while the daemon that wrote it holds the lock of the state directory:
  after a kill it stays, and another program may have its port.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kimiaepd.mapping.json_value import MalformedJSONError, dump, parse
from kimiaepd.storage.daemon_lock import LOCK_NAME
from kimiaepd.storage.file_safety import write_atomically
from kimiaepd.storage.lock_holder import lock_holder

NAME = "collector.json"
"""The file in the state directory."""

_LARGEST = 4_096


@contextlib.contextmanager
def announced(state_dir: Path, url: str, pid: int) -> Iterator[None]:
    """Say where the relay is for as long as the block lasts.

    Raises:
        OSError: the file cannot be written.
    """
    file = state_dir / NAME
    write_atomically(file, dump({"url": url, "pid": pid}) + b"\n", synced=False)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def read(state_dir: Path) -> str | None:
    """The base URL of the relay in the daemon that runs on a state directory; None: none does."""
    try:
        with (state_dir / NAME).open("rb") as file:
            said = parse(file.read(_LARGEST))
    except (OSError, MalformedJSONError):
        return None
    match said:
        case {"url": str(url), "pid": int(pid)} if lock_holder(state_dir / LOCK_NAME) == pid:
            return url
        case _:
            return None
