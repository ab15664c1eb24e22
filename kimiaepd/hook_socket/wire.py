r"""The socket protocol, version 1, without I/O: bytes in; a request, a reply or an error out.

One request a connection, and one reply to it:

    request   AEPD1 <kind> <started_ns> <length>\n<length bytes>      header at most 128 bytes
    reply     <length>\n<length bytes>

`kind` is hook, ping, status, reload or console; `started_ns` is the wall clock in nanoseconds at
which the sender started; lengths count bytes. The sender leaves its sending side open, so that its
going shows as end-of-file while a call is held. A reply of no bytes means "nothing to say".

Rules:
- Whatever the bytes are, nothing but `ProtocolError` is raised. What does not begin like a request
  of this version is refused at once, not when a deadline is over.
- A body over the limit is never collected: the header alone says `Oversized`.
- However a frame was cut on its way, the outcome is the same.
- A reader holds at most one body and what came with it, and copies it once.

The shim writes the same frame by itself (it can import nothing); a test holds the two together.
Nothing here knows a socket, a clock, or what a body means.
"""

from __future__ import annotations

import enum
import re
from typing import Final, Literal, TypeAlias, cast

from attrs import frozen

Kind: TypeAlias = Literal["hook", "ping", "status", "reload", "console"]

HEADER_BYTES: Final = 128
NO_REPLY: Final = b"0\n"
"""The reply that frees a hook and says nothing: what every observed hook gets."""

_MAGIC = b"AEPD1 "
_REQUEST = re.compile(rb"AEPD1 (hook|ping|status|reload|console) ([0-9]{1,19}) ([0-9]{1,15})")
_LENGTH = re.compile(rb"[0-9]{1,15}")


class ProtocolError(Exception):
    """The other side does not speak the protocol; `code` says where it left it, in one word.

    Codes: "magic" (not our protocol, or another version of it), "header" (malformed, or too
    long), "trailing" (more bytes than were announced), "too-long" (a reply over the limit).
    """

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class NeedData(enum.Enum):
    """What a reader answers while the frame is not whole."""

    NEED_DATA = enum.auto()


NEED_DATA: Final = NeedData.NEED_DATA


@frozen
class Request:
    """One whole request."""

    kind: Kind
    started_ns: int
    body: bytes


@frozen
class Oversized:
    """A request whose body is over the limit; it is not read.

    Attributes:
        size: the announced length.
        head: the bytes of the body that came along with the header.
    """

    kind: Kind
    started_ns: int
    size: int
    head: bytes


def encode_request(kind: Kind, started_ns: int, body: bytes = b"") -> bytes:
    """The whole frame of a request."""
    return b"AEPD1 %b %d %d\n%b" % (kind.encode(), started_ns, len(body), body)


def encode_reply(body: bytes) -> bytes:
    """The whole frame of a reply."""
    return b"%d\n%b" % (len(body), body)


class RequestReader:
    """Collects one request. Feed it until it answers something other than `NEED_DATA`.

    Args:
        frame_bytes: the longest body that is collected.
        header_bytes: the longest header, newline included.

    Attributes:
        size: the announced length of the body, as soon as the header is whole.
    """

    def __init__(self, *, frame_bytes: int, header_bytes: int = HEADER_BYTES) -> None:
        self._frame_bytes = frame_bytes
        self._header_bytes = header_bytes
        self._kind: Kind = "hook"
        self._started_ns = 0
        self._buffer = bytearray()
        self.size: int | None = None

    def feed(self, data: bytes) -> Request | Oversized | NeedData:
        """Take the next bytes.

        Raises:
            ProtocolError: code "magic", "header" or "trailing"; the reader is of no use after it.
        """
        if self.size is None:
            # Nearly every hook comes in one piece: then nothing is copied but the body.
            whole = bytes(self._buffer) + data if self._buffer else data
            end = whole.find(b"\n", 0, self._header_bytes)
            if end < 0:
                self._refuse_garbage(whole)
                self._buffer += data
                return NEED_DATA
            self._read_header(whole, end)
            self._buffer.clear()
            return self._body(whole[end + 1 :])
        return self._body(data)

    @property
    def empty(self) -> bool:
        """Whether nothing came yet: the client only knocked."""
        return self.size is None and not self._buffer

    def _refuse_garbage(self, start: bytes) -> None:
        if start[: len(_MAGIC)] != _MAGIC[: len(start)]:
            raise ProtocolError("magic")
        if len(start) >= self._header_bytes:
            raise ProtocolError("header")

    def _read_header(self, whole: bytes, end: int) -> None:
        match = _REQUEST.fullmatch(whole, 0, end)
        if match is None:
            raise ProtocolError("header" if whole.startswith(_MAGIC) else "magic")
        kind, started_ns, size = match.groups()
        self._kind = cast("Kind", kind.decode())
        self._started_ns = int(started_ns)
        self.size = int(size)

    def _body(self, data: bytes) -> Request | Oversized | NeedData:
        size = self.size or 0
        if size > self._frame_bytes:
            return Oversized(self._kind, self._started_ns, size, data)
        have = len(self._buffer) + len(data)
        if have > size:
            raise ProtocolError("trailing")
        if have < size:
            self._buffer += data
            return NEED_DATA
        if self._buffer:
            self._buffer += data
            data = bytes(self._buffer)
            self._buffer.clear()
        return Request(self._kind, self._started_ns, data)


class ReplyReader:
    """Collects one reply. Feed it until it answers bytes.

    Args:
        limit: the longest body that is collected.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._size: int | None = None
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes | NeedData:
        """Take the next bytes; the whole body as soon as it is there.

        Raises:
            ProtocolError: code "header", "trailing" or "too-long".
        """
        self._buffer += data
        if self._size is None:
            end = self._buffer.find(b"\n")
            digits = bytes(self._buffer[:end] if end >= 0 else self._buffer)
            if not _LENGTH.fullmatch(digits) and (digits or end == 0):
                raise ProtocolError("header")
            if end < 0:
                return NEED_DATA
            self._size = int(digits)
            del self._buffer[: end + 1]
        if self._size > self._limit:
            raise ProtocolError("too-long")
        if len(self._buffer) > self._size:
            raise ProtocolError("trailing")
        return bytes(self._buffer) if len(self._buffer) == self._size else NEED_DATA
