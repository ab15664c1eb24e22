"""Clients for the scripted `kimi web` server: the daemon's own over REST, and a plain WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kap_journal import TOKEN
from kap_port import SOCKET
from kap_server import KapServer
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.web.client import Client
from kimiaepd.web.home import find
from ws_client import Client as Socket
from ws_client import connected

OFFER = f"kimi-code.bearer.{TOKEN}"


def client(server: KapServer) -> Client:
    """The daemon's client of a server, found in its home as any is."""
    (instance,) = [one for one in find(server.home.path).servers if one.id == server.at.id]
    return Client(instance, server.home.path)


@asynccontextmanager
async def plain(server: KapServer) -> AsyncIterator[Socket]:
    """A WebSocket that has heard the hello."""
    async with connected(server.port, target=SOCKET, offers=[OFFER]) as socket:
        assert socket.subprotocol == OFFER
        assert (await socket.hear())["type"] == "server_hello"
        yield socket


async def subscribe(socket: Socket, *names: JSON, **payload: JSON) -> list[JSONObject]:
    """What comes up to the acknowledgement, which is the last."""
    asked: JSONObject = {"session_ids": list(names), **payload}
    await socket.say({"type": "subscribe", "id": "r1", "payload": asked})
    heard = [await socket.hear()]
    while heard[-1]["type"] != "ack":
        heard.append(await socket.hear())
    return heard


async def types(socket: Socket, count: int) -> list[JSON]:
    """The types of the next messages."""
    return [(await socket.hear())["type"] for _ in range(count)]
