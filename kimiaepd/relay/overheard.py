"""The stream under a WebSocket, with an ear at the first bytes that come through it.

The library keeps what fails in its reader to itself: where the other side refuses the handshake
without a body, or hangs up in it, nobody is told, and the caller waits until its own deadline. So
the status line is overheard here, and whoever waits is called off at once.

It changes no byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from attrs import define, field

SWITCHED = 101
"""The status of a handshake that went well."""

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})\b")
_LONGEST_STATUS_LINE = 64


def _nothing() -> None:
    pass


@define(eq=False)
class Overheard(trio.abc.Stream):
    """A stream that notes the status of the HTTP answer which comes through it.

    Attributes:
        on_refusal: called when there will be no WebSocket.
        status: HTTP's; None until it was heard.
        is_over: whether the other side has hung up, or done what ends a connection.
    """

    _stream: trio.abc.Stream
    on_refusal: Callable[[], None] = field(default=_nothing, init=False)
    status: int | None = field(default=None, init=False)
    is_over: bool = field(default=False, init=False)
    _head: bytes = field(default=b"", init=False)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """The next bytes."""
        with self._noting_the_end():
            data = await self._stream.receive_some(max_bytes)
        self.is_over |= not data
        if self.status is None:
            self._head = (self._head + data)[:_LONGEST_STATUS_LINE]
            if match := _STATUS_LINE.match(self._head):
                self.status = int(match[1])
            if self.is_over or self.status not in (None, SWITCHED):
                self.on_refusal()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        with self._noting_the_end():
            await self._stream.send_all(data)

    @contextmanager
    def _noting_the_end(self) -> Iterator[None]:
        """Who hangs up with our request unread does it by a reset, which the library keeps too."""
        try:
            yield
        except trio.BrokenResourceError:
            self.is_over = True
            if self.status is None:
                self.on_refusal()
            raise

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room to send."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close."""
        await self._stream.aclose()
