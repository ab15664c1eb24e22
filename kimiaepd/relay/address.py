"""Where a relay is: one base URL, the way to its socket, and whether a token may travel there.

Rule (AEP-0003 section 8.1, operations I49): TLS, or this machine. Plain text elsewhere only where
somebody asked for it by `relay.allow_plaintext`.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from attrs import frozen

from kimiaepd.errors import ConfigError
from kimiaepd.settings import RelaySettings

_PORTS = {True: 443, False: 80}


@frozen
class Address:
    """A relay's place.

    Attributes:
        url: its base, as it was said: for people, and the key of what was delivered there.
        host: a name or a literal, without brackets.
        port: the TCP port.
        is_tls: whether the connection is encrypted.
        path: the base URL's path, without a slash at its end.
        who: what is there, for people.
        endpoint: the WebSocket's path, below that of the base.
    """

    url: str
    host: str
    port: int
    is_tls: bool
    path: str
    who: str = "the relay"
    endpoint: str = "/socket"

    @property
    def socket_path(self) -> str:
        """The duplex endpoint (of a relay: AEP-0003 section 3.5)."""
        return f"{self.path}{self.endpoint}"

    @property
    def host_header(self) -> str:
        """The `Host` of a request: without a port where that is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.is_tls] else f"{host}:{self.port}"

    @property
    def http_base(self) -> str:
        """The base of the same endpoint over HTTP."""
        return f"http{'s' if self.is_tls else ''}://{self.host_header}{self.path}"


def address_of(settings: RelaySettings) -> Address | None:
    """The configured relay; None where there is none.

    Raises:
        ConfigError: it is plain text to another machine, and nobody asked for that.
    """
    if settings.url is None:
        return None
    url = urlsplit(settings.url)
    is_tls = url.scheme in ("wss", "https")
    host = url.hostname or ""
    if not (is_tls or is_loopback(host) or settings.allow_plaintext):
        raise ConfigError(
            f"relay.url: {settings.url} is not encrypted and not on this machine; use wss://, or"
            " set relay.allow_plaintext = true where the network between is yours"
        )
    return Address(settings.url, host, url.port or _PORTS[is_tls], is_tls, url.path)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or its number; nobody is asked."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
