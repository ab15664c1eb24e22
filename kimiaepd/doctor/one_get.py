"""One GET over HTTP, bounded in time and in bytes, that goes where it is told and nowhere else.

Rules:
- No proxy of the environment is used: what is on this machine is asked directly, and so is a relay,
  as the daemon connects to it.
- A redirect is not followed: a token that was meant for one place would go to another.
- Certificates are judged by the system's own, as the daemon judges them.
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
"""Bytes of an answer that are read; what the doctor asks for has a few hundred."""


STEPS = 4
"""To connect, TLS, to send, to receive. A deadline over all of it alone would leave sockets open:
the library closes one only where its own time is up."""


class UnreachableError(Exception):
    """There is no answer; `str()` says why in a few words."""


@frozen
class Answer:
    """What came back.

    Attributes:
        status: HTTP's.
        headers: by name, in lower case.
        body: its beginning, at most `LONGEST` bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> JSONObject | None:
        """The JSON object in the body; None where it is anything else, or was cut."""
        try:
            value = parse(self.body)
        except MalformedJSONError:
            return None
        return value if isinstance(value, dict) else None


async def get(url: str, *, headers: Mapping[str, str] | None = None, seconds: float) -> Answer:
    """Ask once.

    Args:
        url: what for.
        headers: beside HTTP's own.
        seconds: for each step, such as to connect; `STEPS` times as many for all of it.

    Raises:
        UnreachableError: nobody answers, or not in HTTP.
    """
    # The name's own defects are found by the encoder, which httpx lets through.
    known = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)
    with trio.move_on_after(STEPS * seconds):
        try:
            return await _get(url, headers or {}, seconds)
        except httpx.TimeoutException:
            pass
        except known as error:
            raise UnreachableError(why(error)) from None
    raise UnreachableError(f"no answer within {seconds:g} s")


async def _get(url: str, headers: Mapping[str, str], seconds: float) -> Answer:
    sent = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
    trusted = ssl.create_default_context() if url.startswith("https:") else False
    async with (
        httpx.AsyncClient(trust_env=False, timeout=seconds, verify=trusted) as client,
        client.stream("GET", url, headers=sent) as response,
    ):
        body = bytearray()
        with trio.CancelScope() as enough:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) >= LONGEST:
                    # Leaving the loop would leave generators of httpx behind, half run.
                    enough.cancel()
        return Answer(response.status_code, dict(response.headers), bytes(body[:LONGEST]))


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
