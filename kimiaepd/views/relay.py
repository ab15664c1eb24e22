"""Which relay a view talks to, and by which token: the configured one, or the daemon's own.

Rules:
- The place and the token are looked up at each connection: a daemon that was started anew may have
  another port, and a token may have been renewed.
- Who only looks on takes the daemon's token that observes. With the one that controls he would be
  somebody who could answer, and the gate would hold calls for him.
- A configured relay has one token; what that may is its relay's business.

How it is talked to is `relay_consumer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from kimiaepd.collector import place
from kimiaepd.collector.access import token_files
from kimiaepd.errors import UserError
from kimiaepd.relay.address import Address, address_of
from kimiaepd.relay_token import relay_token
from kimiaepd.settings import RelaySettings, RelayUrl, Settings
from kimiaepd.storage.daemon_lock import LOCK_NAME
from kimiaepd.storage.lock_holder import lock_holder


@frozen
class Spot:
    """Where a relay is now, and what opens it.

    Attributes:
        address: its place.
        token: what authenticates us; None where there is none.
    """

    address: Address
    token: str | None = field(repr=False)


@frozen
class Relay:
    """A relay that may move.

    Attributes:
        settings: say which one it is.
        environ: may hold its token.
        may_control: whether commands are to be sent.
    """

    settings: Settings
    environ: Mapping[str, str] = field(repr=False)
    may_control: bool

    @property
    def is_own(self) -> bool:
        """Whether it is the daemon's own: then its emitter's clock is ours too."""
        return self.settings.relay.url is None

    def spot(self) -> Spot:
        """Where it is now.

        Raises:
            UserError: there is none, or its token cannot be read.
        """
        address = address_of(self.settings.relay)
        if address is not None:
            return Spot(address, relay_token(self.settings.relay, self.environ))
        state_dir = self.settings.paths.state_dir
        url = place.read(state_dir)
        if url is None:
            raise UserError(_why_none(self.settings))
        control, observe = token_files(state_dir)
        return Spot(_own(url), (control if self.may_control else observe).read())


def find(settings: Settings, environ: Mapping[str, str], *, may_control: bool = False) -> Relay:
    """The relay that is there now.

    Args:
        settings: ours.
        environ: may hold the relay's token.
        may_control: whether commands are to be sent.

    Raises:
        UserError: there is none, or its token cannot be read; the line says what to do.
    """
    relay = Relay(settings, environ, may_control)
    relay.spot()
    return relay


def _own(url: str) -> Address:
    address = address_of(RelaySettings(RelayUrl(url)))
    if address is None:  # it is None only where no URL is given
        raise UserError(f"the daemon says that its relay is at {url!r}, which is no URL")
    return address


def _why_none(settings: Settings) -> str:
    if lock_holder(settings.paths.state_dir / LOCK_NAME) is None:
        return "no daemon runs, so there is nothing to look at; to start one: kimiaepd up"
    if not settings.collector.enabled:
        return (
            f"{settings.paths.config_file}: collector.enabled is false and relay.url is not set,"
            " so there is no relay to look at; set one of them"
        )
    return "the daemon that runs has no relay of its own; what is wrong says: kimiaepd doctor"
