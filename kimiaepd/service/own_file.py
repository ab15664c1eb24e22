"""The file that a service manager reads: written whole, and touched only where it is ours.

Ours is what has our marker as a line of its own. A link is never ours: `systemctl mask` makes one,
and so do people who keep their units elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from pathlib import Path

from attrs import frozen

from kimiaepd.errors import ConfigError

_MODE = 0o644


@frozen
class OwnFile:
    """A file at a path, known for ours by its marker."""

    path: Path
    marker: str

    def read(self) -> str | None:
        """What we wrote there; None where there is nothing.

        Raises:
            ConfigError: it cannot be read, or somebody else made it.
        """
        try:
            found = b"" if self.path.is_symlink() else self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error.strerror}") from None
        text = found.decode("utf-8", "replace")
        if self.marker not in text.splitlines():
            raise ConfigError(
                f"{self.path}: was not made by `kimiaepd service install`, and stays as it is;"
                f" move it away: mv {shlex.quote(str(self.path))} <elsewhere>"
            )
        return text

    def exists(self) -> bool:
        """Whether anything is there, whoever made it."""
        return os.path.lexists(self.path)

    def is_at(self, path: Path | None) -> bool:
        """Whether another name leads to this file, which need not be there."""
        return path is not None and os.path.realpath(path) == os.path.realpath(self.path)

    def write(self, text: str) -> None:
        """Put this text there, whole or not at all.

        Raises:
            ConfigError: it cannot be written; what was there is there.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".kimiaepd-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(text.encode("utf-8"))
                    file.flush()
                    os.fchmod(file.fileno(), _MODE)
                    os.fsync(file.fileno())
                Path(name).replace(self.path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    Path(name).unlink()
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None

    def remove(self) -> None:
        """Take it away; whether it is ours was asked before.

        Raises:
            ConfigError: it cannot be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be removed: {error.strerror}") from None
