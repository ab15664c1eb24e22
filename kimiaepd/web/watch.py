"""One `kimi web` server, watched: connected, and connected again, until somebody says it is gone.

Rules:
- First its REST is asked, which tells a wrong token from everything else; then the WebSocket. The
  token is read anew each time, because `kimi web rotate-token` changes it under a running server.
- What fails is said once, in words for people, and tried again after a wait with jitter, longer
  each time. It never ends the bridge.
- A frame that is larger than `LONGEST_FRAME` ends the connection, and would again at each replay:
  so the next one goes on from now, and what was left out is a gap.

Whether the server is still there is `bridge.py`'s to know; what a connection does is in
`conversation.py`.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import structlog
import trio
from attrs import define, field

from kimiaepd.backoff import Backoff
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.relay.address import Address
from kimiaepd.relay.connection import Connection, LinkError, connected
from kimiaepd.web import wire
from kimiaepd.web.client import Client
from kimiaepd.web.conversation import Conversation, Seen
from kimiaepd.web.errors import NoAnswerError, WebError
from kimiaepd.web.feed import Feed
from kimiaepd.web.home import read_token

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LONGEST_FRAME = 16 << 20
"""Bytes of a frame; the vendor's hold a prompt, a tool's result, a picture."""

_OURS = "larger than we take"


@define(eq=False)
class Watch:
    """One server.

    Attributes:
        client: its REST calls.
        feed: takes its frames.
        seen: what was seen of it.
        version: as it says itself, once it did.
        link: "connecting", "connected" or "waiting".
        since: since when (monotonic seconds).
        talk: the connection, while there is one.
    """

    client: Client
    feed: Feed
    seen: Seen = field(factory=Seen)
    version: str | None = None
    link: str = "connecting"
    since: float = field(factory=trio.current_time)
    talk: Conversation | None = None
    _backoff: Backoff = field(factory=Backoff)
    _talked_at: float = field(factory=trio.current_time)
    _was_called: bool = False

    @property
    def server(self) -> str:
        """What it is known by here."""
        return self.client.instance.id

    @property
    def is_called(self) -> bool:
        """Whether all its sessions were asked for at least once."""
        self._was_called = self._was_called or bool(self.talk and self.talk.is_called)
        return self._was_called

    @property
    def silent_seconds(self) -> float:
        """For how long there has been no connection."""
        return 0.0 if self.talk else trio.current_time() - self._talked_at

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            began = trio.current_time()
            self._turn("connecting")
            try:
                await self._once()
            except (WebError, LinkError) as error:
                self._failed(error)
            finally:
                self._was_called = self.is_called
                if self.talk:
                    self.talk, self._talked_at = None, trio.current_time()
            self._turn("waiting")
            self._backoff.lasted(trio.current_time() - began)
            await trio.sleep(self._backoff.next())

    def status(self, now: float) -> JSONObject:
        """What `kimiaepd status` says of it."""
        return {
            "pid": self.client.instance.pid,
            "url": self.client.instance.base_url(),
            "version": self.version,
            "link": self.link,
            "for_s": round(now - self.since),
            "sessions": len(self.talk.sessions) if self.talk else 0,
            "frames": self.seen.frames,
            "odd": self.seen.odd,
            "gaps": self.seen.gaps,
            "last_error": self.seen.last_error,
        }

    async def _once(self) -> None:
        """One connection.

        Raises:
            WebError: its REST does not answer as it should.
            LinkError: the connection failed.
        """
        meta = await self.client.meta()
        self.version = tame(meta.server_version)
        token = read_token(self.client.home)
        await connected(self._address(), token.value, self._talk, longest=LONGEST_FRAME)

    async def _talk(self, connection: Connection) -> None:
        self._turn("connected")
        self.talk = Conversation(connection, self.client, self.feed, self.server, self.seen)
        await self.talk.run()

    def _address(self) -> Address:
        base = self.client.instance.base_url() or ""
        url = urlsplit(base)
        where = (url.hostname or "", url.port or 0)
        return Address(base, *where, False, url.path, "kimi web", wire.PATH)

    def _failed(self, error: WebError | LinkError) -> None:
        said = str(error)
        if isinstance(error, NoAnswerError) and error.is_refused:
            return  # it is starting or ending, and nothing is wrong
        if isinstance(error, LinkError) and _OURS in said:
            self.seen.too_large = True
        if said != self.seen.last_error:
            log.warning("kimi web cannot be watched", server=self.client.instance.name, why=said)
        self.seen.last_error = said

    def _turn(self, link: str) -> None:
        self.link, self.since = link, trio.current_time()
