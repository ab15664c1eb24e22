"""A person at the relay who answers and cancels what runs in the real `kimi web`.

They have `aep_sdk` and see the daemon's relay alone; beside them somebody sits at the browser. Each
test is a session of its own. No hooks are registered but at the last desk, where the gate holds
calls too, and answers at the server are not switched on.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from aep_sdk.control import NackError
from aep_sdk.projection import project_state
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSON, JSONObject
from vendor import daemon
from vendor.human import CANCEL, Human, watching
from vendor.kimi import Kimi
from vendor.logged import Log, data, log_files
from vendor.place import Place, scratch_place
from vendor.provider import Provider
from vendor.waiting import until
from vendor.web import serving
from vendor.web_desk import Desk, configure, core, furnish, types, watches

pytestmark = pytest.mark.vendor

REASON = "Keep the build: it is not yours."
ASK = ("attention.requested", "attention.answered", "attention.resolved")
CUT = ["run.started", "attention.requested", "attention.resolved", "run.cancelled"]


@frozen
class Booth:
    """Somebody at the browser, somebody at the relay, and the model."""

    kimi: Kimi
    desk: Desk
    human: Human
    provider: Provider

    def asks(self, prompt: str = "mock:bashok go") -> tuple[str, JSONObject]:
        """A new session that has come to an approval, as the person sees it."""
        session = self.desk.begins(prompt)
        return session, self.asked(session)

    def asked(self, session: str) -> JSONObject:
        """The ask that the session comes to, as the person sees it."""
        (asked,) = self.human.asked()
        assert asked["session"] == session
        return asked

    def is_told(self, words: str) -> bool:
        """Whether the model was told so since the last call of this."""
        sent = [json.loads(request.body)["messages"] for request in self.provider.take()]
        return words in json.dumps(sent)

    def finishes(self, session: str, runs: int = 1) -> Log:
        """The session's log at the end of a run that went well."""
        self.desk.logs(session, "run.finished", count=runs)
        return self.desk.log(session)


@pytest.fixture(scope="module")
def booth(kimi: Kimi, place: Place, provider: Provider) -> Iterator[Booth]:
    furnish(kimi, place, provider.url, "primary", hooks=False, settings="control = true\n")
    with serving(kimi, place) as web, daemon.running(kimi, place), watching(kimi, place) as human:
        yield Booth(kimi, Desk(place, web), human, provider)
    for path in log_files(place):
        judge_log(path)
        assert [one["pending"] for one in project_state(Log.read(path).events)["sessions"]] == [[]]


def rejection(caught: pytest.ExceptionInfo[NackError]) -> str:
    assert not caught.value.synthesized
    return caught.value.reason


def about(log: Log, asked: JSONObject) -> tuple[JSONObject, JSONObject]:
    """The answer to an ask and its resolution; nothing more is about it."""
    answered, resolved = (event for event in log.events if event.get("subject") == asked["id"])
    assert [answered["type"], resolved["type"]] == list(ASK[1:])
    return answered, resolved


# --- answers ---


def test_an_approval_is_offered_with_what_can_be_said_to_it(booth: Booth) -> None:
    session, asked = booth.asks()
    options = data(asked)["options"]

    assert isinstance(options, list)
    ids = [option["id"] for option in options if isinstance(option, dict)]
    assert sorted(map(str, ids)) == ["approved", "approved_session", "rejected"]
    assert data(asked)["respond_via"] == ["control"]
    booth.human.answers(asked, "approved")
    booth.finishes(session)


def test_an_approval_is_approved_and_the_outcome_names_the_command(booth: Booth) -> None:
    session, asked = booth.asks()
    ack = booth.human.answers(asked, "approved")
    log = booth.finishes(session)
    answered, resolved = about(log, asked)

    assert data(answered) == {"answer": {"option": "approved"}, "via": "control"}
    assert answered["cause"] == ack["cause"]
    assert log.cause(resolved) == answered
    assert types(log) == ["run.started", *ASK, "tool.requested", "tool.completed", "run.finished"]
    order = [log.events.index(log.one(kind)) for kind in (ASK[0], "control.accepted", ASK[1])]
    assert order == sorted(order)


def test_a_refusal_is_told_to_the_model_with_its_reason(booth: Booth) -> None:
    booth.provider.take()
    session, asked = booth.asks()
    booth.human.answers(asked, "rejected", REASON)
    log = booth.finishes(session)
    answered, _ = about(log, asked)

    assert data(answered)["answer"] == {"option": "rejected", "text": REASON}
    assert log.cause(log.one("tool.denied")) == answered
    assert booth.is_told(REASON)


def test_words_that_name_no_option_refuse_and_are_the_reason(booth: Booth) -> None:
    booth.provider.take()
    session, asked = booth.asks()
    booth.human.says(asked, f"yes but {REASON}")
    log = booth.finishes(session)
    answered, _ = about(log, asked)

    assert data(answered)["answer"] == {"option": "rejected", "text": f"yes but {REASON}"}
    assert log.one("tool.denied")
    assert booth.is_told(f"yes but {REASON}")


def test_what_is_approved_for_the_session_is_asked_once(booth: Booth) -> None:
    session, asked = booth.asks()
    booth.human.answers(asked, "approved_session")
    booth.finishes(session)
    booth.desk.web.prompt(session, "mock:bashok again")
    log = booth.finishes(session, runs=2)

    assert data(about(log, asked)[0])["answer"] == {"option": "approved_session"}
    assert len(log.all("attention.requested")) == 1
    assert len(log.all("tool.completed")) == 2


def test_a_second_answer_is_rejected_and_changes_nothing(booth: Booth) -> None:
    session, asked = booth.asks()
    booth.human.answers(asked, "approved")
    with pytest.raises(NackError) as at_once:
        booth.human.answers(asked, "rejected")
    log = booth.finishes(session)
    with pytest.raises(NackError) as afterwards:
        booth.human.answers(asked, "rejected")

    assert rejection(at_once) == rejection(afterwards) == "invalid"
    assert data(about(log, asked)[0])["answer"] == {"option": "approved"}
    assert log.one("tool.completed")


def test_an_answer_comes_late_where_somebody_answered_in_the_browser(booth: Booth) -> None:
    session, asked = booth.asks()
    booth.desk.decides(session, "approved")
    booth.desk.logs(session, "attention.resolved")
    with pytest.raises(NackError) as caught:
        booth.human.answers(asked, "rejected")
    log = booth.finishes(session)

    assert rejection(caught) == "invalid"
    assert data(about(log, asked)[0])["via"] == "oob"


def test_an_ask_that_nobody_knows_is_not_answered(booth: Booth) -> None:
    session, asked = booth.asks()
    for unknown in ({"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, {"session": "nobody"}):
        with pytest.raises(NackError) as caught:
            booth.human.answers({**asked, **unknown}, "approved")
        assert rejection(caught) == "invalid"
    with pytest.raises(NackError) as caught:
        booth.human.answers(asked, "allow")
    assert rejection(caught) == "invalid"
    booth.human.answered.clear()
    booth.human.answers(booth.asked(session), "approved")
    assert types(booth.finishes(session)).count("attention.answered") == 1


def test_a_question_is_never_answered_from_here(booth: Booth) -> None:
    session = booth.desk.begins("mock:question please")
    asked = booth.desk.logs(session, "attention.requested")
    with pytest.raises(NackError) as caught:
        booth.human.says(asked, "red")
    booth.desk.dismisses(session)
    log = booth.finishes(session)

    assert "respond_via" not in data(asked)
    assert rejection(caught) == "invalid"
    assert data(log.one("attention.resolved"))["resolution"] == "dismissed"


# --- cancels ---


def test_a_run_is_cancelled_by_the_command(booth: Booth) -> None:
    session = booth.desk.begins("mock:slow go")
    booth.desk.logs(session, "run.started")
    until(lambda: booth.desk.look(session)["main_turn_active"], "the turn")
    ack = booth.human.commands(CANCEL, session, {"scope": "run"})
    cancelled = booth.desk.logs(session, "run.cancelled")
    booth.desk.ends(session)

    assert data(cancelled)["by"] == "control"
    assert cancelled["cause"] == ack["cause"]
    assert types(booth.desk.log(session)) == ["run.started", "run.cancelled"]
    with pytest.raises(NackError) as caught:
        booth.human.commands(CANCEL, session, {"scope": "run"})
    assert rejection(caught) == "invalid"


def test_a_run_that_asks_is_cancelled_and_its_ask_dismissed(booth: Booth) -> None:
    session, _ = booth.asks()
    booth.human.commands(CANCEL, session, {"scope": "run"})
    cancelled = booth.desk.logs(session, "run.cancelled")
    log = booth.desk.log(session)

    assert types(log) == CUT
    assert data(log.one("attention.resolved"))["resolution"] == "dismissed"
    assert data(cancelled)["by"] == "control"


def test_a_session_is_never_ended_from_here(booth: Booth) -> None:
    session, asked = booth.asks()
    with pytest.raises(NackError) as caught:
        booth.human.commands(CANCEL, session, {"scope": "session"})
    booth.human.answers(asked, "approved")

    assert rejection(caught) == "refused"
    assert booth.finishes(session).one("tool.completed")


# --- the server does not answer ---


def test_an_answer_to_a_server_that_hangs_fails_in_words_and_another_one_counts(
    booth: Booth,
) -> None:
    session, asked = booth.asks()
    server = booth.desk.web.process
    server.send_signal(signal.SIGSTOP)
    try:
        ack = booth.human.answers(asked, "rejected")
        failed = booth.desk.logs(session, "error.raised")
    finally:
        server.send_signal(signal.SIGCONT)
    again = booth.human.answers(asked, "approved")
    log = booth.finishes(session)
    answered, _ = about(log, asked)

    assert data(failed) == {"code": "web-no-answer", "fatal": False}
    assert failed["cause"] == ack["cause"]
    assert data(answered)["answer"] == {"option": "approved"}
    assert answered["cause"] == again["cause"]


def test_an_answer_to_a_server_that_was_killed_fails_in_words_and_nothing_stays_open(
    booth: Booth,
) -> None:
    with serving(booth.kimi, booth.desk.place) as web:
        second = Desk(booth.desk.place, web)
        session = second.begins("mock:bashok at the second server")
        asked = booth.asked(session)
        web.process.kill()
        web.process.wait()
        nack = rejected(booth.human, asked)
        cancelled = second.logs(session, "run.cancelled")
    log = second.log(session)

    # Whether its end was seen before the command came is a matter of a second.
    assert nack in ("invalid", "refused") or log.one("error.raised")["cause"] == nack
    assert types(log) == CUT
    assert data(cancelled)["by"] == "shutdown"
    assert rejected(booth.human, asked) == "invalid"


def rejected(human: Human, asked: JSONObject) -> JSON:
    """Why an answer is not accepted; the command's id where it is."""
    try:
        return human.answers(asked, "approved")["cause"]
    except NackError as nack:
        return str(nack.reason)


# --- the gate holds calls, and the server is not written to ---


def test_a_gate_holds_the_calls_of_a_session_that_the_stream_tells_of(
    kimi: Kimi, provider: Provider
) -> None:
    with scratch_place() as place:
        gate = '[gate]\nenabled = true\nhold_ms = 20000\ntools = ["Bash"]\n'
        furnish(kimi, place, provider.url, "primary", hooks=True, settings=gate)
        with (
            serving(kimi, place) as web,
            daemon.running(kimi, place),
            watching(kimi, place) as human,
        ):
            booth = Booth(kimi, Desk(place, web), human, provider)
            warm_up(booth)
            denied = deny_at_the_gate(booth)
            only_seen(booth)
        configure(place, "primary", "control = true\n" + gate)
        with (
            serving(kimi, place) as web,
            daemon.running(kimi, place),
            watching(kimi, place) as human,
        ):
            answer_both(Booth(kimi, Desk(place, web), human, provider))
        for path in log_files(place):
            judge_log(path)
        is_one_refusal(booth.desk.log(denied))


def warm_up(booth: Booth) -> None:
    """A first session, from which on a server of 0.28.0 tells of new ones at once."""
    watches(booth.desk.place)
    booth.desk.logs(booth.desk.begins("mock:plain"), "x.kimi-code.web.prompt.completed")


def deny_at_the_gate(booth: Booth) -> str:
    booth.provider.take()
    session, held = booth.asks()
    booth.human.answers(held, "deny", REASON)
    booth.finishes(session)
    booth.desk.logs(session, "x.kimi-code.session.post_tool_use_failure")
    assert booth.is_told(REASON)
    return session


def is_one_refusal(log: Log) -> None:
    """The call that was denied began with the hook that was seen, and has one end."""
    asked, denied = log.one("attention.requested"), log.one("tool.denied")

    assert log.cause(asked) == log.one("x.kimi-code.hook.pre_tool_use")
    assert log.cause(denied) == log.one("attention.answered")
    assert data(denied)["by"] == "policy"
    assert not log.all("tool.failed", "tool.completed")
    assert len({event.get("run") for event in core(log)}) == 1


def answer_both(booth: Booth) -> None:
    """One call is held twice, by the gate and then by the server, and both are answered."""
    warm_up(booth)
    session, held = booth.asks()
    booth.human.answers(held, "allow")
    asked = booth.asked(session)
    booth.human.answers(asked, "approved")
    log = booth.finishes(session)

    assert data(about(log, held)[0]) == {"answer": {"option": "allow"}, "via": "control"}
    assert data(about(log, asked)[0]) == {"answer": {"option": "approved"}, "via": "control"}
    assert types(log) == [
        *("run.started", *ASK, *ASK, "tool.requested", "tool.completed", "run.finished")
    ]


def only_seen(booth: Booth) -> None:
    """What the gate lets go comes to the server's own approval, which is only seen."""
    session, held = booth.asks()
    booth.human.answers(held, "allow")
    asked = booth.desk.logs(session, "attention.requested", count=2)
    with pytest.raises(NackError) as caught:
        booth.human.answers(asked, "approved")
    booth.desk.decides(session, "approved")
    log = booth.finishes(session)

    assert not {"options", "respond_via"} & data(asked).keys()
    assert rejection(caught) == "invalid"
    assert data(about(log, asked)[0])["via"] == "oob"
    with pytest.raises(NackError) as caught:
        booth.human.commands(CANCEL, session, {"scope": "run"})
    assert rejection(caught) == "unsupported"
