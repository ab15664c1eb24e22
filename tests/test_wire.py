"""The socket protocol without I/O: any chunking, any garbage, and the limits at their edge."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.hook_socket.wire import (
    NEED_DATA,
    NO_REPLY,
    Kind,
    NeedData,
    Oversized,
    ProtocolError,
    ReplyReader,
    Request,
    RequestReader,
    encode_reply,
    encode_request,
)

KINDS: tuple[Kind, ...] = get_args(Kind)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The same bytes in pieces, cut at the given places."""
    inner = {place % (len(data) + 1) for place in places}
    edges = sorted({0, len(data)} | inner)
    return [data[start:end] for start, end in pairwise(edges)]


def outcome(reader: RequestReader, pieces: list[bytes]) -> Request | Oversized | NeedData | str:
    """What a reader says to the pieces, up to its first word; an error as its code."""
    for piece in pieces:
        try:
            said = reader.feed(piece)
        except ProtocolError as error:
            return error.code
        if said is not NEED_DATA:
            return said
    return NEED_DATA


PLACES = st.lists(st.integers(min_value=0, max_value=10_000), max_size=20)


@given(
    kind=st.sampled_from(KINDS),
    started=st.integers(min_value=0, max_value=2**63 - 1),
    body=st.binary(max_size=300),
    places=PLACES,
)
def test_a_frame_reads_the_same_however_it_is_cut(
    kind: Kind, started: int, body: bytes, places: list[int]
) -> None:
    frame = encode_request(kind, started, body)
    reader = RequestReader(frame_bytes=300)
    assert outcome(reader, cut(frame, places)) == Request(kind, started, body)


@given(body=st.binary(max_size=300), places=PLACES)
def test_nothing_is_said_before_the_last_byte(body: bytes, places: list[int]) -> None:
    frame = encode_request("hook", 1, body)
    reader = RequestReader(frame_bytes=300)
    assert outcome(reader, cut(frame[:-1], places)) is NEED_DATA
    assert reader.feed(frame[-1:]) == Request("hook", 1, body)


@given(
    garbage=st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(lambda tail: b"AEPD1 " + tail),
        st.binary(max_size=300).map(lambda tail: b"AEPD1 hook 1 " + tail),
    ),
    places=PLACES,
)
def test_garbage_never_raises_anything_else(garbage: bytes, places: list[int]) -> None:
    reader = RequestReader(frame_bytes=10)
    said = outcome(reader, cut(garbage, places))
    assert isinstance(said, Request | Oversized | NeedData | str)


@pytest.mark.parametrize(
    ("start", "code"),
    [
        (b"G", "magic"),
        (b"GET / HTTP/1.1\r\n", "magic"),
        (b"AEPD2 hook 1 2\n", "magic"),
        (b"\n", "magic"),
        (b"{}\n", "magic"),
        (b"AEPD1 hook 1\n", "header"),
        (b"AEPD1 hook 1 2 3\n", "header"),
        (b"AEPD1 hook -1 2\n", "header"),
        (b"AEPD1 hook 1 +2\n", "header"),
        (b"AEPD1 hook 1 1_0\n", "header"),
        (b"AEPD1 hook 1 2\r\n", "header"),
        (b"AEPD1  hook 1 2\n", "header"),
        (b"AEPD1 HOOK 1 2\n", "header"),
        (b"AEPD1 stop 1 2\n", "header"),
        (b"AEPD1 hook 1 \xd9\xa1\n", "header"),
        (b"AEPD1 hook 1 " + b"1" * 16 + b"\n", "header"),
        (b"AEPD1 " + b"x" * 122, "header"),
        (b"AEPD1 hook 1 2\nabc", "trailing"),
        (b"AEPD1 ping 1 0\nx", "trailing"),
    ],
)
def test_what_is_not_the_protocol_is_refused_at_once(start: bytes, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        RequestReader(frame_bytes=100).feed(start)
    assert caught.value.code == code


def test_a_header_may_have_128_bytes_and_no_more() -> None:
    padded = b"AEPD1 " + b"x" * 121
    assert RequestReader(frame_bytes=10).feed(padded) is NEED_DATA
    with pytest.raises(ProtocolError):
        RequestReader(frame_bytes=10).feed(padded + b"x")
    exact = encode_request("hook", 1, b"")
    assert RequestReader(frame_bytes=10, header_bytes=len(exact)).feed(exact) == Request(
        "hook", 1, b""
    )
    with pytest.raises(ProtocolError):
        RequestReader(frame_bytes=10, header_bytes=len(exact) - 1).feed(exact)


@given(places=PLACES)
def test_a_body_over_the_limit_is_known_from_the_header(places: list[int]) -> None:
    frame = encode_request("hook", 7, b"x" * 101)
    said = outcome(RequestReader(frame_bytes=100), cut(frame, places))
    assert isinstance(said, Oversized)
    assert (said.kind, said.started_ns, said.size) == ("hook", 7, 101)
    assert said.head == b"x" * len(said.head)
    assert outcome(RequestReader(frame_bytes=101), [frame]) == Request("hook", 7, b"x" * 101)


def test_the_bytes_that_came_with_an_oversized_header_are_kept() -> None:
    said = RequestReader(frame_bytes=10).feed(b'AEPD1 hook 7 5000\n{"session_id":"s1"')
    assert said == Oversized("hook", 7, 5000, b'{"session_id":"s1"')


def test_a_reader_knows_whether_the_client_only_knocked() -> None:
    reader = RequestReader(frame_bytes=10)
    seen = [(reader.empty, reader.size)]
    for piece in (b"AEP", b"D1 hook 1 2\n"):
        reader.feed(piece)
        seen.append((reader.empty, reader.size))
    assert seen == [(True, None), (False, None), (False, 2)]


@given(body=st.binary(max_size=300), places=PLACES)
def test_a_reply_reads_the_same_however_it_is_cut(body: bytes, places: list[int]) -> None:
    *early, last = cut(encode_reply(body), places)
    reader = ReplyReader(limit=300)
    assert [reader.feed(piece) for piece in early] == [NEED_DATA] * len(early)
    assert reader.feed(last) == body


def test_the_reply_that_says_nothing_is_an_empty_one() -> None:
    assert encode_reply(b"") == NO_REPLY
    assert ReplyReader(limit=0).feed(NO_REPLY) == b""


@pytest.mark.parametrize(
    ("start", "code"),
    [
        (b"\n", "header"),
        (b"x", "header"),
        (b"1" * 16, "header"),
        (b"-1\n", "header"),
        (b"HTTP/1.1 400\r\n", "header"),
        (b"1\nab", "trailing"),
        (b"11\n", "too-long"),
    ],
)
def test_what_is_no_reply_is_refused_at_once(start: bytes, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        ReplyReader(limit=10).feed(start)
    assert caught.value.code == code


@given(garbage=st.binary(max_size=100), places=PLACES)
def test_a_garbage_reply_never_raises_anything_else(garbage: bytes, places: list[int]) -> None:
    reader = ReplyReader(limit=10)
    try:
        for piece in cut(garbage, places):
            reader.feed(piece)
    except ProtocolError:
        pass
