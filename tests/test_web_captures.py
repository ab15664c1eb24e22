"""Captures of the `kimi web` stream: read whole, and said again by a scripted server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from conftest import shared_folder
from kap_journal import GLOBAL, TOKEN, KapHome
from kap_port import SOCKET
from kap_server import serving
from kimiaepd.mapping.json_value import JSON, JSONObject
from web_captures import Capture, captures, play, read_capture, stage, steps
from ws_client import Client as Socket
from ws_client import connected

NAMES = [file.name for file in captures(shared_folder())]
UNSAID = {"server_hello", "ack", "ping", "resync_required"}


def frame(session: str, seq: int, type_: str = "turn.started", **more: JSON) -> JSONObject:
    return {
        "type": type_,
        "seq": seq,
        "session_id": session,
        "payload": {"type": type_, "agentId": "main", "sessionId": session},
        "epoch": f"ep_{session}",
        **more,
    }


def line(way: str, said: JSONObject) -> str:
    return json.dumps({"t": 1.0, "dir": way, "frame": said}) + "\n"


def ack(**payload: JSON) -> JSONObject:
    return {"type": "ack", "id": "s1", "code": 0, "msg": "success", "payload": payload}


@pytest.fixture
def made(tmp_path: Path) -> Capture:
    """A file as the recorder writes them, of an old server that says what is global twice."""
    subscribe: JSONObject = {"type": "subscribe", "id": "s1", "payload": {"session_ids": ["a"]}}
    cursors: JSON = {"a": {"seq": 4, "epoch": "ep_a"}, "b": {"seq": 9, "epoch": "ep_b"}}
    file = tmp_path / "ws-0.28.0-made-up.jsonl"
    file.write_text(
        line("in", {"type": "server_hello", "payload": {}})
        + line("out", subscribe)
        + line("in", ack(accepted=["a", "b"], cursors=cursors))
        + line("in", frame("a", 4, "assistant.delta", volatile=True))
        + line("in", frame("a", 5, "session.meta.updated"))
        + line("in", frame("a", 5, "session.meta.updated"))
        + line("in", frame("a", 5, "assistant.delta", volatile=True))
        + line("in", frame("c", 1, "event.session.created"))
        + line("in", frame("c", 2, "event.session.work_changed"))
        + line("in", frame(GLOBAL, 7, "event.config.changed"))
        + line("in", {"$close": {"code": 1006, "name": "ABNORMAL_CLOSURE", "reason": None}})
    )
    return read_capture(file)


def test_a_file_says_who_said_what(made: Capture) -> None:
    assert (made.version, made.scene, made.close) == ("0.28.0", "made-up", 1006)
    assert [one["type"] for one in made.asked] == ["subscribe"]
    assert [one["type"] for one in made.said][:2] == ["server_hello", "ack"]
    assert len(made.said) == 9
    assert made.sessions() == ["a", "b"]
    assert [(one["session_id"], one["seq"]) for one in made.frames()] == [
        ("a", 4), ("a", 5), ("a", 5), ("c", 1), ("c", 2), (GLOBAL, 7),
    ]  # fmt: skip


async def told(socket: Socket, count: int) -> list[JSONObject]:
    """The next frames of journals."""
    heard = list[JSONObject]()
    while len(heard) < count:
        said = await socket.hear()
        if said["type"] not in UNSAID:
            heard.append(said)
    return heard


async def test_what_was_recorded_is_said_again_to_who_subscribes(
    tmp_path: Path, made: Capture
) -> None:
    with trio.fail_after(10):
        async with serving(KapHome(tmp_path), made.version) as server:
            stage(server, made)
            assert set(server.live) == {"a", "b"}
            offer = f"kimi-code.bearer.{TOKEN}"
            async with connected(server.port, target=SOCKET, offers=[offer]) as socket:
                await socket.say(made.asked[0])
                assert (await socket.until("ack"))["payload"] == {
                    "accepted": ["a"],
                    "not_found": [],
                    "resync_required": [],
                    "cursors": {"a": {"seq": 4, "epoch": "ep_a"}},
                }
                await play(server, made)
                assert await told(socket, 6) == list(made.frames())


async def test_a_test_may_act_between_two_frames(tmp_path: Path, made: Capture) -> None:
    async with serving(KapHome(tmp_path), made.version) as server:
        stage(server, made)
        for said in steps(server, made):
            if said["session_id"] == "c":
                break
        assert "c" in server.live
        assert server.home.sessions["a"].journal.seq == 5
        assert server.home.journal.seq == 6


@pytest.mark.shared
@pytest.mark.parametrize("name", NAMES or ["every capture"])
async def test_every_recorded_stream_can_be_said_again(
    tmp_path: Path, shared: Path, name: str
) -> None:
    """Also from nothing: who comes late is told all of it in the replay."""
    capture = read_capture(shared / "captures/web" / name)
    frames = list(capture.frames())
    assert len(capture.said) >= len(frames)
    assert {one["type"] for one in capture.said if "seq" not in one} <= UNSAID
    with trio.fail_after(10):
        async with serving(KapHome(tmp_path), capture.version) as server:
            stage(server, capture)
            begun = {name: one.journal.seq for name, one in server.home.sessions.items()}
            names: list[JSON] = [name for name in capture.sessions() if name in begun]
            asked: JSONObject = {"session_ids": names}
            offer = f"kimi-code.bearer.{TOKEN}"
            async with connected(server.port, target=SOCKET, offers=[offer]) as early:
                await early.say({"type": "subscribe", "payload": asked})
                accepted = await early.until("ack")
                await play(server, capture)
                expected = [one for one in frames if is_told(one, names, is_old=server.is_old)]
                times = len(names) if server.is_old else 1
                copies = [times if is_global(one) else 1 for one in expected]
                heard = await told(early, sum(copies))
                assert heard == [
                    one for one, many in zip(expected, copies, strict=True) for _ in range(many)
                ]
            async with connected(server.port, target=SOCKET, offers=[offer]) as late:
                cursors: JSONObject = {str(name): {"seq": 0} for name in names}
                await late.say({"type": "subscribe", "payload": asked | {"cursors": cursors}})
                lasting = [
                    one for one in expected if "volatile" not in one and one["session_id"] in names
                ]
                replayed = await told(late, len(lasting))
                assert by_session(replayed) == by_session(lasting)
                payload = accepted["payload"]
                assert isinstance(payload, dict)
                assert payload["not_found"] == []


def is_global(one: JSONObject) -> bool:
    type_ = str(one["type"])
    return type_ == "session.meta.updated" or type_.startswith(
        ("event.session.", "event.workspace.", "event.config.")
    )


def is_told(one: JSONObject, names: list[JSON], *, is_old: bool) -> bool:
    if is_global(one):
        return bool(names) or not is_old
    return one["session_id"] in names


def by_session(frames: list[JSONObject]) -> dict[str, list[JSONObject]]:
    found = dict[str, list[JSONObject]]()
    for one in frames:
        found.setdefault(str(one["session_id"]), []).append(one)
    return found
