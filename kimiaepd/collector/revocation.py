"""A token that was taken back ends the connections that it opened, and not only the way in.

A token is two files' state (`token_file.py`), which nobody announces: so each connection looks,
which costs two `stat`s every `LOOK_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

LOOK_SECONDS = 2.0
"""How long a connection outlives its token at most."""


async def revoked(is_good: Callable[[], bool]) -> None:
    """Wait until a token does not stand any more for what it stood for."""
    while is_good():  # noqa: ASYNC110 - a file tells nobody that it changed
        await trio.sleep(LOOK_SECONDS)
