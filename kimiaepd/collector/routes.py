"""The collector's routes: discovery, ingest, stream, socket, health (AEP-0003 section 3), session.

Rules:
- Nothing is served without a token but `/healthz`, which says that we live and nothing else,
  `/session`, which gives one for a one-time code, and the console's page, which holds nothing
  (`page.py`). A token that only observes cannot send events. A
  Host that is not ours, and an Origin of another site, are refused before anything else is looked
  at.
- A token in the URL counts where clients cannot set a header, at `/stream` and `/socket`, where it
  is one that ends with the daemon (`access.py`). No URL is logged, and none is said back.
- A batch is taken whole or refused whole, with the first line that is wrong. One is taken in at a
  time, a few events at once: a full one may need a second, and hooks are waiting.
- A body is read no further than its limit.

Who may do what is `access.py`'s decision; what becomes of an event `hub.py`'s.
"""

from __future__ import annotations

import contextlib
from functools import partial

import trio
from attrs import define, field
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from kimiaepd import __version__
from kimiaepd.collector import page
from kimiaepd.collector.access import Access, Role
from kimiaepd.collector.asked import AskedError, read_query
from kimiaepd.collector.duplex import MOST_MESSAGE, MOST_OBSERVED, Conversation, Terms
from kimiaepd.collector.envelope import envelope_fault, is_command
from kimiaepd.collector.hub import Hub
from kimiaepd.collector.same_site import Headers
from kimiaepd.collector.stream import EventStream
from kimiaepd.mapping.event import VERSION, Capture
from kimiaepd.mapping.json_value import JSONObject, MalformedJSONError, dump, parse

MOST_BODY = 16 << 20
MOST_SESSION_BODY = 4 << 10
SESSION_SECONDS = 5.0
"""Within which a body that needs no token must be there."""

MOST_BATCH = 10_000
AT_ONCE = 8
"""Events of a batch, before others have their turn."""

MOST_CONNECTIONS = 256
"""Streams and sockets at once; one more is turned away."""

KEPT = 16
"""Of those, for who may control: whoever only observes shall not shut out emitters and people."""


_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_NOT_STORED = {"Cache-Control": "no-store"}


class _RefusedError(Exception):
    """A request that is answered by an error."""

    def __init__(self, status: int, body: JSONObject) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@define(eq=False)
class Collector:
    """The endpoint.

    Attributes:
        hub: what is held, and who is there.
        access: who may do what.
        stopping: set when it closes in an orderly way.
        connections: streams and sockets that are there.
    """

    hub: Hub
    access: Access
    stopping: trio.Event = field(factory=trio.Event)
    connections: int = 0
    _turn: trio.Lock = field(factory=trio.Lock, init=False)

    def app(self) -> Starlette:
        """The ASGI application."""
        app = Starlette(
            routes=[
                Route("/healthz", self.health),
                Route("/events", self.discovery, methods=["GET"]),
                Route("/events", self.take, methods=["POST"]),
                Route("/.well-known/aep", self.discovery, methods=["GET"]),
                Route("/stream", self.stream, methods=["GET"]),
                Route("/session", self.session, methods=["POST"]),
                WebSocketRoute("/socket", self.socket),
                *page.routes(self.access.is_own),
            ]
        )
        # Else `/stream/?...` is answered with the whole URL, as whatever host the client named.
        app.router.redirect_slashes = False
        return app

    # --- small answers ---------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """That we live; for whoever has a token, how much there is."""
        body: JSONObject = {"ok": True}
        if self._role(request) is not Role.NONE:
            body |= {
                "version": __version__,
                "connections": self.connections,
                "subscriptions": self.hub.subscriptions,
                "taken": self.hub.taken,
                "refused": self.hub.refused,
            }
        return JSONResponse(body)

    async def discovery(self, request: Request) -> Response:
        """The discovery document (section 3.4)."""
        if refusal := self._refuse(request, Role.OBSERVE):
            return refusal
        endpoints = {"events": "/events", "stream": "/stream", "socket": "/socket"}
        return JSONResponse(
            {
                "aep": [VERSION],
                "role": "collector",
                "endpoints": endpoints,
                "capabilities": self.capabilities,
            }
        )

    @property
    def capabilities(self) -> JSONObject:
        """What this endpoint can (section 4)."""
        return {
            "filters": ["attr-match"],
            "replay": {"buffer": self.hub.history.bounds.events, "all": True},
            "capture": [level.word for level in Capture],
            "control": {"accepts": []},
            "roster": {},
            "experimental": {},
        }

    def _role(self, request: Request) -> Role:
        headers = request.headers.raw
        return self.access.role(headers) if self.access.is_own(headers) else Role.NONE

    def _refuse(self, request: Request, needed: Role, query: bytes = b"") -> Response | None:
        if refusal := self._refuse_stranger(request):
            return refusal
        role = self.access.role(request.headers.raw, query)
        if role is Role.NONE:
            return JSONResponse({"error": "unauthorized"}, 401, headers=_CHALLENGE)
        if role < needed:
            return JSONResponse({"error": "forbidden", "detail": "this token only observes"}, 403)
        return None

    def _refuse_stranger(self, request: Request) -> Response | None:
        if self.access.is_own(request.headers.raw):
            return None
        return JSONResponse({"error": "forbidden", "detail": "not this host"}, 403)

    # --- browsers --------------------------------------------------------------------------------

    async def session(self, request: Request) -> Response:
        """Give a token for a one-time code; one that is wrong, used or late is the same to us."""
        if refusal := self._refuse_stranger(request):
            return refusal
        try:
            with trio.fail_after(SESSION_SECONDS):
                code = _code(await _read_body(request, MOST_SESSION_BODY))
        except _RefusedError as refused:
            return JSONResponse(refused.body, refused.status, headers=_NOT_STORED)
        except trio.TooSlowError:
            return Response(status_code=408, headers=_NOT_STORED)
        except ClientDisconnect:
            return Response(status_code=400)
        token = self.access.redeem(code, trio.current_time())
        if token is None:
            headers = {**_CHALLENGE, **_NOT_STORED}
            return JSONResponse({"error": "unauthorized"}, 401, headers=headers)
        role = self.access.role_of(token.encode()).name.lower()
        return JSONResponse({"token": token, "role": role}, headers=_NOT_STORED)

    # --- ingest ----------------------------------------------------------------------------------

    async def take(self, request: Request) -> Response:
        """Take events in (section 3.2)."""
        if refusal := self._refuse(request, Role.CONTROL):
            return refusal
        try:
            lines = await _read_lines(request)
            async with self._turn:
                await self._take_in(lines)
        except _RefusedError as refused:
            return JSONResponse(refused.body, refused.status)
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(status_code=202)

    async def _take_in(self, lines: list[bytes]) -> None:
        events: list[tuple[JSONObject, bytes]] = []
        for number, line in enumerate(lines):
            if number % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            events.append(_read_event(number, line))
        for number, (event, line) in enumerate(events):
            if number % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            self.hub.take(event, line)

    # --- consumers -------------------------------------------------------------------------------

    async def stream(self, request: Request) -> Response:
        """Server-sent events (section 3.3)."""
        if refusal := self._refuse(request, Role.OBSERVE, request.scope["query_string"]):
            return refusal
        if self._is_full(self.access.role(request.headers.raw, request.scope["query_string"])):
            return PlainTextResponse("too many connections", 503, headers={"Retry-After": "5"})
        try:
            demand = read_query(request.query_params, request.headers.get("last-event-id"))
        except AskedError as error:
            return PlainTextResponse(str(error), 400)
        live = request.query_params.get("live") != "0"
        query = request.scope["query_string"]
        is_good = partial(self._may, Role.OBSERVE, request.headers.raw, query)
        return _Counted(self, EventStream(self.hub, demand, live, self.stopping, is_good))

    def _may(self, role: Role, headers: Headers, query: bytes) -> bool:
        """Whether what a connection has shown still stands for so much."""
        return self.access.handshake(headers, query).role >= role

    def _is_full(self, role: Role) -> bool:
        return self.connections >= MOST_CONNECTIONS - (KEPT if role < Role.CONTROL else 0)

    def longest_message(self, headers: Headers, query: bytes) -> int:
        """Bytes of a message that a socket's other side may send, by what it shows."""
        role = self.access.handshake(headers, query).role
        return MOST_MESSAGE if role is Role.CONTROL else MOST_OBSERVED

    async def socket(self, socket: WebSocket) -> None:
        """The duplex endpoint (section 3.5)."""
        headers = socket.headers.raw
        handshake = self.access.handshake(headers, socket.scope["query_string"])
        if handshake.role is Role.NONE or not self.access.is_own(headers):
            await _deny(socket, handshake.role)
            return
        if self._is_full(handshake.role):
            await socket.send_denial_response(
                PlainTextResponse("too many connections", 503, headers={"Retry-After": "5"})
            )
            return
        self.connections += 1
        try:
            await socket.accept(subprotocol=handshake.subprotocol)
            terms = Terms(
                may_control=handshake.role is Role.CONTROL,
                identity={"agent": "kimiaepd", "instance": __version__},
                capabilities=self.capabilities,
                stopping=self.stopping,
                is_good=partial(self._may, handshake.role, headers, socket.scope["query_string"]),
            )
            await Conversation(socket, self.hub, terms).run()
        finally:
            self.connections -= 1


class _Counted(Response):
    """A stream that counts as a connection while it lasts."""

    def __init__(self, collector: Collector, stream: EventStream) -> None:
        super().__init__()
        self._collector = collector
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._collector.connections += 1
        try:
            await self._stream(scope, receive, send)
        finally:
            self._collector.connections -= 1


async def _deny(socket: WebSocket, role: Role) -> None:
    """Refuse a handshake: 401 where the token is at fault, 403 where it is not."""
    status = 401 if role is Role.NONE else 403
    headers = _CHALLENGE if role is Role.NONE else {}
    await socket.send_denial_response(Response(status_code=status, headers=headers))


async def _read_lines(request: Request) -> list[bytes]:
    """The lines of a request, an event each.

    Raises:
        _RefusedError: it is not taken.
    """
    if request.headers.get("aep-version") != VERSION:
        raise _RefusedError(426, {"versions": [VERSION]})
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", "application/x-ndjson"):
        raise _RefusedError(415, {"error": "unsupported-media-type"})
    body = await _read_body(request, MOST_BODY)
    lines = body.split(b"\n") if kind == "application/x-ndjson" else [body]
    lines = [line for line in lines if line.strip()]
    if len(lines) > MOST_BATCH:
        raise _RefusedError(
            413, {"error": "too-many-events", "max": MOST_BATCH, "count": len(lines)}
        )
    return lines


async def _read_body(request: Request, most: int) -> bytes:
    body = bytearray()
    async with contextlib.aclosing(request.stream()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > most:
                raise _RefusedError(413, {"error": "payload-too-large", "max_bytes": most})
    return bytes(body)


def _code(body: bytes) -> str:
    try:
        match parse(body):
            case {"code": str(code)}:
                return code
    except MalformedJSONError:
        pass
    raise _RefusedError(400, {"error": "invalid", "detail": 'a JSON object with a "code"'})


def _read_event(number: int, line: bytes) -> tuple[JSONObject, bytes]:
    try:
        event = parse(line)
    except MalformedJSONError as error:
        raise _RefusedError(
            400, {"error": "invalid-json", "line": number, "detail": str(error)}
        ) from None
    fault = envelope_fault(event)
    if fault is None and isinstance(event, dict) and is_command(str(event.get("type"))):
        fault = "commands travel over the socket alone (AEP-0004 section 4)"
    if fault or not isinstance(event, dict):
        raise _RefusedError(400, {"error": "invalid-event", "line": number, "detail": fault})
    line = line.strip()
    return event, dump(event) if b"\n" in line else line
