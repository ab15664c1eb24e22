"""Who tells of a session, whatever becomes of servers, of their files, and of us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import kap_turns as turns
from bridge_room import FULL, PATIENCE, BridgeRoom, bridged
from daemon_room import Room, opened
from kap_journal import KapHome
from kap_server import KapServer, serving
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.web_frames import read_frame
from kimiaepd.settings import WebMode
from kimiaepd.storage.ledger import Ledger
from kimiaepd.supervisor import Supervisor
from kimiaepd.web import bridge as web_bridge
from kimiaepd.web.bridge import AWAY_SECONDS, ORPHAN_SECONDS
from kimiaepd.web.cursors import CURSORS, Cursors
from kimiaepd.web.feed import MEMORIES, Feed
from kimiaepd.web.home import Found


@pytest.fixture
def fast_clock() -> MockClock:
    """Five seconds of the bridge's waits in one of ours."""
    return MockClock(rate=5.0)


@pytest.fixture
def home(tmp_path: Path) -> KapHome:
    return KapHome(tmp_path / "kimi")


async def watched(room: BridgeRoom, server: KapServer, *sessions: str) -> None:
    for session in sessions:
        await server.subscribed(session, PATIENCE)
    await room.so(lambda: room.status["servers"] and room.server["sessions"] == len(sessions))


async def prompted(room: BridgeRoom, prompt: str = "go") -> None:
    await room.room.hook("UserPromptSubmit", {"prompt": prompt}, session="s1")


# --- servers and their files -----------------------------------------------------------------


async def test_a_server_that_dies_after_our_restart_ends_the_run_that_it_says_no_more_of(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home, is_mortal=True) as server:
        server.session("s1")
        async with bridged(tmp_path, home) as room:
            await watched(room, server, "s1")
            turns.begin(server, "s1")
            await room.until("x.kimi-code.web.event.session.work_changed")
        async with bridged(tmp_path, home, epoch=2) as room:
            await watched(room, server, "s1")
            await trio.sleep(ORPHAN_SECONDS + 2)
            assert room.core() == ["run.started"]
            server.kill()
            await room.until("run.cancelled")
            assert room.data("run.cancelled")["by"] == "shutdown"


async def test_a_server_that_is_slow_to_acknowledge_keeps_its_run_over_our_restart(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server:
        server.session("s1")
        async with bridged(tmp_path, home) as room:
            await watched(room, server, "s1")
            turns.begin(server, "s1")
            await room.until("x.kimi-code.web.event.session.work_changed")
        server.switches.no_ack = True
        async with bridged(tmp_path, home, epoch=2) as room:
            connection = await server.subscribed("s1", PATIENCE)
            await trio.sleep(5)
            (asked,) = connection.frames("subscribe")
            at: JSONObject = {"s1": home.sessions["s1"].journal.cursor()}
            payload: JSONObject = {"accepted": ["s1"], "cursors": at}
            connection.send({"type": "ack", "id": asked["id"], "code": 0, "payload": payload})
            turns.end(server, "s1")
            await room.until("run.finished")
            assert room.core() == ["run.started", "run.finished"]


async def test_a_server_whose_file_cannot_be_read_for_a_moment_is_not_gone(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        await room.until("run.started")
        (file,) = home.instances.glob("*.json")
        whole = file.read_text()
        file.write_text(whole[:20])  # as it is while it is written anew
        await trio.sleep(4)
        file.write_text(whole)
        turns.end(server, "s1")
        await room.until("run.finished")
        assert room.core() == ["run.started", "run.finished"]
        assert len(server.connections) == 1


async def test_a_server_whose_file_names_another_port_goes_on_there(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    """A file names the port that is wanted, before another is taken: somebody else is there."""
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        (file,) = home.instances.glob("*.json")
        whole = file.read_text()
        (home.instances / "other.json").write_text(whole)
        await room.so(lambda: len(server.open) == 2)
        turns.begin(server, "s1")
        await room.until("run.started")
        for name in (file.name, "other.json"):
            (home.instances / name).write_text(whole.replace(f"{server.port}", "1"))
        await trio.sleep(3)
        file.write_text(whole)
        await watched_again(room, server)
        turns.end(server, "s1")
        await room.until("run.finished")
        assert room.core() == ["run.started", "run.finished"]


async def watched_again(room: BridgeRoom, server: KapServer) -> None:
    await room.so(lambda: len(server.connections) == 3 and "s1" in server.open[-1].subscriptions)


async def test_a_start_that_cannot_read_a_server_s_file_gives_nothing_up_at_once(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server:
        server.session("s1")
        async with bridged(tmp_path, home) as room:
            await watched(room, server, "s1")
            turns.begin(server, "s1")
            await room.until("run.started")
        (file,) = home.instances.glob("*.json")
        whole = file.read_text()
        file.write_text("")
        async with bridged(tmp_path, home, epoch=2) as room:
            await trio.sleep(3)
            file.write_text(whole)
            await watched(room, server, "s1")
            turns.end(server, "s1")
            await room.until("run.finished")
            assert room.core() == ["run.started", "run.finished"]


async def test_a_server_that_is_gone_but_for_its_process_s_number_leaves_its_sessions_to_hooks(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    """It was killed, and another program has its number: the file says that it lives."""
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        turns.end(server, "s1")
        await room.until("run.finished")
        server.kill()
        assert room.feed.is_streamed("s1")
        await trio.sleep(AWAY_SECONDS + 20)
        await prompted(room)
        await room.room.hook("Stop", session="s1")
        assert room.core() == ["run.started", "run.finished"] * 2


async def test_a_server_whose_token_cannot_be_read_is_left_to_hooks_until_it_can(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        await room.until("run.started")
        (home.path / "server.token").unlink()
        await server.open[0].drop()
        turns.end(server, "s1")
        await room.so(lambda: not room.feed.is_streamed("s1"))
        assert "server.token cannot be read" in str(room.server["last_error"])
        assert room.core() == ["run.started"]
        home.rotate(home.token)
        await room.until("run.finished")
        assert room.feed.is_streamed("s1")
        assert room.core() == ["run.started", "run.finished"]


async def test_a_bridge_that_ended_leaves_every_session_to_hooks(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    """Also where it failed, and is begun again: no server may be found then."""
    async with serving(home) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        await room.until("run.started")
        assert room.feed.is_streamed("s1")
        room.scope.cancel()
        await room.so(lambda: room.status["servers"] == [])
        assert not room.feed.is_streamed("s1")
        assert room.core() == ["run.started"]


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_bridge_that_failed_goes_on_from_where_it_was(
    tmp_path: Path,
    home: KapHome,
    fast_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_there: bool,
) -> None:
    """And its writes with it; what a server that died meanwhile had open is over."""
    supervisor = Supervisor("web bridge")

    def failing(_: Path) -> Found:
        if not is_there:
            server.kill()
        monkeypatch.undo()
        raise ZeroDivisionError

    async with (
        serving(home, is_mortal=True) as server,
        bridged(tmp_path, home, control=True, supervisor=supervisor) as room,
    ):
        server.session("s1")
        await watched(room, server, "s1")
        turns.begin(server, "s1")
        await room.until("run.started")
        monkeypatch.setattr(web_bridge, "find", failing)
        await room.so(lambda: supervisor.crashes)
        if is_there:
            await room.so(lambda: len(server.connections) == 2)
            await watched(room, server, "s1")
            assert room.cancel().reason is None
        await room.until("run.cancelled")
        assert room.data("run.cancelled")["by"] == ("control" if is_there else "shutdown")


# --- sessions that change hands --------------------------------------------------------------


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_server_that_dies_ends_in_companion_what_ran_there_and_not_in_a_terminal(
    tmp_path: Path, home: KapHome, fast_clock: MockClock, *, is_running: bool
) -> None:
    async with (
        serving(home, is_mortal=True) as server,
        bridged(tmp_path, home, "companion") as room,
    ):
        server.session("s1")
        await watched(room, server, "s1")
        await prompted(room)
        turns.begin(server, "s1")
        if not is_running:
            turns.end(server, "s1")
            await room.room.hook("Stop", session="s1")
            await prompted(room, "on")  # in a terminal, which goes on with the session
        await room.so(lambda: room.types().count("x.kimi-code.web.turn.started") == 1)
        await room.so(lambda: server.open and not server.open[0].waiting)
        await trio.sleep(2)
        server.kill()
        await room.so(lambda: room.status["servers"] == [])
        await room.room.hook("Stop", session="s1")
        ends = ["run.started", "run.cancelled"]
        assert room.core() == (ends if is_running else ["run.started", "run.finished"] * 2)


async def test_a_run_of_hooks_that_we_found_running_is_over_with_its_server(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    async with serving(home, is_mortal=True) as server:
        server.session("s1")
        turns.begin(server, "s1")
        async with bridged(tmp_path, home, "companion") as room:
            await prompted(room)
            await watched(room, server, "s1")
            server.kill()
            await room.until("run.cancelled")
            assert room.data("run.cancelled")["by"] == "shutdown"


@pytest.mark.parametrize("version", ["0.28.0", "2.1.0"])
async def test_a_session_that_was_archived_is_the_hooks_also_once_it_is_restored(
    tmp_path: Path, home: KapHome, fast_clock: MockClock, version: str
) -> None:
    """Every version's server says nothing more of its turns until it is begun again."""
    async with serving(home, version) as server, bridged(tmp_path, home) as room:
        server.session("s1")
        await watched(room, server, "s1")
        home.sessions["s1"].is_archived = True
        if version != "0.28.0":
            server.say("s1", "event.session.archived")
        await room.so(lambda: not room.feed.is_streamed("s1"))
        home.sessions["s1"].is_archived = False
        server.say("s1", "session.meta.updated")
        await trio.sleep(20)
        await prompted(room)
        await room.room.hook("Stop", session="s1")
        assert room.core() == ["run.started", "run.finished"]
        assert room.types().count("x.kimi-code.web.session.meta.updated") == 1


# --- sessions that leave memory --------------------------------------------------------------


@contextmanager
def fed(folder: Path, mode: WebMode = "primary", *, epoch: int = 1) -> Iterator[tuple[Room, Feed]]:
    """A feed without a bridge."""
    with opened(folder, epoch=epoch, ceilings=FULL) as room:
        ledger = Ledger.open(folder / CURSORS)
        feed = Feed(room.book, Cursors(ledger), mode)
        room.book.is_streamed = feed.is_streamed
        try:
            yield room, feed
        finally:
            ledger.close()


async def say(feed: Feed, kind: str, seq: int, session: str = "s1", **payload: JSON) -> None:
    raw: JSONObject = {
        "type": kind, "seq": seq, "session_id": session, "epoch": "ep_1",
        "payload": {"agentId": "main", **payload},
    }  # fmt: skip
    feed.host(session, "server")
    await feed.take(read_frame(raw), session, "server")


async def begin(feed: Feed, session: str = "s1") -> None:
    await say(feed, "turn.started", 1, session, turnId=0, origin={"kind": "user"})
    await say(
        feed, "event.approval.requested", 2, session, turn_id=0, approval_id="a1",
        tool_call_id="c1", tool_name="Bash", action="Running", agent_id="main",
    )  # fmt: skip


ENDED = ["run.started", "attention.requested", "attention.resolved", "run.cancelled"]


def core(room: Room, session: str = "s1") -> list[JSON]:
    return [kind for kind in room.types(session) if not str(kind).startswith("x.")]


async def test_what_waited_over_a_weekend_is_over_with_its_server(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with fed(tmp_path) as (room, feed):
        await begin(feed)
        await trio.sleep(2 * 86_400)
        room.book.let_go_idle(trio.current_time())
        assert len(room.book) == 0
        feed.gone("server")
        assert core(room) == ENDED


async def test_what_waited_over_a_weekend_without_us_is_over_where_no_server_has_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with fed(tmp_path) as (room, feed):
        await begin(feed)
    with fed(tmp_path, epoch=2) as (room, feed):
        await trio.sleep(2 * 86_400)
        room.book.let_go_idle(trio.current_time())
        feed.end_orphans()
        assert core(room) == ENDED


async def test_a_session_that_comes_back_while_it_is_streamed_is_the_stream_s(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with fed(tmp_path) as (room, feed):
        await begin(feed)
        await trio.sleep(2 * 86_400)
        room.book.let_go_idle(trio.current_time())
        await room.hook("Stop", session="s1")
        await say(feed, "event.approval.resolved", 3, approval_id="a1", decision="approved")
        await say(feed, "turn.ended", 4, turnId=0, reason="completed")
        assert core(room) == [
            "run.started", "attention.requested", "attention.answered", "attention.resolved",
            "run.finished",
        ]  # fmt: skip


async def test_what_the_stream_began_it_ends_also_where_the_mode_is_another_since(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with fed(tmp_path) as (room, feed):
        await begin(feed)
        await call(feed, 3, "c2")
    with fed(tmp_path, "companion", epoch=2) as (room, feed):
        await call(feed, 4, "c3")
        await say(feed, "tool.result", 5, turnId=0, toolCallId="c2", output="x")
        await say(feed, "event.approval.resolved", 6, approval_id="a1", decision="approved")
        await say(feed, "turn.ended", 7, turnId=0, reason="completed")
        await say(feed, "turn.started", 8, turnId=1, origin={"kind": "user"})
        await say(feed, "turn.ended", 9, turnId=1, reason="completed")
        assert core(room) == [
            "run.started", "attention.requested", "tool.requested", "tool.completed",
            "attention.answered", "attention.resolved", "run.finished",
        ]  # fmt: skip


async def test_hooks_end_what_the_stream_began_where_the_mode_is_another_since(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with fed(tmp_path) as (room, feed):
        await begin(feed)
    with fed(tmp_path, "companion", epoch=2) as (room, feed):
        await room.hook("Stop", session="s1")
        await say(feed, "turn.ended", 3, turnId=0, reason="completed")
        assert core(room) == [*ENDED[:3], "run.finished"]


async def call(feed: Feed, seq: int, name: str) -> None:
    await say(feed, "tool.call.started", seq, turnId=0, toolCallId=name, name="Bash", args={})


async def test_a_session_that_only_we_speak_of_leaves_memory_in_its_turn(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with fed(tmp_path) as (room, _):
        await room.hook("SessionStart", session="old")
        await trio.sleep(room.book.idle_seconds)
        await room.hook("SessionStart", session="new")
        room.book.get("old", trio.current_time(), is_heard=False)
        await trio.sleep(1)
        room.book.let_go_idle(trio.current_time())
        assert [session.id for session in room.book] == ["new"]


async def test_what_is_remembered_of_frames_has_an_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    with fed(tmp_path) as (room, feed):
        for number in range(MEMORIES + 20):
            await begin(feed, f"s{number}")
        assert len(feed._memories) == MEMORIES
        for number in range(MEMORIES + 20):
            name = f"s{number}"
            await say(feed, "event.approval.resolved", 3, name, approval_id="a1", decision="x")
        assert feed._memories == {}
        assert {tuple(core(room, f"s{number}")) for number in range(MEMORIES + 20)} == {
            ("run.started", "attention.requested", "attention.resolved")
        }


async def test_an_approval_that_waits_over_our_restart_can_be_answered(
    tmp_path: Path, home: KapHome, fast_clock: MockClock
) -> None:
    """Though its server says nothing while it waits."""
    async with serving(home) as server:
        server.session("s1")
        async with bridged(tmp_path, home, control=True) as room:
            await watched(room, server, "s1")
            turns.begin(server, "s1")
            turns.ask(server, "s1", "c1")
            await room.until("attention.requested")
            ask = room.only("attention.requested")
        async with bridged(tmp_path, home, control=True, epoch=2) as room:
            await watched(room, server, "s1")
            taken = room.respond(ask, {"option": "approved"})
            assert taken
            assert taken.reason is None
            await room.until("attention.answered")
            assert room.only("attention.answered")["cause"] == "cmd1"
