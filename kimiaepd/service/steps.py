"""What `service install`, `uninstall` and `status` do, on any manager.

Rules:
- Install refuses before it writes: a file that is not ours, no manager, another daemon in the way.
  Where the manager refuses what was written, the file that was there before is back and nothing is
  enabled. A daemon that does not start by itself stays installed, and it is said where it says why.
- A second install changes nothing and says so. It starts a service that does not run, and restarts
  one that still runs an older version of the program.
- The service runs when the daemon that answers a ping is the manager's own process; not sooner.
- Uninstall removes the file and what the manager made for it. State and log stay.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

import trio
from attrs import frozen

from kimiaepd import __version__
from kimiaepd.errors import EXIT_NO, UserError
from kimiaepd.hook_socket.client import NotAnswering
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.paths import Paths
from kimiaepd.service.manager import Manager, NoManager, State
from kimiaepd.service.rival import answer, refuse_rival
from kimiaepd.service.tool import ToolError
from kimiaepd.service.unit import STOP_SLACK_SECONDS
from kimiaepd.service.wanted import Service
from kimiaepd.storage.private_directory import create_closed, create_private

UP_SECONDS = 20.0
"""How long the daemon may take to answer once the manager has started it."""

STOP_SECONDS = 120.0
"""How long an uninstall waits for the daemon's end, whatever its settings were."""

POLL_SECONDS = 0.1

Tell = Callable[[str], None]


class NotStartedError(UserError):
    """The service is installed, and its daemon does not run."""


async def install(manager: Manager, service: Service, paths: Paths, *, tell: Tell) -> None:
    """Install the service and start it, or bring it up to date.

    Args:
        manager: the user's.
        service: what it shall run.
        paths: the same instance's places.
        tell: takes each line for the person.

    Raises:
        ConfigError: a file or directory is not as it must be.
        NoManager: there is none here.
        BusyError: another daemon runs.
        ToolError: the manager refused; nothing was left behind.
        NotStartedError: the service is installed, and its daemon ended or does not answer.
    """
    old, new = manager.file.read(), manager.render(service)
    await manager.check()
    before = await manager.state()
    await refuse_rival(paths, before.pid)
    create_private(paths.state_dir)
    create_closed(paths.log_dir)
    create_private(paths.socket.parent)
    changed = old != new
    if changed:
        manager.file.write(new)
    if changed or before.stale or not before.enabled:
        await _take_up(manager, old if changed else new)
    tell(f"{manager.file.path}: {_what_was_done(old, new)}")
    await _bring_up(manager, service, paths, before, changed=changed, tell=tell)


def _what_was_done(old: str | None, new: str) -> str:
    if old == new:
        return "as it was; nothing changed there"
    return "written" if old is None else "brought up to date"


async def _take_up(manager: Manager, old: str | None) -> None:
    """Have the manager read the file; where it cannot, put back what was there."""
    try:
        await manager.take_up()
    except ToolError as error:
        if old is None:
            manager.sweep()
            manager.file.remove()
        else:
            manager.file.write(old)
        try:
            await manager.forget()
        except ToolError as second:
            raise ToolError(f"{error}; nothing was installed (and {second})") from None
        raise ToolError(f"{error}; nothing was installed; run instead: kimiaepd run") from None


async def _bring_up(
    manager: Manager, service: Service, paths: Paths, before: State, *, changed: bool, tell: Tell
) -> None:
    found = await answer(paths.socket) if before.active else None
    old_version = found.get("version") if found else None
    older = before.active and old_version != __version__
    again = older or (changed and before.file is not None)
    if before.active and not again:
        tell(_running(before, paths))
        return
    try:
        await manager.start(again=again, seconds=float(service.stop_seconds + STOP_SLACK_SECONDS))
    except ToolError as error:
        after = await manager.state()
        raise _not_started(manager, f"{after.said}; {error}") from None
    after = await _until_up(manager, paths)
    if found and older:
        tell(f"restarted: version {old_version} was running, and this is {__version__}")
    elif before.active:
        tell("restarted")
    tell(_running(after, paths))


def _running(state: State, paths: Paths) -> str:
    return f"running: pid {state.pid} answers at {paths.socket}"


async def _until_up(manager: Manager, paths: Paths) -> State:
    """The state once the manager's own process answers."""
    state = await manager.state()
    with trio.move_on_after(UP_SECONDS):
        while not state.ended:
            said = await answer(paths.socket)
            state = await manager.state()
            if said and state.pid and said.get("pid") == state.pid:
                return state
            await trio.sleep(POLL_SECONDS)
    raise _not_started(manager, state.said)


def _not_started(manager: Manager, why: str) -> NotStartedError:
    return NotStartedError(
        f"the service is installed, but its daemon does not answer: {why};"
        f" what it said: {manager.diary}"
    )


def preview(manager: Manager, service: Service) -> str:
    """The change of the file as a unified diff; empty where there is none.

    Raises:
        ConfigError: the file is not ours.
    """
    old, path = manager.file.read(), str(manager.file.path)
    return "".join(
        difflib.unified_diff(
            (old or "").splitlines(keepends=True),
            manager.render(service).splitlines(keepends=True),
            "/dev/null" if old is None else path,
            path,
        )
    )


async def uninstall(manager: Manager, *, tell: Tell) -> None:
    """Stop the service and remove what install wrote. No settings are read: they may be wrong.

    Args:
        manager: the user's.
        tell: takes each line for the person.

    Raises:
        ConfigError: the file is not ours, or cannot be removed.
        ToolError: the manager refused; the file is still there.
    """
    file, there = manager.file, manager.file.read() is not None
    try:
        await manager.check()
    except NoManager:
        if there:
            manager.sweep()
            file.remove()
        tell(_removed(manager, there=there))
        return
    state = await manager.state()
    ours = there or file.is_at(state.file)
    if ours:
        await manager.let_go(seconds=STOP_SECONDS)
        file.remove()
        await manager.forget()
    if ours and state.pid:
        tell(f"stopped: pid {state.pid}")
    tell(_removed(manager, there=there))


def _removed(manager: Manager, *, there: bool) -> str:
    path = manager.file.path
    return f"removed: {path}" if there else f"no service at {path}; nothing changed there"


@frozen
class Standing:
    """How the service is.

    Attributes:
        file: the manager's file.
        installed: whether it is there, and ours.
        current: whether it says what an install from here would write.
        enabled: whether the manager starts it by itself.
        active: whether the manager runs it.
        said: the manager's words, or why there is none.
        pid: its process.
        answers: whether a ping at this instance's socket is answered by that process.
        other_pid: a daemon that answers there and is not the service.
    """

    file: str
    installed: bool
    current: bool
    enabled: bool
    active: bool
    said: str
    pid: int | None
    answers: bool
    other_pid: int | None

    @property
    def status(self) -> int:
        """The exit status: 0 it runs; 1 it does not; 3 it does, and does not answer."""
        if not self.active:
            return EXIT_NO
        return 0 if self.answers else NotAnswering.status


async def standing(manager: Manager, service: Service, paths: Paths) -> Standing:
    """Look at everything, and change nothing.

    Raises:
        ConfigError: the file is there and is not ours.
    """
    text = manager.file.read()
    try:
        await manager.check()
        state = await manager.state()
    except (NoManager, ToolError) as error:
        state = State(str(error))
    found = await answer(paths.socket)
    pid = _pid(found)
    return Standing(
        file=str(manager.file.path),
        installed=text is not None,
        current=text == manager.render(service),
        enabled=state.enabled,
        active=state.active,
        said=state.said,
        pid=state.pid,
        answers=pid is not None and pid == state.pid,
        other_pid=None if pid == state.pid else pid,
    )


def _pid(found: JSONObject | None) -> int | None:
    pid = found.get("pid") if found else None
    return pid if isinstance(pid, int) else None
