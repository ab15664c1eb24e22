"""A model provider on loopback that keeps every request byte for byte.

It speaks as much of the OpenAI chat API as the CLI uses: a POST, answered with server-sent events.
What it says is `scenes.py`'s business. It counts no tokens, checks no key and judges no request.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from attrs import define, field, frozen

from vendor.scenes import Hang, Refuse, events, reply_to

LATENCY_S = 0.25
"""How long the model seems to think: from 0.42.0 the CLI kills a PostToolUse hook when the next
response ends, and no real model answers at once."""

HANG_CHECK_S = 0.1
"""How often a reply that hangs looks whether the provider is closing."""


@frozen
class Request:
    """One request as it came: nothing parsed, sorted or left out."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@define
class Provider:
    """The running provider; leaving the context ends it, and every reply that still hangs."""

    latency_s: float = LATENCY_S
    closing: threading.Event = field(factory=threading.Event)
    _kept: list[Request] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock)
    _server: _Server = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The base URL for the CLI's config.toml."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def keep(self, request: Request) -> None:
        with self._lock:
            self._kept.append(request)

    def take(self) -> list[Request]:
        """The requests since the last call, in the order of their arrival."""
        with self._lock:
            taken, self._kept = self._kept, []
        return taken


class _Server(ThreadingHTTPServer):
    provider: Provider
    daemon_threads = False  # closing waits for the handlers: none outlives its test

    def handle_error(self, request: object, client_address: object) -> None:
        """Be silent where the CLI hung up in the middle; anything else is a bug of this file."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.0: the end of the connection is the end of the reply."""

    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        provider = self.server.provider
        provider.keep(Request(self.path, tuple(self.headers.items()), body))
        call_id, step = reply_to(json.loads(body))
        provider.closing.wait(provider.latency_s)
        if isinstance(step, Refuse):
            self._refuse(step.status)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events(call_id, step):
            self.wfile.write(event)
        if isinstance(step, Hang):
            self._hang()

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"error": {"message": f"mock status {status}"}}).encode())

    def _hang(self) -> None:
        """Wait until the CLI has gone, or the provider is closing."""
        self.connection.settimeout(HANG_CHECK_S)
        while not self.server.provider.closing.is_set():
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                continue

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing: what came has been kept."""
