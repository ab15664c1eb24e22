"""The hook server's life: listening, looking after the socket's file, and stopping.

Rules (the ids are those of the project's operations rules):
- Stopping is one deadline: nothing new is taken, what was taken gets the grace, then is cancelled
  (I13).
- A listener that can no longer be reached still serves, for a moment, those who reached it before.
- The socket's path is looked at now and then: a deleted file is made again, and one that another
  program put there ends the daemon; it does not fight (I8).
- A lack of descriptors is `trio.serve_listeners`' business: it tries again each 100 ms. It is
  counted here, and Trio's own traceback each time kept from stderr. The soft limit is raised
  first, so that a full house leaves room for logs (I10).

What happens on a connection is `conversation.py`'s; `endpoint.py` owns the file.
"""

from __future__ import annotations

import logging
import resource

import structlog
import trio
from attrs import frozen

from kimiaepd.errors import BusyError, UserError
from kimiaepd.hook_socket.connection import Listener
from kimiaepd.hook_socket.conversation import Conversations, Handler
from kimiaepd.hook_socket.endpoint import Endpoint
from kimiaepd.hook_socket.limits import Limits

__all__ = ["Handler", "Limits", "raise_descriptor_limit", "serve"]

log: structlog.stdlib.BoundLogger = structlog.get_logger()

DRAIN_SECONDS = 0.1
"""How long a listener that nobody can reach any more accepts those who are waiting in it."""

SPARE_DESCRIPTORS = 512
"""What logs and everything else may need beside a full house of connections."""


async def serve(
    endpoint: Endpoint,
    handler: Handler,
    limits: Limits,
    *,
    stopping: trio.Event | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve hooks until `stopping` is set and the last one is answered, or the grace is over.

    The endpoint is closed, and its file removed, in every case. What a client does never ends the
    server; an exception out of the handler costs that one request.

    Raises:
        BusyError: another program put its own file at the socket's path.
        ConfigError: the socket, or its directory, was deleted and cannot be made again.
    """
    raise_descriptor_limit(limits.connections + SPARE_DESCRIPTORS)
    _silence_trio()
    conversations = Conversations(handler, limits)
    with endpoint:
        async with trio.open_nursery() as connection_nursery:
            async with trio.open_nursery() as accept_nursery:
                listening = _Listening(endpoint, conversations, accept_nursery, connection_nursery)
                task_status.started()
                trouble = await listening.until(trio.Event() if stopping is None else stopping)
                endpoint.unlink_if_mine()
                accept_nursery.cancel_scope.deadline = trio.current_time() + DRAIN_SECONDS
            endpoint.close()
            grace = trio.current_time() + limits.stop_seconds
            connection_nursery.cancel_scope.deadline = grace
        if connection_nursery.cancel_scope.cancelled_caught:
            log.warning("stopped before every request was answered", grace_s=limits.stop_seconds)
    if trouble:
        raise trouble


@frozen
class _Listening:
    """Keeps one listener at the endpoint's path."""

    endpoint: Endpoint
    conversations: Conversations
    accept_nursery: trio.Nursery
    connection_nursery: trio.Nursery

    async def until(self, stopping: trio.Event) -> UserError | None:
        """Until `stopping`, or until the path cannot be ours any more: then the reason."""
        accepting = self._accept(self.endpoint.listener)
        while True:
            with trio.move_on_after(self.conversations.limits.check_seconds):
                await stopping.wait()
                return None
            try:
                moved = self._look()
            except UserError as error:
                return error
            if moved:
                accepting.deadline = trio.current_time() + DRAIN_SECONDS
                accepting = self._accept(self.endpoint.listener)

    def _look(self) -> bool:
        """Whether another listener had to take the endpoint's place."""
        path = self.endpoint.path
        match self.endpoint.standing():
            case "mine":
                self.endpoint.touch()
                return False
            case "gone":
                self.endpoint.rebind()
                log.warning("the socket was deleted; listening again", path=str(path))
                return True
            case "taken":
                raise BusyError(
                    f"another program put its own file at {path}; this daemon ends, so that the "
                    "two do not fight: stop the other one, or set another path"
                )

    def _accept(self, listener: Listener) -> trio.CancelScope:
        scope = trio.CancelScope()
        listener.on_error = lambda _: self.conversations.count("not_accepted")

        async def accept() -> None:
            with scope:
                await trio.serve_listeners(
                    self.conversations.serve, [listener], handler_nursery=self.connection_nursery
                )

        self.accept_nursery.start_soon(accept)
        return scope


def _silence_trio() -> None:
    # Where nobody set up logging, Python writes its errors to stderr, traceback and all.
    trios = logging.getLogger("trio.serve_listeners")
    trios.propagate = False
    if not trios.handlers:
        trios.addHandler(logging.NullHandler())


def raise_descriptor_limit(wanted: int) -> None:
    """Make sure of `wanted` descriptors, as far as the system allows; macOS gives 256 at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError) as error:
        log.warning("the limit of open files stays low", limit=soft, why=str(error))
