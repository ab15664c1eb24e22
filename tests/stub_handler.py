"""A handler of the hook socket with nothing to say; a test that wants more of one says what."""

from __future__ import annotations

from kimiaepd.hook_socket.conversation import Reply
from kimiaepd.hook_socket.peer import Peer
from kimiaepd.mapping.json_value import JSONObject


class Stub:
    """Frees every hook, and answers everything with an empty object."""

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> bytes | Reply:
        return b""

    def oversized(self, head: bytes, size: int, started_ns: int) -> None: ...

    def status(self) -> JSONObject:
        return {}

    async def reload(self) -> JSONObject:
        return {}

    def console(self, *, read_only: bool, with_token: bool) -> JSONObject:
        return {}
