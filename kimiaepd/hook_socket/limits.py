"""What clients of the socket can cost, each and all together, and the sum of it in memory."""

from __future__ import annotations

from attrs import frozen

from kimiaepd.hook_socket.connection import PIECE_BYTES
from kimiaepd.hook_socket.wire import HEADER_BYTES


@frozen
class Limits:
    """Bounds on clients (rule I10). Sizes in bytes, times in seconds.

    Attributes:
        frame_bytes: the longest body that is read.
        connections: how many at once; the next is closed at once.
        header_bytes: the longest header.
        large_bytes: what the bodies of more than `PIECE_BYTES` may announce together; the hook that
            finds no room is freed at once. Room is kept until its hook is answered.
        read_seconds: from the first wait to the last byte of the request.
        write_seconds: for what of the reply does not fit into the socket.
        stop_seconds: the grace of who is connected when the server stops.
        check_seconds: how often the socket's path is looked at.
    """

    frame_bytes: int = 32 << 20
    connections: int = 256
    header_bytes: int = HEADER_BYTES
    large_bytes: int = 64 << 20
    read_seconds: float = 5.0
    write_seconds: float = 1.0
    stop_seconds: float = 5.0
    check_seconds: float = 30.0

    @property
    def worst_case_bytes(self) -> int:
        """The most that requests hold in memory, whatever clients do: 152 MiB as it stands here.

            connections * 3 * PIECE_BYTES   48 MiB  the piece received last, and a small body being
                                                    collected or handled
            large_bytes * 9 / 8             72 MiB  large bodies being collected or handled: a
                                                    bytearray may have an eighth more than it needs
            frame_bytes                     32 MiB  one body at a time is copied as it becomes whole

        What a handler makes of a body is not in the sum.
        """
        return self.connections * 3 * PIECE_BYTES + self.large_bytes * 9 // 8 + self.frame_bytes
