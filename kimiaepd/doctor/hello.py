"""One hello with a relay over its WebSocket: what proves that events could go there.

Rules:
- We say that we are a consumer: an emitter would be taken for a daemon that has come.
- It goes the way of the daemon's own connection (`relay.connection`), inside one deadline.
- Where the answer came, nothing that goes wrong while we leave can take it back.

It judges nothing that the relay says (`relay.py`).
"""

from __future__ import annotations

import trio

from kimiaepd.log_lines import tame
from kimiaepd.mapping.event import VERSION
from kimiaepd.mapping.json_value import JSONObject, MalformedJSONError, dump, parse
from kimiaepd.relay.address import Address
from kimiaepd.relay.connection import Connection, LinkError, RefusedError, connected

HELLO_SECONDS = 5.0
"""For both hellos, once the connection is there."""

HELLO = dump(
    {
        "type": "hello",
        "versions": [VERSION],
        "role": "consumer",
        "identity": {"agent": "kimiaepd-doctor"},
        "capabilities": {},
    }
).decode("ascii")
"""AEP-0003 section 4; a consumer may leave its identity out, and a person likes to see it."""


class NoHelloError(Exception):
    """No hello came back; `str()` says why in a few words.

    Attributes:
        refused: whether it is for want of a token that is taken.
    """

    def __init__(self, said: str, *, refused: bool = False) -> None:
        super().__init__(said)
        self.refused = refused


async def exchange(address: Address, token: str | None) -> JSONObject:
    """Say hello, and give back the relay's.

    Raises:
        NoHelloError: there was none.
    """
    answers: list[str | bytes] = []

    async def greet(connection: Connection) -> None:
        with trio.move_on_after(HELLO_SECONDS):
            await connection.send(HELLO)
            answers.append(await connection.receive())

    try:
        await connected(address, token, greet)
    except LinkError as error:
        if not answers:
            raise _refusal(error) from None
    if not answers:
        raise NoHelloError(f"no hello within {HELLO_SECONDS:g} s")
    return _understood(answers[0])


def _refusal(error: LinkError) -> NoHelloError:
    if error.status is None:
        return NoHelloError(str(error))
    refused = isinstance(error, RefusedError)
    return NoHelloError(f"HTTP {error.status} and no WebSocket", refused=refused)


def _understood(answer: str | bytes) -> JSONObject:
    raw = answer if isinstance(answer, bytes) else answer.encode("utf-8", "replace")
    try:
        frame = parse(raw)
    except MalformedJSONError:
        frame = None
    kind = frame.get("type") if isinstance(frame, dict) else None
    if isinstance(frame, dict) and kind == "hello":
        return frame
    if isinstance(frame, dict) and kind == "error":
        code = frame.get("code")
        raise NoHelloError(
            tame(f"it answers with the error {code}"), refused=code == "unauthorized"
        )
    raise NoHelloError("its first frame is no hello")
