"""Our own emitter as the target of commands: hooks in, delivery over loopback, answers back.

All of it is the daemon's own, but the handlers: what a test registers is what is accepted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import trio
from attrs import define, field

from daemon_room import Room, opened
from kimiaepd import settings
from kimiaepd.commands import ACCEPTED, Command, Decision
from kimiaepd.delivery import Delivery, open_delivery


@define(eq=False)
class Target:
    """A daemon's inside that delivers to a relay.

    Attributes:
        room: takes hooks.
        delivery: to the relay.
        obeyed: the commands that reached a handler, which accepts them all.
    """

    room: Room
    delivery: Delivery
    obeyed: list[Command] = field(factory=list)

    def obey(self, command: Command) -> Decision:
        """Accept a command."""
        self.obeyed.append(command)
        return ACCEPTED

    async def delivered(self) -> None:
        """Wait until the relay has everything that was logged."""
        with trio.fail_after(5):
            while not self.delivery.sender.is_up or self.delivery.sender.outbox.lag.events:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def targeting(folder: Path, port: int, token: str, *accepts: str) -> AsyncIterator[Target]:
    """A target until the end of the block; then it must come to an end by itself."""
    inside = folder / "inside"
    environ = {
        "HOME": str(folder),
        "AEP_RELAY_URL": f"ws://127.0.0.1:{port}",
        "AEP_TOKEN": token,
    }
    (folder / ".local/state/kimiaepd").mkdir(parents=True)
    with opened(inside) as room, ExitStack() as held:
        delivery = open_delivery(settings.load(environ), environ, room.book, held)
        assert delivery is not None
        delivery.sender.log_dir = inside / "log"
        target = Target(room, delivery)
        for kind in accepts:
            delivery.commands.register(kind, target.obey)
        async with trio.open_nursery() as nursery:
            await nursery.start(delivery.run)
            yield target
            delivery.sender.stop()
            nursery.cancel_scope.deadline = trio.current_time() + 5
        assert not nursery.cancel_scope.cancelled_caught, "delivery did not stop"
