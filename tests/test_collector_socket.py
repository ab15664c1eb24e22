"""The embedded relay's duplex endpoint: hello, subscriptions, commands, and rude clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from collector_room import Place, collecting
from kimiaepd.collector import duplex, outgoing, revocation, routes, serve
from kimiaepd.collector.access import Role, token_files
from kimiaepd.collector.history import Bounds
from kimiaepd.mapping.json_value import JSON, JSONObject
from test_collector_hub import command, event
from ws_client import Client, DeniedError, connected

HELLO: JSONObject = {"type": "hello", "versions": ["0.1"], "role": "consumer", "capabilities": {}}
EMITTER: JSONObject = {
    **HELLO,
    "role": "emitter",
    "identity": {"agent": "kimi-code", "instance": "host/1"},
    "capabilities": {"control": {"accepts": ["control.cancel"], "ack_window_ms": 10_000}},
}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with collecting(tmp_path / "state") as made:
        yield made


@asynccontextmanager
async def talking(
    place: Place, hello: JSONObject | None = HELLO, token: str | None = None
) -> AsyncIterator[Client]:
    bearer = (b"Authorization", f"Bearer {token or place.token}".encode())
    async with connected(place.port, bearer) as talk:
        if hello is not None:
            await talk.say(hello)
            assert (await talk.hear())["type"] == "hello"
        yield talk


async def settle(condition: Callable[[], bool]) -> None:
    with trio.fail_after(5):
        while not condition():
            await trio.lowlevel.checkpoint()


@pytest.fixture
def quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "LOOK_SECONDS", 0.01)


async def test_a_rotated_token_ends_what_it_opened_and_nothing_else(
    place: Place, tmp_path: Path, quick_look: None
) -> None:
    control, observe = token_files(tmp_path / "state")
    async with talking(place) as ours, talking(place, token=observe.read()) as theirs:
        control.renew()
        with trio.fail_after(5):
            assert (await ours.until("closing"))["reason"] == "the token was taken back"
        await theirs.say({"type": "ping", "t": 1})
        assert (await theirs.until("pong"))["t"] == 1


# --- the way in ----------------------------------------------------------------------------------


async def denied(place: Place, *headers: tuple[bytes, bytes], target: str = "/socket") -> int:
    with pytest.raises(DeniedError) as refused:
        async with connected(place.port, *headers, target=target):
            pass
    return refused.value.status


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"Authorization", b"Bearer wrong-wrong-wrong-wrong"),),
        ((b"Sec-WebSocket-Protocol", b"aep.bearer.wrong-wrong-wrong"),),
    ],
)
async def test_without_a_token_there_is_no_way_in(
    place: Place, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    assert await denied(place, *headers) == 401


async def test_a_page_of_another_site_has_no_way_in_with_the_right_token(place: Place) -> None:
    bearer = (b"Authorization", f"Bearer {place.token}".encode())
    assert await denied(place, bearer, (b"Origin", b"https://evil.example")) == 403


async def test_a_browser_brings_its_token_as_a_subprotocol_and_is_not_told_it(
    place: Place,
) -> None:
    offers = [f"aep.bearer.{place.token}", "aep.v0"]
    async with connected(place.port, offers=offers) as talk:
        assert talk.subprotocol == "aep.v0"
        await talk.say(HELLO)
        assert (await talk.hear())["type"] == "hello"


async def test_a_token_in_the_url_is_one_that_ends_with_us(place: Place) -> None:
    assert await denied(place, target=f"/socket?access_token={place.token}") == 401
    token = place.collector.access.grant(Role.CONTROL)
    target = f"/socket?access_token={token}"
    bearer = (b"Authorization", f"Bearer {place.token}".encode())
    assert await denied(place, bearer, target=target) == 401
    assert await denied(place, (b"Origin", b"https://evil.example"), target=target) == 403
    async with connected(place.port, target=target) as talk:
        await talk.say(HELLO, command())
        assert (await talk.until("error"))["code"] == "no-route"


# --- hello ---------------------------------------------------------------------------------------


async def test_hello_is_answered_with_one_version_and_the_capabilities(place: Place) -> None:
    async with talking(place, None) as talk:
        await talk.say({**HELLO, "versions": ["7.0", "0.1"], "capabilities": {"odd": [1]}})
        answer = await talk.hear()
    assert answer["versions"] == ["0.1"]
    assert answer["role"] == "both"
    capabilities = answer["capabilities"]
    assert isinstance(capabilities, dict)
    assert capabilities["roster"] == {}


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ({"type": "ping"}, "hello-required"),
        (event(), "hello-required"),
        ("garbage", "hello-required"),
        ({**HELLO, "versions": ["9.9"]}, "version-unsupported"),
        ({**HELLO, "versions": "0.1"}, "version-unsupported"),
    ],
)
async def test_anything_else_first_is_an_error_and_the_end(
    place: Place, first: JSONObject | str, code: str
) -> None:
    async with talking(place, None) as talk:
        await talk.say(first)
        answer = await talk.hear()
        assert (answer["type"], answer["code"]) == ("error", code)
        if code == "version-unsupported":
            assert answer["versions"] == ["0.1"]
        await talk.rest()
    await settle(lambda: place.collector.connections == 0)


async def test_the_collector_hangs_up_only_once_the_other_side_has_closed_too(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a client that reads slowly loses what it was told last (RFC 6455 section 7.1.1)."""
    monkeypatch.setattr(duplex, "GOODBYE_SECONDS", 60.0)
    async with talking(place, None) as talk:
        await talk.say({"type": "ping"})
        said, code = await talk.rest()
        assert ([one["type"] for one in said], code) == (["error", "closing"], 1003)
        with trio.move_on_after(0.1) as scope:
            await talk.stream.receive_some()
        assert scope.cancelled_caught, "it hung up by itself"
        assert place.collector.connections == 1
        await talk.answer_close()
        with trio.fail_after(5):
            assert await talk.stream.receive_some() == b""
    await settle(lambda: place.collector.connections == 0)


async def test_who_never_closes_is_hung_up_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplex, "GOODBYE_SECONDS", 0.1)
    async with talking(place, None) as talk:
        await talk.say({"type": "ping"})
        await talk.rest()
        with trio.fail_after(5):
            assert await talk.stream.receive_some() == b""


async def test_binary_is_reserved_and_ends_the_connection(place: Place) -> None:
    async with talking(place) as talk:
        await talk.say(b"{}")
        _, code = await talk.rest()
    assert code == 1003


async def test_frames_that_nobody_knows_are_ignored_and_pings_are_answered(place: Place) -> None:
    async with talking(place) as talk:
        await talk.say({"type": "frobnicate"}, {"type": "pong", "t": 1}, {"type": "closing"})
        await talk.say("[1]", {"type": "ping", "t": {"a": [1]}})
        assert await talk.hear() == {"type": "pong", "t": {"a": [1]}}


# --- subscriptions -------------------------------------------------------------------------------


async def test_an_event_goes_from_an_emitter_to_a_subscriber_byte_for_byte(place: Place) -> None:
    odd = json.dumps(event(data={"é": "\u2028"}), ensure_ascii=False, separators=(" ,", " :"))
    async with talking(place) as consumer, talking(place, EMITTER) as emitter:
        await consumer.say({"type": "subscribe", "id": "1", "filter": {"session": "s"}})
        assert await consumer.hear() == {"type": "subscribed", "id": "1"}
        await emitter.say(odd)
        assert await consumer.text() == odd


async def test_replay_comes_first_and_says_where_it_had_to_begin(tmp_path: Path) -> None:
    async with (
        collecting(tmp_path / "state", Bounds(events=2)) as place,
        talking(place) as consumer,
        talking(place, EMITTER) as emitter,
    ):
        await emitter.say(*(event(seq=seq) for seq in range(4)))
        await settle(lambda: place.collector.hub.taken == 4)
        since: JSON = [{"session": "s", "epoch": 1, "seq": 0}]
        await consumer.say({"type": "subscribe", "id": "a", "from": since})
        said = [await consumer.hear() for _ in range(4)]
    assert said[1] == {
        "type": "replay-exhausted",
        "sub": "a",
        "session": "s",
        "earliest": {"epoch": 1, "seq": 2},
    }
    assert [one["seq"] for one in said[2:]] == [2, 3]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"id": "x", "filter": {"data": 1}}, "invalid-filter"),
        ({"id": "x", "filter": []}, "invalid-filter"),
        ({"id": "x", "from": [7]}, "invalid-filter"),
        ({"id": "x", "capture": "much"}, "invalid-filter"),
        ({"id": 7}, "invalid-filter"),
        ({"id": "taken"}, "invalid-filter"),
        ({"id": "x", "from": [{"session": "s", "seq": 1}] * 501}, "limit-exceeded"),
    ],
)
async def test_a_wish_that_cannot_be_met_disturbs_nothing(
    place: Place, frame: JSONObject, code: str
) -> None:
    async with talking(place) as talk, talking(place, EMITTER) as emitter:
        await talk.say({"type": "subscribe", "id": "taken"}, {"type": "subscribe", **frame})
        await talk.until("subscribed")
        answer = await talk.hear()
        assert (answer["type"], answer["code"]) == ("error", code)
        assert answer.get("id") == frame["id"] or "id" not in answer
        await emitter.say(event())
        assert (await talk.hear())["id"] == "s-0"


async def test_a_connection_has_a_bounded_number_of_subscriptions(place: Place) -> None:
    async with talking(place) as talk:
        for number in range(duplex.MOST_SUBSCRIPTIONS + 1):
            await talk.say({"type": "subscribe", "id": str(number)})
        assert (await talk.until("error"))["code"] == "limit-exceeded"
        await talk.say({"type": "unsubscribe", "id": "0"}, {"type": "subscribe", "id": "again"})
        assert await talk.until("unsubscribed") == {"type": "unsubscribed", "id": "0"}
        assert await talk.hear() == {"type": "subscribed", "id": "again"}


async def test_all_connections_together_have_a_bounded_number_of_subscriptions(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplex, "MOST_OF_ALL", 3)
    async with talking(place) as one, talking(place) as other:
        for name in ("a", "b"):
            await one.say({"type": "subscribe", "id": name})
            await one.until("subscribed")
        await other.say({"type": "subscribe", "id": "c"}, {"type": "subscribe", "id": "d"})
        await other.until("subscribed")
        refusal = await other.until("error")
        assert (refusal["code"], refusal["id"]) == ("limit-exceeded", "d")
        await one.say({"type": "unsubscribe", "id": "a"})
        await one.until("unsubscribed")
        await other.say({"type": "subscribe", "id": "d"})
        assert (await other.until("subscribed"))["id"] == "d"


async def test_several_subscriptions_each_get_their_own(place: Place) -> None:
    async with talking(place) as talk, talking(place, EMITTER) as emitter:
        await talk.say(
            {"type": "subscribe", "id": "a", "filter": {"session": "s"}},
            {"type": "subscribe", "id": "b", "filter": {"session": "t"}, "capture": "none"},
        )
        await talk.hear()
        await talk.hear()
        await emitter.say(event("t"), event("s"), event("u"))
        heard = [await talk.hear() for _ in range(2)]
        assert [one["session"] for one in heard] == ["t", "s"]


async def test_an_emitter_watches_nothing(place: Place) -> None:
    async with talking(place, EMITTER) as talk:
        await talk.say({"type": "subscribe", "id": "a"}, {"type": "roster", "id": "r"})
        codes = [(one["code"], one["id"]) for one in [await talk.hear(), await talk.hear()]]
        assert codes == [("unauthorized", "a"), ("unauthorized", "r")]


# --- events, commands, roster --------------------------------------------------------------------


async def test_what_is_no_event_is_said_with_its_id(place: Place) -> None:
    async with talking(place, EMITTER) as emitter:
        await emitter.say(event(seq=-1), "{")
        wrong, garbage = await emitter.hear(), await emitter.hear()
        assert (wrong["code"], wrong["cause"]) == ("invalid-event", "s--1")
        assert garbage["code"] == "invalid-event"
        await emitter.say({"type": "ping", "t": 1})
        assert (await emitter.hear())["type"] == "pong"


async def test_a_command_reaches_its_claimant_and_its_answer_comes_back(place: Place) -> None:
    async with talking(place) as phone, talking(place, EMITTER) as emitter:
        await emitter.say(event())
        await phone.say({"type": "subscribe", "id": "a", "filter": {"type": "control.*"}})
        await phone.hear()
        await phone.say({"type": "roster", "id": "r"})
        roster = await phone.hear()
        assert roster["entries"] == [
            {
                "session": "s",
                "agent": "kimi-code",
                "instance": "host/1",
                "control": {"accepts": ["control.cancel"], "ack_window_ms": 10_000},
            }
        ]
        await phone.say(command())
        assert (await emitter.hear())["id"] == "cmd"
        await emitter.say(event(type="control.accepted", seq=1, cause="cmd"))
        heard = [await phone.hear() for _ in range(2)]
        assert [one["type"] for one in heard] == ["control.cancel", "control.accepted"]


@pytest.mark.parametrize(
    ("sent", "observes", "code"),
    [
        (command("unknown"), False, "no-route"),
        (command("s", "control.pause"), False, "unsupported"),
        (command(), True, "unauthorized"),
    ],
)
async def test_a_command_that_goes_nowhere_is_answered_to_its_sender_alone(
    place: Place, sent: JSONObject, observes: bool, code: str
) -> None:
    token = place.observer if observes else None
    async with talking(place, token=token) as phone, talking(place, EMITTER) as emitter:
        await emitter.say(event())
        await settle(lambda: place.collector.hub.taken == 1)
        await phone.say(sent)
        answer = await phone.hear()
        assert (answer["type"], answer["code"], answer["cause"]) == ("error", code, "cmd")
        await emitter.say({"type": "ping", "t": 1})
        assert (await emitter.hear())["type"] == "pong", "nothing else came to the target"


async def test_two_claimants_are_told_apart_by_nobody(place: Place) -> None:
    async with talking(place, EMITTER) as one, talking(place, EMITTER) as other:
        await one.say(event())
        await other.say(event(seq=1))
        await settle(lambda: place.collector.hub.taken == 2)
        async with talking(place) as phone:
            await phone.say(command())
            assert (await phone.hear())["code"] == "ambiguous"


async def test_a_claim_ends_with_its_connection(place: Place) -> None:
    async with talking(place, EMITTER) as emitter:
        await emitter.say(event())
        await settle(lambda: bool(place.collector.hub.roster.entries()))
    await settle(lambda: not place.collector.hub.roster.entries())


async def test_a_token_that_observes_sends_no_event(place: Place) -> None:
    async with talking(place, EMITTER, token=place.observer) as emitter:
        await emitter.say(event())
        answer = await emitter.hear()
        assert (answer["type"], answer["code"]) == ("error", "unauthorized")
    assert place.collector.hub.taken == 0


# --- rude clients --------------------------------------------------------------------------------


async def test_a_consumer_that_reads_nothing_is_left_and_the_others_notice_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the kernel and Hypercorn hold for the stuck one comes on top of its queue.
    monkeypatch.setattr(outgoing, "HARD_BYTES", 200_000)
    monkeypatch.setattr(outgoing, "SOFT_BYTES", 50_000)
    monkeypatch.setattr(serve, "SEND_SECONDS", 0.5)
    total = 1_000
    wide: JSON = {"x": "y" * 20_000}
    async with (
        talking(place) as stuck,
        talking(place) as good,
        talking(place, EMITTER) as emitter,
    ):
        await stuck.say({"type": "subscribe", "id": "all"})
        await good.say({"type": "subscribe", "id": "all"})
        await good.until("subscribed")
        heard: list[JSON] = []

        async def listen() -> None:
            while len(heard) < total:
                heard.append((await good.hear())["seq"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            for seq in range(total):
                while len(heard) < seq - 2:
                    await trio.lowlevel.checkpoint()
                await emitter.say(event(seq=seq, severity="notice", data=wide))
        assert heard == list(range(total))
        await settle(lambda: place.collector.hub.subscriptions == 1)
        await settle(lambda: place.collector.connections == 2)


async def test_too_many_connections_are_turned_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_CONNECTIONS", 1)
    bearer = (b"Authorization", f"Bearer {place.token}".encode())
    async with talking(place):
        assert await denied(place, bearer) == 503


async def test_whoever_only_observes_leaves_places_for_who_may_control(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(routes, "KEPT", 2)
    observer = (b"Authorization", f"Bearer {place.observer}".encode())
    async with connected(place.port, observer):
        assert await denied(place, observer) == 503
        async with place.client(place.observer) as client:
            assert (await client.get("/stream")).status_code == 503
        async with talking(place), talking(place):
            assert place.collector.connections == 3


async def test_when_the_collector_stops_everybody_is_told(tmp_path: Path) -> None:
    ends: list[tuple[list[JSONObject], int | None]] = []

    async def listen(place: Place, ready: trio.Event) -> None:
        async with talking(place) as talk:
            ready.set()
            ends.append(await talk.rest())

    async with trio.open_nursery() as nursery, collecting(tmp_path / "state") as place:
        ready = trio.Event()
        nursery.start_soon(listen, place, ready)
        await ready.wait()
    assert ends == [([{"type": "closing", "reason": "shutdown", "delivered": []}], 1001)]


async def test_a_consumer_that_reads_nothing_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    """The room fails where the collector does not end by itself."""
    wide: JSON = {"x": "y" * 20_000}
    async with trio.open_nursery() as nursery:
        async with collecting(tmp_path / "state") as place:
            stuck = await nursery.start(_stay, place)
            async with talking(place, EMITTER) as emitter:
                for seq in range(400):
                    await emitter.say(event(seq=seq, data=wide))
                await settle(lambda: place.collector.hub.taken == 400)
            began = trio.current_time()
        assert trio.current_time() - began < serve.GRACE_SECONDS + 1
        stuck.set()


async def _stay(place: Place, *, task_status: trio.TaskStatus[trio.Event]) -> None:
    """A consumer that subscribes to everything and reads nothing, until it may go."""
    may_go = trio.Event()
    async with talking(place) as talk:
        await talk.say({"type": "subscribe", "id": "all"})
        await talk.hear()
        task_status.started(may_go)
        await may_go.wait()
