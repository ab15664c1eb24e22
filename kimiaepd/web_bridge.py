"""The bridge to `kimi web` as the daemon has it: what the settings make of it.

Rules:
- It is there unless `web.mode` is "off", and costs one look at a directory a second where no server
  runs.
- It writes at a server only where `web.control` says so, in primary, and commands come over a
  connection that is authenticated.
- An answer is the gate's or the stream's by what it answers; where it is neither's, the gate says
  so.

What a server says, and what becomes of it, is in `web/`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import structlog

from kimiaepd.commands import Command, Decision
from kimiaepd.delivery import Delivery
from kimiaepd.gate.gate import RESPOND
from kimiaepd.sessions import SessionBook
from kimiaepd.settings import Settings
from kimiaepd.storage.ledger import Ledger
from kimiaepd.web.bridge import Bridge
from kimiaepd.web.control import CANCEL, WebControl
from kimiaepd.web.cursors import CURSORS, Cursors
from kimiaepd.web.feed import Feed

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def open_bridge(
    settings: Settings, book: SessionBook, delivery: Delivery | None, held: ExitStack
) -> Bridge | None:
    """The bridge that the settings ask for; None where they ask for none.

    Args:
        settings: its mode, and whether it may write.
        book: the sessions.
        delivery: where commands come from.
        held: closes what is opened here.

    Raises:
        ConfigError: the cursors cannot be kept.
    """
    if settings.web.mode == "off":
        return None
    ledger = Ledger.open(settings.paths.state_dir / CURSORS)
    held.callback(ledger.close)
    feed = Feed(book, Cursors(ledger), settings.web.mode)
    book.is_streamed = feed.is_streamed
    return Bridge(settings.paths.kimi_home, feed, _control(settings, book, feed, delivery))


def _control(
    settings: Settings, book: SessionBook, feed: Feed, delivery: Delivery | None
) -> WebControl | None:
    if not settings.web.control:
        return None
    if not feed.is_primary:
        log.warning('web.control is for web.mode = "primary" alone, and does nothing here')
        return None
    if delivery is None:
        return None
    control = WebControl(book, lambda: delivery.sender.is_authenticated)
    feed.offer, feed.outcome = control.offer, control.outcome
    delivery.commands.register(CANCEL, control.cancel)
    return control


def take_answers(
    delivery: Delivery, gate: Callable[[Command], Decision], control: WebControl | None
) -> None:
    """Take answers, each for whoever asked."""

    def take(command: Command) -> Decision:
        decision = control.respond(command) if control else None
        return decision or gate(command)

    delivery.commands.register(RESPOND, take)
