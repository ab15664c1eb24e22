"""A collector on loopback, as its clients meet it: Hypercorn, real sockets, scratch tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import trio
from attrs import define

from kimiaepd.collector.access import Access, token_files
from kimiaepd.collector.history import Bounds, History
from kimiaepd.collector.hub import Hub
from kimiaepd.collector.routes import Collector
from kimiaepd.collector.same_site import Site
from kimiaepd.collector.serve import bind, serve


@define
class Place:
    """A running collector.

    Attributes:
        collector: the endpoint itself.
        port: where it listens.
        token: for everything; `observer`: for looking on.
    """

    collector: Collector
    port: int
    token: str
    observer: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, token: str | None = "") -> httpx.AsyncClient:
        """A client with the control token, another one, or none."""
        value = self.token if token == "" else token
        headers = {"Authorization": f"Bearer {value}"} if value else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=10, trust_env=False)


@asynccontextmanager
async def collecting(folder: Path, bounds: Bounds | None = None) -> AsyncIterator[Place]:
    """A collector until the end of the block; then it must end by itself, in an orderly way."""
    folder.mkdir(exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    collector = Collector(
        Hub(History(bounds or Bounds())), Access.open(folder, Site.at("127.0.0.1", port))
    )
    control, observe = token_files(folder)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, collector, listener)
        yield Place(collector, port, control.read(), observe.read())
        collector.stopping.set()
        nursery.cancel_scope.deadline = trio.current_time() + 5
    assert not nursery.cancel_scope.cancelled_caught, "the collector did not stop"
