"""What clients of the socket can cost, each and all together, and the sum of it in memory."""

from __future__ import annotations

from attrs import field, frozen

from kimiaepd.hook_socket.connection import PIECE_BYTES
from kimiaepd.hook_socket.wire import HEADER_BYTES

_LARGE_BYTES = 64 << 20


@frozen
class Limits:
    """Bounds on clients (rule I10). Sizes in bytes, times in seconds.

    Attributes:
        frame_bytes: the longest body that is read.
        connections: how many at once.
        spare_places: how many beside them, in a full house, for those that ask something (ping,
            status, reload); a hook there is let go, and the next connection is closed at once.
        header_bytes: the longest header.
        large_bytes: what the bodies of more than `PIECE_BYTES` may announce together; the hook that
            finds no room is freed at once. Room is kept until its hook is answered. Default 64 MiB,
            or `frame_bytes` where that is more, so that the longest body finds room.
        read_seconds: from the first wait to the last byte of the request.
        spare_seconds: the same for who has a spare place.
        write_seconds: for what of the reply does not fit into the socket.
        stop_seconds: the grace of who is connected when the server stops.
        check_seconds: how often the socket's path is looked at.
    """

    frame_bytes: int = 32 << 20
    connections: int = 256
    spare_places: int = 8
    header_bytes: int = HEADER_BYTES
    large_bytes: int = field()
    read_seconds: float = 5.0
    spare_seconds: float = 0.5
    write_seconds: float = 1.0
    stop_seconds: float = 5.0
    check_seconds: float = 30.0

    @large_bytes.default
    def _room_for_the_longest(self) -> int:
        return max(_LARGE_BYTES, self.frame_bytes)

    @property
    def worst_case_bytes(self) -> int:
        """The most that requests hold in memory, whatever clients do: 153 MiB as it stands here.

            connections * 3 * PIECE_BYTES   48 MiB  the piece received last, and a small body being
                                                    collected or handled
            spare_places * 2 * PIECE_BYTES   1 MiB  the piece received last, and what follows its
                                                    header
            large_bytes * 9 / 8             72 MiB  large bodies being collected or handled: a
                                                    bytearray may have an eighth more than it needs
            frame_bytes                     32 MiB  one body at a time is copied as it becomes whole

        What a handler makes of a body is not in the sum.
        """
        pieces = self.connections * 3 + self.spare_places * 2
        return pieces * PIECE_BYTES + self.large_bytes * 9 // 8 + self.frame_bytes
