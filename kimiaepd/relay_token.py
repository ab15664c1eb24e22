"""The relay's token: where it is read from, and what is refused.

Rules (operations I49):
- `AEP_TOKEN` wins over `relay.token_file`, whose only line is the token.
- It is read when it is needed, so that a rotated one is taken at the next connection, and it stands
  in no setting, no log line, no status and no error.
- A file that others can read is refused: what everybody can read authenticates nobody.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from kimiaepd.errors import ConfigError
from kimiaepd.settings import RelaySettings

LONGEST = 4096
"""Bytes of a token at most."""


def relay_token(settings: RelaySettings, environ: Mapping[str, str]) -> str | None:
    """The token for the relay; None where there is none.

    Raises:
        ConfigError: it cannot be read, others can read it, or it cannot stand in a header.
    """
    if token := environ.get("AEP_TOKEN", "").strip():
        return _fit(token, "AEP_TOKEN")
    if settings.token_file is None:
        return None
    file = Path(settings.token_file)
    return _fit(_read(file), str(file))


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077:
                raise ConfigError(
                    f"{file}: others can read the relay's token; run: chmod 600 '{file}'"
                )
            return opened.read(LONGEST + 1).decode("ascii").strip()
    except OSError as error:
        raise ConfigError(
            f"{file}: the relay's token cannot be read: {error.strerror}; mend relay.token_file"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is no token: it is not plain ASCII") from None


def _fit(token: str, origin: str) -> str:
    if not token:
        raise ConfigError(f"{origin}: is empty; put the relay's token there")
    if len(token) > LONGEST or not all("!" <= letter <= "~" for letter in token):
        raise ConfigError(f"{origin}: is no token: it must be one line without blanks")
    return token
