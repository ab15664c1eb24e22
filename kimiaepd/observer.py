"""The observer: what one hook does: find the session, map, let lifecycles and gate decide, reply.

Rules:
- A payload that cannot be understood costs an `error.raised` and a counter, never more; the hook is
  freed either way. Nothing here raises because of what a hook sent.
- The reply goes out when the events are in the log, and on disk where `log.sync` is "always". It
  never waits for a relay or for another hook, but for the one case that `lifecycle.machine` names:
  a failure in a session that has never asked for anything. What the gate holds waits for a person.
- One task (`run`) watches every deadline of every session; a hook only wakes it.

Replies are empty, but for what the gate refuses, and for instructions that go with a prompt.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter

import structlog
import trio
from attrs import define, field

from kimiaepd import probe
from kimiaepd.gate.gate import NOTHING, Gate
from kimiaepd.hook_socket.conversation import Reply
from kimiaepd.hook_socket.peer import Peer
from kimiaepd.instruct import Instructions
from kimiaepd.lifecycle.state import Hook, Wait
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.hooks import map_hook
from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, parse
from kimiaepd.mapping.payloads import (
    UNKNOWN_SESSION,
    HookPayload,
    NotAnObjectError,
    read_payload,
)
from kimiaepd.sessions import Session, SessionBook
from kimiaepd.storage.journal import Journal, JournalError

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ACKNOWLEDGE_SECONDS = 0.25
"""How long a hook is kept for a sync (`log.sync` "always"): its shim waits no longer either."""

IDLE_CHECK_SECONDS = 600.0
SHOWN = 100
"""Sessions that a status lists: those seen last."""

_KEPT_FOR_TWINS = ("UserPromptSubmit", "SessionStart")
_HEAD = re.compile(rb'\{"hook_event_name":"(\w{1,64})","session_id":"([A-Za-z0-9._-]{1,200})"')


@define
class Observer:
    """Takes hooks in, one call each, and decides what waits.

    Attributes:
        book: the sessions.
        journal: the log they are written to; only its sync is used here.
        gate: decides about tool calls; None where nothing is ever held.
        instructions: what goes with a prompt; None where nothing is taken.
        bad: payloads that could not be understood, by kind.
        hooks: how many came.
        unsynced: hooks freed before their events were on disk, where they should have been.
        last_hook_ns: when the shim of the last one started (wall clock), also of one before this
            start; None before the first of all.
        probes: how many probes came; they are no hooks (`kimiaepd.probe`).
        last_probe: the nonce of the last one.
    """

    book: SessionBook
    journal: Journal
    gate: Gate | None = None
    instructions: Instructions | None = None
    bad: Counter[str] = field(factory=Counter)
    hooks: int = 0
    unsynced: int = 0
    last_hook_ns: int | None = None
    probes: int = 0
    last_probe: str | None = None
    _woken: trio.Event = field(factory=trio.Event)

    async def hook(self, body: bytes, started_ns: int, peer: Peer | None = None) -> bytes | Reply:
        """Take one hook in; gives back what its shim writes out.

        Args:
            body: its payload.
            started_ns: when its shim started (wall clock).
            peer: that shim, which may go before it has its reply; None where nobody can tell.
        """
        if nonce := probe.nonce_of(body):
            self.probes, self.last_probe = self.probes + 1, nonce
            return NOTHING
        self.hooks += 1
        self.last_hook_ns = started_ns
        try:
            payload = read_payload(_read(body))
        except MalformedJSONError as error:
            return await self._not_understood(error.code, len(body), started_ns)
        except NotAnObjectError:
            return await self._not_understood("not-an-object", len(body), started_ns)
        session = self.book.get(payload.session, trio.current_time())
        hook = self._hook(payload, body, started_ns)
        if payload.event == "PreToolUse" and self.gate:
            reply = await self._gated(self.gate, session, hook, peer)
        else:
            reply = NOTHING
            await self._observed(session, hook)
        await self._acknowledge(session.id)
        if payload.event == "UserPromptSubmit" and self.instructions:
            return self.instructions.reply(session) or reply
        return reply

    def oversized(self, head: bytes, size: int, started_ns: int) -> None:
        """Say that a hook was larger than the limit; its first bytes may tell whose it was."""
        named = _HEAD.match(head)
        session = named[2].decode() if named else UNKNOWN_SESSION
        self._raise("too-large", size, started_ns, session)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Decide what waits when its time is up, and let quiet sessions go; until cancelled."""
        next_idle_check = trio.current_time() + IDLE_CHECK_SECONDS
        task_status.started()
        while True:
            due = min((s.machine.deadline or math.inf for s in self.book), default=math.inf)
            with trio.move_on_at(min(due, next_idle_check)):
                await self._woken.wait()
            self._woken = trio.Event()
            now = trio.current_time()
            self._tick(now)
            if now >= next_idle_check:
                self.book.let_go_idle(now)
                next_idle_check = now + IDLE_CHECK_SECONDS

    def settle(self) -> None:
        """Decide everything that waits, because the daemon stops."""
        for session in self.book:
            if session.state.is_unsettled:
                session.machine.settle(trio.current_time())
                self.book.keep(session)

    def status(self, now: float) -> JSONObject:
        """What `kimiaepd status` says of hooks and sessions."""
        bad: dict[str, JSON] = dict(self.bad)
        return {
            "hooks": self.hooks,
            "last_hook_ms": self.last_hook_ns // 1_000_000 if self.last_hook_ns else None,
            "probes": self.probes,
            "last_probe": self.last_probe,
            "duplicates": self.book.duplicates,
            "not_understood": bad,
            "unsynced": self.unsynced,
            "sessions": [_session_status(session, now) for session in list(self.book)[-SHOWN:]],
            "sessions_in_memory": len(self.book),
        }

    def _tick(self, now: float) -> None:
        for session in self.book:
            deadline = session.machine.deadline
            if deadline is not None and deadline <= now:
                session.machine.tick(now)
                self.book.keep(session)

    async def _gated(self, gate: Gate, session: Session, hook: Hook, peer: Peer | None) -> bytes:
        """A tool call: logged first, and then held, denied, or let go."""
        gone = peer.gone if peer else trio.sleep_forever
        shared = await gate.twin(session, hook, gone)
        if shared is not None:
            return shared
        self._take_in(session, hook)
        call = session.machine.begun
        return await gate.ask(session, hook, call, gone) if call else NOTHING

    async def _observed(self, session: Session, hook: Hook) -> None:
        wait = self._take_in(session, hook)
        if wait:
            decided = trio.Event()
            wait.on_done = decided.set
            await decided.wait()
        if hook.payload.event == "SessionEnd" and self.gate:
            self.gate.over(session.id)

    def _take_in(self, session: Session, hook: Hook) -> Wait | None:
        session.heard(hook.payload.event, self.book.emitter.clock_ns())
        wait = session.machine.hook(hook)
        self.book.keep(session)
        if session.state.waits:
            self._woken.set()
        return wait

    def _hook(self, payload: HookPayload, body: bytes, started_ns: int) -> Hook:
        twin = hashlib.sha256(body).hexdigest() if payload.event in _KEPT_FOR_TWINS else ""
        return Hook(payload, map_hook(payload), trio.current_time(), started_ns, twin)

    async def _not_understood(self, code: str, size: int, started_ns: int) -> bytes:
        self._raise(code, size, started_ns, UNKNOWN_SESSION)
        await self._acknowledge(UNKNOWN_SESSION)
        return NOTHING

    async def _acknowledge(self, session_id: str) -> None:
        """Free the hook; where the log must be on disk first, when it is, or cannot be in time."""
        if self.journal.policy.sync != "always":
            return  # there is nothing to wait for, and a deadline is not free
        late = trio.move_on_after(ACKNOWLEDGE_SECONDS)
        try:
            with late:
                await self.journal.synced(session_id)
        except JournalError:
            self._count_unsynced("the disk refused")
        if late.cancelled_caught:
            self._count_unsynced("the disk takes too long")

    def _count_unsynced(self, why: str) -> None:
        self.unsynced += 1
        if self.unsynced == 1:
            log.warning("hooks freed before their events are on disk", why=why)

    def _raise(self, code: str, size: int, started_ns: int, session_id: str) -> None:
        self.bad[code] += 1
        if self.bad[code] == 1:
            log.warning("hook not understood", code=code, bytes=size, session=session_id)
        facts: JSONObject = {"code": f"hook-{code}", "bytes": size, "fatal": False}
        fields = tuple(Field((name,), Capture.METADATA, fact) for name, fact in facts.items())
        draft = Draft("error.raised", None, fields, "error")
        now = trio.current_time()
        session = self.book.get(session_id, now)
        self._take_in(session, Hook(HookPayload(), draft, now, started_ns))


def _read(body: bytes) -> JSON:
    """One payload; bytes that are not UTF-8 are read with replacements rather than lost."""
    try:
        return parse(body)
    except MalformedJSONError as error:
        if error.code != "encoding":
            raise
    return parse(body.decode("utf-8", "replace").encode())


def _session_status(session: Session, now: float) -> JSONObject:
    return {
        "session": session.id,
        "run": session.state.run.id if session.state.run else None,
        "calls": len(session.state.calls),
        "asks": len(session.state.asks),
        "held": len(session.state.holds),
        "ended": session.is_over,
        "stale": session.is_stale(now),
        "quiet_s": round(now - session.seen_at),
        "at": [session.stream.epoch, session.stream.next_seq - 1],
    }
