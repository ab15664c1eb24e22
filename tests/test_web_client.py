"""`kimi web` servers found and asked: scripted ones on loopback, and files of every kind."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from http_server import Drip, Reply, Request, Server, http, serving
from kimiaepd.http_call import STEPS, Answer
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.web import answers
from kimiaepd.web.answers import LiveSession, Session, opened, read
from kimiaepd.web.client import LONGEST, PAGE, Client, Verdict
from kimiaepd.web.errors import (
    DISMISSED,
    NoAnswerError,
    NoTokenError,
    OddAnswerError,
    Refusal,
    RefusedError,
    WebError,
)
from kimiaepd.web.home import Instance, find, read_instance, read_token

TOKEN = "t0k_en-" + "x" * 36
ROTATED = "r0t_ated-" + "y" * 34
ME = os.getpid()
GONE = 2**30  # no system gives such a pid
S = LiveSession("session_1")
AT = f"/api/v1/sessions/{S}"
HEALTH = "/api/v1/healthz"
APPROVED = Verdict("approved")

Call = Callable[[Client], Awaitable[object]]

CALLS: dict[str, Call] = {
    "meta": lambda client: client.meta(),
    "sessions": lambda client: client.sessions(),
    "session": lambda client: client.session(S),
    "snapshot": lambda client: client.snapshot(S),
    "approvals": lambda client: client.pending_approvals(S),
    "questions": lambda client: client.pending_questions(S),
    "respond": lambda client: client.respond(S, "a1", APPROVED),
    "abort": lambda client: client.abort(S),
}
PATHS = {
    "meta": "/api/v1/meta",
    "sessions": f"/api/v1/sessions?page_size={PAGE}",
    "session": AT,
    "snapshot": f"{AT}/snapshot",
    "approvals": f"{AT}/approvals?status=pending",
    "questions": f"{AT}/questions?status=pending",
    "respond": f"{AT}/approvals/a1",
    "abort": f"{AT}:abort",
}
WRITES = ("respond", "abort")


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="aepd-", dir="/tmp") as folder:
        home = Path(folder)
        (home / "server/instances").mkdir(parents=True)
        write_token(home, TOKEN)
        yield home


def write_token(home: Path, token: str, mode: int = 0o600) -> None:
    file = home / "server.token"
    file.write_text(token)
    file.chmod(mode)


def register(home: Path, name: str, port: JSON, *, pid: JSON = ME, host: str = "127.0.0.1") -> Path:
    """The file that a server leaves."""
    file = home / f"server/instances/{name}.json"
    said: JSONObject = {"server_id": name, "pid": pid, "host": host, "port": port}
    file.write_text(json.dumps({**said, "started_at": 1_796_056_277_055, "host_version": "2.1.0"}))
    return file


def success(data: JSON) -> bytes:
    return http(200, {"code": 0, "msg": "success", "data": data, "request_id": "01M8"})


def refusal(number: int, status: int = 200) -> bytes:
    """The vendor's refusals carry its stack."""
    said = f"at /home/user/project with {TOKEN}"
    return http(status, {"code": number, "msg": said, "data": None, "stack": "Error2: at main.mjs"})


def locked(data: JSON, token: str = TOKEN) -> Reply:
    """A call that wants the token, as the real server does."""

    def reply(request: Request) -> bytes:
        if request.headers.get("authorization") != f"Bearer {token}":
            return refusal(40101, 401)
        return success(data)

    return reply


@asynccontextmanager
async def kap(home: Path, replies: dict[str, Reply]) -> AsyncIterator[tuple[Client, Server]]:
    """A server that is healthy and answers as it is told; and its client."""
    async with serving({HEALTH: success({"ok": True}), **replies}) as server:
        register(home, "01A", server.port)
        (instance,) = find(home).servers
        with trio.fail_after(60):
            yield Client(instance, home), server


# --- what is asked, and what comes of it ---------------------------------------------------------

SESSION: JSONObject = {
    "id": S,
    "title": "t",
    "busy": True,
    "main_turn_active": True,
    "pending_interaction": "approval",
    "archived": False,
    "usage": {"input_tokens": 0},
}
APPROVAL: JSONObject = {
    "approval_id": "approval_1",
    "session_id": S,
    "turn_id": 3,
    "tool_call_id": "call_1",
    "tool_name": "Bash",
    "action": "Running: ls",
    "tool_input_display": {"kind": "command", "command": "ls"},
}
QUESTION: JSONObject = {
    "question_id": "question_1",
    "session_id": S,
    "turn_id": 3,
    "tool_call_id": "call_2",
    "agent_id": "agent-1",
    "questions": [{"id": "q_0", "question": "Which?"}],
}
DATA: dict[str, JSONObject] = {
    "meta": {"server_version": "2.1.0", "dangerous_bypass_auth": True, "features": []},
    "sessions": {"items": [SESSION], "has_more": False},
    "session": SESSION,
    "snapshot": {
        "as_of_seq": 13,
        "epoch": "ep_1",
        "session": SESSION,
        "messages": {"items": [], "has_more": False},
        "in_flight_turn": {"turn_id": 3, "current_prompt_id": "msg_1", "running_tools": []},
        "pending_approvals": [APPROVAL],
        "pending_questions": [QUESTION],
    },
    "approvals": {"items": [APPROVAL]},
    "questions": {"items": [QUESTION]},
    "respond": {"resolved": True, "resolved_at": "2026-11-30T16:31:32.685Z"},
    "abort": {"aborted": True},
}
A_SESSION = Session(
    S, busy=True, main_turn_active=True, pending_interaction="approval", archived=False
)
AN_APPROVAL = answers.Approval(
    "approval_1",
    "call_1",
    "Bash",
    3,
    action="Running: ls",
    tool_input_display={"kind": "command", "command": "ls"},
)
A_QUESTION = answers.Question(
    "question_1", "call_2", 3, "agent-1", [{"id": "q_0", "question": "Which?"}]
)
RESULTS: dict[str, object] = {
    "meta": answers.Meta("2.1.0", dangerous_bypass_auth=True),
    "sessions": (A_SESSION,),
    "session": A_SESSION,
    "snapshot": answers.Snapshot(
        13, "ep_1", A_SESSION, answers.InFlightTurn(3, "msg_1"), (AN_APPROVAL,), (A_QUESTION,)
    ),
    "approvals": (AN_APPROVAL,),
    "questions": (A_QUESTION,),
    "respond": None,
    "abort": True,
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_one_request_with_the_token_and_its_answer_has_a_type(
    home: Path, name: str
) -> None:
    async with kap(home, {PATHS[name]: locked(DATA[name])}) as (client, server):
        assert await CALLS[name](client) == RESULTS[name]
    health, asked = server.asked
    assert (health.path, "authorization" in health.headers) == (HEALTH, False)
    assert asked.path == PATHS[name]
    assert asked.method == ("POST" if name in WRITES else "GET")


async def test_healthz_sends_no_token(home: Path) -> None:
    async with kap(home, {}) as (client, server):
        await client.healthz()
    assert [(one.path, "authorization" in one.headers) for one in server.asked] == [(HEALTH, False)]


@pytest.mark.parametrize(
    ("verdict", "body"),
    [
        (Verdict("approved"), {"decision": "approved"}),
        (
            Verdict("approved", for_session=True),
            {"decision": "approved", "scope": "session"},
        ),
        (
            Verdict("rejected", feedback="nicht jetzt \ud800"),
            {"decision": "rejected", "feedback": "nicht jetzt \ufffd"},
        ),
        (Verdict("cancelled", feedback=""), {"decision": "cancelled", "feedback": ""}),
    ],
)
async def test_a_verdict_is_sent_in_the_vendor_s_words(
    home: Path, verdict: Verdict, body: JSONObject
) -> None:
    async with kap(home, {PATHS["respond"]: locked(DATA["respond"])}) as (client, server):
        await client.respond(S, "a1", verdict)
    assert json.loads(server.asked[-1].body) == body
    assert server.asked[-1].headers["content-type"] == "application/json"


async def test_an_abort_has_no_body(home: Path) -> None:
    """Fastify refuses an empty body that says it is JSON."""
    async with kap(home, {PATHS["abort"]: locked(DATA["abort"])}) as (client, server):
        await client.abort(S)
    assert server.asked[-1].body == b""
    assert "content-type" not in server.asked[-1].headers


async def test_an_answer_that_did_not_count_is_not_taken_for_one_that_did(home: Path) -> None:
    async with kap(home, {PATHS["respond"]: success({"resolved": False})}) as (client, _):
        with pytest.raises(OddAnswerError):
            await client.respond(S, "a1", APPROVED)


async def test_what_the_vendor_leaves_out_has_a_default(home: Path) -> None:
    bare: JSONObject = {"as_of_seq": 0, "epoch": "e", "session": {"id": "s"}}
    async with kap(home, {PATHS["snapshot"]: success({**bare, "in_flight_turn": None})}) as (
        client,
        _,
    ):
        assert await client.snapshot(S) == answers.Snapshot(0, "e", Session("s"))


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a?b#c", "functions.Bash:0", "\ud800", "å"])
async def test_no_id_leads_to_another_call(home: Path, name: str) -> None:
    async with kap(home, {}) as (client, server):
        with pytest.raises(OddAnswerError):
            await client.respond(LiveSession(name), name, APPROVED)
        with pytest.raises(OddAnswerError):
            await client.snapshot(LiveSession(name))
    respond, snapshot = (one.path for one in server.asked if one.path != HEALTH)
    assert respond.startswith("/api/v1/sessions/")
    assert respond.split("/")[5] == "approvals"
    assert len(respond.split("/")) == 7
    assert snapshot.split("/")[5] == "snapshot"
    assert "?" not in respond


# --- the list ------------------------------------------------------------------------------------


def page(first: int, count: int, *, has_more: bool) -> JSON:
    return {
        "items": [{"id": f"s{number}"} for number in range(first, first + count)],
        "has_more": has_more,
    }


async def test_listing_asks_for_page_after_page_and_nothing_else(home: Path) -> None:
    """Nearly every other call wakes a cold session, and that fires the user's hooks."""
    replies: dict[str, Reply] = {
        PATHS["sessions"]: success(page(0, 100, has_more=True)),
        # A session that was used in between has moved: one comes twice.
        f"{PATHS['sessions']}&before_id=s99": success(page(99, 30, has_more=False)),
    }
    async with kap(home, replies) as (client, server):
        assert [one.id for one in await client.sessions()] == [f"s{n}" for n in range(129)]
    assert {one.path for one in server.asked} == {HEALTH, *replies}


async def test_a_list_without_an_end_is_given_up(home: Path) -> None:
    replies: dict[str, Reply] = {
        PATHS["sessions"]: success(page(0, 100, has_more=True)),
        f"{PATHS['sessions']}&before_id=s99": success(page(0, 100, has_more=True)),
    }
    async with kap(home, replies) as (client, server):
        assert len(await client.sessions(300)) == 100
    assert len([one for one in server.asked if one.path != HEALTH]) == 3


async def test_an_empty_page_ends_the_list_and_archived_sessions_are_left_out(home: Path) -> None:
    async with kap(home, {PATHS["sessions"]: success(page(0, 0, has_more=True))}) as (client, _):
        assert await client.sessions() == ()
    (home / "server/instances/01A.json").unlink()
    archived: JSON = {"items": [{"id": "s", "archived": True}], "has_more": False}
    async with kap(home, {PATHS["sessions"]: success(archived)}) as (client, _):
        assert await client.sessions() == ()


@pytest.mark.parametrize("position", [True, 1.0, "1", None])
async def test_a_position_is_a_whole_number(home: Path, position: JSON) -> None:
    damaged: JSONObject = {**DATA["snapshot"], "as_of_seq": position}
    async with kap(home, {PATHS["snapshot"]: success(damaged)}) as (client, _):
        with pytest.raises(OddAnswerError, match=r"data for Snapshot: unfit @ \$\.as_of_seq"):
            await client.snapshot(S)


def test_only_a_session_that_is_at_work_is_surely_live() -> None:
    assert Session("s").live is None
    assert Session("s", busy=True).live == "s"
    assert Session("s", pending_interaction="question").live == "s"


# --- what the server refuses ---------------------------------------------------------------------

CODES = {
    40001: "invalid",
    40101: "unauthorized",
    40301: "invalid-host",
    40401: "no-session",
    40402: "no-prompt",
    40404: "no-approval",
    40405: "no-question",
    40409: "no-folder",
    40902: "already-resolved",
    40910: "nothing-to-compact",
    42901: "too-many-failures",
    50001: "internal",
}


def test_every_code_that_was_met_has_a_name() -> None:
    assert [code.value for code in Refusal] == list(CODES)
    assert DISMISSED not in CODES


@pytest.mark.parametrize("number", [*CODES, 49999, -1])
@pytest.mark.parametrize("name", ["sessions", *WRITES])
async def test_a_refusal_has_its_code_and_says_nothing_of_the_server_s(
    home: Path, name: str, number: int
) -> None:
    status = {40101: 401, 40301: 403, 42901: 429}.get(number, 200)
    async with kap(home, {PATHS[name]: refusal(number, status)}) as (client, server):
        with pytest.raises(RefusedError) as caught:
            await CALLS[name](client)
    error = caught.value
    assert (error.number, error.code) == (number, CODES.get(number, "refused"))
    assert error.refusal == (Refusal(number) if number in CODES else None)
    assert str(error) == f"kimi web refused it ({number})"
    assert "/home/user/project" in error.said
    assert len(server.asked) == 2  # nothing is tried twice


async def test_a_healthz_that_refuses_is_no_kimi_web(home: Path) -> None:
    async with kap(home, {HEALTH: refusal(40001), **dict.fromkeys(PATHS.values())}) as (client, _):
        with pytest.raises(OddAnswerError):
            await client.sessions()


# --- what is not the vendor's server, or not well ------------------------------------------------

ODD: dict[str, bytes] = {
    "an unknown route": http(404, {"message": "Route not found", "statusCode": 404}),
    "a redirect": http(302, Location="http://127.0.0.1:1/api/v1/sessions"),
    "a page": http(200, b"<html>"),
    "nothing": http(200),
    "a list": http(200, [{"code": 0}]),
    "a null": http(200, None),
    "no code": http(200, {"data": {}}),
    "a code that is a word": http(200, {"code": "0", "data": {}}),
    "a code that is true": http(200, {"code": False, "data": {}}),
    "a code that is null": http(200, {"code": None, "data": {}}),
    "success that failed": http(500, {"code": 0, "data": DATA["sessions"]}),
    "bytes": http(200, b"\xff\xfe\x00"),
    "depth": http(200, b"[" * 100_000),
    "5 MB of JSON": http(200, {"code": 0, "data": {"items": [], "x": "x" * 5_000_000}}),
    "no data": success(None),
    "data that is a list": success([SESSION]),
    "items that are an object": success({"items": {}}),
    "items that are text": success({"items": "abc"}),
    "an item without an id": success({"items": [SESSION, {"busy": True}]}),
    "an id that is a number": success({"items": [{"id": 7}]}),
    "an item that is null": success({"items": [None]}),
    "busy that is a number": success({"items": [{**SESSION, "busy": 1}]}),
}
BROKEN: dict[str, bytes] = {
    "no answer": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": success(DATA["sessions"])[:-40],
    "half a chunk": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{"code":0,',
    "a chunk of no length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
}


@pytest.mark.parametrize("name", ODD)
async def test_what_is_no_kimi_web_s_answer_is_odd_and_none_of_it_is_told(
    home: Path, name: str
) -> None:
    async with kap(home, {PATHS["sessions"]: ODD[name]}) as (client, server):
        with pytest.raises(OddAnswerError) as caught:
            await client.sessions()
    assert len(str(caught.value)) < 200
    assert len(server.asked) == 2


@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_breaks_off_is_none_and_the_call_may_have_been_taken(
    home: Path, name: str
) -> None:
    async with kap(home, {PATHS["abort"]: BROKEN[name]}) as (client, server):
        with pytest.raises(NoAnswerError) as caught:
            await client.abort(S)
    assert not caught.value.is_refused
    assert len([one for one in server.asked if one.method == "POST"]) == 1  # not tried again


STRANGERS = {
    **{name: reply for name, reply in ODD.items() if b'"code": 0' not in reply},
    **BROKEN,
    "one that wants a token": refusal(40101, 401),
}


@pytest.mark.parametrize("name", STRANGERS)
async def test_what_is_no_kimi_web_never_sees_the_token(home: Path, name: str) -> None:
    async with kap(
        home, {HEALTH: STRANGERS[name], PATHS["sessions"]: locked(DATA["sessions"])}
    ) as (
        client,
        server,
    ):
        with pytest.raises((OddAnswerError, NoAnswerError)):
            await client.sessions()
    assert [one.path for one in server.asked] == [HEALTH]


async def test_a_redirect_is_not_followed_with_the_token(home: Path) -> None:
    async with serving({"/": success(None)}) as elsewhere:
        away = http(307, Location=f"http://127.0.0.1:{elsewhere.port}/")
        async with kap(home, dict.fromkeys(PATHS.values(), away)) as (client, _):
            for call in CALLS.values():
                with pytest.raises(OddAnswerError):
                    await call(client)
    assert elsewhere.asked == []


async def test_an_endless_body_is_read_to_its_bound(home: Path, autojump_clock: MockClock) -> None:
    """What comes after the bound is not waited for."""
    endless = Drip([b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (LONGEST + 1), b"x"], 1000)
    async with kap(home, {PATHS["snapshot"]: endless}) as (client, _):
        with pytest.raises(OddAnswerError, match=f"more than {LONGEST} bytes"):
            await client.snapshot(S)


async def test_a_body_as_long_as_the_bound_is_taken(home: Path) -> None:
    bare = len(json.dumps({"code": 0, "data": {"items": [], "x": ""}}))
    data: JSONObject = {"items": [], "x": "x" * (LONGEST - bare)}
    async with kap(home, {PATHS["sessions"]: http(200, {"code": 0, "data": data})}) as (client, _):
        assert await client.sessions() == ()


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [HEALTH, PATHS["abort"]])
async def test_a_server_that_says_nothing_is_not_waited_for(
    home: Path, autojump_clock: MockClock, path: str
) -> None:
    async with kap(home, {path: None}) as (client, _):
        began = trio.current_time()
        with pytest.raises(NoAnswerError, match="no answer within 2 s"):
            await client.abort(S)
        assert trio.current_time() - began == pytest.approx(client.seconds)


async def test_a_body_that_stalls_or_drips_is_not_waited_for(
    home: Path, autojump_clock: MockClock
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    for pieces, pause, most in ([head, b"{"], 1000, 2.1), ([head, *[b" "] * 1000], 1, 8.1):
        async with kap(home, {PATHS["snapshot"]: Drip(pieces, pause)}) as (client, _):
            began = trio.current_time()
            with pytest.raises(NoAnswerError, match="no answer") as caught:
                await client.snapshot(S)
            assert not caught.value.is_refused
            assert trio.current_time() - began <= most <= STEPS * client.seconds + 0.1


async def test_a_slow_answer_in_time_is_taken(home: Path, autojump_clock: MockClock) -> None:
    whole = success(DATA["abort"])
    slow = Drip([whole[:30], whole[30:90], whole[90:]], 1.5)
    async with kap(home, {PATHS["abort"]: slow}) as (client, _):
        assert await client.abort(S)


async def test_calls_that_are_cancelled_cost_later_ones_nothing(
    home: Path, autojump_clock: MockClock
) -> None:
    async with kap(home, {PATHS["abort"]: None, PATHS["session"]: locked(SESSION)}) as (client, _):
        for _ in range(120):
            with trio.move_on_after(0.1) as scope:
                await client.abort(S)
            assert scope.cancelled_caught
        assert await client.session(S) == A_SESSION


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_dead_proxy_does_not_matter(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,::1/128")
    async with kap(home, {PATHS["session"]: locked(SESSION)}) as (client, _):
        assert await client.session(S) == A_SESSION


# --- the token -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
async def test_a_token_that_was_rotated_in_the_middle_is_taken_at_once(
    home: Path, name: str
) -> None:
    """The call is made with the old one; the new one is written before the refusal arrives."""

    def rotate(request: Request) -> bytes:
        write_token(home, ROTATED)
        answer = locked(DATA[name], ROTATED)
        assert callable(answer)
        return answer(request)

    async with kap(home, {PATHS[name]: rotate}) as (client, server):
        assert await CALLS[name](client) == RESULTS[name]
        assert await CALLS[name](client) == RESULTS[name]
    bearers = [one.headers.get("authorization") for one in server.asked if one.path != HEALTH]
    assert bearers == [f"Bearer {token}" for token in (TOKEN, ROTATED, ROTATED)]


async def test_a_token_that_stays_wrong_is_tried_once(home: Path) -> None:
    async with kap(home, {PATHS["abort"]: locked(DATA["abort"], ROTATED)}) as (client, server):
        with pytest.raises(RefusedError) as caught:
            await client.abort(S)
    assert caught.value.refusal is Refusal.UNAUTHORIZED
    assert len(server.asked) == 2


async def test_a_token_that_vanishes_in_the_middle_is_said(home: Path) -> None:
    def revoke(_: Request) -> bytes:
        (home / "server.token").unlink()
        return refusal(40101, 401)

    async with kap(home, {PATHS["meta"]: revoke}) as (client, _):
        with pytest.raises(NoTokenError):
            await client.meta()


@pytest.mark.parametrize(
    "content",
    [None, b"", b" \n", b"two words", b"\xff", "тайна".encode(), b"a\r\nb: c", b"x" * 5000],
)
async def test_without_a_token_nothing_but_healthz_is_asked(
    home: Path, content: bytes | None
) -> None:
    file = home / "server.token"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    async with kap(home, {PATHS["abort"]: locked(DATA["abort"])}) as (client, server):
        with pytest.raises(NoTokenError) as caught:
            await client.abort(S)
    assert str(file) in str(caught.value)
    assert [one.path for one in server.asked] == [HEALTH]


def test_a_fifo_or_a_folder_in_the_token_s_place_does_not_hang(home: Path) -> None:
    file = home / "server.token"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(NoTokenError):
        read_token(home)
    file.unlink()
    file.mkdir()
    with pytest.raises(NoTokenError):
        read_token(home)


@pytest.mark.parametrize(("mode", "is_private"), [(0o600, True), (0o400, True), (0o644, False)])
def test_who_else_can_read_the_token_is_said(home: Path, mode: int, is_private: bool) -> None:
    write_token(home, TOKEN + "\n", mode)
    token = read_token(home)
    assert (token.value, token.mode, token.is_private) == (TOKEN, mode, is_private)


def test_no_repr_has_the_token(home: Path) -> None:
    (instance,) = [read_instance(register(home, "01A", 1))]
    assert instance
    assert TOKEN not in f"{read_token(home)!r} {Client(instance, home)!r}"


# --- discovery -----------------------------------------------------------------------------------


async def test_two_servers_on_one_home_are_two_and_each_is_asked_for_itself(home: Path) -> None:
    mine: JSON = {"items": [SESSION]}
    async with kap(home, {PATHS["sessions"]: locked(mine)}) as (_, one):
        replies: dict[str, Reply] = {
            HEALTH: success({"ok": True}),
            PATHS["sessions"]: locked({"items": []}),
        }
        async with serving(replies) as two:
            register(home, "01B", two.port, host="localhost")
            found = find(home)
            assert [(server.id, server.port) for server in found.servers] == [
                ("01A", one.port),
                ("01B", two.port),
            ]
            lists = [await Client(server, home).sessions() for server in found.servers]
    assert lists == [(A_SESSION,), ()]


def test_a_folder_that_cannot_be_read_is_not_one_without_servers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(home))

    monkeypatch.setattr(os, "listdir", refused)
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(PermissionError):
        find(home)


def test_a_home_without_servers(home: Path) -> None:
    assert find(home).servers == ()
    (home / "server/instances").rmdir()
    assert find(home).servers == ()


def test_a_file_whose_process_is_gone_is_no_server(home: Path) -> None:
    register(home, "01A", 58627, pid=GONE)
    register(home, "01B", 58628)
    found = find(home)
    assert [server.id for server in found.servers] == ["01B"]
    assert [server.id for server in found.gone] == ["01A"]
    assert found.odd == ()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"pid":1}', b'{"pid":-1,"host":"x","port":1}', b"\xff"]
)
def test_a_file_of_another_kind_is_told_of(home: Path, content: bytes) -> None:
    file = home / "server/instances/x.json"
    file.write_bytes(content)
    register(home, "01A", 58627)
    found = find(home)
    assert found.odd == (file,)
    assert [server.id for server in found.servers] == ["01A"]


async def test_a_process_that_is_another_program_by_now_is_refused_or_odd(home: Path) -> None:
    """Its pid lives, so only who answers tells."""
    register(home, "01A", 1)
    (stale,) = find(home).servers
    with pytest.raises(NoAnswerError, match="connection refused") as caught:
        await Client(stale, home).sessions()
    assert caught.value.is_refused
    async with serving({PATHS["sessions"]: locked(DATA["sessions"])}) as another:
        register(home, "01A", another.port)
        (stale,) = find(home).servers
        with pytest.raises(OddAnswerError):
            await Client(stale, home).sessions()
    assert [request.path for request in another.asked] == [HEALTH]


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 0), ("192.0.2.1", 58627), ("kimi.example", 58627)]
)
async def test_a_server_without_an_address_here_is_not_asked(
    home: Path, host: str, port: int
) -> None:
    register(home, "01A", port, host=host)
    (server,) = find(home).servers
    assert server.base_url() is None
    with pytest.raises(NoAnswerError) as caught:
        await Client(server, home).healthz()
    assert caught.value.is_refused


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("127.0.0.1", "http://127.0.0.1:5/api/v1"),
        ("0.0.0.0", "http://127.0.0.1:5/api/v1"),
        ("localhost", "http://localhost:5/api/v1"),
        ("::1", "http://[::1]:5/api/v1"),
        ("127.0.0.1@kimi.example", None),
    ],
)
def test_the_address_of_a_server(host: str, base: str | None) -> None:
    assert Instance("01A", ME, host, 5, "2.1.0").base_url() == base


# --- any bytes, any JSON -------------------------------------------------------------------------

any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
KINDS = (
    answers.Meta,
    answers.SessionPage,
    answers.Approvals,
    answers.Questions,
    answers.Snapshot,
    answers.Resolved,
    answers.Aborted,
)


@given(st.binary() | any_json.map(lambda value: json.dumps(value).encode()), st.integers(100, 599))
def test_no_body_breaks_the_envelope(body: bytes, status: int) -> None:
    try:
        opened(Answer(status, {}, body))
    except WebError as error:
        assert error.code  # noqa: PT017 - every other outcome is fine too


@given(st.sampled_from(KINDS), st.data())
def test_no_data_breaks_a_shape(kind: type[object], data: st.DataObject) -> None:
    """Whole shapes with one part of another type: what random JSON would never be."""
    whole = next(one for one in [*DATA.values()] if fits(kind, one))
    value = damaged(whole, data)
    try:
        assert isinstance(read(kind, value), kind)
    except OddAnswerError as error:
        assert len(str(error)) < 200  # noqa: PT017 - an answer that still fits is fine too


def fits(kind: type[object], value: JSON) -> bool:
    try:
        read(kind, value)
    except OddAnswerError:
        return False
    return True


def damaged(value: JSON, data: st.DataObject) -> JSON:
    """The value with something else somewhere in it."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 3)) == 0:
        return data.draw(any_json)
    if isinstance(value, dict):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: damaged(value[key], data)}
    index = data.draw(st.integers(0, len(value) - 1))
    return [*value[:index], damaged(value[index], data), *value[index + 1 :]]


@pytest.mark.shared
@pytest.mark.parametrize("version", ["0.28.0", "2.1.0"])
def test_every_answer_that_was_captured_is_read(shared: Path, version: str) -> None:
    read_as: dict[str, type[object]] = {
        "meta": answers.Meta,
        "sessions": answers.SessionPage,
        "snapshot": answers.Snapshot,
        "approvals": answers.Approvals,
        "questions": answers.Questions,
    }
    seen = set()
    file = shared / f"captures/web/rest-{version}.jsonl"
    for line in file.read_text().splitlines():
        call = json.loads(line)
        kind = call["path"].partition("?")[0].rpartition("/")[2]
        body = json.dumps(call["response"]).encode()
        answer = Answer(call["status"], {}, body)
        if "code" not in call["response"]:
            with pytest.raises(OddAnswerError):
                opened(answer)
        elif number := call["response"]["code"]:
            with pytest.raises(RefusedError) as caught:
                opened(answer)
            assert caught.value.refusal or number == DISMISSED, number
        elif call["method"] == "GET" and "/api/v1/" in call["path"] and kind in read_as:
            seen.add(kind)
            read(read_as[kind], opened(answer))
        elif "/approvals/" in call["path"]:
            seen.add("respond")
            assert read(answers.Resolved, opened(answer)).resolved
        elif call["path"].endswith(":abort"):
            seen.add("abort")
            assert read(answers.Aborted, opened(answer)).aborted
    assert seen == {*read_as, "respond", "abort"}
