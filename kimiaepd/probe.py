"""A hook that nobody's agent sent: how `kimiaepd doctor` tries the registered command, whole.

Rules:
- It travels as any hook does, by the registered command, the shim and the socket, so that what it
  proves is what a hook needs. The daemon knows it by its first bytes, counts it apart, answers with
  the same nothing, and writes no event and no session: a probe never shows in anybody's log.
- Kimi's schema has no event of this name, so no real hook is ever taken for one.
- The nonce tells the prober that its own probe arrived, at this daemon.
"""

from __future__ import annotations

EVENT = "kimiaepd.probe"
NONCE_BYTES = 64
"""The longest nonce that is taken."""

_HEAD = b'{"hook_event_name":"kimiaepd.probe","nonce":"'
_TAIL = b'"}'


def payload(nonce: str) -> bytes:
    """What the prober gives the registered command on standard input.

    Args:
        nonce: ASCII letters and digits, `NONCE_BYTES` at most.
    """
    return _HEAD + nonce.encode("ascii") + _TAIL


def nonce_of(body: bytes) -> str | None:
    """The nonce of a probe; None where the body is none, to the byte."""
    if not (body.startswith(_HEAD) and body.endswith(_TAIL)):
        return None
    nonce = body[len(_HEAD) : -len(_TAIL)]
    return nonce.decode("ascii") if nonce.isalnum() and len(nonce) <= NONCE_BYTES else None
