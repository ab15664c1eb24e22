"""The relay's own tokens, each in a file of the state directory: made, renewed, read.

Rules:
- A file is 0600, and whole or absent: it is written beside, synced, and linked or renamed. Two that
  make one at the same time end up with the same token.
- It is read when it is asked for, and anew when it changed: a renewed one counts at once.
- A file that others can read, that is a link, or that is not ours authenticates nobody.
- No error and no repr shows a token, and nothing here is logged.

The token for somebody else's relay is `kimiaepd/relay_token.py`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import TypeAlias

from attrs import define, field

from kimiaepd.errors import ConfigError
from kimiaepd.storage.file_safety import sync_data, sync_directory

CONTROL_NAME = "collector-token"
"""The file in the state directory whose token may observe and control."""

OBSERVE_NAME = "collector-token-read"
"""The file whose token may observe."""

SHORTEST = 16
"""Characters of a token at least: somebody may have put one of their own there."""

LONGEST = 4_096
"""Characters of a token at most."""

_RANDOM_BYTES = 32
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_Signature: TypeAlias = tuple[int, int, int, int]


def new_token() -> str:
    """A token: 43 characters that can stand in a header, a subprotocol and a shell's word."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def digest(token: bytes) -> bytes:
    """What is kept and compared in a token's place: it has one length, and shows nothing."""
    return hashlib.sha256(token).digest()


@define(eq=False, repr=False)
class TokenFile:
    """One token's file.

    Attributes:
        path: where it is.
        renewal: the command that has a new token made, for errors.
    """

    path: Path
    renewal: str = "kimiaepd token rotate"
    _signature: _Signature | None = field(default=None, init=False)
    _digest: bytes | None = field(default=None, init=False)

    def ensure(self) -> str:
        """The token; a new one where there is no file.

        Raises:
            ConfigError: it cannot be made or read, or cannot be trusted.
        """
        if not os.path.lexists(self.path):
            self._write(new_token(), renew=False)
        return self.read()

    def renew(self) -> str:
        """Put a new token there, whatever was there before.

        Raises:
            ConfigError: it cannot be written; the old one stays.
        """
        token = new_token()
        self._write(token, renew=True)
        return token

    def read(self) -> str:
        """The token.

        Raises:
            ConfigError: there is none, or none that can be trusted.
        """
        try:
            descriptor = os.open(self.path, _TO_READ)
            try:
                self._trust(os.fstat(descriptor))
                content = os.read(descriptor, LONGEST + 2)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error.strerror}") from None
        token = content.decode("ascii", "replace").strip()
        if not SHORTEST <= len(token) <= LONGEST or not all("!" <= one <= "~" for one in token):
            raise ConfigError(
                f"{self.path}: holds no token: {SHORTEST} or more characters without blanks on one"
                f" line; to have a new one made: {self.renewal}"
            )
        return token

    def _trust(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(f"{self.path}: is no file of yours; remove it")
        if found.st_mode & 0o077:
            raise ConfigError(
                f"{self.path}: others can read this token (mode {stat.S_IMODE(found.st_mode):04o});"
                f" have a new one made: {self.renewal}"
            )

    def digest(self) -> bytes | None:
        """The digest of the token as it is now; None where there is none that can be trusted.

        It costs one look at the file's state; the file is read where that changed.
        """
        try:
            found = self.path.lstat()
        except OSError:
            self._signature = self._digest = None
            return None
        signature = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if signature != self._signature:
            try:
                self._digest = digest(self.read().encode())
            except ConfigError:
                self._digest = None
            self._signature = signature
        return self._digest

    def _write(self, token: str, *, renew: bool) -> None:
        beside: Path | None = None
        try:
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")
            beside = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o600)  # the umask may have taken from it
                file.write(token.encode() + b"\n")
                file.flush()
                sync_data(descriptor)
            if renew:
                beside.rename(self.path)
            else:
                os.link(beside, self.path)
            sync_directory(self.path.parent)
        except FileExistsError:
            return  # another process made one just now, and that one counts
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None
        finally:
            if beside is not None:
                beside.unlink(missing_ok=True)
