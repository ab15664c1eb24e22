"""SIGKILL at random moments under traffic: nothing acknowledged is lost, nothing comes twice.

Each round starts a daemon on the same state, lets four clients send their hooks as fast as
it takes them, kills it somewhere in the middle, and starts the next. Afterwards the whole log is
held against the standard's rules, and against what the clients were told.

SIGKILL takes the process and not the machine, so what `write` took is there under every policy; the
rounds are told under both.
"""

from __future__ import annotations

import json
import random
import threading
import time

import pytest

from judge import judge_log
from kimiaepd.mapping.json_value import JSONObject
from live import Live, scratch

ROUNDS = 100
CLIENTS = 4
LONGEST_LIFE = 0.12


class Client(threading.Thread):
    """Sends one session's turns until the daemon is gone; remembers what it was told is kept."""

    def __init__(self, live: Live, session: str, turn: int) -> None:
        super().__init__(daemon=True)
        self.live = live
        self.session = session
        self.turn = turn
        self.kept: list[tuple[str, str]] = []

    def run(self) -> None:
        while True:
            for event, fields in self.hooks():
                payload: JSONObject = {
                    "hook_event_name": event, "session_id": self.session, **fields,
                }  # fmt: skip
                try:
                    answer = self.live.ask(payload)
                except OSError:
                    return
                if answer != b"0\n":
                    return
                self.kept.append((event, str(fields.get("tool_call_id", ""))))
            self.turn += 1

    def hooks(self) -> list[tuple[str, JSONObject]]:
        call: JSONObject = {
            "tool_name": "Bash", "tool_call_id": f"c{self.turn}", "tool_input": {"n": self.turn},
        }  # fmt: skip
        return [
            ("UserPromptSubmit", {"prompt": [{"type": "text", "text": f"turn {self.turn}"}]}),
            ("PreToolUse", call),
            ("PostToolUse", {**call, "tool_output": "x"}),
            ("Stop", {}),
        ]


def tell_rounds(live: Live, seed: int) -> list[Client]:
    moments = random.Random(seed)
    clients: list[Client] = []
    for number in range(ROUNDS):
        live.start()
        now = [Client(live, f"s{n}", number * 100_000) for n in range(CLIENTS)]
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
        live.configure(f'[log]\nsync = "{sync}"\n')
        clients = tell_rounds(live, seed=ROUNDS)
        live.start()
        live.stop()
        judge_log(*live.log_files())
        for session in (f"s{n}" for n in range(CLIENTS)):
            hold_against_the_log(live, session, [c for c in clients if c.session == session])


def hold_against_the_log(live: Live, session: str, clients: list[Client]) -> None:
    events = live.events(session)
    logged = {
        (event["type"], json.dumps(event["data"]))
        for event in events
        if "tool" in str(event["type"])
    }
    calls = {
        kind: {call for data in (d for t, d in logged if t == kind) for call in [call_of(data)]}
        for kind in ("tool.requested", "tool.completed")
    }
    kept = [told for client in clients for told in client.kept]
    assert kept, "no hook was ever acknowledged: the test proves nothing"
    for event, call in kept:
        if event == "PreToolUse":
            assert call in calls["tool.requested"]
        elif event == "PostToolUse":
            assert call in calls["tool.completed"]
    prompts = sum(event == "UserPromptSubmit" for event, _ in kept)
    started = [event for event in events if event["type"] == "run.started"]
    assert prompts <= len(started)
    hold_runs_together(events)


def call_of(data: str) -> str:
    return str(json.loads(data)["tool"]["call_id"])


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
