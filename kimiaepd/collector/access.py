"""Who may do what: tokens, one-time codes for browsers, and the check of each request's headers.

Rules:
- A token travels as `Authorization: Bearer`, or as the WebSocket subprotocol `aep.bearer.<token>`
  where a browser lets nobody set a header. Two different ones in a request are none.
- The two tokens that stay, of the files, are never taken from a URL: what writes URLs down would
  keep them for good. But the standard's own clients cannot set a header, and section 8.1 lets a
  server take `?access_token=` from those. So a token that ends with the daemon may come this way,
  where nobody on the way can read it (TLS, or this machine alone); and nothing of ours logs a URL.
- The answer to a WebSocket's handshake names `aep.v0` where that was offered, and never a token. A
  browser must be named one of what it offered (RFC 6455 section 4.1; the WHATWG's standard fails
  the connection else), so its page offers `aep.v0` too.
- A browser gets its token by a code: single use, 60 s. Code and token end with the daemon, and with
  the control token under which they were given: to rotate that one takes everything back.
- What is kept and compared are digests, in constant time, all of them. No repr shows anything, and
  nothing is logged.

Worst case: `CODES` codes and `SESSIONS` tokens, about 20 kB. The clock is handed in, and the only
files are the two of `token_file.py`. Refusing as HTTP does it is `routes.py`'s business.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from attrs import define, field, frozen

from kimiaepd.collector.same_site import Headers, Site, values
from kimiaepd.collector.token_file import (
    CONTROL_NAME,
    LONGEST,
    OBSERVE_NAME,
    TokenFile,
    digest,
    new_token,
)

SUBPROTOCOL = "aep.v0"
"""What a client offers beside its token, to be named in the answer."""

QUERY_NAME = "access_token"
"""What a token in a query string is called."""

BEARER_PREFIX = "aep.bearer."
"""What stands before a token that travels as a subprotocol."""

CODE_SECONDS = 60.0
"""How long a one-time code is good for."""

CODES = 8
"""Codes that are good at the same time; one more takes the oldest's place."""

SESSIONS = 64
"""Tokens that were given for codes; one more takes the oldest's place."""

_Known: TypeAlias = tuple[bytes | None, "Role"]
"""A token's digest, None where there is none, and what it may."""

_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]+)")


class Role(IntEnum):
    """What a request may do; each may what the one before it may."""

    NONE = 0
    OBSERVE = 1
    CONTROL = 2


@frozen
class Handshake:
    """What a WebSocket's handshake asks for, and gets.

    Attributes:
        role: what the connection may do.
        subprotocol: what the answer names; None: nothing.
    """

    role: Role
    subprotocol: str | None


@frozen(repr=False)
class _Grant:
    """What a browser was given: a code, or the token for one.

    Attributes:
        digest: its.
        role: what it stands for.
        under: the digest of the control token at the time.
        until: when it ends, in seconds of the clock that is handed in; None: with the daemon.
    """

    digest: bytes
    role: Role
    under: bytes | None
    until: float | None = None


@define(eq=False, repr=False)
class Access:
    """Who may do what at one relay.

    Attributes:
        site: how it is addressed.
    """

    site: Site
    _control: TokenFile
    _observe: TokenFile
    _codes: deque[_Grant] = field(factory=lambda: deque(maxlen=CODES), init=False)
    _sessions: deque[_Grant] = field(factory=lambda: deque(maxlen=SESSIONS), init=False)

    @classmethod
    def open(cls, state_dir: Path, site: Site) -> Access:
        """Make the tokens that are not there yet.

        Args:
            state_dir: ours alone, and there.
            site: how the relay is addressed.

        Raises:
            ConfigError: a token cannot be made, or cannot be trusted; the line names its file.
        """
        control, observe = token_files(state_dir)
        control.ensure()
        observe.ensure()
        return cls(site, control, observe)

    # --- requests --------------------------------------------------------------------------------

    def is_own(self, headers: Headers) -> bool:
        """Whether a request was meant for this relay, and no foreign page makes it: ask first."""
        return self.site.is_own(headers)

    def role(self, headers: Headers, query: bytes = b"") -> Role:
        """What an HTTP request may do.

        Args:
            headers: of the request.
            query: its query string, where a token may come in that; else nothing.
        """
        return self._role(_bearers(headers), _in_query(query))

    def handshake(self, headers: Headers, query: bytes = b"") -> Handshake:
        """What a WebSocket may do, and which subprotocol is named to it."""
        offered = _offered(headers)
        prefix = BEARER_PREFIX.encode()
        tokens = [one.removeprefix(prefix) for one in offered if one.startswith(prefix)]
        named = SUBPROTOCOL if SUBPROTOCOL.encode() in offered else None
        return Handshake(self._role([*_bearers(headers), *tokens], _in_query(query)), named)

    def _role(self, in_headers: list[bytes], in_url: list[bytes]) -> Role:
        different = {*in_headers, *in_url}
        if len(different) != 1:
            return Role.NONE
        (token,) = different
        if not in_url:
            return self.role_of(token)
        return self._role_among(token, self._passing()) if self.site.is_private else Role.NONE

    def role_of(self, token: bytes) -> Role:
        """What a token may: the least, where it stands for more than one thing."""
        staying = [(self._control.digest(), Role.CONTROL), (self._observe.digest(), Role.OBSERVE)]
        return self._role_among(token, [*staying, *self._passing()])

    def _passing(self) -> list[_Known]:
        """The tokens that end with the daemon."""
        control = self._control.digest()
        return [
            (one.digest, one.role) for one in self._sessions if control and one.under == control
        ]

    def _role_among(self, token: bytes, known: Iterable[_Known]) -> Role:
        if not token or len(token) > LONGEST:
            return Role.NONE
        asked = digest(token)
        found = [role for one, role in known if one and hmac.compare_digest(one, asked)]
        return min(found, default=Role.NONE)

    # --- browsers --------------------------------------------------------------------------------

    def issue(self, now: float, role: Role = Role.CONTROL) -> str:
        """A one-time code.

        Args:
            now: seconds, of a clock that goes on evenly.
            role: what the token that is given for it may do.
        """
        code = secrets.token_urlsafe(16)
        until = now + CODE_SECONDS
        self._codes.append(_Grant(digest(code.encode()), role, self._control.digest(), until))
        return code

    def redeem(self, code: str, now: float) -> str | None:
        """The token for a code, once; None where the code is not good, or not any more."""
        if len(code) > LONGEST:
            return None
        asked = digest(code.encode("utf-8", "surrogatepass"))
        found = [one for one in self._codes if hmac.compare_digest(one.digest, asked)]
        if not found:
            return None
        (grant,) = found
        self._codes.remove(grant)
        is_late = grant.until is not None and now >= grant.until
        if is_late or grant.under is None or grant.under != self._control.digest():
            return None
        return self._grant(grant.role, grant.under)

    def grant(self, role: Role) -> str:
        """A token that ends with the daemon, for whoever may have one without a code.

        It opens nothing where there is no control token that it could be taken back with.
        """
        return self._grant(role, self._control.digest())

    def _grant(self, role: Role, under: bytes | None) -> str:
        token = new_token()
        self._sessions.append(_Grant(digest(token.encode()), role, under))
        return token


def token_files(state_dir: Path) -> tuple[TokenFile, TokenFile]:
    """The files of the token that may control, and of the one that may observe alone."""
    control, observe = TokenFile(state_dir / CONTROL_NAME), TokenFile(state_dir / OBSERVE_NAME)
    observe.renewal += " --read-only"
    return control, observe


def _bearers(headers: Headers) -> list[bytes]:
    """The tokens of `Authorization`; one that makes no sense counts as a token that nobody has."""
    matches = [_BEARER.fullmatch(value) for value in values(headers, b"authorization")]
    return [match[1] if match else b"" for match in matches]


def _in_query(query: bytes) -> list[bytes]:
    named = f"{QUERY_NAME}=".encode()
    parts = [part.removeprefix(named) for part in query.split(b"&") if part.startswith(named)]
    return [unquote_to_bytes(part) for part in parts]


def _offered(headers: Headers) -> list[bytes]:
    offers = values(headers, b"sec-websocket-protocol")
    return [one.strip(b" \t") for value in offers for one in value.split(b",")]
