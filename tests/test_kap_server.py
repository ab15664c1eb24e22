"""The scripted `kimi web` server behaves as the real one was seen to, and can be trusted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kap_journal import TOKEN, KapHome
from kap_port import SOCKET
from kap_server import KapServer, serving
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.web.client import Client
from kimiaepd.web.home import find
from ws_client import Client as Socket
from ws_client import connected

OLD, NEW = "0.28.0", "2.1.0"
VERSIONS = (OLD, NEW)


@pytest.fixture
def home(tmp_path: Path) -> KapHome:
    return KapHome(tmp_path)


def client(server: KapServer) -> Client:
    (instance,) = [one for one in find(server.home.path).servers if one.id == server.at.id]
    return Client(instance, server.home.path)


@asynccontextmanager
async def plain(server: KapServer, token: str = TOKEN) -> AsyncIterator[Socket]:
    """A client that has heard the hello."""
    offer = f"kimi-code.bearer.{token}"
    async with connected(server.port, target=SOCKET, offers=[offer]) as socket:
        assert socket.subprotocol == offer
        assert (await socket.hear())["type"] == "server_hello"
        yield socket


async def subscribe(socket: Socket, *names: JSON, **payload: JSON) -> list[JSONObject]:
    """What comes up to the acknowledgement, which is the last."""
    await socket.say(
        {"type": "subscribe", "id": "r1", "payload": {"session_ids": list(names), **payload}}
    )
    heard = [await socket.hear()]
    while heard[-1]["type"] != "ack":
        heard.append(await socket.hear())
    return heard


def seqs(frames: list[JSONObject]) -> list[JSON]:
    return [frame.get("seq") for frame in frames]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_subscriber_is_told_and_what_it_missed_comes_before_the_ack(
    home: KapHome, version: str
) -> None:
    with trio.fail_after(10):
        async with serving(home, version) as server:
            journal = server.session("s1").journal
            for _ in range(3):
                server.say("s1", "turn.started", {"turnId": 0})
            async with plain(server) as socket:
                cursor: JSONObject = {"seq": 1, "epoch": journal.epoch}
                *missed, ack = await subscribe(socket, "s1", cursors={"s1": cursor})
                assert seqs(missed) == [2, 3]
                assert ack["payload"] == {
                    "accepted": ["s1"],
                    "not_found": [],
                    "resync_required": [],
                    "cursors": {"s1": {"seq": 3, "epoch": journal.epoch}},
                }
                server.say("s1", "assistant.delta", {"delta": "w"}, volatile=True)
                said = server.say("s1", "turn.ended", {"turnId": 0, "reason": "completed"})
                delta, ended = await socket.hear(), await socket.hear()
                assert (delta["volatile"], delta["seq"], ended) == (True, 3, said)
