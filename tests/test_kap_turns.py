"""The steps of a scripted session are the recorded ones: in that order, and in no other words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kap_turns
from kap_journal import KapHome, members
from kap_server import KapServer, serving
from kimiaepd.mapping.json_value import JSONObject
from web_captures import FOLDER, read_capture

FAILED: JSONObject = {
    "code": "provider.api_error",
    "message": "no",
    "name": "APIError",
    "retryable": True,
}


def approved(server: KapServer) -> None:
    kap_turns.begin(server, "s")
    name = kap_turns.ask(server, "s")
    kap_turns.resolve(server, "s", name, {"decision": "approved"})
    kap_turns.call(server, "s", "call_1")
    kap_turns.result(server, "s", "call_1")
    kap_turns.end(server, "s")


def rejected(server: KapServer) -> None:
    kap_turns.begin(server, "s")
    name = kap_turns.ask(server, "s")
    kap_turns.resolve(server, "s", name, {"decision": "rejected", "feedback": "not now"})
    kap_turns.call(server, "s", "call_1")
    kap_turns.result(server, "s", "call_1", is_error=True)
    kap_turns.end(server, "s")


def ask_aborted(server: KapServer) -> None:
    kap_turns.begin(server, "s")
    kap_turns.ask(server, "s")
    kap_turns.abort(server, "s")


def form_aborted(server: KapServer) -> None:
    kap_turns.begin(server, "s")
    kap_turns.question(server, "s")
    kap_turns.abort(server, "s")


def read_a_file(server: KapServer) -> None:
    kap_turns.begin(server, "s")
    kap_turns.call(server, "s", "call_1", tool="Read", args={"path": "a"})
    kap_turns.result(server, "s", "call_1")
    kap_turns.end(server, "s")


def failed(server: KapServer) -> None:
    kap_turns.begin(server, "s")
    kap_turns.end(server, "s", reason="failed", error=FAILED)


STORIES: dict[str, Callable[[KapServer], None]] = {
    "approval-approved": approved,
    "approval-rejected-feedback": rejected,
    "approval-pending-session-abort": ask_aborted,
    "question-pending-abort": form_aborted,
    "tool-auto-read": read_a_file,
    "turn-failed-err500": failed,
}


@pytest.mark.shared
@pytest.mark.parametrize("version", ["0.28.0", "2.1.0"])
@pytest.mark.parametrize("name", STORIES)
async def test_a_scripted_story_is_the_recorded_one(
    tmp_path: Path, shared: Path, version: str, name: str
) -> None:
    async with serving(KapHome(tmp_path), version) as server:
        journal = server.session("s").journal
        STORIES[name](server)
    said = journal.frames
    kinds = {frame["type"] for frame in said}
    capture = read_capture(shared / FOLDER / f"ws-{version}-{name}.jsonl")
    real = [one for one in capture.frames() if "volatile" not in one and one["type"] in kinds]
    assert [one["type"] for one in said] == [one["type"] for one in real]
    for ours, theirs in zip(said, real, strict=True):
        assert set(members(ours["payload"])) <= set(members(theirs["payload"])), ours["type"]
        assert set(ours) == set(theirs)
        if ours["type"] == "event.session.work_changed":
            assert told(ours) == told(theirs)


def told(frame: JSONObject) -> JSONObject:
    payload = members(frame["payload"])
    return {name: value for name, value in payload.items() if name != "sessionId"}
