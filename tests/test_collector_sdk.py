"""The standard's own Python clients against our collector, unchanged.

They block, or bring asyncio along, so they run in threads. Their tokens come in URLs, but those of
their HTTP sink: each is one that ends with the collector.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest
import trio
from aep_sdk import aio
from aep_sdk.consume import Subscription, subscribe
from aep_sdk.control import ControlClient, ControlTarget, Duplex, NackError, open_duplex
from aep_sdk.emit import Emitter, http_sink
from aep_sdk.errors import TransportError
from aep_sdk.projection import project_state
from attrs import define, field

from collector_room import Place, collecting
from judge import judge
from kimiaepd.collector.access import Role
from kimiaepd.mapping.json_value import JSON, JSONObject
from target_room import Target, targeting
from test_collector_hub import event, put

Given = ParamSpec("Given")
Back = TypeVar("Back")
RESPOND = "control.attention.respond"


async def call(work: Callable[Given, Back], *args: Given.args, **kwargs: Given.kwargs) -> Back:
    """Do what blocks in a thread."""
    with trio.fail_after(20):
        return await trio.to_thread.run_sync(partial(work, *args, **kwargs))


async def by_asyncio(work: Callable[[], Coroutine[None, None, Back]]) -> Back:
    """Do what asyncio has to do, on a loop of its own in a thread."""
    return await call(lambda: asyncio.run(asyncio.wait_for(work(), 15)))


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setenv("no_proxy", "*")
    async with collecting(tmp_path / "state") as made:
        yield made


@pytest.fixture
def token(place: Place) -> str:
    """What a person gets for a code: it may come in a URL."""
    return place.collector.access.grant(Role.CONTROL)


def positions(*places: tuple[str, int]) -> list[JSONObject]:
    return [{"session": session, "epoch": 1, "seq": seq} for session, seq in places]


def places(events: list[JSONObject]) -> list[tuple[JSON, JSON]]:
    return [(one["session"], one["seq"]) for one in events]


# --- subscribe -----------------------------------------------------------------------------------


@define
class Listener:
    """What a subscription calls back with."""

    events: queue.Queue[JSONObject] = field(factory=queue.Queue)
    comments: queue.Queue[str] = field(factory=queue.Queue)
    errors: queue.Queue[Exception] = field(factory=queue.Queue)

    async def hear(self, count: int = 1) -> list[JSONObject]:
        return [await call(self.events.get, timeout=10) for _ in range(count)]

    async def until_there(self) -> None:
        assert await call(self.comments.get, timeout=10) == "here"


@asynccontextmanager
async def listening(
    place: Place,
    token: str,
    *,
    wanted: dict[str, JSON] | None = None,
    capture: str | None = None,
    since: list[JSONObject] | str | None = None,
) -> AsyncIterator[tuple[Listener, Subscription]]:
    """A blocking subscription, until the end of the block; its thread must end then."""
    listener = Listener()
    subscription = subscribe(
        place.url,
        listener.events.put,
        filter=wanted,
        capture=capture,
        token=token,
        from_=since,
        on_comment=listener.comments.put,
        on_error=listener.errors.put,
        backoff_initial_ms=20,
    )
    yield listener, subscription
    subscription.close()
    with trio.fail_after(5):
        while subscription._thread is not None and subscription._thread.is_alive():
            put(place.collector.hub, {**event("waker"), **(wanted or {})})
            await trio.sleep(0.01)


async def test_what_their_emitter_sends_their_subscriber_gets(place: Place, token: str) -> None:
    failures: list[Exception] = []
    sink = http_sink(place.url, token=place.token, on_error=failures.append)
    emitter = Emitter("agent", "host", sink, epoch=1)
    async with listening(place, token, wanted={"session": "s"}) as (listener, _):
        await listener.until_there()
        session = emitter.session("s")
        sent = [
            await call(emitter.session("t").emit, "session.started", {"client": {"name": "x"}}),
            await call(session.emit, "session.started", {"client": {"name": "x"}}),
            await call(session.emit, "run.started", {"trigger": "user"}, run="r"),
            await call(session.emit, "run.finished", {}, run="r"),
            await call(session.emit, "session.ended", {"reason": "normal"}),
        ]
        got = await listener.hear(4)
    assert failures == []
    assert got == sent[1:]
    judge(got)


async def test_their_subscriber_gets_no_more_than_its_ceiling(place: Place, token: str) -> None:
    async with listening(place, token, capture="metadata") as (listener, _):
        await listener.until_there()
        data: JSON = {"trigger": "user", "prompt": "secret"}
        put(place.collector.hub, event(type="run.started", capture="redacted", data=data))
        (got,) = await listener.hear()
    assert (got["capture"], got["data"]) == ("metadata", {"trigger": "user"})


async def test_their_subscriber_resumes_where_it_was(place: Place, token: str) -> None:
    put(place.collector.hub, *(event(seq=seq) for seq in range(3)), event("t"))
    async with listening(place, token, since="all") as (listener, subscription):
        assert places(await listener.hear(4)) == [("s", 0), ("s", 1), ("s", 2), ("t", 0)]
        known = subscription.positions()
        assert known == positions(("s", 2), ("t", 0))
    put(place.collector.hub, event(seq=3), event("t", 1))
    async with listening(place, token, since=known) as (listener, _):
        assert places(await listener.hear(2)) == [("s", 3), ("t", 1)]


async def test_their_subscriber_knows_more_sessions_than_a_url_has_room_for(
    place: Place, token: str
) -> None:
    names = [f"session-{number:03}" for number in range(200)]
    put(place.collector.hub, *(event(name, seq) for name in names for seq in (0, 1)))
    known = positions(*((name, 0) for name in names))
    async with listening(place, token, since=known) as (listener, _):
        got = await listener.hear(len(names))
        assert listener.errors.empty()
    assert sorted(places(got)) == [(name, 1) for name in names]


async def test_a_token_that_stays_is_refused_in_their_url(place: Place) -> None:
    async with listening(place, place.token) as (listener, subscription):
        error = await call(listener.errors.get, timeout=10)
        subscription.close()
    assert isinstance(error, TransportError)
    assert error.status == 401
    client = ControlClient(place.url, agent="a", host="h", token=place.token)
    with pytest.raises(TransportError, match="HTTP 401"):
        await call(client.connect)


# --- aio.subscribe -------------------------------------------------------------------------------


async def read_to_the_end(
    place: Place,
    token: str,
    *,
    wanted: dict[str, JSON] | None = None,
    capture: str | None = None,
    since: list[JSONObject] | str = "all",
) -> list[JSONObject]:
    """What is held; the iteration ends by itself."""

    async def read() -> list[JSONObject]:
        subscription = await aio.subscribe(
            place.url, filter=wanted, capture=capture, token=token, from_=since, live=False
        )
        return [one async for one in subscription]

    return await by_asyncio(read)


async def test_their_asyncio_subscriber_reads_what_is_held(place: Place, token: str) -> None:
    secret: JSON = {"trigger": "user", "prompt": "secret"}
    prompt = event(seq=1, type="run.started", run="r", capture="redacted", data=secret)
    put(place.collector.hub, event(), prompt, event("t"))
    whole = await read_to_the_end(place, token)
    assert places(whole) == [("s", 0), ("s", 1), ("t", 0)]
    (after,) = await read_to_the_end(place, token, since=positions(("s", 0)), capture="none")
    assert (after["seq"], after["capture"], after.get("data")) == (1, "none", None)
    filtered = await read_to_the_end(place, token, wanted={"type": "run.*"})
    assert filtered == [prompt]


async def test_their_asyncio_subscriber_gets_what_comes(place: Place, token: str) -> None:
    put(place.collector.hub, event())
    heard_the_past = trio.Event()
    arrived = trio.lowlevel.current_trio_token()

    async def read() -> list[JSONObject]:
        subscription = await aio.subscribe(place.url, token=token, from_="all")
        got = [await anext(subscription)]
        trio.from_thread.run_sync(heard_the_past.set, trio_token=arrived)
        got.append(await anext(subscription))
        subscription.close()
        assert [one async for one in subscription] == []
        return got

    async def follow() -> None:
        await heard_the_past.wait()
        put(place.collector.hub, event(seq=1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        assert places(await by_asyncio(read)) == [("s", 0), ("s", 1)]


# --- control -------------------------------------------------------------------------------------


@pytest.fixture
async def target(place: Place, tmp_path: Path) -> AsyncIterator[Target]:
    folder = tmp_path / "home"
    folder.mkdir()
    async with targeting(folder, place.port, place.token, RESPOND) as made:
        await made.room.hook("SessionStart", {"source": "startup"})
        await made.room.hook("UserPromptSubmit", {"prompt": []})
        await made.delivered()
        yield made


@contextmanager
def commanding(place: Place, token: str) -> Iterator[ControlClient]:
    client = ControlClient(place.url, agent="console", host="desk", token=token)
    client.connect()
    try:
        yield client
    finally:
        client.close()
        assert client._reader_thread is not None
        client._reader_thread.join(5)


def answer(place: Place, token: str, kind: str, session: str) -> JSONObject:
    with commanding(place, token) as client:
        said: JSONObject = client.send(
            kind, session, subject="ask", data={"answer": {"option": "allow"}}, retries=0
        )
        return said


def refused(place: Place, token: str, kind: str, session: str) -> tuple[str, str | None, bool]:
    """Why, and whether the client made that up because nobody answered."""
    with pytest.raises(NackError) as nack:
        answer(place, token, kind, session)
    return nack.value.reason, nack.value.detail, nack.value.synthesized


async def test_their_client_commands_our_daemon_and_sees_its_answer(
    place: Place, token: str, target: Target
) -> None:
    accepted = await call(answer, place, token, RESPOND, "s")
    assert accepted == target.room.events()[-1]
    (obeyed,) = target.obeyed
    assert accepted["cause"] == obeyed.id
    assert (obeyed.subject, obeyed.data) == ("ask", {"answer": {"option": "allow"}})


async def test_their_client_is_told_at_once_why_a_command_goes_nowhere(
    place: Place, token: str, target: Target
) -> None:
    reason, _, is_made_up = await call(refused, place, token, "control.cancel", "s")
    assert (reason, is_made_up) == ("unsupported", False)
    reason, detail, is_made_up = await call(refused, place, token, RESPOND, "nobody")
    assert (reason, is_made_up) == ("invalid", False)
    assert str(detail).startswith("no-route: ")
    looking = place.collector.access.grant(Role.OBSERVE)
    reason, _, is_made_up = await call(refused, place, looking, RESPOND, "s")
    assert (reason, is_made_up) == ("unauthorized", False)
    assert target.obeyed == []


async def test_both_their_clients_see_who_takes_commands(
    place: Place, token: str, target: Target
) -> None:
    def ask() -> list[JSONObject]:
        with commanding(place, token) as client:
            return list(client.roster())

    async def ask_by_asyncio() -> list[JSONObject]:
        client = aio.ControlClient(place.url, agent="console", host="desk", token=token)
        await client.connect()
        try:
            accepted = await client.send(RESPOND, "s", subject="ask", data={"answer": {}})
            assert accepted["type"] == "control.accepted"
            return list(await client.roster())
        finally:
            await client.close()

    (entry,) = await call(ask)
    assert (entry["session"], entry["agent"]) == ("s", "kimi-code")
    assert entry["control"] == {"accepts": [RESPOND], "ack_window_ms": 10_000}
    assert await by_asyncio(ask_by_asyncio) == [entry]


async def test_their_target_obeys_their_client_through_us(place: Place, token: str) -> None:
    """Nothing of ours at either end."""

    def be_the_target(line: Duplex, obeyed: list[JSONObject]) -> None:
        emitter = Emitter("agent", "host", line.send_json, epoch=1).session("theirs")
        target = ControlTarget(emitter, ["control.cancel"])
        while (message := line.recv_json()) is not None:
            if message["type"] == "hello":
                emitter.emit("session.started", {"client": {"name": "x"}})
            elif message["type"] == "control.cancel":
                target.handle(message, obeyed.append)

    obeyed: list[JSONObject] = []
    line = await call(open_duplex, place.url, token=token)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, be_the_target, line, obeyed)
        await call(
            line.send_json,
            {
                "type": "hello",
                "versions": ["0.1"],
                "role": "emitter",
                "identity": {"agent": "agent", "instance": "host"},
                "capabilities": {"control": {"accepts": ["control.cancel"]}},
            },
        )
        with trio.fail_after(5):
            while not place.collector.hub.roster.entries():
                await trio.lowlevel.checkpoint()
        accepted = await call(answer, place, token, "control.cancel", "theirs")
        await call(line.close)
    assert [one["id"] for one in obeyed] == [accepted["cause"]]


async def test_their_projection_finds_nothing_wrong_with_what_is_held(
    place: Place, token: str, target: Target
) -> None:
    await call(answer, place, token, RESPOND, "s")
    for hook in ("Stop", "SessionEnd"):
        await target.room.hook(hook, {"reason": "exit"})
    await target.delivered()
    held = await read_to_the_end(place, token)
    assert [one for one in held if one["agent"] == "kimi-code"] == target.room.events()
    assert RESPOND in [one["type"] for one in held]
    state = project_state(held)
    assert state["violations"] == []
    assert [one["session"] for one in state["sessions"]] == ["s"]
