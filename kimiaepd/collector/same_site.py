"""Whether a request was meant for us, and comes from one of our own pages or from no page at all.

Rules:
- `Host` names this relay, or the request is refused: a page whose name was made to lead to loopback
  still carries its own name there (DNS rebinding).
- `Origin` is absent, as every client but a browser has it, or is the place that `Host` names.
- One that is said twice is refused.

Pure. A token is asked for besides: `access.py`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from attrs import define, field

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""As ASGI has them: pairs of name and value, a name more than once where it was sent so."""

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - left out here: nobody's name
_PORTS = {"http": 80, "https": 443}


def values(headers: Headers, name: bytes) -> list[bytes]:
    """Every value of a header, in order."""
    return [value.strip(b" \t") for key, value in headers if key.lower() == name]


@define(eq=False)
class Site:
    """One relay as it is addressed.

    Attributes:
        scheme: "https" where it has a certificate, else "http".
        hosts: what `Host` may say, in lower case: each name with the port, and without it where it
            is the scheme's own.
        is_private: whether nobody on the way reads what is sent: it speaks TLS, or is listened to
            on this machine alone.
    """

    scheme: str
    hosts: frozenset[bytes] = field(repr=False)
    is_private: bool = False

    @classmethod
    def at(cls, address: str, port: int, *, names: Iterable[str] = (), tls: bool = False) -> Site:
        """The relay that listens there.

        Args:
            address: what it is bound to, in numbers; one that stands for every address is no name.
            port: and its port.
            names: by which it is reached besides loopback and the address.
            tls: whether it speaks TLS.
        """
        scheme = "https" if tls else "http"
        named = {*_LOOPBACK, address, *names} - _ANYWHERE
        bare = {_bracketed(name.lower()) for name in named}
        hosts = {f"{name}:{port}" for name in bare} | (bare if port == _PORTS[scheme] else set())
        encoded = frozenset(host.encode() for host in hosts)
        return cls(scheme, encoded, tls or ipaddress.ip_address(address).is_loopback)

    def is_own(self, headers: Headers) -> bool:
        """Whether `Host` names this relay, and no page of another place makes the request."""
        host, origins = self._host(headers), values(headers, b"origin")
        if host is None or len(origins) > 1:
            return False
        return not origins or self._shortened(origins[0]) == self._shortened(
            f"{self.scheme}://".encode() + host
        )

    def _shortened(self, origin: bytes) -> bytes:
        """An origin without the port that its scheme has anyhow: browsers leave that out."""
        return origin.lower().removesuffix(f":{_PORTS[self.scheme]}".encode())

    def _host(self, headers: Headers) -> bytes | None:
        hosts = values(headers, b"host")
        host = hosts[0].lower() if len(hosts) == 1 else b""
        return host if host in self.hosts else None


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name
