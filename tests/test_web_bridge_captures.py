"""Every recorded stream of the real server, said again to the real bridge: the story that it tells.

What is expected is read off the frames here, by other code than the mapping's: which turns ended
how, which calls did, what was asked and answered. The log must be valid, and above the ceiling
nothing of the recorded content may stand in it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from bridge_room import PATIENCE, BridgeRoom, bridged, words
from conftest import shared_folder
from daemon_room import DEFAULT
from judge import judge
from kap_journal import GLOBAL, KapHome, members
from kap_server import KapServer, serving
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.settings import WebMode
from kimiaepd.web.cursors import Cursor
from web_captures import Capture, captures, play, read_capture, stage

NAMES = [file.name for file in captures(shared_folder())]
SHORTEST = 16
"""Characters of a text that is looked for; shorter ones stand in ids and names by chance."""

RUNS = {"completed": "run.finished", "cancelled": "run.cancelled", "failed": "run.failed"}
BEGINS = (
    *("turn.started", "turn.step.started", "turn.step.completed", "tool.call.started"),
    *("event.approval.requested", "event.question.requested"),
)
"""What a turn has begun with, where its beginning itself was not said."""


@pytest.fixture
def fast_clock() -> MockClock:
    """Five seconds of the bridge's waits in one of ours."""
    return MockClock(rate=5.0)


def durable(capture: Capture) -> list[JSONObject]:
    return [frame for frame in capture.frames() if frame.get("volatile") is not True]


def said(frame: JSONObject) -> JSONObject:
    return members(frame["payload"])


def expected(frames: list[JSONObject]) -> Counter[str]:
    """How many terminals and answers the frames of one session amount to."""
    story: Counter[str] = Counter()
    turns: set[JSON] = set()
    calls: set[tuple[JSON, JSON]] = set()
    asks: dict[object, JSON] = {}
    refused: set[JSON] = set()
    for frame in frames:
        kind, payload = frame["type"], said(frame)
        call, agent = payload.get("toolCallId"), payload.get("agentId")
        turn = payload.get("turnId", payload.get("turn_id"))
        if kind in BEGINS and agent == "main" and turn not in turns:
            turns.add(turn)
            story["run.started"] += 1
        if kind == "turn.ended" and agent == "main" and payload["turnId"] in turns:
            story[RUNS[str(payload["reason"])]] += 1
        elif kind == "tool.call.started":
            calls.add((agent, call))
            story["tool.requested"] += 1
        elif kind == "tool.result" and (agent, call) in calls:
            failed = "tool.denied" if call in refused else "tool.failed"
            story[failed if payload.get("isError") else "tool.completed"] += 1
        elif kind in ("event.approval.requested", "event.question.requested"):
            asks[payload.get("approval_id") or payload.get("question_id")] = payload["tool_call_id"]
            story["attention.requested"] += 1
        elif kind == "event.approval.resolved" and payload["approval_id"] in asks:
            story["attention.answered"] += payload.get("decision") in ("approved", "rejected")
            if payload.get("decision") == "rejected":
                refused.add(asks[payload["approval_id"]])
        elif kind == "event.question.answered":
            story["attention.answered"] += 1
    return story


def by_session(frames: list[JSONObject]) -> dict[str, list[JSONObject]]:
    found: dict[str, list[JSONObject]] = {}
    for frame in frames:
        if frame["session_id"] != GLOBAL:
            found.setdefault(str(frame["session_id"]), []).append(frame)
    return found


def content(value: JSON) -> Iterator[str]:
    """Every text in it that is long enough to be told from a name."""
    if isinstance(value, str):
        if len(value) >= SHORTEST and " " in value:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from content(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from content(item)


def holes(frames: list[JSONObject]) -> int:
    """How often frames are missing: who recorded one scene was told of some sessions by halves."""
    places = [frame["seq"] for frame in frames]
    assert all(isinstance(place, int) for place in places)
    return sum(b != a + 1 for a, b in itertools.pairwise(map(int, map(str, places))))


def read_before(room: BridgeRoom, server: KapServer) -> None:
    """What was said before the recording was read then: no server has it any more."""
    for name in server.live:
        journal = server.home.sessions[name].journal
        room.feed.cursors.put(name, Cursor(journal.seq, journal.epoch))


async def played(
    room: BridgeRoom, server: KapServer, capture: Capture, told: dict[str, list[JSONObject]]
) -> None:
    """Say it all, and wait until the bridge has taken the last frame of each session."""
    for name in list(server.live):
        await server.subscribed(name, PATIENCE)
    await room.so(lambda: room.status["servers"] and room.server["sessions"] == len(server.live))
    await play(server, capture)
    last = {name: frames[-1]["seq"] for name, frames in told.items() if name in server.live}
    await room.so(lambda: all(_is_read(room, name, seq) for name, seq in last.items()))


def _is_read(room: BridgeRoom, name: str, seq: JSON) -> bool:
    cursor = room.feed.cursors.get(name)
    return cursor is not None and cursor.seq == seq


@pytest.mark.shared
@pytest.mark.parametrize("mode", ["primary", "companion"])
@pytest.mark.parametrize("name", NAMES or ["every capture"])
async def test_every_recorded_stream_is_told_as_it_was(
    tmp_path: Path, shared: Path, fast_clock: MockClock, name: str, mode: WebMode
) -> None:
    capture = read_capture(shared / "captures/web" / name)
    home = KapHome(tmp_path / "kimi")
    told = by_session(durable(capture))
    with trio.fail_after(2 * PATIENCE):
        async with serving(home, capture.version) as server:
            stage(server, capture)
            async with bridged(tmp_path, home, mode, ceilings=DEFAULT) as room:
                read_before(room, server)
                await played(room, server, capture, told)
                logs = {name: room.events(name) for name in told if name in server.live}
                assert room.server["odd"] == 0
                missed = sum(map(holes, told.values()))  # one gap may count several of them
                gaps = room.server["gaps"]
                assert isinstance(gaps, int)
                assert bool(missed) <= gaps <= missed
                assert server.writes == []
    for session, events in logs.items():
        story: Counter[str] = Counter(str(event["type"]) for event in events)
        core = Counter({kind: n for kind, n in story.items() if not kind.startswith("x.")})
        resolved = core.pop("attention.resolved", 0)
        if mode == "companion":
            assert not core
            continue
        judge(events)
        assert core == expected(told[session])
        assert resolved <= core.get("attention.requested", 0)
    shown = words([event for events in logs.values() for event in events if _is_bare(event)])
    for text in {text for frame in durable(capture) for text in content(said(frame))}:
        assert text not in shown


def _is_bare(event: JSONObject) -> bool:
    """Whether it is of a category whose ceiling here is metadata."""
    return not str(event["type"]).startswith("attention.")
