"""Our client beside the real `kimi web`: found, listed, answered, aborted, and nobody woken."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import pytest
import trio
from attrs import frozen

from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.web.answers import LiveSession, Session
from kimiaepd.web.client import Client, Verdict
from kimiaepd.web.errors import NoAnswerError, Refusal, RefusedError
from kimiaepd.web.home import find, read_token
from vendor.kimi import Kimi
from vendor.place import Place, plain_config
from vendor.provider import Provider
from vendor.waiting import until
from vendor.web import Web, serving

pytestmark = pytest.mark.vendor

COLD = 50
NOBODY = LiveSession("session_00000000-0000-0000-0000-000000000000")
HOOKED = ("SessionStart", "PostToolUse")

T = TypeVar("T")


@frozen
class Desk:
    """A server with cold sessions, our client for it, and what the user's hooks have seen."""

    kimi: Kimi
    place: Place
    web: Web
    client: Client
    cold: frozenset[str]

    def do(self, call: Callable[[], Awaitable[T]]) -> T:
        """One call of the client."""

        async def once() -> T:
            with trio.fail_after(30):
                return await call()

        return trio.run(once)

    def begin(self, prompt: str) -> LiveSession:
        """A new session in which a turn has begun."""
        session = self.web.session(self.place.work)
        self.web.prompt(session, prompt)
        return LiveSession(session)

    def look(self, session: str) -> Session:
        return self.do(lambda: self.client.session(session))

    def is_asked(self, session: str) -> str:
        """The approval that the session has come to."""

        def asks() -> LiveSession | None:
            seen = self.look(session)
            return seen.live if seen.pending_interaction == "approval" else None

        live = until(asks, "the approval")
        assert live
        (asked,) = self.do(lambda: self.client.pending_approvals(live))
        assert asked.tool_name == "Bash"
        return asked.approval_id

    def ends(self, session: str) -> None:
        until(lambda: not self.look(session).busy, "the end of the turn")

    def answers(self, session: LiveSession, approval: str, verdict: Verdict) -> None:
        self.do(lambda: self.client.respond(session, approval, verdict))

    def refusal(self, call: Callable[[], Awaitable[object]]) -> Refusal | None:
        """Why the server says no."""
        with pytest.raises(RefusedError) as caught:
            self.do(call)
        return caught.value.refusal


@pytest.fixture(scope="module")
def desk(kimi: Kimi, place: Place, provider: Provider) -> Iterator[Desk]:
    # Hooks run beside each other: each has a file of its own, which is there when it is whole.
    hook = f"f=$(mktemp {place.root}/hook-XXXXXX) && cat > $f && mv $f $f.json"
    hooks = (f"\n[[hooks]]\nevent = {event!r}\ncommand = {hook!r}\n" for event in HOOKED)
    place.renew(plain_config(kimi.version, provider.url) + "".join(hooks).encode())
    with serving(kimi, place) as web:
        cold = frozenset(web.session(place.work) for _ in range(COLD))
        until(lambda: len(hooked(place, "SessionStart")) == COLD, "the hooks of new sessions")
    for seen in place.root.glob("hook-*.json"):
        seen.unlink()
    with serving(kimi, place) as web:
        (instance,) = find(place.kimi_home).servers
        assert instance.port == web.port
        assert instance.version == kimi.version
        yield Desk(kimi, place, web, Client(instance, place.kimi_home), cold)
    # It ended well, and took its file with it.
    assert find(place.kimi_home).servers == ()
    with pytest.raises(NoAnswerError) as caught:
        trio.run(Client(instance, place.kimi_home).healthz)
    assert caught.value.is_refused


def hooked(place: Place, event: str) -> list[JSONObject]:
    """What the user's hooks of one kind were told."""
    told = [json.loads(file.read_bytes()) for file in place.root.glob("hook-*.json")]
    return [one for one in told if one["hook_event_name"] == event]


def tools_run(desk: Desk, session: str) -> int:
    """Calls that ran, as the user's hooks saw them."""
    return sum(one["session_id"] == session for one in hooked(desk.place, "PostToolUse"))


def test_listing_leaves_cold_sessions_cold(desk: Desk) -> None:
    """This comes first: no other test has waked one. The last call shows that one would be seen."""
    listed = desk.do(desk.client.sessions)
    assert {session.id for session in listed} == desk.cold
    assert [session.live for session in listed] == [None] * COLD
    for session in listed[:5]:
        assert desk.look(session.id) == session
    desk.do(desk.client.healthz)
    desk.do(desk.client.meta)
    waked = listed[7].id
    assert desk.do(lambda: desk.client.pending_approvals(LiveSession(waked))) == ()
    until(lambda: hooked(desk.place, "SessionStart"), "the hook of the session that was waked")
    assert [(one["session_id"], one["source"]) for one in hooked(desk.place, "SessionStart")] == [
        (waked, "resume")
    ]


def test_the_server_says_what_it_is(desk: Desk) -> None:
    meta = desk.do(desk.client.meta)
    assert meta.server_version == desk.kimi.version
    assert not meta.dangerous_bypass_auth
    assert read_token(desk.place.kimi_home).is_private


def test_an_approval_is_answered_once(desk: Desk) -> None:
    session = desk.begin("mock:bashok go on")
    approval = desk.is_asked(session)
    snapshot = desk.do(lambda: desk.client.snapshot(session))
    assert [one.approval_id for one in snapshot.pending_approvals] == [approval]
    assert snapshot.session == desk.look(session)
    assert snapshot.in_flight_turn
    assert snapshot.in_flight_turn.turn_id == snapshot.pending_approvals[0].turn_id
    assert session in {one.live for one in desk.do(desk.client.sessions)}
    desk.answers(session, approval, Verdict("approved"))
    again = desk.refusal(lambda: desk.client.respond(session, approval, Verdict("rejected")))
    assert again is Refusal.ALREADY_RESOLVED
    desk.ends(session)
    until(lambda: tools_run(desk, session) == 1, "the call that was approved")
    after = desk.do(lambda: desk.client.snapshot(session))
    assert (after.in_flight_turn, after.pending_approvals) == (None, ())
    assert after.as_of_seq > snapshot.as_of_seq
    assert after.epoch == snapshot.epoch


def test_a_refusal_reaches_the_model_with_its_reason(desk: Desk, provider: Provider) -> None:
    provider.take()
    session = desk.begin("mock:bashok or not")
    desk.answers(session, desk.is_asked(session), Verdict("rejected", feedback="Not now, söte."))
    desk.ends(session)
    assert any("Not now, söte." in told(one.body) for one in provider.take())


def told(body: bytes) -> str:
    return json.dumps(json.loads(body)["messages"], ensure_ascii=False)


def test_an_approval_for_the_session_covers_the_next_call(desk: Desk) -> None:
    session = desk.begin("mock:bashok twice")
    desk.answers(session, desk.is_asked(session), Verdict("approved", for_session=True))
    desk.ends(session)
    desk.web.prompt(session, "mock:bashok again")
    until(lambda: tools_run(desk, session) == 2, "the second call, which nobody is asked about")
    desk.ends(session)


def test_a_turn_is_aborted(desk: Desk) -> None:
    session = desk.begin("mock:slow think")
    until(lambda: desk.look(session).main_turn_active, "the turn")
    assert desk.do(lambda: desk.client.abort(session))
    desk.ends(session)


def test_a_turn_is_aborted_while_it_asks_and_the_answer_comes_late(desk: Desk) -> None:
    session = desk.begin("mock:bashok stop")
    approval = desk.is_asked(session)
    assert desk.do(lambda: desk.client.abort(session))
    desk.ends(session)
    late = desk.refusal(lambda: desk.client.respond(session, approval, Verdict("approved")))
    assert late is Refusal.ALREADY_RESOLVED
    assert desk.do(lambda: desk.client.pending_approvals(session)) == ()
    assert desk.do(lambda: desk.client.pending_questions(session)) == ()
    # The vendor calls an idle session aborted too.
    assert desk.do(lambda: desk.client.abort(session))


def test_unknown_ids_are_refused_each_in_its_way(desk: Desk) -> None:
    client = desk.client
    live = LiveSession(desk.web.session(desk.place.work))
    for session in (NOBODY, LiveSession(".."), LiveSession("a/b:archive")):
        for call in about(client, session):
            assert desk.refusal(call) is Refusal.NO_SESSION
    for approval in ("nope", "..", "functions.Bash:0", "a/b"):
        refused = desk.refusal(partial(client.respond, live, approval, Verdict("approved")))
        assert refused is Refusal.NO_APPROVAL


def about(client: Client, session: LiveSession) -> list[Callable[[], Awaitable[object]]]:
    """Every call about one session."""
    return [
        partial(client.session, session),
        partial(client.abort, session),
        partial(client.snapshot, session),
        partial(client.pending_approvals, session),
        partial(client.pending_questions, session),
        partial(client.respond, session, "x", Verdict("approved")),
    ]


def test_two_servers_on_one_home_have_one_list(desk: Desk) -> None:
    home = desk.place.kimi_home
    with serving(desk.kimi, desk.place) as second:
        servers = {server.port: server for server in find(home).servers}
        assert set(servers) == {desk.web.port, second.port}
        lists = [
            {one.id for one in desk.do(Client(server, home).sessions)}
            for server in servers.values()
        ]
    assert lists[0] == lists[1] >= desk.cold
    assert [server.port for server in find(home).servers] == [desk.web.port]


def test_a_rotated_token_is_taken(desk: Desk) -> None:
    """This comes last: the driver of these tests keeps the old one."""
    before = read_token(desk.place.kimi_home)
    subprocess.run(
        ["kimi", "web", "rotate-token"],
        executable=desk.kimi.programs[0] / "kimi",
        env=desk.place.environ(desk.kimi.programs),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=30,
    )
    after = read_token(desk.place.kimi_home)
    assert after.value != before.value
    assert after.is_private
    assert desk.do(desk.client.meta).server_version == desk.kimi.version
