"""The console: one page at `/`, and the files that it is made of, as they lie in `console/`.

Rules:
- The page needs no token, because it holds nothing: what it shows comes over the socket, for which
  it asks with a token that it got for a one-time code (`access.py`).
- A browser is told to run, load and reach nothing but what this relay serves, to send its address
  to nobody, to show the page in no frame, and to keep none of it. Text never becomes markup: where
  a browser knows trusted types, it enforces even that.
- A request that was not meant for this relay is refused as it is everywhere else.

What is served is read once, as the application is made: no request leads to a file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kimiaepd.collector.same_site import Headers

FOLDER = Path(__file__).parent / "console"
INDEX = "index.html"

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src {sources}; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def routes(is_own: Callable[[Headers], bool]) -> list[Route]:
    """The page's routes.

    Args:
        is_own: whether a request was meant for this relay.
    """
    files = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in _KINDS}

    async def serve(request: Request) -> Response:
        if not is_own(request.headers.raw):
            return PlainTextResponse("not this host", 403, headers=_HEADERS)
        name = request.path_params.get("name", INDEX)
        body = files.get(name)
        if body is None:
            return PlainTextResponse("no such file", 404, headers=_HEADERS)
        policy = _POLICY.format(sources=_sources(request.headers["host"], request.url.scheme))
        kind = _KINDS[Path(name).suffix]
        headers = {**_HEADERS, "Content-Security-Policy": policy, "Content-Type": kind}
        return Response(body, headers=headers)

    return [Route("/", serve), Route("/console/{name}", serve)]


def _sources(host: str, scheme: str) -> str:
    """What the page may reach: this relay, and its sockets, which not every browser counts to it.

    The host was checked: it is one of the relay's own names.
    """
    return f"'self' {'wss' if scheme == 'https' else 'ws'}://{host}"
