"""What the log makes of a draft: its severity, what a full disk may cost, and when it is kept."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from attrs import define
from trio.testing import wait_all_tasks_blocked

from daemon_room import Room, opened
from faults import Faults
from judge import judge
from kimiaepd.mapping.event import SEVERITIES, Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.own_levels import GAP, own_levels
from kimiaepd.storage.journal import LogPolicy

BASH: JSONObject = {"tool_name": "Bash", "tool_call_id": "c1", "tool_input": {"command": "ls"}}
ASK: JSONObject = {**BASH, "id": "a1", "agent_id": "main", "action": "Running: ls"}
AGENT: JSONObject = {"agent_name": "coder", "prompt": "go", "response": "done"}
ERROR: JSONObject = {"error": {"code": "internal", "message": "no"}}

Hooks = Sequence[tuple[str, JSONObject]]

START: Hooks = [("SessionStart", {"source": "startup"})]
PROMPT: Hooks = [("UserPromptSubmit", {"prompt": "hello"})]
CALL: Hooks = [*PROMPT, ("PreToolUse", BASH)]
ASKED: Hooks = [*CALL, ("PermissionRequest", ASK)]
APPROVED: Hooks = [*ASKED, ("PermissionResult", {**ASK, "decision": "approved"})]
REJECTED: Hooks = [*ASKED, ("PermissionResult", {**ASK, "decision": "rejected"})]

SEVERITY: dict[str, tuple[str, str | None, Hooks]] = {
    "a turn that failed": ("run.failed", "error", [*PROMPT, ("StopFailure", {"error_type": "e"})]),
    "a refused call": ("tool.denied", "notice", [*REJECTED, ("PostToolUseFailure", BASH)]),
    "an interrupt": ("run.cancelled", "notice", [*PROMPT, ("Interrupt", {})]),
    "a run that the next prompt drains": (
        "run.cancelled", "notice", [*PROMPT, ("UserPromptSubmit", {"prompt": "again"})],
    ),
    "a run that the end drains": ("run.cancelled", "notice", [*PROMPT, ("SessionEnd", {})]),
    "a call that failed": ("tool.failed", "warning", [*APPROVED, ("PostToolUseFailure", {
        **BASH, **ERROR,
    })]),
    "an ask": ("attention.requested", "notice", ASKED),
    "an answer": ("attention.answered", None, APPROVED),
    "an answered ask": ("attention.resolved", None, APPROVED),
    "a dismissed ask": (
        "attention.resolved", None,
        [*ASKED, ("PermissionResult", {**ASK, "decision": "cancelled"})],
    ),
    "a start": ("session.started", None, START),
    "an end": ("session.ended", None, [*START, ("SessionEnd", {"reason": "exit"})]),
    "a prompt": ("run.started", None, PROMPT),
    "a turn that ended": ("run.finished", None, [*PROMPT, ("Stop", {})]),
    "a call": ("tool.requested", None, CALL),
    "a result": ("tool.completed", None, [*CALL, ("PostToolUse", {**BASH, "tool_output": "a"})]),
    "a subagent": ("delegation.subagent.started", None, [("SubagentStart", AGENT)]),
    "a subagent's end": ("delegation.subagent.stopped", None, [("SubagentStop", AGENT)]),
    "a compaction": ("session.compacted", None, [("PostCompact", {"trigger": "auto"})]),
    "a compaction's begin": (
        "x.kimi-code.session.pre_compact", None, [("PreCompact", {"trigger": "auto"})],
    ),
    "a steered prompt": (
        "x.kimi-code.run.steer_submitted", None,
        [*PROMPT, ("UserPromptSubmit", {"prompt": "left", "is_steer": True})],
    ),
    "a hook of tomorrow": (
        "x.kimi-code.session.something_new", None, [("SomethingNew", {"severity": "error"})],
    ),
    "a notification without a word": ("progress.status", None, [("Notification", {"title": "t"})]),
    "a notification with another word": (
        "progress.status", None, [("Notification", {"title": "t", "severity": "loud"})],
    ),
    **{
        f"a notification of {word}": (
            "progress.status", word, [("Notification", {"title": "t", "severity": word})],
        )
        for word in SEVERITIES
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERITY)
async def test_every_event_weighs_what_the_table_says(tmp_path: Path, name: str) -> None:
    event_type, severity, hooks = SEVERITY[name]
    with opened(tmp_path) as room:
        for event, fields in hooks:
            await room.hook(event, fields)
        room.observer.settle()
        events = room.events()
    judge(events)
    (found,) = (event for event in events if event["type"] == event_type)
    assert found.get("severity") == severity
    assert ("severity" in found) == (severity is not None)


async def test_what_is_no_payload_weighs_as_an_error(tmp_path: Path) -> None:
    with opened(tmp_path) as room:
        await room.raw(b"[]")
        (event,) = room.events("unknown")
    assert (event["type"], event["severity"]) == ("error.raised", "error")


# --- a disk that is nearly full -------------------------------------------------------------------


@define
class Disk:
    """What `os.statvfs` says of the disk's room."""

    f_bavail: int
    f_frsize: int = 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    there = Disk(f_bavail=0)
    monkeypatch.setattr(os, "statvfs", lambda _: there)
    return there


HEAVY: list[JSON] = [
    *("session.started", "run.started", "attention.requested", "attention.answered"),
    *("attention.resolved", "tool.denied", "run.failed", "run.started", "run.cancelled"),
    *("session.compacted", "progress.status", "run.started", "run.finished", "session.ended"),
]


async def tell_all_weights(room: Room) -> int:
    """A session with every event that stays and some that need not; how many of those."""
    second: JSONObject = {**BASH, "tool_call_id": "c2"}
    hooks: Hooks = [
        *START,
        *REJECTED,  # its request may go
        ("StopFailure", {"error_type": "e"}),
        ("UserPromptSubmit", {"prompt": "and now"}),
        ("PreToolUse", second),  # may go
        ("PostToolUse", second),  # may go
        ("SubagentStart", AGENT),  # may go
        ("SubagentStop", AGENT),  # may go
        ("Notification", {"title": "t", "severity": "info"}),  # may go
        ("Interrupt", {}),
        ("PreCompact", {"trigger": "auto"}),  # may go
        ("PostCompact", {"trigger": "auto"}),
        ("Notification", {"title": "t", "severity": "warning"}),
        ("UserPromptSubmit", {"prompt": "again"}),
        ("SessionHeartbeat", {"uptime_ms": 1}),  # may go
        ("Stop", {}),
        ("SessionEnd", {"reason": "exit"}),
    ]
    for event, fields in hooks:
        await room.hook(event, fields)
    return 8


async def test_on_a_full_disk_what_is_light_goes_and_one_gap_counts_it(
    tmp_path: Path, disk: Disk
) -> None:
    with opened(tmp_path, policy=LogPolicy(sync="os", min_free_bytes=1000)) as room:
        gone = await tell_all_weights(room)
        assert room.types() == HEAVY
        assert room.journal.stats.shed == gone
        disk.f_bavail = 10_000
        while len(room.types()) == len(HEAVY):  # until the journal looks at the disk again
            await room.hook("SessionHeartbeat", {"uptime_ms": 1})
            assert room.journal.stats.shed < 10_000
        gone = room.journal.stats.shed
        await room.hook("SessionHeartbeat", {"uptime_ms": 2})
        events = room.events()
    (gap,) = (event for event in events if event["type"] == GAP)
    assert events.index(gap) == len(HEAVY)
    assert gap["data"] == {"count": gone}
    assert own_levels()[GAP] == {("count",): Capture.METADATA}, "what a relay lets through of it"
    assert [event["seq"] for event in events] == list(range(len(events)))
    judge(events)


async def test_with_room_on_the_disk_nothing_goes(tmp_path: Path, disk: Disk) -> None:
    disk.f_bavail = 10_000
    with opened(tmp_path, policy=LogPolicy(sync="os", min_free_bytes=1000)) as room:
        gone = await tell_all_weights(room)
        assert len(room.types()) == len(HEAVY) + gone
        assert room.journal.stats.shed == 0


# --- when a hook is let go ------------------------------------------------------------------------


async def test_under_always_no_reply_comes_before_the_disk_has_the_line(tmp_path: Path) -> None:
    syncing, let_go = trio.Event(), threading.Event()
    replies: list[bytes] = []

    def hold(_: int) -> None:
        trio.from_thread.run_sync(syncing.set)
        assert let_go.wait(30)

    async def prompt(room: Room, session: str) -> None:
        replies.append(await room.hook("UserPromptSubmit", {"prompt": "p"}, session=session))

    with opened(tmp_path, policy=LogPolicy(sync="always")) as room, Faults() as faults:
        faults.on_sync(hold)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(prompt, room, "s")
                with trio.fail_after(30):
                    await syncing.wait()
                nursery.start_soon(prompt, room, "t")
                await wait_all_tasks_blocked()
                assert room.types("s") == room.types("t") == ["run.started"]
                assert replies == []
                let_go.set()
        finally:
            let_go.set()
        assert replies == [b"", b""]


@pytest.mark.parametrize("sync", ["interval", "os"])
async def test_under_the_other_policies_no_reply_waits_for_the_disk(
    tmp_path: Path, sync: str
) -> None:
    synced: list[int] = []
    policies = {"interval": LogPolicy(sync="interval"), "os": LogPolicy(sync="os")}
    with opened(tmp_path, policy=policies[sync]) as room, Faults() as faults:
        faults.on_sync(synced.append)
        assert await room.hook("UserPromptSubmit", {"prompt": "p"}) == b""
        assert room.types() == ["run.started"]
        assert synced == []
