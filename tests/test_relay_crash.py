"""SIGKILL of daemon and relay at random moments, under traffic: the relay gets the whole log.

Hooks come all the while, also where no daemon is there to take them. The relay is killed with lines
in its memory that it has not answered for, and forgets them; the daemon with lines under way. In
the end what the relay kept is what was logged, each session in order, each repetition the same
bytes. 200 rounds in all.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from functools import partial

import pytest
import trio

from fake_relay import TOKEN
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSONObject
from live import Live, scratch
from relay_program import RelayProgram, first_arrivals, logged_lines, relay_program

ROUNDS = 100
SEEDS = (1, 2)
CLIENTS = 3
LONGEST_LIFE = 0.3
BETWEEN_HOOKS = 0.004


class Client(threading.Thread):
    """Sends one session's hooks until told to stop, whoever is there to take them."""

    def __init__(self, live: Live, session: str) -> None:
        super().__init__(daemon=True)
        self.live = live
        self.session = session
        self.stopping = threading.Event()
        self.taken = 0

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(BETWEEN_HOOKS):
            number += 1
            call: JSONObject = {
                "hook_event_name": ("PreToolUse", "PostToolUse")[number % 2],
                "session_id": self.session, "tool_name": "Bash", "tool_input": {"n": number},
                "tool_call_id": f"call{number // 2}", "tool_output": "x" * (number % 1000),
            }  # fmt: skip
            try:
                self.taken += self.live.ask(call) == b"0\n"
            except OSError:
                continue


def kill_again_and_again(live: Live, relay: RelayProgram, seed: int) -> tuple[int, int]:
    """How often the daemon was killed, and how often the relay."""
    moments = random.Random(seed)
    daemons = relays = 0
    for _ in range(ROUNDS):
        time.sleep(moments.uniform(0, LONGEST_LIFE))
        if moments.random() < 0.4:
            daemons += 1
            live.kill()
            live.start()
        else:
            relays += 1
            relay.kill()
            time.sleep(moments.choice((0, 0.05)))
            relay.start(wait=moments.random() < 0.5)
            hurry(live)
    return daemons, relays


def hurry(live: Live) -> None:
    """Have the daemon try its relay now, and not when its backoff comes to an end."""
    assert live.process is not None
    live.process.send_signal(signal.SIGUSR1)


def relay_status(live: Live) -> JSONObject:
    status = trio.run(partial(request, live.where.socket, "status", timeout=5.0))
    relay = status["relay"]
    assert isinstance(relay, dict)
    return relay


def until_delivered(live: Live, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        status = relay_status(live)
        if (status["link"], status["lag_events"]) == ("up", 0):
            return
        assert time.monotonic() < deadline, status
        if status["link"] != "up":
            hurry(live)
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_dies_the_relay_has_the_whole_log_in_the_end(seed: int) -> None:
    with scratch(AEP_TOKEN=TOKEN) as live, relay_program(live.home) as relay:
        live.environ["AEP_RELAY_URL"] = relay.url
        live.configure('[log]\nrotate_mib = 1\n[capture]\ndefault = "full"\n')
        relay.start()
        live.start()
        clients = [Client(live, f"s{number}") for number in range(CLIENTS)]
        for client in clients:
            client.start()
        daemons, relays = kill_again_and_again(live, relay, seed)
        for client in clients:
            client.stopping.set()
            client.join(10)
            assert not client.is_alive()
        until_delivered(live)
        assert live.stop() == 0

        logged = dict.fromkeys(logged_lines(live))
        arrived = relay.lines()
        first = first_arrivals(arrived)
        assert set(first.values()) == set(logged)
        assert "Traceback" not in (live.home / "stderr").read_text()
        # Otherwise it proves nothing.
        assert len(live.log_files()) > CLIENTS, "no log was rotated"
        assert min(daemons, relays) > ROUNDS / 4
        assert len(arrived) - len(first) > ROUNDS / 2
        assert all(client.taken > 10 * ROUNDS for client in clients)
