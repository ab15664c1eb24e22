"""Captures of the `kimi web` stream: read whole, and said again by a scripted server."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from conftest import shared_folder
from kap_journal import GLOBAL, TOKEN, KapHome, members
from kap_port import SOCKET
from kap_server import KapServer, serving
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.web.answers import LiveSession
from kimiaepd.web.client import Client
from kimiaepd.web.home import find
from web_captures import FOLDER, Capture, captures, play, read_capture, say_again, stage, steps
from ws_client import Client as Socket
from ws_client import OverError, connected

NAMES = [file.name for file in captures(shared_folder())]
UNSAID = {"server_hello", "ack", "ping", "resync_required"}
OFFER = f"kimi-code.bearer.{TOKEN}"


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
            async with connected(server.port, target=SOCKET, offers=[OFFER]) as socket:
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


# --- the double and the real one -----------------------------------------------------------------

WAKING = {"after-snapshot": "snapshot", "after-approvals": "pending_approvals"}
"""What was asked over REST before these subscriptions; it is not in the file."""


@pytest.mark.shared
@pytest.mark.parametrize("name", NAMES or ["every capture"])
async def test_the_double_says_what_the_real_server_said_to_the_same_client(
    tmp_path: Path, shared: Path, name: str
) -> None:
    """Word for word: greetings, replays, acknowledgements, and each copy of what is global."""
    capture = read_capture(shared / FOLDER / name)
    home = KapHome(tmp_path)
    with trio.fail_after(20):
        async with serving(home, capture.version) as server:
            stage(server, capture)
            if "restart-after-shutdown" in name:
                server.live.clear()
            for frame in replayed(capture):
                server.relay(frame)
            async with connected(server.port, target=SOCKET, offers=[OFFER]) as socket:
                heard = await conversation(server, socket, capture)
            if "null" in capture.scene:
                assert server.failures == ["a null cursor"]
                server.failures.clear()
    assert heard == [comparable(one) for one in capture.said if one["type"] != "ping"]


def replayed(capture: Capture) -> list[JSONObject]:
    """What a journal had before the client came: it is told before an acknowledgement."""
    found, pending = list[JSONObject](), None
    for way, one in capture.messages:
        if way == "out" and members(one.get("payload")).get("cursors"):
            pending = one["id"]
        elif one["type"] == "ack" and one["id"] == pending:
            pending = None
        elif way == "in" and pending is not None and "seq" in one:
            found.append(one)
    return found


async def conversation(server: KapServer, socket: Socket, capture: Capture) -> list[JSONObject]:
    """Say both sides' parts in turn, and give what the client hears."""
    heard = [comparable(await socket.hear())]
    told = {place(one) for one in replayed(capture)}
    for way, one in in_turn(capture):
        if way == "out":
            await ask(server, socket, one)
        elif "seq" in one and (one.get("volatile") or place(one) not in told):
            say_again(server, one)
            told.add(place(one))
    expected = sum(one["type"] != "ping" for one in capture.said)
    while len(heard) < expected:
        heard.append(comparable(await socket.hear()))
    server.send({"type": "end"})
    with suppress(OverError):  # it was the server's end
        assert (await socket.hear())["type"] == "end"
    return heard


def in_turn(capture: Capture) -> list[tuple[str, JSONObject]]:
    """The messages, each question just before its answer: what crossed it was earlier."""
    turns, waiting = list[tuple[str, JSONObject]](), dict[JSON, JSONObject]()
    for way, one in capture.messages:
        if way == "out" and one["type"] != "pong":
            waiting[one["id"]] = one
        elif way == "in":
            if one["type"] == "ack":
                turns.append(("out", waiting.pop(one["id"])))
            turns.append((way, one))
    return turns + [("out", one) for one in waiting.values()]


async def ask(server: KapServer, socket: Socket, one: JSONObject) -> None:
    """Say what the client said, and what it asked over REST before; wait until it is answered."""
    if call := WAKING.get(str(one["id"])):
        (instance,) = find(server.home.path).servers
        (session,) = server.home.sessions
        await getattr(Client(instance, server.home.path), call)(LiveSession(session))
    count = len(server.said)
    await socket.say(json.loads(json.dumps(one).replace('"TOKEN"', f'"{TOKEN}"')))
    await server.until(lambda: len(server.said) > count)
    await server.drained()


def place(one: JSONObject) -> tuple[JSON, JSON]:
    return one["session_id"], one["seq"]


def comparable(one: JSONObject) -> JSONObject:
    """A message without what is another one each time."""
    if "seq" in one:
        return one
    payload = {
        name: value for name, value in members(one["payload"]).items() if name != "ws_connection_id"
    }
    return {**one, "payload": payload, "timestamp": ""}
