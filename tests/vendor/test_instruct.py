"""An instruction from the relay, as the real CLI's model gets it.

One session a version in its terminal UI: three prompts, and one instruction between the first two.
What each request to the model held is compared.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aep_sdk.projection import project_state
from attrs import frozen

from judge import judge_log
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.settings import VARIABLES
from vendor.daemon import register, running
from vendor.human import watching
from vendor.kimi import Kimi
from vendor.logged import Log, data, log_files, runs_are_closed
from vendor.place import Place
from vendor.provider import Provider, Request
from vendor.screen import Screen, terminal
from vendor.waiting import until

pytestmark = [
    pytest.mark.vendor,
    pytest.mark.usefixtures("tmux"),
    pytest.mark.skipif(
        "instruct.enabled" not in VARIABLES.values(), reason="this daemon takes no instruction yet"
    ),
]

INSTRUCTION = "Mind the lighthouse at the northern cape."
SETTINGS = """\
[instruct]
enabled = true
[collector]
port = 0
"""


@frozen
class Evening:
    """One session in the terminal.

    Attributes:
        requests: what the model was sent for each prompt, in order.
        accepted: the ack of the instruction.
    """

    path: Path
    log: Log
    requests: tuple[tuple[Request, ...], ...]
    accepted: JSONObject

    def added(self, number: int) -> str:
        """What the model was sent for a prompt beyond what it had been sent before."""
        known = len(messages(self.requests[number - 1][-1])) if number else 0
        return "".join(messages(self.requests[number][-1])[known:])


@pytest.fixture(scope="module")
def evening(kimi: Kimi, place: Place, config: bytes, provider: Provider) -> Evening:
    settings = place.home / ".config/kimiaepd/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS)
    place.renew(register(kimi, place, config))
    provider.take()
    with running(kimi, place), watching(kimi, place) as human:
        with terminal(kimi, place) as screen:
            first = prompt(screen, place, provider, 1)
            session = str(logs(place)[0].one("session.started")["session"])
            accepted = human.instructs(session, INSTRUCTION)
            rest = [prompt(screen, place, provider, number) for number in (2, 3)]
            screen.leave()
        until(lambda: logs(place)[0].all("session.ended"), "the session's end in the log")
    (path,) = log_files(place)
    return Evening(path, Log.read(path), (first, *rest), accepted)


def prompt(screen: Screen, place: Place, provider: Provider, number: int) -> tuple[Request, ...]:
    """One turn; the requests that it made."""
    screen.enter(f"mock:plain number {number}")
    screen.shows(f"Prompt {number} is done.")
    until(lambda: runs_are_closed(logs(place), number), f"{number} closed runs in the log")
    return tuple(provider.take())


def logs(place: Place) -> list[Log]:
    return [Log.read(path) for path in log_files(place)]


def messages(request: Request) -> list[str]:
    return [json.dumps(message) for message in json.loads(request.body)["messages"]]


def test_the_log_is_valid_and_nothing_is_pending(evening: Evening) -> None:
    judge_log(evening.path)
    state = project_state(evening.log.events)

    assert state["violations"] == []
    assert [session["pending"] for session in state["sessions"]] == [[]]


def test_it_is_in_the_models_context_exactly_once(evening: Evening) -> None:
    first, second, third = (
        "".join(messages(requests[-1])).count(INSTRUCTION) for requests in evening.requests
    )

    assert (first, second, third) == (0, 1, 1)


def test_it_comes_with_the_next_prompt(evening: Evening) -> None:
    first_of_second = evening.requests[1][0]

    assert "".join(messages(first_of_second)).count(INSTRUCTION) == 1


def test_nothing_is_added_where_none_is_queued(evening: Evening) -> None:
    assert "hook_result" in evening.added(1)
    assert "hook_result" not in evening.added(0) + evening.added(2)


def test_it_is_queued_and_delivered_and_both_say_by_which_command(evening: Evening) -> None:
    command = evening.accepted["cause"]
    queued = evening.log.one("x.kimi-code.instruction.queued")
    delivered = evening.log.one("x.kimi-code.instruction.delivered")
    second_run = evening.log.all("run.started")[1]
    order = [evening.log.events.index(e) for e in (queued, second_run, delivered)]

    assert queued["cause"] == delivered["cause"] == command
    assert order == sorted(order)
    queued_ms = data(delivered)["queued_ms"]
    assert isinstance(queued_ms, int)
    assert queued_ms >= 0
    assert not evening.log.all("x.kimi-code.instruction.dropped")
