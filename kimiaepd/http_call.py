"""One call over HTTP, bounded in time and in bytes, that goes where it is told and nowhere else.

Rules:
- No proxy of the environment is used: what is on this machine is asked directly, and so is a relay,
  as the daemon connects to it.
- A redirect is not followed: a token that was meant for one place would go to another.
- Certificates are judged by the system's own, as the daemon judges them.
- Every call has a connection of its own, and it is closed: a pool loses a place with each call that
  is cancelled, and a connection that idles can keep a server from ending.
- Nothing is tried twice.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator, Mapping

import httpx
import trio
from attrs import frozen

from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSONObject, MalformedJSONError, parse

LONGEST = 64 << 10
"""Bytes of an answer that are read where nothing else is said; most have a few hundred."""

STEPS = 4
"""To connect, TLS, to send, to receive. A deadline over all of it alone would leave sockets open:
the library closes one only where its own time is up."""


class UnreachableError(Exception):
    """There is no answer; `str()` says why in a few words.

    Attributes:
        is_refused: nothing listens there. Elsewhere the call may have had its effect.
    """

    def __init__(self, why: str, *, is_refused: bool = False) -> None:
        super().__init__(why)
        self.is_refused = is_refused


@frozen
class Answer:
    """What came back.

    Attributes:
        status: HTTP's.
        headers: by name, in lower case.
        body: its beginning, as many bytes as were wanted at most.
        is_cut: whether there may have been more.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False

    def json(self) -> JSONObject | None:
        """The JSON object in the body; None where it is anything else, or was cut."""
        try:
            value = parse(self.body)
        except MalformedJSONError:
            return None
        return value if isinstance(value, dict) else None


async def get(url: str, *, headers: Mapping[str, str] | None = None, seconds: float) -> Answer:
    """Ask once; as `call`."""
    return await call("GET", url, headers=headers, seconds=seconds)


async def call(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    seconds: float,
    longest: int = LONGEST,
) -> Answer:
    """Call once.

    Args:
        method: HTTP's.
        url: what for.
        headers: beside HTTP's own.
        content: the body to send, as it is.
        seconds: for each step, such as to connect; `STEPS` times as many for all of it.
        longest: bytes of the answer's body that are read.

    Raises:
        UnreachableError: nobody answers, or not in HTTP, or the answer breaks off.
    """
    sent = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    # The name's own defects are found by the encoder, which httpx lets through.
    known = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)
    with trio.move_on_after(STEPS * seconds):
        try:
            return await _call(
                method, url, headers=sent, content=content, seconds=seconds, longest=longest
            )
        except httpx.TimeoutException:
            pass
        except known as error:
            is_refused = any(isinstance(cause, ConnectionRefusedError) for cause in _causes(error))
            raise UnreachableError(why(error), is_refused=is_refused) from None
    raise UnreachableError(f"no answer within {seconds:g} s")


async def _call(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    content: bytes | None,
    seconds: float,
    longest: int,
) -> Answer:
    trusted = ssl.create_default_context() if url.startswith("https:") else False
    async with (
        httpx.AsyncClient(trust_env=False, timeout=seconds, verify=trusted) as client,
        client.stream(method, url, headers=headers, content=content) as response,
    ):
        body = bytearray()
        with trio.CancelScope() as enough:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > longest:
                    # Leaving the loop would leave generators of httpx behind, half run.
                    enough.cancel()
        return Answer(
            status=response.status_code,
            headers=dict(response.headers),
            body=bytes(body[:longest]),
            is_cut=len(body) > longest,
        )


def why(error: BaseException) -> str:
    """Why there is no connection, in a few words for people.

    The words of the system and of OpenSSL are somewhere below what the libraries raise.
    """
    return next(filter(None, map(_words, _causes(error))), "the connection broke")


def _words(cause: BaseException) -> str | None:
    words = None
    match cause:
        case ssl.SSLCertVerificationError():
            words = f"its certificate is not trusted: {tame(cause.verify_message)}"
        case ssl.SSLError():
            words = f"no TLS: {(cause.reason or 'no handshake').lower().replace('_', ' ')}"
        case socket.gaierror():
            words = f"its name is not known: {(cause.strerror or '').lower()}"
        case OSError() if cause.errno:
            words = os.strerror(cause.errno).lower()
        case httpx.ProtocolError():
            words = "what answers there does not speak HTTP"
        case httpx.InvalidURL() | UnicodeError():
            words = "its name cannot be a host's"
    return words


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from, the parts of groups among it; nothing twice."""
    waiting, met = [error], set[int]()
    while waiting:
        cause = waiting.pop()
        if id(cause) not in met:
            met.add(id(cause))
            yield cause
            below = [cause.__context__, cause.__cause__]
            waiting += [found for found in below if found is not None]
            if isinstance(cause, BaseExceptionGroup):
                waiting += cause.exceptions
