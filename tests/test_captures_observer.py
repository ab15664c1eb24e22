"""The captures through the whole inside of the daemon, in virtual time: every event of them valid.

`test_captures.py` says what each scenario must come to; here the same hooks go through payloads,
mapping, sessions, emitter and journal, with the clock of the observer's own task, and must come to
the same terminals as the lifecycles alone did.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from daemon_room import Room, opened
from judge import judge
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import dump
from made_story import Telling, Told
from test_captures import Captured, Sessions, Version, captured, delayed, paced

pytestmark = pytest.mark.shared
VERSIONS: tuple[Version, ...] = ("0.28.0", "2.1.0")
LONG_AGO_NS = 1_700_000_000 * 10**9
"""Shims start at moments of the wall clock, and virtual time must pass there too."""


async def send(room: Room, hooks: list[Captured], nursery: trio.Nursery) -> None:
    """One session's hooks, each at its time; nobody waits for a reply."""
    began = trio.current_time()
    for hook in hooks:
        await trio.sleep_until(began + hook.at)
        started_ns = LONG_AGO_NS + round(hook.at * 1e9)
        nursery.start_soon(room.raw, json.dumps(hook.payload).encode(), started_ns)


async def logged(folder: Path, sessions: Sessions, ceilings: Ceilings) -> dict[str, list[str]]:
    """The core types of each session's log, sorted; the log itself was judged."""
    with opened(folder, ceilings=ceilings) as room:
        async with trio.open_nursery() as nursery:
            await nursery.start(room.observer.run)
            for hooks in sessions.values():
                nursery.start_soon(send, room, hooks, nursery)
            await trio.sleep(max(hooks[-1].at for hooks in sessions.values()) + 10)
            nursery.cancel_scope.cancel()
        assert room.observer.bad == {}
        found = {}
        for session in sessions:
            events = room.events(session)
            judge(events)
            found[session] = core(str(event["type"]) for event in events)
        return found


def core(types: Iterable[str]) -> list[str]:
    return sorted(name for name in types if not name.startswith("x."))


def told(sessions: Sessions) -> dict[str, list[str]]:
    """The same, by the lifecycles alone."""
    found = {}
    for session, hooks in sessions.items():
        story = Telling()
        now = 0.0
        for hook in hooks:
            story.wait(hook.at - now)
            story.tell(Told(0.0, hook.payload))
            now = hook.at
        story.wait(10)
        found[session] = core(story.types)
    return found


@pytest.mark.parametrize("pace", ["recorded", "0.1", "1", "2.5", "late"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_every_event_is_valid_and_every_terminal_as_told(
    tmp_path: Path, shared: Path, autojump_clock: MockClock, version: Version, pace: str
) -> None:
    sessions = captured(shared, version)
    if pace == "late":
        sessions = delayed(sessions, seed=7)
    elif pace != "recorded":
        sessions = paced(sessions, float(pace))
    for level in (Capture.METADATA, Capture.FULL):
        ceilings = Ceilings(level, {"attention": Capture.REDACTED})
        found = await logged(tmp_path / level.word, sessions, ceilings)
        expected = told(sessions)
        assert found == expected


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_content_of_a_capture_is_on_disk_at_metadata(
    tmp_path: Path, shared: Path, autojump_clock: MockClock, version: Version
) -> None:
    sessions = captured(shared, version)
    ceilings = Ceilings(Capture.METADATA, {})
    await logged(tmp_path, sessions, ceilings)
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    contents = {
        dump(hook.payload[name])[1:-1]
        for hooks in sessions.values()
        for hook in hooks
        for name in ("tool_output", "action", "feedback", "response", "body", "title", "cwd")
        if isinstance(hook.payload.get(name), str)
    }
    assert len(contents) > 20
    for content in contents:
        assert len(content) < 8 or content not in written
