"""What the embedded relay speaks on the wire, and how soon it is rid of who has shown no token."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import wsproto
from structlog.testing import capture_logs
from wsproto.events import AcceptConnection, Request
from wsproto.extensions import PerMessageDeflate

from collector_room import Place, collecting
from conftest import ROOT
from kimiaepd.collector import duplex, http1
from kimiaepd.mapping.json_value import JSONObject
from ws_client import OverError, connected

HELLO: JSONObject = {
    "type": "hello", "versions": ["0.1"], "role": "consumer", "capabilities": {},
    "identity": {"agent": "test", "instance": "1"},
}  # fmt: skip

UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = "Sec-WebSocket-Version: 13\r\n"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with collecting(tmp_path / "state") as made:
        yield made


async def answer(place: Place, said: str, *, host: bool = True) -> bytes:
    """All that is answered, until the collector hangs up."""
    first, _, rest = said.partition("\r\n")
    if host:
        rest = f"Host: 127.0.0.1:{place.port}\r\n{rest}"
    async with await trio.open_tcp_stream("127.0.0.1", place.port) as stream:
        await stream.send_all(f"{first}\r\n{rest}".encode())
        with trio.fail_after(2):
            return b"".join([bytes(piece) async for piece in stream])


# --- without a token -----------------------------------------------------------------------------


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "IDLE_SECONDS", 0.3)


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize(
    "said",
    [
        pytest.param("GET /hea", id="half a request"),
        pytest.param(f"GET /socket HTTP/1.1\r\n{UPGRADE}{KEY}\r\n", id="a WebSocket, no version"),
        pytest.param(f"GET /socket HTTP/1.1\r\n{UPGRADE}{VERSION}\r\n", id="a WebSocket, no key"),
        pytest.param(f"GET /socket HTTP/1.0\r\n{UPGRADE}{KEY}{VERSION}\r\n", id="an old WebSocket"),
        pytest.param("GET /healthz HTTP/1.1\r\nContent-Length: 9\r\n\r\n", id="half a body"),
        pytest.param("GET /stream HTTP/1.1\r\n\r\n", id="a stream"),
    ],
)
async def test_who_shows_no_token_is_hung_up_on_within_seconds(place: Place, said: str) -> None:
    await answer(place, said)


@pytest.mark.usefixtures("_soon")
async def test_nobody_is_spoken_to_in_http_2(place: Place) -> None:
    preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    assert (await answer(place, preface, host=False))[:9] == b"HTTP/1.1 "
    said = await answer(
        place,
        "GET /healthz HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    )
    assert said.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 101" not in said


@pytest.mark.parametrize("pieces", [1, 2])
async def test_who_sends_before_he_was_let_in_costs_no_line_in_the_log(
    place: Place, pieces: int
) -> None:
    said = f"GET /socket HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n{UPGRADE}{KEY}{VERSION}\r\n"
    with capture_logs() as logs:
        for _ in range(3):
            async with await trio.open_tcp_stream("127.0.0.1", place.port) as stream:
                for piece in (said, "x" * 200) if pieces == 2 else (said + "x" * 200,):
                    await stream.send_all(piece.encode())
                with trio.fail_after(2):
                    async for _ in stream:
                        pass
        async with place.client() as client:
            assert (await client.get("/healthz")).status_code == 200
    assert logs == []


# --- what a message may be -----------------------------------------------------------------------


async def test_no_message_is_packed(place: Place) -> None:
    client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
    request = Request(
        host=f"127.0.0.1:{place.port}",
        target="/socket",
        extensions=[PerMessageDeflate()],
        extra_headers=[(b"Authorization", f"Bearer {place.observer}".encode())],
    )
    async with await trio.open_tcp_stream("127.0.0.1", place.port) as stream:
        await stream.send_all(client.send(request))
        client.receive_data(bytes(await stream.receive_some()))
        (accepted,) = client.events()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.extensions == []
        # One that is packed all the same ends the connection, and is not unpacked.
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        bomb = packer.compress(b"x" * 60_000) + packer.flush()
        await stream.send_all(b"\xc1\xfe%b\0\0\0\0%b" % (len(bomb).to_bytes(2, "big"), bomb))
        with trio.fail_after(2):
            async for _ in stream:
                pass


async def test_who_only_observes_says_nothing_long(place: Place) -> None:
    too_long = "x" * (duplex.MOST_OBSERVED + 1)
    for token, code in ((place.observer, 1009), (place.token, None)):
        async with connected(place.port, (b"Authorization", f"Bearer {token}".encode())) as client:
            await client.say(HELLO)
            await client.until("hello")
            await client.say(too_long)
            if code is None:
                assert (await client.hear())["code"] == "invalid-event"
            else:
                with pytest.raises(OverError) as over:
                    await client.text()
                assert over.value.code == code


@pytest.mark.usefixtures("_soon")
async def test_who_goes_on_with_a_message_that_is_too_long_is_hung_up_on(place: Place) -> None:
    piece = b"\x80\xff%b\0\0\0\0%b" % ((60_000).to_bytes(8, "big"), b"x" * 60_000)
    bearer = (b"Authorization", f"Bearer {place.observer}".encode())
    async with connected(place.port, bearer) as client:
        await client.stream.send_all(b"\x01" + piece[1:])
        with trio.fail_after(5), contextlib.suppress(trio.BrokenResourceError):
            while True:
                await client.stream.send_all(b"\x00" + piece[1:])


def test_the_bounds_are_what_the_page_of_limits_says() -> None:
    assert (http1.IDLE_SECONDS, duplex.MOST_OBSERVED) == (5.0, 256 << 10)
    page = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
    assert "a connection on which nothing is asked or answered | 5 s" in page
    assert "256 KiB of whoever only observes" in page
