"""The epoch: a small number that no two starts of the daemon share (rule I27).

Rules:
- It is one more than the one before, and more than any that is found in the logs. It is no clock
  value: a relay that keeps positions as `epoch * 2**40 + seq` in a double is exact only below 8192.
- It is on the disk before anybody uses it.
- A file that is missing or makes no sense is as good as none: the logs say enough.
"""

from __future__ import annotations

import re
from pathlib import Path

from kimiaepd.errors import ConfigError
from kimiaepd.storage.file_safety import write_atomically
from kimiaepd.storage.log_files import open_to_read

EPOCH_NAME = "epoch"
"""The file in the state directory."""

_NUMBER = re.compile(rb"[0-9]{1,15}\n")


def next_epoch(state_dir: Path, at_least: int) -> int:
    """Take the next epoch.

    Args:
        state_dir: ours alone, locked, and there.
        at_least: the highest epoch that is in use anywhere; 0 where none is.

    Returns:
        More than `at_least`, and more than any number this function has returned before.

    Raises:
        ConfigError: it cannot be written down.
    """
    path = state_dir / EPOCH_NAME
    epoch = max(_read(path), at_least) + 1
    try:
        write_atomically(path, b"%d\n" % epoch)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return epoch


def _read(path: Path) -> int:
    try:
        with open_to_read(path) as file:
            content = file.read(64)
    except OSError:
        return 0
    return int(content) if _NUMBER.fullmatch(content) else 0
