"""One call that two installs send twice: the second hook shares the outcome of the first.

Rules:
- Two hooks are of one call where session, call id, tool and input are the same, and the first
  still waits, or both shims started within `TWICE_NS`. Models use ids again, and Kimi kills hooks
  of calls that end: later, the same is another call, which is decided about for itself.
- A call without an id has no twin that could be told.
- At most `REMEMBERED` calls are kept; one that is forgotten has no twin any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import trio
from attrs import define, field

from kimiaepd.lifecycle.calls import fingerprint
from kimiaepd.lifecycle.machine import TWICE_NS
from kimiaepd.lifecycle.state import Hook, with_short_names

REMEMBERED = 256


@define(eq=False)
class Shared:
    """What every hook of one call gets.

    Attributes:
        print: equal for the same tool with the same input.
        started_ns: when the shim of the first one started (wall clock).
        reply: what it is told; nothing, as long as that is not known.
        is_over: whether it is known.
    """

    print: str
    started_ns: int
    reply: bytes = b""
    is_over: bool = False
    _waiting: list[trio.CancelScope] = field(factory=list)

    def settle(self) -> None:
        """The reply is known; any number of times."""
        self.is_over = True
        for scope in self._waiting:
            scope.cancel()

    async def wait(self, gone: Callable[[], Awaitable[None]]) -> bytes:
        """The reply, once it is known; nothing where the shim goes before."""
        if not self.is_over:
            with trio.CancelScope() as scope:
                self._waiting.append(scope)
                await gone()
        return self.reply

    def is_of(self, hook: Hook) -> bool:
        """Whether a hook is one more of this call, and of no later one under its id."""
        near = abs(hook.started_ns - self.started_ns) <= TWICE_NS
        return self.print == fingerprint(hook.payload) and (near or not self.is_over)


@define
class Twins:
    """The calls that may get a second hook."""

    _calls: OrderedDict[tuple[str, str], Shared] = field(factory=OrderedDict)

    def of(self, session: str, hook: Hook) -> Shared | None:
        """What a hook shares with one before it; None where it is the first of its call."""
        hook = with_short_names(hook)
        shared = self._calls.get((session, hook.payload.tool_call_id or ""))
        return shared if shared and shared.is_of(hook) else None

    def first(self, session: str, hook: Hook) -> Shared:
        """Begin to share the outcome of a call."""
        hook = with_short_names(hook)
        shared = Shared(fingerprint(hook.payload), hook.started_ns)
        if hook.payload.tool_call_id:
            key = (session, hook.payload.tool_call_id)
            self._calls.pop(key, None)
            self._calls[key] = shared
            if len(self._calls) > REMEMBERED:
                self._calls.popitem(last=False)
        return shared
