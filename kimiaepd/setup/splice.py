"""Changes of a file as splices of its bytes: what is not named is not touched.

It knows nothing of what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen


@frozen
class Splice:
    """The bytes from `start` up to `end` become `new`."""

    start: int
    end: int
    new: bytes = b""


def apply(raw: bytes, splices: Iterable[Splice]) -> bytes:
    """The file after all of them, in one pass; their offsets are those of the old file.

    Where two overlap, as where each takes the newline between them, every byte goes once.
    """
    kept: list[bytes] = []
    position = 0
    for splice in sorted(splices, key=lambda splice: splice.start):
        kept += (raw[position : splice.start], splice.new)
        position = max(position, splice.end)
    return b"".join([*kept, raw[position:]])
