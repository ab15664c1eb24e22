"""The daemon's own relay, with nothing else installed: events go out, answers come in."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from kimiaepd import own_relay, settings
from kimiaepd.backoff import Backoff
from kimiaepd.collector import place
from kimiaepd.collector.serve import serve
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.own_relay import OwnRelay
from live import Live, scratch
from relay_program import logged_lines
from ws_client import Client, connected

HELLO: JSONObject = {
    "type": "hello", "versions": ["0.1"], "role": "consumer", "capabilities": {},
    "identity": {"agent": "test", "instance": "1"},
}  # fmt: skip
EVERYTHING: JSONObject = {"type": "subscribe", "id": "all", "filter": {}, "from": "all"}


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as made:
        yield made


def call(number: int, session: str = "s") -> JSONObject:
    return {
        "hook_event_name": "PreToolUse", "session_id": session, "tool_name": "Bash",
        "tool_call_id": f"{session}-{number}", "tool_input": {"command": "ls"},
    }  # fmt: skip


def hooks(live: Live, count: int, session: str = "s") -> None:
    for number in range(count):
        assert live.ask(call(number, session)) == b"0\n"


def token(live: Live, name: str = "collector-token") -> str:
    return (live.where.state_dir / name).read_text().strip()


def port_of(live: Live) -> int:
    url = place.read(live.where.state_dir)
    assert url is not None
    return int(url.rpartition(":")[2])


@asynccontextmanager
async def consumer(live: Live, name: str = "collector-token") -> AsyncIterator[Client]:
    headers = (b"authorization", f"Bearer {token(live, name)}".encode())
    async with connected(port_of(live), headers) as client:
        await client.say(HELLO)
        await client.until("hello")
        yield client


async def lines(client: Client, count: int) -> list[str]:
    """The next events of sessions, as they came."""
    found: list[str] = []
    with trio.fail_after(10):
        while len(found) < count:
            text = await client.text()
            if json.loads(text).get("session"):
                found.append(text)
    return found


def logged(live: Live) -> list[str]:
    return [line.decode() for line in logged_lines(live)]


# --- events go out --------------------------------------------------------------------------------


async def test_who_comes_later_sees_the_past_and_then_the_present_as_they_are_in_the_log(
    live: Live,
) -> None:
    await trio.to_thread.run_sync(live.start)
    await trio.to_thread.run_sync(hooks, live, 3, "a")
    async with consumer(live) as client:
        await client.say(EVERYTHING)
        assert sorted(await lines(client, 3)) == sorted(logged(live))
        await trio.to_thread.run_sync(hooks, live, 2, "b")
        assert [json.loads(line)["session"] for line in await lines(client, 2)] == ["b", "b"]


@pytest.mark.parametrize("ends", ["stop", "kill"])
async def test_after_a_start_it_holds_what_the_log_holds(live: Live, ends: str) -> None:
    await trio.to_thread.run_sync(live.start)
    await trio.to_thread.run_sync(hooks, live, 20, "a")
    await trio.to_thread.run_sync(hooks, live, 5, "b")
    await trio.to_thread.run_sync(live.stop if ends == "stop" else live.kill)
    await trio.to_thread.run_sync(live.start)
    async with consumer(live) as client:
        await client.say(EVERYTHING)
        # In the order of each session, as in the log; nothing twice.
        came = await lines(client, 25)
        for session in ("a", "b"):
            own = [line for line in came if json.loads(line)["session"] == session]
            assert own == [one for one in logged(live) if json.loads(one)["session"] == session]


async def test_status_shows_the_link_and_what_is_held(live: Live) -> None:
    await trio.to_thread.run_sync(live.start)
    await trio.to_thread.run_sync(hooks, live, 4)
    async with consumer(live) as client:
        await client.say(EVERYTHING)
        await lines(client, 4)
        answer = await request(live.where.socket, "status", timeout=2.0)
    relay = answer["relay"]
    assert isinstance(relay, dict)
    own = relay["own"]
    assert isinstance(own, dict)
    assert isinstance(own["held"], dict)
    assert (relay["url"], relay["link"]) == (f"http://127.0.0.1:{port_of(live)}", "up")
    assert (own["connections"], own["subscriptions"], own["held"]["events"]) == (2, 1, 4)
    text = live.run("status").stdout
    assert f"http://127.0.0.1:{port_of(live)} (our own) up for" in text
    assert "holds 4 events of 1 sessions" in text


# --- answers come in ------------------------------------------------------------------------------


def command(session: str = "s") -> JSONObject:
    return {
        "aep": "0.1", "id": "c-1", "type": "control.pause", "time": "2026-12-01T00:00:00.000Z",
        "source": "aep://test/agent/human", "agent": "human", "session": session,
        "capture": "metadata",
    }  # fmt: skip


async def test_a_command_finds_the_daemon_that_claims_the_session(live: Live) -> None:
    await trio.to_thread.run_sync(live.start)
    await trio.to_thread.run_sync(hooks, live, 1)
    async with consumer(live) as client:
        await client.say(EVERYTHING)
        await lines(client, 1)
        # Nothing is accepted yet, and the relay says so on the daemon's behalf.
        await client.say(command())
        refusal = await client.until("error")
        assert (refusal["code"], refusal["cause"]) == ("unsupported", "c-1")
        await client.say(command("nobody"))
        assert (await client.until("error"))["code"] == "no-route"


async def test_the_token_that_observes_commands_nothing(live: Live) -> None:
    await trio.to_thread.run_sync(live.start)
    await trio.to_thread.run_sync(hooks, live, 1)
    async with consumer(live, "collector-token-read") as client:
        await client.say(EVERYTHING)
        await lines(client, 1)
        await client.say(command())
        assert (await client.until("error"))["code"] == "unauthorized"


async def commanders(live: Live) -> JSON:
    relay = (await request(live.where.socket, "status", timeout=2.0))["relay"]
    assert isinstance(relay, dict)
    assert isinstance(relay["own"], dict)
    return relay["own"]["commanders"]


async def test_the_daemon_knows_whether_somebody_is_there_who_could_answer(live: Live) -> None:
    await trio.to_thread.run_sync(live.start)
    assert await commanders(live) == 0  # the daemon's own sender is nobody
    async with consumer(live, "collector-token-read"):
        assert await commanders(live) == 0
        async with consumer(live):
            assert await commanders(live) == 1
    with trio.fail_after(5):
        while await commanders(live):
            pass


# --- where it is ----------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_left_to_whoever_has_it(live: Live) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        wanted = other.getsockname()[1]
        live.configure(f"[collector]\nport = {wanted}\n")
        line = await trio.to_thread.run_sync(live.start)
        assert port_of(live) > wanted
        assert f"relay http://127.0.0.1:{port_of(live)}, code " in line
        assert stat.S_IMODE((live.where.state_dir / place.NAME).stat().st_mode) == 0o600


async def test_where_the_last_of_all_ports_is_taken_it_is_any_other(live: Live) -> None:
    """So it is whoever has it: another program, or this test."""
    with socket.socket() as other:
        with contextlib.suppress(OSError):
            other.bind(("127.0.0.1", 65_535))
            other.listen()
        live.configure("[collector]\nport = 65535\n")
        line = await trio.to_thread.run_sync(live.start)
        assert port_of(live) < 65_535
        assert f"relay http://127.0.0.1:{port_of(live)}, code " in line


async def test_a_place_is_believed_only_while_its_daemon_lives(live: Live) -> None:
    await trio.to_thread.run_sync(live.start)
    assert place.read(live.where.state_dir) is not None
    await trio.to_thread.run_sync(live.kill)
    assert (live.where.state_dir / place.NAME).exists()
    assert place.read(live.where.state_dir) is None
    await trio.to_thread.run_sync(live.start)
    await trio.to_thread.run_sync(live.stop)
    assert not (live.where.state_dir / place.NAME).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1, "pid": 2}', '{"url": "http://x"}'])
def test_a_place_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / place.NAME).write_text(text)
    assert place.read(tmp_path) is None


@pytest.mark.parametrize(
    "environ", [{"KIMIAEPD_COLLECTOR": "0"}, {"AEP_RELAY_URL": "ws://127.0.0.1:9"}]
)
async def test_it_is_not_there_where_it_is_not_wanted(live: Live, environ: dict[str, str]) -> None:
    live.environ |= environ
    line = await trio.to_thread.run_sync(live.start)
    assert "relay" not in line
    assert place.read(live.where.state_dir) is None
    done = live.run("console")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert environ.get("AEP_RELAY_URL", "no relay runs here") in done.stderr


# --- browsers -------------------------------------------------------------------------------------


async def test_a_code_lets_one_in_once_and_ends_with_the_daemon(live: Live) -> None:
    line = await trio.to_thread.run_sync(live.start)
    said = re.search(r"code (\S+) \(once, within 60 s\)", line)
    assert said
    printed = (await trio.to_thread.run_sync(partial(live.run, "console"))).stdout.strip()
    url, _, code = printed.partition("/#code=")
    assert url == place.read(live.where.state_dir)
    bearer: dict[str, str] = {}
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        for one in (said[1], code):
            answer = await client.post("/session", json={"code": one})
            assert answer.status_code == 200
            bearer = {"Authorization": f"Bearer {answer.json()['token']}"}
            assert (await client.get("/events", headers=bearer)).status_code == 200
            assert (await client.post("/session", json={"code": one})).status_code == 401
    await trio.to_thread.run_sync(live.stop)
    await trio.to_thread.run_sync(live.start)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port_of(live)}") as client:
        assert (await client.get("/events", headers=bearer)).status_code == 401


async def test_console_gives_what_was_asked_for(live: Live) -> None:
    await trio.to_thread.run_sync(live.start)
    answer = json.loads(live.run("console", "--json", "--read-only").stdout)
    url = f"http://127.0.0.1:{port_of(live)}"
    assert (answer["url"], answer["seconds"]) == (url, 60.0)
    async with httpx.AsyncClient(base_url=url) as client:
        given = (await client.post("/session", json={"code": answer["code"]})).json()
        assert given["role"] == "observe"
        both = [
            live.run("console", "--token", *more).stdout.strip() for more in ((), ("--read-only",))
        ]
        roles = []
        for one in both:
            bearer = {"Authorization": f"Bearer {one}", "AEP-Version": "0.1"}
            roles.append((await client.post("/events", json=command(), headers=bearer)).status_code)
        assert roles == [400, 403]  # a command over HTTP is none; and it may not even try


# --- it crashes -----------------------------------------------------------------------------------


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Set: the task that serves our own relay fails."""
    crash = trio.Event()

    async def failing(*args: object, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as failing_nursery:
            await failing_nursery.start(serve, *args)
            task_status.started()
            if not crash.is_set():
                await crash.wait()
                raise RuntimeError("a defect")

    monkeypatch.setattr(own_relay, "serve", failing)
    return crash


async def test_a_crash_is_contained_and_mended_and_nothing_that_was_held_is_lost(
    tmp_path: Path, crashing: trio.Event
) -> None:
    environ = {"HOME": str(tmp_path), "KIMIAEPD_COLLECTOR_PORT": "0"}
    loaded = settings.load(environ)
    loaded.paths.state_dir.mkdir(parents=True, mode=0o700)
    well: list[int] = []
    with ExitStack() as held:
        own = OwnRelay.open(loaded, held)
        assert own is not None
        own.supervisor.backoff = Backoff(uniform=lambda *_: 0.01)
        own.well = lambda: well.append(own.address.port)
        headers = (b"authorization", f"Bearer {own.token()}".encode())
        async with trio.open_nursery() as nursery:
            await nursery.start(own.run)
            own.collector.hub.ingest(event(0), json.dumps(event(0)).encode())
            async with connected(own.address.port, headers) as client:
                await client.say(HELLO)
                await client.until("hello")
                crashing.set()
                await client.rest()
            async with connected(own.address.port, headers) as client:
                await client.say(HELLO, EVERYTHING)
                assert (await lines(client, 1)) == [json.dumps(event(0))]
            assert own.supervisor.crashes == 1
            assert own.status()["crashes"] == 1
            assert len(well) == 2
            own.stop()
            nursery.cancel_scope.deadline = trio.current_time() + 5
        assert not nursery.cancel_scope.cancelled_caught


CRASHING = """
import sys
import trio
from kimiaepd import backoff, cli, own_relay

backoff.CAP_SECONDS = 0.02
serve = own_relay.serve
left = 10

async def failing(*args, task_status):
    global left
    async with trio.open_nursery() as failing_nursery:
        await failing_nursery.start(serve, *args)
        task_status.started()
        if left:
            left -= 1
            await trio.sleep(0.1)
            raise RuntimeError("a defect")

own_relay.serve = failing
sys.argv = ["kimiaepd", "run"]
cli.main()
"""


def start_crashing(live: Live) -> None:
    """Start a daemon whose relay fails ten times, whatever it is doing at the time."""
    with (live.home / "stderr").open("a") as stderr:
        live.process = subprocess.Popen(
            [sys.executable, "-c", CRASHING],
            env=live.environ,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert live.process.stdout is not None
    assert "ready" in live.process.stdout.readline()


async def test_crashes_in_the_middle_of_delivery_lose_nothing_and_disorder_nothing(
    live: Live,
) -> None:
    await trio.to_thread.run_sync(start_crashing, live)
    count = 0
    with trio.fail_after(30):
        while await crashes(live) < 10:
            await trio.to_thread.run_sync(partial(hooks, live, 20, f"s{count}"))
            count += 1
    async with consumer(live) as client:
        await client.say(EVERYTHING)
        came: dict[str, None] = {}  # a line may come again: redelivery traverses the hop
        while len(came) < 20 * count:
            came |= dict.fromkeys(await lines(client, 1))
        assert sorted(came) == sorted(logged(live))
        places = [(json.loads(line)["session"], json.loads(line)["seq"]) for line in came]
        for number in range(count):
            mine = [seq for session, seq in places if session == f"s{number}"]
            assert mine == sorted(mine)
    said = (live.home / "stderr").read_text()
    assert said.count("a part failed and is begun again") == 10
    assert '"part": "collector"' in said
    assert '"part": "relay"' not in said


async def crashes(live: Live) -> int:
    relay = (await request(live.where.socket, "status", timeout=2.0))["relay"]
    assert isinstance(relay, dict)
    assert isinstance(relay["own"], dict)
    assert isinstance(relay["own"]["crashes"], int)
    return relay["own"]["crashes"]


def event(seq: int) -> JSONObject:
    return {
        "aep": "0.1", "id": f"e-{seq}", "type": "run.started", "time": "2026-12-01T00:00:00.000Z",
        "source": "aep://test/agent/kimi-code/session/s", "agent": "kimi-code", "session": "s",
        "seq": seq, "epoch": 1, "capture": "metadata",
    }  # fmt: skip


# --- it cannot be had -----------------------------------------------------------------------------


def no_token(live: Live) -> None:
    live.where.state_dir.mkdir(parents=True, mode=0o700)
    file = live.where.state_dir / "collector-token"
    file.write_text("x" * 40)
    file.chmod(0o644)


async def test_without_a_token_of_its_own_the_daemon_takes_hooks_all_the_same(live: Live) -> None:
    no_token(live)
    line = await trio.to_thread.run_sync(live.start)
    assert "relay" not in line
    await trio.to_thread.run_sync(hooks, live, 1)
    assert (await request(live.where.socket, "status", timeout=2.0))["relay"] is None
    said = (live.home / "stderr").read_text()
    assert "others can read this token" in said
    assert "kimiaepd token rotate" in said


@pytest.mark.parametrize("is_in_the_way", ["collector-token", place.NAME])
def test_a_relay_that_cannot_be_leaves_nobody_waiting_at_its_port(
    tmp_path: Path, is_in_the_way: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    loaded = settings.load({"HOME": str(tmp_path), "KIMIAEPD_COLLECTOR_PORT": str(port)})
    (loaded.paths.state_dir / is_in_the_way).mkdir(parents=True)
    with ExitStack() as held:
        assert OwnRelay.open(loaded, held) is None
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", port))
