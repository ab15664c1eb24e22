"""Commands for scripts, at a real daemon: an answer frees a held hook, a status says the rest."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import define, field

from kimiaepd.mapping.json_value import JSONObject
from live import Live, scratch
from vendor.waiting import until

SESSION = "session_31aa9970-09a5-4e97-af7f-f423ebe05325"


@define(eq=False)
class Hook:
    """A PreToolUse that is held.

    Attributes:
        said: what its hook was replied, once it was.
        ask: the id of its ask.
    """

    thread: threading.Thread = field(init=False)
    said: bytes = b""
    ask: str = ""

    def run(self, live: Live, payload: JSONObject) -> None:
        self.said = live.ask(payload, timeout=30)

    def freed(self) -> bytes:
        """What it was replied, without the frame."""
        self.thread.join(10)
        assert not self.thread.is_alive(), "the hook is still held"
        return self.said.partition(b"\n")[2]


def asks_of(live: Live) -> list[JSONObject]:
    said = live.run("inbox", "--json")
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


@contextmanager
def held(
    live: Live, number: int, command: str = "rm -rf build", session: str = SESSION
) -> Iterator[Hook]:
    """A call that is held; whatever becomes of it, its hook is freed at the end."""
    hook, call = Hook(), f"call_{number}"
    payload: JSONObject = {
        "hook_event_name": "PreToolUse", "session_id": session, "cwd": "/w",
        "tool_name": "Bash", "tool_call_id": call, "tool_input": {"command": command},
    }  # fmt: skip
    hook.thread = threading.Thread(target=hook.run, args=(live, payload))
    hook.thread.start()
    try:
        hook.ask = until(lambda: _asked(live, session, call), "the ask in the log")
        yield hook
    finally:
        if hook.thread.is_alive():
            live.run("answer", hook.ask, "allow")
        hook.thread.join()


def _asked(live: Live, session: str, call: str) -> str:
    file = live.where.log_dir / f"{session}.jsonl"
    events = live.events(session) if file.exists() else []
    causes = [one["id"] for one in events if call in json.dumps(one.get("data"))]
    asks = [
        one for one in events if one["type"] == "attention.requested" and one["cause"] in causes
    ]
    return str(asks[-1]["id"]) if asks else ""


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with scratch(
        AEP_KIMI_CONTROL="1", AEP_ATTENTION_TIMEOUT_MS="20000", AEP_INSTRUCT="1",
        KIMIAEPD_COLLECTOR_PORT="0",
    ) as made:  # fmt: skip
        # Nobody sits at an inbox here.
        made.configure('[gate]\nwhen_unreachable = "hold"\n')
        made.start()
        yield made
        assert made.stop() == 0


def test_an_answer_frees_the_held_hook_and_says_that_it_took_effect(live: Live) -> None:
    with held(live, 1) as hook:
        said = live.run("answer", hook.ask[-6:], "deny", "--reason", "use make clean")
        assert (said.returncode, said.stdout, said.stderr) == (0, "accepted: deny\n", "")
        output = json.loads(hook.freed())["hookSpecificOutput"]
        assert output["permissionDecision"] == "deny"
        assert output["permissionDecisionReason"] == "use make clean"
        late = live.run("answer", hook.ask, "allow")
        assert (late.returncode, late.stdout) == (4, "")
        assert late.stderr == "kimiaepd: not accepted: somebody answered first: deny\n"


def test_an_ask_is_meant_by_its_call_and_answered_in_words(live: Live) -> None:
    with held(live, 2) as hook:
        said = live.run("answer", "--call", "call_2", "--text", "No objection", "--json")
        assert (said.returncode, hook.freed()) == (0, b"")
        facts = json.loads(said.stdout)
    assert (facts["result"], facts["option"], facts["ask"]) == ("accepted", "allow", hook.ask)
    with held(live, 3) as hook:
        assert live.run("answer", "--call", "call_3", "--text", "not on a Friday").returncode == 0
        assert b"not on a Friday" in hook.freed()


def test_what_waits_is_printed_once_and_its_words_are_harmless(live: Live) -> None:
    assert live.run("inbox").stdout == "nothing waits\n"
    with held(live, 4, "echo \x1b[2J\u202egnp\necho two") as hook:
        said = live.run("inbox", "--once")
        (ask,) = asks_of(live)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(f"{hook.ask}  31aa9970 ")
    assert "Bash: echo \ufffd[2J\ufffdgnp \u23ce echo two  [allow, deny]\n" in said.stdout
    assert (ask["ask"], ask["call"], ask["answerable"]) == (hook.ask, "call_4", True)
    assert isinstance(ask["left_s"], float)
    assert 0 < ask["left_s"] <= 20


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("answer", "nothing", "allow"), 66, "no such ask is open"),
        (("answer", "01", "maybe"), 66, "no such ask is open"),
        (("answer",), 64, "say which ASK"),
        (("answer", "01"), 64, "say an OPTION"),
        (("answer", "01", "allow", "more"), 64, "too much: more"),
        (("answer", "01", "--text", "a", "--reason", "b"), 64, "--text is an answer of its own"),
        (("cancel", "nothing"), 66, "no daemon claims such a session"),
        (("instruct", "nothing", "hello"), 66, "no daemon claims such a session"),
        (("instruct", "31aa", " "), 4, "it is empty"),
        (("cancel", "31aa", "--run", "r"), 4, "only those of kimi web can"),
    ],
)
def test_a_status_says_which_kind_of_no_it_is(
    live: Live, arguments: tuple[str, ...], status: int, why: str
) -> None:
    live.ask({"hook_event_name": "SessionStart", "session_id": SESSION})
    said = live.run(*arguments)
    assert (said.returncode, said.stdout) == (status, "")
    assert why in said.stderr
    assert said.stderr.count("\n") == 1


def test_an_option_that_is_not_offered_is_not_sent(live: Live) -> None:
    with held(live, 5) as hook:
        said = live.run("answer", hook.ask, "maybe")
        assert (said.returncode, said.stdout) == (64, "")
        assert "no such option: maybe; it offers allow, deny" in said.stderr
        assert live.run("answer", hook.ask, "Deny").returncode == 0
        assert b'"deny"' in hook.freed()


def test_an_instruction_is_queued_and_goes_with_the_next_prompt(live: Live) -> None:
    prompt: JSONObject = {
        "hook_event_name": "UserPromptSubmit", "session_id": SESSION, "prompt": [],
    }  # fmt: skip
    live.ask(prompt)
    said = live.run("instruct", "31aa9970", "mind the tests", "--json")
    assert (said.returncode, json.loads(said.stdout)["session"]) == (0, SESSION)
    assert b"mind the tests" in live.ask(prompt)


def test_without_a_daemon_there_is_nobody_to_ask() -> None:
    with scratch() as alone:
        for arguments in (
            ("inbox",),
            ("answer", "x", "allow"),
            ("cancel", "s"),
            ("instruct", "s", "x"),
        ):
            said = alone.run(*arguments)
            assert (said.returncode, said.stdout) == (1, "")
            assert "no daemon runs" in said.stderr


def test_a_token_that_may_only_look_answers_nothing(live: Live) -> None:
    observer = live.run("console", "--token", "--read-only", "--json")
    found = json.loads(observer.stdout)
    with (
        scratch(AEP_RELAY_URL=found["url"], AEP_TOKEN=found["token"]) as elsewhere,
        held(live, 6) as hook,
    ):
        said = elsewhere.run("answer", hook.ask, "allow")
        assert (said.returncode, said.stdout) == (77, "")
        assert said.stderr == "kimiaepd: not accepted: not allowed: this token may only look\n"
