"""The doctor's look at a relay: relays made up on loopback, and each way in which one can be"
" wrong."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import hashlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email.utils import format_datetime
from pathlib import Path
from typing import NoReturn

import pytest
import trio
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from http_server import Reply, Request, Server, http
from kimiaepd.collector import place
from kimiaepd.doctor import hello, relay
from kimiaepd.doctor.check import Check
from kimiaepd.hook_socket.client import request
from kimiaepd.http_call import UnreachableError, get
from kimiaepd.mapping.json_value import JSON, JSONObject, dump
from live import Live, scratch
from patients import bad, lines, patient

NOW = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)
TOKEN = "s3cret-of-the-relay"
GIVE_TOKEN = "set relay.token_file (or AEP_TOKEN) to the token that the relay has for this machine"
RIGHT_URL = "set relay.url to the relay's base URL, as its own documentation gives it"

DOCUMENT: JSONObject = {
    "aep": ["0.1"],
    "role": "collector",
    "endpoints": {"events": "/events", "stream": "/stream", "socket": "/socket"},
    "capabilities": {"control": {"accepts": []}},
}
HELLO: JSONObject = {
    "type": "hello",
    "versions": ["0.1"],
    "role": "both",
    "capabilities": {"control": {"accepts": ["control.attention.respond"]}, "replay": {}},
}

# For 127.0.0.1, signed by itself, until 2120; nothing but these tests has ever trusted it.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgWuGIqseulr2DNuoS
VYO/6N7D4HDOEwJtBkIaS6YEZMihRANCAASQ0auhEDEF24ZdJvU0T+6HwHd/WG48
Zfbcm6cmFXfW5YRff835jtTO7F7tNAmx/SkHwe8q+IGbo+tJwSWpufpk
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBljCCATugAwIBAgIBATAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA1raW1pYWVw
ZCB0ZXN0MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAYMRYwFAYD
VQQDDA1raW1pYWVwZCB0ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEkNGr
oRAxBduGXSb1NE/uh8B3f1huPGX23JunJhV31uWEX3/N+Y7Uzuxe7TQJsf0pB8Hv
KviBm6PrScElqbn6ZKN0MHIwDwYDVR0RBAgwBocEfwAAATAPBgNVHRMBAf8EBTAD
AQH/MB0GA1UdDgQWBBSf2BCiIRl/Houh+U+c5QEvRy4d+zAfBgNVHSMEGDAWgBSf
2BCiIRl/Houh+U+c5QEvRy4d+zAOBgNVHQ8BAf8EBAMCAoQwCgYIKoZIzj0EAwID
SQAwRgIhAJXa3OyYXz88jxCPNz826spQNyGYQSxxCAF3Su/B1XP6AiEAzMWsPfFM
0WG4iAMvQB/IhmkE4NXI52iaClLu7VHQHJs=
-----END CERTIFICATE-----
"""


def text_frame(content: bytes) -> bytes:
    """A WebSocket text message as a server sends it."""
    size = len(content)
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    return b"\x81" + length + content


async def _first_message(stream: trio.abc.Stream) -> JSON:
    """The first message of a client, which is short, as a server unmasks it."""
    frame = b""
    while len(frame) < 6 or len(frame) < 6 + (frame[1] & 0x7F):
        frame += await stream.receive_some()
    assert frame[1] & 0x7F < 126
    mask, masked = frame[2:6], frame[6 : 6 + (frame[1] & 0x7F)]
    message: JSON = json.loads(bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked)))
    return message


CLOSE = b"\x88\x02\x03\xe8"
PING = b"\x89\x01p"


@define
class Relay(Server):
    """A relay: discovery by `replies`, and a WebSocket at /socket.

    Attributes:
        token: what it asks for, if anything, at both.
        frames: what it sends once it has a hello; None: nothing, for ever.
        refusal: an HTTP reply to the handshake instead of a WebSocket.
        hangs_up: whether it goes right after its frames.
        never_closes: whether it leaves a goodbye unanswered.
        hellos: what the clients said.
    """

    token: str | None = None
    frames: bytes | None = text_frame(dump(HELLO))
    refusal: Reply = b""
    hangs_up: bool = False
    never_closes: bool = False
    hellos: list[JSON] = field(factory=list)

    async def _answer(self, stream: trio.abc.Stream, request: Request) -> None:
        authorised = self.token in (None, request.headers.get("authorization", "")[7:])
        if request.path != "/base/socket":
            unauthorised = request.path == "/base/events" and not authorised
            reply = http(401) if unauthorised else self.replies.get(request.path, http(404))
        elif self.refusal != b"":
            reply = self.refusal
        elif not authorised:
            reply = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n"  # as kimi web does
        else:
            await self._websocket(stream, request)
            return
        if reply is None:
            await trio.sleep_forever()
        assert isinstance(reply, bytes)
        await stream.send_all(reply)

    async def _websocket(self, stream: trio.abc.Stream, request: Request) -> None:
        key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        await stream.send_all(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept.encode() + b"\r\n\r\n"
        )
        self.hellos.append(await _first_message(stream))
        if self.frames is not None:
            await stream.send_all(self.frames)
        while not self.hangs_up and (said := await stream.receive_some()):
            if said[0] == CLOSE[0] and not self.never_closes:
                await stream.send_all(CLOSE)


@asynccontextmanager
async def running(**switches: object) -> AsyncIterator[Relay]:
    """A relay that is well, but for the switches."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    replies: dict[str, Reply] = {"/base/events": http(200, DOCUMENT)}
    made = Relay(listener.socket.getsockname()[1], replies, token=TOKEN)
    for name, value in switches.items():
        setattr(made, name, value)
    async with trio.open_nursery() as server_nursery:
        server_nursery.start_soon(trio.serve_listeners, made.talk, [listener])
        yield made
        server_nursery.cancel_scope.cancel()


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as live:
        yield live


async def see(
    live: Live, url: str, token: str | None = TOKEN, *, now: dt.datetime = NOW
) -> tuple[Check, ...]:
    live.environ["AEP_RELAY_URL"] = url
    live.environ.pop("AEP_TOKEN", None)
    if token:
        live.environ["AEP_TOKEN"] = token
    with trio.fail_after(60):
        checks = await relay.examine(patient(live.environ), now)
    assert TOKEN not in repr(checks)
    return checks


async def found(live: Live, made: Relay, token: str | None = TOKEN) -> list[str]:
    """What is not ok, with a short name for the relay."""
    url = f"ws://127.0.0.1:{made.port}/base"
    return [line.replace(url, "URL") for line in bad(await see(live, url, token))]


# --- well ----------------------------------------------------------------------------------------


async def test_our_own_relay_is_well_where_no_daemon_runs(live: Live) -> None:
    live.environ["AEP_KIMI_CONTROL"] = "1"
    assert lines(await relay.examine(patient(live.environ), NOW)) == [
        "ok relay: the daemon's own, which is there while one runs -> None"
    ]


async def test_our_own_relay_is_asked_like_any_other(live: Live) -> None:
    await trio.to_thread.run_sync(live.start)
    url = place.read(live.where.state_dir)
    found = lines(await relay.examine(patient(live.environ), dt.datetime.now(dt.UTC)))
    assert url is not None
    assert found[0] == (
        f"ok relay: the daemon's own, on this machine at port {url.rpartition(':')[2]}; it holds 0"
        " events of 0 sessions -> None"
    )
    assert found[1] == (
        f"ok relay: {url} answers our hello, sent with the token: AEP 0.1; its capabilities:"
        " filters, replay, capture, control, roster, experimental -> None"
    )
    assert found[2].startswith(
        "ok control: possible: the relay takes the token, and nobody without"
    )
    assert len(found) == 3
    # A look at it is nobody who could answer.
    answer = await request(live.where.socket, "status", timeout=2.0)
    assert isinstance(answer["relay"], dict)
    assert isinstance(answer["relay"]["own"], dict)
    assert answer["relay"]["own"]["commanders"] == 0


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("collector-token", "kimiaepd token rotate"),
        ("collector-token-read", "kimiaepd token rotate --read-only"),
    ],
)
async def test_a_token_of_our_own_relay_that_is_not_ours_alone_or_gone_is_a_finding(
    live: Live, name: str, cure: str
) -> None:
    await trio.to_thread.run_sync(live.start)
    file = live.where.state_dir / name
    file.chmod(0o644)
    (line,) = bad(await relay.examine(patient(live.environ), NOW))
    assert line.startswith(f"finding relay: {file}: others can read this token (mode 0644)")
    assert line.endswith(f"-> have a new one made: {cure}")
    file.unlink()
    (line,) = bad(await relay.examine(patient(live.environ), NOW))
    assert line == (
        f"finding relay: {file}: cannot be read: No such file or directory"
        f" -> have a new one made: {cure}"
    )


@contextlib.asynccontextmanager
async def answered(live: Live, status: int) -> AsyncIterator[str]:
    """Our daemon, and in the place of its relay one that answers a batch so; its URL."""
    await trio.to_thread.run_sync(live.start)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    assert live.process is not None
    said = dump({"url": url, "pid": live.process.pid})
    (live.where.state_dir / place.NAME).write_bytes(said)
    made = Server(port, {"/events": http(status)})
    async with trio.open_nursery() as server_nursery:
        server_nursery.start_soon(trio.serve_listeners, made.talk, [listener])
        yield url
        server_nursery.cancel_scope.cancel()


@pytest.mark.parametrize("status", [401, 403])
async def test_our_own_relay_that_does_not_take_its_token_is_a_finding(
    live: Live, status: int
) -> None:
    async with answered(live, status) as url:
        assert bad(await relay.examine(patient(live.environ), NOW)) == [
            (
                f"finding relay: the daemon's own, at {url}, does not take its token (HTTP"
                f" {status}) -> have a new one made: kimiaepd token rotate"
            )
        ]


async def test_our_own_relay_that_is_not_there_is_a_finding(live: Live) -> None:
    async with answered(live, 202) as url:
        pass
    (line,) = bad(await relay.examine(patient(live.environ), NOW))
    assert line.startswith(f"finding relay: the daemon's own, at {url}, cannot be reached: ")
    assert line.endswith("-> see what it wrote to stderr, then start it again")


async def test_a_daemon_without_the_relay_that_it_should_have_is_a_warning(live: Live) -> None:
    live.environ["KIMIAEPD_COLLECTOR"] = "0"
    await trio.to_thread.run_sync(live.start)
    del live.environ["KIMIAEPD_COLLECTOR"]
    (line,) = bad(await relay.examine(patient(live.environ), NOW))
    assert line.startswith("warning relay: the daemon that runs has no relay of its own")


async def test_no_relay_is_well_where_none_is_wanted(live: Live) -> None:
    live.environ["KIMIAEPD_COLLECTOR"] = "0"
    assert lines(await relay.examine(patient(live.environ), NOW)) == [
        "ok relay: none is wanted; events stay on disk -> None"
    ]


async def test_a_gate_without_a_relay_is_a_warning(live: Live) -> None:
    live.environ |= {"AEP_KIMI_CONTROL": "1", "KIMIAEPD_COLLECTOR": "0"}
    assert bad(await relay.examine(patient(live.environ), NOW)) == [
        (
            "warning control: gate.enabled is set, but without a relay nobody can answer: no call"
            " is held -> set collector.enabled = true, or gate.enabled = false"
        )
    ]


@pytest.mark.parametrize("scheme", ["ws", "http"])
async def test_a_relay_in_order_and_its_control(live: Live, scheme: str) -> None:
    async with running() as made:
        url = f"{scheme}://127.0.0.1:{made.port}/base"
        assert lines(await see(live, url)) == [
            (
                f"ok relay: {url} answers our hello, sent with the token: AEP 0.1; its"
                " capabilities: control, replay -> None"
            ),
            (
                "ok control: possible: the relay takes the token, and nobody without it; it says to"
                " accept: control.attention.respond; gate.enabled is off, so no call is held ->"
                " None"
            ),
        ]
    paths = [request.path for request in made.asked]
    assert paths == ["/base/events", "/base/socket", "/base/socket"]
    assert made.asked[0].headers["aep-version"] == "0.1"
    assert made.asked[1].headers["host"] == f"127.0.0.1:{made.port}"
    assert made.hellos == [json.loads(hello.HELLO)]


async def test_it_says_hello_as_a_consumer_that_claims_nothing(live: Live) -> None:
    async with running() as made:
        await found(live, made)
    (said,) = made.hellos
    assert isinstance(said, dict)
    assert (said["role"], said["versions"], said["capabilities"]) == ("consumer", ["0.1"], {})


async def test_an_open_relay_without_a_token_is_well_but_for_control(live: Live) -> None:
    async with running(token=None) as made:
        assert await found(live, made, None) == [
            (
                "warning control: no token is set, and no relay takes an answer or another command"
                f" without -> {GIVE_TOKEN}"
            )
        ]
    assert all("authorization" not in request.headers for request in made.asked)


async def test_a_token_that_opens_what_is_open_anyway_proves_no_control(live: Live) -> None:
    async with running(token=None) as made:
        assert await found(live, made) == [
            (
                "warning control: URL asks nobody for a token, and such a relay must refuse"
                " commands -> start the relay with a token (AEP_TOKEN), the one set here"
            )
        ]


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_dead_proxy_does_not_matter(
    live: Live, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    async with running() as made:
        assert await found(live, made) == []


# --- reached -------------------------------------------------------------------------------------


async def test_a_relay_that_is_not_there_is_a_finding(live: Live) -> None:
    assert bad(await see(live, "ws://127.0.0.1:1")) == [
        (
            "finding relay: ws://127.0.0.1:1 cannot be reached: connection refused -> see that the"
            " relay runs, and that relay.url is its"
        )
    ]


class Nobody(trio.abc.HostnameResolver):
    """A resolver that knows no name, and asks no network."""

    async def getaddrinfo(self, host: bytes | None, *_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def getnameinfo(self, *_: object) -> NoReturn:
        raise AssertionError


async def test_a_name_that_nobody_has_is_a_finding(live: Live) -> None:
    trio.socket.set_custom_hostname_resolver(Nobody())
    (line,) = bad(await see(live, "wss://relay.invalid"))
    assert line.startswith("finding relay: wss://relay.invalid cannot be reached: its name is not")


async def test_a_name_that_nobody_can_have_is_said() -> None:
    """The settings refuse most of them; what is asked for a page must bear the rest."""
    with pytest.raises(UnreachableError, match="its name cannot be a host's"):
        await get("http://a..b/", seconds=5)


async def test_a_relay_that_says_nothing_is_a_finding(
    live: Live, autojump_clock: MockClock
) -> None:
    async with running(replies={"/base/events": None}) as made:
        (line,) = await found(live, made)
    assert line.startswith("finding relay: URL cannot be reached: no answer within 5 s ->")


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200\r\n"])
async def test_what_does_not_speak_http_is_a_finding(live: Live, reply: bytes) -> None:
    async with running(replies={"/base/events": reply}) as made:
        (line,) = await found(live, made)
    assert line.startswith(
        "finding relay: URL cannot be reached: what answers there does not speak"
    )


# --- TLS -----------------------------------------------------------------------------------------


@asynccontextmanager
async def encrypted(folder: Path) -> AsyncIterator[str]:
    """A relay behind a certificate that nobody trusts; its URL."""
    (folder / "pair.pem").write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    made = Relay(0, {"/base/events": http(200, DOCUMENT)}, token=TOKEN)

    async def talk(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with contextlib.suppress(trio.BrokenResourceError):
            await made.talk(tls)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as server_nursery:
        server_nursery.start_soon(trio.serve_listeners, talk, [listener])
        yield f"wss://127.0.0.1:{listener.socket.getsockname()[1]}/base"
        server_nursery.cancel_scope.cancel()


async def test_a_certificate_that_nobody_trusts_is_a_finding(live: Live, tmp_path: Path) -> None:
    async with encrypted(tmp_path) as url:
        (line,) = bad(await see(live, url))
    # The last words are OpenSSL's, and differ from release to release.
    assert line.startswith(
        f"finding relay: {url} cannot be reached: its certificate is not trusted:"
    )


async def test_a_certificate_that_the_system_trusts_is_well(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with encrypted(tmp_path) as url:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "pair.pem"))
        assert bad(await see(live, url)) == []


async def test_a_relay_without_tls_at_a_tls_url_is_a_finding(live: Live) -> None:
    async with running() as made:
        url = f"wss://127.0.0.1:{made.port}/base"
        (line,) = bad(await see(live, url))
    assert line.startswith(f"finding relay: {url} cannot be reached: no TLS: ")


# --- the token -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["ws://relay.example", "http://192.0.2.1:8080", "ws://[2001:db8::1]"]
)
async def test_no_token_and_no_byte_goes_elsewhere_in_clear(
    live: Live, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("it was asked")

    monkeypatch.setattr(relay, "get", asked)
    assert bad(await see(live, url)) == [
        (
            f"finding relay: relay.url: {url} is not encrypted and not on this machine -> use"
            " wss://, or set relay.allow_plaintext = true where the network between is yours"
        )
    ]


@pytest.mark.parametrize("host", ["localhost", "[::1]", "127.3.2.1"])
async def test_this_machine_needs_no_tls(live: Live, host: str) -> None:
    (line,) = bad(await see(live, f"ws://{host}:1"))
    assert "cannot be reached" in line


async def test_plain_text_that_somebody_asked_for_is_no_finding_of_ours(live: Live) -> None:
    trio.socket.set_custom_hostname_resolver(Nobody())
    live.configure("[relay]\nallow_plaintext = true\n")
    (line,) = bad(await see(live, "ws://relay.invalid"))
    assert "cannot be reached" in line


async def test_a_token_file_that_others_can_read_is_a_finding(live: Live) -> None:
    file = live.home / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    live.configure(f"[relay]\ntoken_file = '{file}'\n")
    assert bad(await see(live, "wss://relay.invalid", None)) == [
        f"finding relay: {file}: others can read the relay's token -> run: chmod 600 '{file}'"
    ]


async def test_a_token_that_is_not_taken_is_a_finding(live: Live) -> None:
    async with running(token="another") as made:
        assert await found(live, made) == [
            f"finding relay: URL does not take the token (HTTP 401) -> {GIVE_TOKEN}"
        ]
        assert await found(live, made, None) == [
            f"finding relay: URL wants a token (HTTP 401), and none is set -> {GIVE_TOKEN}"
        ]


async def test_a_token_that_only_the_socket_wants_is_found_too(live: Live) -> None:
    async with running(refusal=b"HTTP/1.1 403 Forbidden\r\n\r\n") as made:
        assert await found(live, made) == [
            (
                "finding relay: URL does not take the token (at its WebSocket: HTTP 403 and no"
                f" WebSocket) -> {GIVE_TOKEN}"
            )
        ]


# --- AEP -----------------------------------------------------------------------------------------


async def test_a_redirect_is_told_and_not_followed(live: Live) -> None:
    async with running() as other:
        away = http(307, Location=f"http://127.0.0.1:{other.port}/base/events")
        async with running(replies={"/base/events": away}) as made:
            (line,) = await found(live, made)
    assert line == (
        f"finding relay: URL sends its callers to http://127.0.0.1:{other.port}/base/events (HTTP"
        " 307); a token is never sent after it -> set relay.url to the place itself"
    )
    assert other.asked == []


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (http(404), f"URL/events is no AEP endpoint: HTTP 404 -> {RIGHT_URL}"),
        (http(502), "URL is broken, or what stands before it: HTTP 502 -> see the relay's own log"),
        (
            http(200, b"<html>"),
            f"URL/events is no AEP endpoint: it gives no discovery document -> {RIGHT_URL}",
        ),
        (
            http(200, {"aep": "0.1"}),
            f"URL/events is no AEP endpoint: it gives no discovery document -> {RIGHT_URL}",
        ),
        (
            http(200, {**DOCUMENT, "aep": ["0.2", "1.0"]}),
            (
                "URL speaks AEP 0.2, 1.0, and this version of kimiaepd 0.1 alone -> upgrade the"
                " older of the two"
            ),
        ),
        (
            http(426, {"versions": ["0.2"]}),
            (
                "URL speaks AEP 0.2, and this version of kimiaepd 0.1 alone -> upgrade the older"
                " of the two"
            ),
        ),
    ],
)
async def test_what_is_no_aep_relay_is_a_finding(live: Live, reply: bytes, line: str) -> None:
    async with running(replies={"/base/events": reply}) as made:
        assert await found(live, made) == [f"finding relay: {line}"]
    assert len(made.asked) == 1


@pytest.mark.parametrize("endpoints", [{"events": "/events"}, None, ["/socket"]])
async def test_a_relay_without_a_socket_is_a_finding(live: Live, endpoints: JSON) -> None:
    document = http(200, {**DOCUMENT, "endpoints": endpoints})
    async with running(replies={"/base/events": document}, refusal=http(404)) as made:
        assert await found(live, made) == [
            (
                "finding relay: URL has no WebSocket endpoint, and events are delivered over one ->"
                f" {RIGHT_URL}"
            )
        ]


async def test_a_socket_elsewhere_is_not_followed(live: Live) -> None:
    """Events are delivered to the base's own, and so is the hello."""
    elsewhere = http(200, {**DOCUMENT, "endpoints": {"socket": "ws://127.0.0.1:1/socket"}})
    async with running(replies={"/base/events": elsewhere}) as made:
        assert await found(live, made) == []
    assert made.asked[-1].path == "/base/socket"


async def test_a_document_without_an_end_is_cut_off(live: Live) -> None:
    async with running(replies={"/base/events": http(200, b"[" * 4_000_000)}) as made:
        (line,) = await found(live, made)
    assert "it gives no discovery document" in line


# --- hello ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("switches", "why"),
    [
        ({"refusal": http(404)}, "HTTP 404 and no WebSocket"),
        ({"refusal": http(200, b"hi")}, "HTTP 200 and no WebSocket"),
        ({"refusal": b"HTTP/1.1 101 Nearly\r\n\r\n"}, "the connection broke"),
        ({"refusal": b"what?"}, "the relay hung up at the WebSocket handshake"),
        ({"frames": b"", "hangs_up": True}, "the relay closed the connection (1006 abnormal_"),
        ({"frames": CLOSE}, "the relay closed the connection (1000 normal_closure)"),
        ({"frames": b"\xff\xff\xff"}, "the relay closed the connection (1002 protocol_error)"),
        ({"frames": text_frame(b"{nope")}, "its first frame is no hello"),
        ({"frames": text_frame(b'{"type":"ping"}')}, "its first frame is no hello"),
        (
            {"frames": text_frame(b'{"type":"error","code":"busy"}')},
            "it answers with the error busy",
        ),
    ],
)
async def test_a_hello_that_does_not_come_is_a_finding(
    live: Live, switches: dict[str, bytes | bool], why: str
) -> None:
    async with running(**switches) as made:
        (line,) = await found(live, made)
    assert line.startswith(
        f"finding relay: URL answers over HTTP, but gives no hello over its WebSocket: {why}"
    )


@pytest.mark.parametrize(
    ("switches", "why"),
    [
        ({"refusal": None}, "no WebSocket handshake within 5 s"),
        ({"frames": None}, "no hello within 5 s"),
        ({"frames": PING}, "no hello within 5 s"),
    ],
)
async def test_a_silent_socket_costs_five_seconds(
    live: Live, autojump_clock: MockClock, switches: dict[str, None], why: str
) -> None:
    began = trio.current_time()
    async with running(**switches) as made:
        (line,) = await found(live, made)
    assert why in line
    assert trio.current_time() - began < 7


async def test_an_error_that_means_the_token_is_called_that(live: Live) -> None:
    refused = text_frame(b'{"type":"error","code":"unauthorized"}')
    async with running(frames=refused) as made:
        (line,) = await found(live, made)
    assert line.startswith(
        "finding relay: URL does not take the token (at its WebSocket: it answers"
    )


async def test_a_hello_of_another_version_is_a_finding(live: Live) -> None:
    async with running(frames=text_frame(dump({**HELLO, "versions": ["0.2"]}))) as made:
        (line,) = await found(live, made)
    assert line.startswith("finding relay: URL speaks AEP 0.2, and this version of kimiaepd 0.1")


@pytest.mark.parametrize(
    "after", [PING, CLOSE, PING * 50 + CLOSE, b"\xff\xff", text_frame(b"{}") * 9]
)
async def test_what_follows_a_hello_takes_nothing_back(
    live: Live, autojump_clock: MockClock, after: bytes
) -> None:
    """Among it a ping while we close, which the library answers with an error of its own."""
    async with running(frames=text_frame(dump(HELLO)) + after) as made:
        assert await found(live, made) == []


async def test_a_relay_that_never_closes_is_left(live: Live, autojump_clock: MockClock) -> None:
    async with running(never_closes=True) as made:
        began = trio.current_time()
        assert await found(live, made) == []
        assert trio.current_time() - began < 3


async def test_a_hello_of_a_megabyte_is_no_hello(live: Live, autojump_clock: MockClock) -> None:
    frame = b"\x81\x7f" + (1 << 20).to_bytes(8, "big") + b"x" * (1 << 20)
    async with running(frames=frame) as made:
        (line,) = await found(live, made)
    assert "no hello" in line


any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from(["aep", "endpoints", "capabilities", "control"]), any_json)
    | st.dictionaries(st.text(), any_json)
)
def test_no_document_breaks_the_look(document: JSONObject) -> None:
    trouble = relay._not_ours("URL", document)
    assert trouble is None or "\n" not in trouble.said
    error = hello.NoHelloError("no hello")
    assert "\n" not in relay._no_hello("URL", error, document, None).said


@given(st.binary() | st.text() | any_json.map(dump))
def test_no_frame_breaks_the_look(frame: str | bytes) -> None:
    with contextlib.suppress(hello.NoHelloError):
        assert hello._understood(frame)["type"] == "hello"


# --- the clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"), [(61, "61 s ahead of"), (-3600, "3600 s behind"), (60, None), (-60, None)]
)
async def test_a_relay_with_another_clock_is_a_warning(
    live: Live, seconds: int, said: str | None
) -> None:
    date = format_datetime(NOW + dt.timedelta(seconds=seconds), usegmt=True)
    async with running(replies={"/base/events": http(200, DOCUMENT, Date=date)}) as made:
        seen = await found(live, made)
    expected = (
        f"warning clock: the clock of URL is {said} this machine's -> set the one that is wrong;"
        " with systemd: timedatectl set-ntp true"
    )
    assert seen == ([expected] if said else [])


@pytest.mark.parametrize("date", ["", "yesterday", "Tue, 99 Dec 2026 12:00:00 GMT", "0"])
async def test_a_date_that_is_none_is_passed_over(live: Live, date: str) -> None:
    async with running(replies={"/base/events": http(200, DOCUMENT, Date=date)}) as made:
        assert await found(live, made) == []


async def test_a_relay_that_refuses_still_tells_its_time(live: Live) -> None:
    date = format_datetime(NOW + dt.timedelta(hours=1), usegmt=True)
    async with running(replies={"/base/events": http(404, Date=date)}) as made:
        assert len(await found(live, made)) == 2
