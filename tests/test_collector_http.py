"""The embedded relay over HTTP: discovery, ingest, streams, and who is let in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from collector_room import Place, collecting
from kimiaepd.collector import revocation, routes
from kimiaepd.collector import serve as serving
from kimiaepd.collector.access import CODE_SECONDS, Access, Role, token_files
from kimiaepd.collector.history import Bounds
from kimiaepd.collector.stream import EventStream
from kimiaepd.mapping.json_value import JSON, JSONObject
from test_collector_hub import command, event, line

POST = {"AEP-Version": "0.1", "Content-Type": "application/json"}
LINES = {**POST, "Content-Type": "application/x-ndjson"}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with collecting(tmp_path / "state") as made:
        yield made


async def take(place: Place, *events: JSONObject) -> None:
    async with place.client() as client:
        body = b"\n".join(map(line, events))
        answer = await client.post("/events", content=body, headers=LINES)
        assert answer.status_code == 202, answer.text


async def stream(place: Place, query: dict[str, str], **headers: str) -> list[str]:
    """The lines of a stream that ends by itself (`live=0`)."""
    async with place.client() as client:
        answer = await client.get("/stream", params={"live": "0", **query}, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return answer.text.splitlines()


def seqs(lines: list[str]) -> list[JSON]:
    return [json.loads(one.removeprefix("data: "))["seq"] for one in lines if one[:5] == "data:"]


# --- discovery and health ------------------------------------------------------------------------


async def test_discovery_says_what_it_is_at_both_places(place: Place) -> None:
    async with place.client() as client:
        found = (await client.get("/events")).json()
        assert found == (await client.get("/.well-known/aep")).json()
    assert found["aep"] == ["0.1"]
    assert found["endpoints"] == {"events": "/events", "stream": "/stream", "socket": "/socket"}
    assert found["capabilities"]["replay"] == {"buffer": 10_000, "all": True}
    assert found["capabilities"]["roster"] == {}


async def test_health_needs_no_token_and_says_more_with_one(place: Place) -> None:
    async with place.client(None) as client:
        assert (await client.get("/healthz")).json() == {"ok": True}
    async with place.client() as client:
        assert (await client.get("/healthz")).json()["taken"] == 0


# --- who is let in -------------------------------------------------------------------------------

WAYS = [("GET", "/events"), ("POST", "/events"), ("GET", "/stream"), ("GET", "/.well-known/aep")]


@pytest.mark.parametrize(("method", "path"), WAYS)
async def test_nothing_is_served_without_a_token(place: Place, method: str, path: str) -> None:
    for token in (None, "wrong", place.token + "x"):
        async with place.client(token) as client:
            answer = await client.request(method, path, headers=POST)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path"), WAYS)
async def test_a_token_that_stays_is_none_in_a_url(place: Place, method: str, path: str) -> None:
    async with place.client(None) as client:
        for token in (place.token, place.observer):
            for name in ("access_token", "token"):
                answer = await client.request(method, f"{path}?{name}={token}", headers=POST)
                assert answer.status_code == 401


async def test_a_token_that_ends_with_us_opens_the_stream_by_its_url_and_nothing_else(
    place: Place,
) -> None:
    await take(place, event())
    token = place.collector.access.grant(Role.CONTROL)
    async with place.client(None) as client:
        answer = await client.get(f"/stream?from=all&live=0&access_token={token}")
        assert seqs(answer.text.splitlines()) == [0]
        for method, path in WAYS:
            if path != "/stream":
                where = f"{path}?access_token={token}"
                assert (await client.request(method, where, headers=POST)).status_code == 401
        wrong_page = {"Origin": "https://evil.example"}
        answer = await client.get(f"/stream?live=0&access_token={token}", headers=wrong_page)
        assert answer.status_code == 403


@pytest.mark.parametrize("path", ["/stream/", "/events/", "/nothing"])
async def test_no_url_is_said_back(place: Place, path: str) -> None:
    async with place.client() as client:
        answer = await client.get(f"{path}?access_token=secret-secret-secret")
    assert answer.status_code == 404
    assert "secret" not in answer.text + str(answer.headers)


async def test_no_url_and_no_code_is_logged_whatever_goes_wrong(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    token = place.collector.access.grant(Role.CONTROL)
    code = place.collector.access.issue(trio.current_time())
    monkeypatch.setattr(EventStream, "_send_all", fail)
    monkeypatch.setattr(Access, "redeem", fail)
    async with place.client(None) as client:
        assert (await client.get(f"/stream?access_token={token}")).status_code == 500
        assert (await client.post("/session", json={"code": code})).status_code == 500
    said = "".join(capfd.readouterr())
    assert "a defect" in said
    assert token not in said
    assert code not in said


# --- a code for a browser ------------------------------------------------------------------------


@pytest.mark.parametrize("role", [Role.CONTROL, Role.OBSERVE])
async def test_a_code_is_exchanged_for_a_token_and_only_once(place: Place, role: Role) -> None:
    code = place.collector.access.issue(trio.current_time(), role)
    async with place.client(None) as client:
        answer = await client.post("/session", json={"code": code})
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        assert answer.json().keys() == {"token", "role"}
        assert answer.json()["role"] == role.name.lower()
        again = await client.post("/session", json={"code": code})
        assert again.status_code == 401
    async with place.client(answer.json()["token"]) as client:
        assert (await client.get("/events")).status_code == 200
        taken = await client.post("/events", content=line(event()), headers=POST)
        assert taken.status_code == (202 if role is Role.CONTROL else 403)


async def test_a_code_that_is_wrong_used_or_late_is_answered_the_same(place: Place) -> None:
    access = place.collector.access
    late = access.issue(trio.current_time() - CODE_SECONDS)
    used = access.issue(trio.current_time())
    assert access.redeem(used, trio.current_time())
    async with place.client(None) as client:
        answers = [
            await client.post("/session", json={"code": code})
            for code in (late, used, "wrong", "", place.token)
        ]
    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"code":7}', 400),
        (b'{"code":"%b"}' % (b"x" * routes.MOST_SESSION_BODY), 413),
    ],
)
async def test_what_brings_no_code_is_refused(place: Place, body: bytes, status: int) -> None:
    async with place.client(None) as client:
        answer = await client.post("/session", content=body)
        assert (answer.status_code, answer.headers["cache-control"]) == (status, "no-store")
        assert (await client.get("/session")).status_code == 405


async def test_who_needs_no_token_may_not_take_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "SESSION_SECONDS", 0.05)
    async with await trio.open_tcp_stream("127.0.0.1", place.port) as stream:
        ask = (
            f"POST /session HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\nContent-Length: 9\r\n\r\n{{"
        )
        await stream.send_all(ask.encode())
        with trio.fail_after(5):
            answer = b"".join([bytes(piece) async for piece in stream])
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
async def test_a_page_of_another_site_exchanges_no_code(
    place: Place, headers: dict[str, str]
) -> None:
    code = place.collector.access.issue(trio.current_time())
    async with place.client(None) as client:
        answer = await client.post("/session", json={"code": code}, headers=headers)
        assert answer.status_code == 403
        assert (await client.post("/session", json={"code": code})).status_code == 200


async def test_a_token_that_observes_sends_nothing(place: Place) -> None:
    async with place.client(place.observer) as client:
        assert (await client.get("/events")).status_code == 200
        answer = await client.post("/events", content=line(event()), headers=POST)
        assert answer.status_code == 403
    assert place.collector.hub.taken == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8398"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
@pytest.mark.parametrize(("method", "path"), WAYS)
async def test_a_page_of_another_site_gets_nothing(
    place: Place, method: str, path: str, headers: dict[str, str]
) -> None:
    """DNS rebinding and cross-site requests, with the right token too."""
    async with place.client() as client:
        answer = await client.request(method, path, headers={**POST, **headers})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
        assert (await client.options(path, headers=headers)).status_code in (403, 405)


# --- ingest --------------------------------------------------------------------------------------


async def test_one_event_and_a_batch_are_taken_in_order(place: Place) -> None:
    async with place.client() as client:
        one = await client.post("/events", content=json.dumps(event(), indent=2), headers=POST)
        assert one.status_code == 202
    await take(place, event(seq=1), event(seq=2))
    assert seqs(await stream(place, {"from": "all"})) == [0, 1, 2]


@pytest.mark.parametrize(
    ("headers", "body", "status", "said"),
    [
        ({"AEP-Version": "9.9"}, b"{}", 426, {"versions": ["0.1"]}),
        ({"AEP-Version": ""}, b"{}", 426, {"versions": ["0.1"]}),
        ({"Content-Type": "text/plain"}, b"{}", 415, {"error": "unsupported-media-type"}),
        ({}, b"{", 400, {"error": "invalid-json", "line": 0}),
        ({}, b"[]", 400, {"error": "invalid-event", "line": 0}),
        ({}, line(command()), 400, {"error": "invalid-event", "line": 0}),
    ],
)
async def test_what_is_not_taken_is_said(
    place: Place, headers: dict[str, str], body: bytes, status: int, said: JSONObject
) -> None:
    async with place.client() as client:
        answer = await client.post("/events", content=body, headers={**POST, **headers})
    assert answer.status_code == status
    assert said.items() <= answer.json().items()


async def test_a_batch_with_one_wrong_line_is_refused_whole(place: Place) -> None:
    body = b"\n".join([line(event()), line(event(seq=1)), line(event(seq=-2)), line(event(seq=3))])
    async with place.client() as client:
        answer = await client.post("/events", content=body, headers=LINES)
    assert (answer.status_code, answer.json()["line"]) == (400, 2)
    assert place.collector.hub.taken == 0


async def test_too_much_is_refused_with_the_limit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_BODY", 10_000)
    monkeypatch.setattr(routes, "MOST_BATCH", 3)
    async with place.client() as client:
        large = await client.post("/events", content=b"x" * 20_000, headers=POST)
        assert (large.status_code, large.json()["max_bytes"]) == (413, 10_000)
        many = b"\n".join(line(event(seq=seq)) for seq in range(4))
        answer = await client.post("/events", content=many, headers=LINES)
        assert (answer.status_code, answer.json()["max"]) == (413, 3)


# --- streams -------------------------------------------------------------------------------------


async def test_a_message_has_its_type_itself_and_its_position(place: Place) -> None:
    sent = event(type="run.started", data={"agent_mode": "é\u2028"})
    await take(place, sent)
    lines = await stream(place, {"from": "all"})
    assert "event: run.started" in lines
    assert "id: s:1:0" in lines


async def test_a_stream_resumes_after_a_position_or_the_last_id(place: Place) -> None:
    await take(place, *(event(seq=seq) for seq in range(5)))
    since = json.dumps([{"session": "s", "epoch": 1, "seq": 1}])
    assert seqs(await stream(place, {"from": since})) == [2, 3, 4]
    assert seqs(await stream(place, {}, **{"Last-Event-ID": "s:1:3"})) == [4]
    assert seqs(await stream(place, {"from": since}, **{"Last-Event-ID": "s:1:3"})) == [2, 3, 4]
    assert seqs(await stream(place, {})) == []
    assert [one for one in await stream(place, {}) if one] == [": here", ": replay-complete"]


async def test_what_is_gone_is_said_before_what_is_there(tmp_path: Path) -> None:
    async with collecting(tmp_path / "state", Bounds(events=2)) as place:
        await take(place, *(event(seq=seq) for seq in range(5)))
        since = json.dumps([{"session": "s", "epoch": 1, "seq": 0}])
        lines = [one for one in await stream(place, {"from": since}) if one]
    assert lines[1] == ": replay-exhausted s 1:3"
    assert seqs(lines) == [3, 4]


async def test_a_stream_is_filtered_and_lowered(place: Place) -> None:
    secret: JSON = {"prompt": "secret"}
    await take(
        place,
        event(type="run.started", capture="full", data=secret),
        event("t", type="tool.requested", capture="full", data=secret),
    )
    query = {"from": "all", "filter": '{"type":"run.*"}', "capture": "none"}
    text = "\n".join(await stream(place, query))
    assert "run.started" in text
    assert "tool.requested" not in text
    assert "secret" not in text


@pytest.mark.parametrize(
    "query", [{"filter": "{"}, {"filter": '{"data":1}'}, {"from": "[7]"}, {"capture": "much"}]
)
async def test_what_cannot_be_understood_is_refused_at_once(
    place: Place, query: dict[str, str]
) -> None:
    async with place.client() as client:
        answer = await client.get("/stream", params=query)
    assert answer.status_code == 400
    assert answer.text


async def test_a_session_that_cannot_be_said_in_utf_8_has_no_id_to_resume_by(place: Place) -> None:
    odd = event("\ud800", source="aep://host/odd")
    async with place.client() as client:
        body = json.dumps(odd).encode()
        assert (await client.post("/events", content=body, headers=POST)).status_code == 202
        answer = await client.get("/stream", params={"live": "0", "from": "all"})
    lines = answer.content.decode("utf-8").splitlines()
    assert len(seqs(lines)) == 1
    assert not any(one.startswith("id:") for one in lines)


class Watcher:
    """A consumer that reads a live stream, byte by byte: no client library in between."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = trio.Event()

    async def watch(
        self, place: Place, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        stream = await trio.open_tcp_stream("127.0.0.1", place.port)
        async with stream:
            ask = f"GET /stream HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n"
            await stream.send_all(f"{ask}Authorization: Bearer {place.token}\r\n\r\n".encode())
            while ": here" not in self.text:
                self.text += bytes(await stream.receive_some()).decode()
            task_status.started()
            async for piece in stream:
                self.text += bytes(piece).decode()
        self.ended.set()

    def seqs(self) -> list[JSON]:
        return seqs(self.text.splitlines())


async def test_a_live_stream_gets_what_comes_and_ends_with_the_collector(tmp_path: Path) -> None:
    watcher = Watcher()
    async with trio.open_nursery() as nursery:
        async with collecting(tmp_path / "state") as place:
            await nursery.start(watcher.watch, place)
            await take(place, event(), event(seq=1))
            with trio.fail_after(5):
                while len(watcher.seqs()) < 2:
                    await trio.lowlevel.checkpoint()
        with trio.fail_after(5):
            await watcher.ended.wait()
    assert watcher.seqs() == [0, 1]
    assert place.collector.connections == 0


async def test_a_consumer_that_goes_is_forgotten(place: Place) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(Watcher().watch, place)
        assert place.collector.hub.subscriptions == 1
        nursery.cancel_scope.cancel()
    with trio.fail_after(5):
        while place.collector.hub.subscriptions:
            await take(place, event())
    assert place.collector.connections == 0


async def test_a_batch_is_taken_in_a_few_events_at_a_time(place: Place) -> None:
    hub = place.collector.hub
    steps: list[int] = []

    async def hook() -> None:
        while hub.taken < 4_000:
            before = hub.taken
            await trio.lowlevel.checkpoint()
            steps.append(hub.taken - before)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hook)
        for session in ("a", "b"):
            batch = [event(session, seq) for seq in range(2_000)]
            nursery.start_soon(partial(take, place, *batch))
    assert sum(steps) == 4_000
    assert max(steps) <= 2 * routes.AT_ONCE  # Trio runs who is ready in any order
    assert len(steps) > 2 * 4_000 // routes.AT_ONCE  # they are read before they are taken


async def test_too_many_connections_are_turned_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_CONNECTIONS", 0)
    async with place.client() as client:
        assert (await client.get("/stream")).status_code == 503


async def test_who_shows_no_token_takes_no_more_descriptors_than_there_are_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_OPEN", 3)
    async with collecting(tmp_path / "state") as place, contextlib.AsyncExitStack() as held:
        idle = []
        for _ in range(3):
            stream = await trio.open_tcp_stream("127.0.0.1", place.port)
            idle.append(await held.enter_async_context(stream))
        one_more = await held.enter_async_context(
            await trio.open_tcp_stream("127.0.0.1", place.port)
        )
        with trio.fail_after(2):
            with contextlib.suppress(trio.BrokenResourceError):
                assert await one_more.receive_some() == b""
        # Whoever goes makes room.
        request = (
            f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\nConnection: close\r\n\r\n"
        )
        await idle[0].send_all(request.encode())
        with trio.fail_after(2):
            answer = b"".join([bytes(piece) async for piece in idle[0]])
        assert answer.startswith(b"HTTP/1.1 200")
        async with place.client() as client:
            assert (await client.get("/healthz")).status_code == 200


async def test_a_stream_ends_with_its_token(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocation, "LOOK_SECONDS", 0.01)
    _, observe = token_files(tmp_path / "state")
    async with place.client(place.observer) as client:
        async with client.stream("GET", "/stream") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ": here"
            observe.renew()
            with trio.fail_after(5), pytest.raises(httpx.RemoteProtocolError):
                assert [line async for line in lines if line] == []
        assert (await client.get("/stream")).status_code == 401
