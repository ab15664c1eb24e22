"""The notifier: a person's own program, run as a hold begins and as it ends: somebody shall come.

Rules:
- Never in a hook's way: `notify` only puts a notice in the queue, and whatever the program does or
  does not do costs no more than a count and, the first time of a kind, a line.
- `gate.notify_command` is run as it stands, by no shell, in `/`, with the JSON object on stdin and
  what a desktop needs of our environment: no token of ours is in that, nor in the object. What it
  prints goes nowhere.
- It has `SECONDS`. Then, and also as it ends by itself or as we stop, everything that is left in
  its process group is killed; what is to outlive it says so by `setsid`.
- The end of a hold is told after its beginning. Where `WAITING` notices wait, the oldest hold that
  is over already goes untold as a whole; else the oldest beginning, and its end with it.

Worst case: `WAITING` and `AT_ONCE` notices of `LONGEST` bytes, 1.1 MiB, and `AT_ONCE` programs.

What a notice says, and what of it the capture ceiling allows, is `gate`'s business.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence

import structlog
import trio
from attrs import define, field, frozen

from kimiaepd.mapping.json_value import JSON, JSONObject, dump

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SECONDS = 10.0
AT_ONCE = 4
WAITING = 64
LONGEST = 16 << 10
"""Bytes of one notice: what any pipe takes at once, so that a program need not read."""

UNTOLD = 1_024
"""Asks whose beginning was dropped that are remembered: more than can be held at once."""

KILL_SECONDS = 1.0
"""How long the system may take to end what was killed."""

BEGINS = "held"
"""`event` of a notice that a hold begins; any other says that it is over."""

_NEEDED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"),
    }
)
_NEEDED_PREFIXES = ("LC_", "XDG_")


def needed(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a program on somebody's desktop needs."""
    return {
        name: value
        for name, value in environ.items()
        if name in _NEEDED or name.startswith(_NEEDED_PREFIXES)
    }


@frozen
class _Notice:
    ask: str
    begins: bool
    body: bytes = field(repr=False)


@define(eq=False)
class Notifier:
    """Runs the program, once for each notice.

    Attributes:
        command: the program and its arguments; nobody is notified where it is empty. A reload puts
            another in its place.
        environ: what the daemon was started with; the program gets a part of it.
        told: programs that ended well.
        failed: those that did not, by how.
        dropped: notices that no program was started for.
    """

    command: Sequence[str]
    environ: Mapping[str, str] = field(repr=False, converter=needed)
    told: int = 0
    failed: Counter[str] = field(factory=Counter)
    dropped: int = 0
    _waiting: list[_Notice] = field(factory=list)
    _running: set[str] = field(factory=set)
    """The asks that a program runs for now."""
    _untold: dict[str, None] = field(factory=dict)
    """The asks whose beginning was dropped, and whose end is to be."""
    _is_stopping: bool = False
    _woken: trio.Event = field(factory=trio.Event)

    def notify(self, event: JSONObject) -> None:
        """Have somebody told of this; it neither waits nor raises.

        Args:
            event: `event` and `ask`, the request's id, and whatever else there is to say.
        """
        if not self.command or self._is_stopping:
            return
        notice = _Notice(str(event.get("ask")), event.get("event") == BEGINS, dump(event) + b"\n")
        is_untold = not notice.begins and notice.ask in self._untold
        if is_untold or len(notice.body) > LONGEST:
            self._drop(notice)
        else:
            self._waiting.append(notice)
            if len(self._waiting) > WAITING:
                self._shed()
            self._woken.set()

    def stop(self) -> None:
        """Take nothing more; `run` returns when what waits is told. The caller has the deadline."""
        self._is_stopping = True
        self._woken.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run programs until stopped, or until cancelled, which ends those that run."""
        self._running.clear()
        async with trio.open_nursery() as program_nursery:
            task_status.started()
            while self._waiting or not self._is_stopping:
                while notice := self._next():
                    self._waiting.remove(notice)
                    self._running.add(notice.ask)
                    program_nursery.start_soon(self._tell, notice)
                await self._woken.wait()
                self._woken = trio.Event()

    def status(self) -> JSONObject:
        """What `kimiaepd status` says of it."""
        failed: dict[str, JSON] = dict(self.failed)
        return {
            "enabled": bool(self.command),
            "told": self.told,
            "failed": failed,
            "dropped": self.dropped,
            "waiting": len(self._waiting),
            "running": len(self._running),
        }

    # --- the queue ---

    def _next(self) -> _Notice | None:
        """The first notice whose hold no program runs for, where there is room for one."""
        if len(self._running) >= AT_ONCE:
            return None
        return next((one for one in self._waiting if one.ask not in self._running), None)

    def _shed(self) -> None:
        """Make room for one more."""
        over = {one.ask for one in self._waiting if not one.begins}
        begun = [one for one in self._waiting if one.begins]
        first = [*(one for one in begun if one.ask in over), *begun, *self._waiting][0]
        for one in [one for one in self._waiting if one.ask == first.ask]:
            self._waiting.remove(one)
            self._drop(one)

    def _drop(self, notice: _Notice) -> None:
        """Start no program for this one; nor for the end of a hold whose beginning this is."""
        if notice.begins:
            self._untold[notice.ask] = None
            if len(self._untold) > UNTOLD:
                del self._untold[next(iter(self._untold))]
        else:
            self._untold.pop(notice.ask, None)
        self.dropped += 1
        if self.dropped == 1:
            log.warning("nobody is told of a hold; more are only counted", bytes=len(notice.body))

    # --- the program ---

    async def _tell(self, notice: _Notice) -> None:
        try:
            failure = await run_program(self.command, self.environ, notice.body)
        finally:
            self._running.discard(notice.ask)
            self._woken.set()
        if failure is None:
            self.told += 1
            return
        how, why = failure
        self.failed[how] += 1
        if self.failed[how] == 1:
            log.warning("the notifier failed; more are only counted", how=how, why=why)


async def run_program(
    command: Sequence[str], environ: Mapping[str, str], given: bytes
) -> tuple[str, str] | None:
    """Run a program to its end, or to ours; None where it went well, else how it did not, and why.

    Args:
        command: the program and its arguments.
        environ: its whole environment; its PATH is where the program is looked for.
        given: what it finds on stdin; at most `LONGEST` bytes.
    """
    try:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environ,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return "cannot be run", str(error)
    try:
        with trio.move_on_after(SECONDS) as deadline:
            await _give(process.stdin, given)
            await process.wait()
    finally:
        # The id of a group stays taken while anybody is in it; one that just became empty is not
        # given away at once.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with trio.move_on_after(KILL_SECONDS, shield=True):
            await process.wait()
    if deadline.cancelled_caught:
        return "too slow", f"it took more than {SECONDS:g} s"
    return ("failed", f"status {process.returncode}") if process.returncode else None


async def _give(stdin: trio.abc.SendStream | None, given: bytes) -> None:
    if stdin:
        async with stdin:
            with contextlib.suppress(trio.BrokenResourceError):  # it need not read
                await stdin.send_all(given)
