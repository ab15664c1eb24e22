"""SIGKILL at random moments under traffic: nothing acknowledged is lost, nothing comes twice.

Each round starts a daemon on the same state, lets four clients send their hooks as fast as it takes
them, kills it somewhere in the middle, and starts the next. Afterwards the whole log is held
against the standard's rules, and against what the clients were told: every hook that was
acknowledged has left its own mark, by an id of its own where a hook has one, else by number.

SIGKILL takes the process and not the machine, so what `write` took is there under every policy; 100
rounds are told under each of two, 200 in all.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import pytest
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSON, JSONObject
from live import Live, scratch

ROUNDS = 100
CLIENTS = 4
LONGEST_LIFE = 0.25

Mark: TypeAlias = tuple[str, str]
"""What the log must know of a hook: its event, and its own id or "" where it has none."""


@frozen
class Sent:
    """One hook, and the marks that it must leave."""

    event: str
    fields: JSONObject
    marks: tuple[Mark, ...] = ()


def turn_of(name: str, number: int) -> Iterator[Sent]:
    """One turn with its own ids everywhere; some have a subagent or follow upon an end."""
    if number % 3 == 2:
        # At its beginning: the end of a turn is what a daemon that dies early hears least of.
        yield Sent("SessionEnd", {"reason": "exit"}, (("SessionEnd", ""),))
        # The same bytes at once would be taken for a second install's.
        again: JSONObject = {"source": "resume", "profile": name}
        yield Sent("SessionStart", again, (("SessionStart", ""),))
    text: JSON = [{"type": "text", "text": name}]
    yield Sent("UserPromptSubmit", {"prompt": text}, (("UserPromptSubmit", name),))
    yield from call(name, "done")
    yield from call(f"{name}-yes", "approved")
    yield from call(f"{name}-no", "rejected")
    yield from call(f"{name}-bad", "failed")
    if number % 2:
        yield from background_agent(f"{name}-agent")
    yield Sent("Stop", {}, (("Stop", ""),))


def call(name: str, ending: str) -> Iterator[Sent]:
    """One tool call; an approval goes before its end where the ending is one's answer."""
    tool: JSONObject = {"tool_name": "Bash", "tool_call_id": name, "tool_input": {"n": name}}
    yield Sent("PreToolUse", tool, (("PreToolUse", name),))
    if ending in ("approved", "rejected"):
        ask: JSONObject = {**tool, "id": f"ask-{name}", "agent_id": "main", "action": name}
        yield Sent("PermissionRequest", ask, (("PermissionRequest", name),))
        marks: list[Mark] = [("PermissionResult", f"{name} {ending}")]
        if ending == "rejected":
            marks.append(("denied", name))
        yield Sent("PermissionResult", {**ask, "decision": ending}, tuple(marks))
    if ending in ("done", "approved"):
        yield Sent("PostToolUse", {**tool, "tool_output": "x"}, (("PostToolUse", name),))
    else:
        error: JSONObject = {"code": "internal", "message": "no"}
        left = (("PostToolUseFailure", name),) if ending == "failed" else ()
        yield Sent("PostToolUseFailure", {**tool, "error": error}, left)


def background_agent(name: str) -> Iterator[Sent]:
    """A subagent in the background, and its Stop, which waits until it is known whose it is."""
    tool: JSONObject = {
        "tool_name": "Agent", "tool_call_id": name, "tool_input": {"run_in_background": True},
    }  # fmt: skip
    yield Sent("PreToolUse", tool, (("PreToolUse", name),))
    yield Sent("PostToolUse", {**tool, "tool_output": "started"}, (("PostToolUse", name),))
    yield Sent("SubagentStart", {"agent_name": name}, (("SubagentStart", name),))
    yield Sent("Stop", {}, (("Stop", ""),))
    yield Sent("SubagentStop", {"agent_name": name}, (("SubagentStop", name),))


class Client(threading.Thread):
    """Sends one session's turns until the daemon is gone; remembers what it was told is kept."""

    def __init__(self, live: Live, session: str, round_number: int) -> None:
        super().__init__(daemon=True)
        self.live = live
        self.session = session
        self.round_number = round_number
        self.sent: Counter[Mark] = Counter()
        self.kept: Counter[Mark] = Counter()

    def run(self) -> None:
        number = self.round_number
        while True:
            for hook in turn_of(f"r{self.round_number}-t{number}", number):
                self.sent.update(hook.marks)
                payload: JSONObject = {
                    "hook_event_name": hook.event, "session_id": self.session, **hook.fields,
                }  # fmt: skip
                try:
                    answer = self.live.ask(payload)
                except OSError:
                    return
                if answer != b"0\n":
                    return
                self.kept.update(hook.marks)
            number += 1


def tell_rounds(live: Live, seed: int) -> list[Client]:
    moments = random.Random(seed)
    clients: list[Client] = []
    for number in range(ROUNDS):
        live.start()
        now = [Client(live, f"s{n}", number) for n in range(CLIENTS)]
        for client in now:
            client.start()
        time.sleep(moments.uniform(0, LONGEST_LIFE))
        live.kill()
        for client in now:
            client.join(10)
            assert not client.is_alive()
        clients += now
    return clients


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["always", "interval"])
def test_what_a_hook_was_told_is_kept_is_in_the_log(sync: str) -> None:
    with scratch() as live:
        live.configure(f'[log]\nsync = "{sync}"\n[capture]\ndefault = "redacted"\n')
        clients = tell_rounds(live, seed=ROUNDS)
        live.start()
        live.stop()  # what still waits is decided
        judge_log(*live.log_files())
        kept: Counter[Mark] = Counter()
        for session in (f"s{n}" for n in range(CLIENTS)):
            events = live.events(session)
            mine = [client for client in clients if client.session == session]
            hold_against_the_log(events, mine)
            hold_runs_together(events)
            for client in mine:
                kept += client.kept
        heard = {event for event, _ in kept}
        assert heard == {*NAMES.values(), "PermissionResult"}, "too few hooks: it proves nothing"


def hold_against_the_log(events: list[JSONObject], clients: list[Client]) -> None:
    """What was acknowledged is there; and nothing is there more often than it was sent."""
    logged = Counter(marks_in(events))
    kept, sent = Counter[Mark](), Counter[Mark]()
    for client in clients:
        kept += client.kept
        sent += client.sent
    assert kept - logged == Counter(), "acknowledged and lost"
    assert logged - sent == Counter(), "logged more often than it was sent"


NAMES = {
    "run.started": "UserPromptSubmit",
    "tool.requested": "PreToolUse",
    "tool.completed": "PostToolUse",
    "tool.failed": "PostToolUseFailure",
    "tool.denied": "denied",
    "attention.requested": "PermissionRequest",
    "delegation.subagent.started": "SubagentStart",
    "delegation.subagent.stopped": "SubagentStop",
    "session.started": "SessionStart",
    "run.finished": "Stop",
    "x.kimi-code.session.stop": "Stop",
    "session.ended": "SessionEnd",
    "x.kimi-code.session.session_end": "SessionEnd",
}
"""Whose mark an event is."""

LOGGED_FIRST = ("x.kimi-code.session.stop", "x.kimi-code.session.session_end")
"""What a later event with this one as its cause only says the meaning of."""


def marks_in(events: list[JSONObject]) -> Iterator[Mark]:
    """The marks that the hooks of a session have left."""
    asked: dict[JSON, str] = {}
    first = {event["id"] for event in events if event["type"] in LOGGED_FIRST}
    for event in events:
        kind, data = str(event["type"]), event.get("data")
        assert isinstance(data, dict)
        if kind == "attention.requested":
            asked[event["id"]] = str(data["prompt"])
        if kind == "attention.answered":
            answer = data["answer"]
            assert isinstance(answer, dict)
            yield "PermissionResult", f"{asked[event['subject']]} {answer['option']}"
        elif kind in NAMES and event.get("cause") not in first:
            yield NAMES[kind], own_id(kind, event, data)


def own_id(kind: str, event: JSONObject, data: JSONObject) -> str:
    """The id by which a client knows the hook of an event; "" where it has none."""
    tool = data.get("tool")
    if kind.startswith("tool.") and isinstance(tool, dict):
        return str(tool["call_id"])
    if kind.startswith("delegation."):
        return str(event["subject"])
    return str(data["prompt"]) if kind in ("run.started", "attention.requested") else ""


def hold_runs_together(events: list[JSONObject]) -> None:
    """Every run ends before the next begins, as itself, also when another daemon ends it."""
    run: tuple[object, object] | None = None
    crossed = 0
    for event in events:
        if event["type"] == "run.started":
            assert run is None
            run = (event["run"], event["epoch"])
        elif str(event["type"]).startswith("run."):
            assert run is not None
            assert event["run"] == run[0]
            crossed += event["epoch"] != run[1]
            run = None
    assert crossed, "no run was open over a crash: the test proves nothing"
