"""How long a held call waits after its answer: from the answer sent to the hook's reply read.

    python benchmarks/gate.py [holds]

The daemon runs with its own relay on one core, person and hooks share the others. A hook here is a
socket and not a process, so the figures are the daemon's: the command over the WebSocket, relay and
link, the decision, the events logged, the reply. The person is a consumer on a duplex of their own;
when the ack reaches them is measured as well. After `BURST` holds a fresh daemon goes on: it takes
no more commands at once than a person would send.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable

import trio
from aep_sdk.control import ControlSender, Duplex, open_duplex

from daemon import frame
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSONObject
from scratch import Scratch, daemon, percentiles

HELLO: JSONObject = {
    "type": "hello",
    "versions": ["0.1"],
    "role": "consumer",
    "identity": {"agent": "bench", "instance": "bench"},
    "capabilities": {},
}
SUBSCRIBE: JSONObject = {"type": "subscribe", "id": "all", "filter": {}, "from": "all"}
SETTINGS = {"AEP_KIMI_CONTROL": "1", "KIMIAEPD_COLLECTOR_PORT": "0"}
CALL = 1
"""The step of `daemon.frame` that is a tool call."""
SESSIONS = 1_000_000
"""More than there are holds: each call is another session's."""
BURST = 190
"""Answers to one daemon; beyond 200 commands it is "busy"."""
WHAT = ("hook to ask", "answer to reply", "answer to ack")

Fits = Callable[[JSONObject], bool]


class Person:
    """One consumer, and what it is told."""

    def __init__(self, scratch: Scratch) -> None:
        found = trio.run(ask_console, scratch)
        self.duplex: Duplex = open_duplex(str(found["url"]), token=str(found["token"]))
        self.sender = ControlSender(lambda _: None, agent="bench", host="bench")
        self.duplex.send_json(HELLO)
        self.duplex.send_json(SUBSCRIBE)
        self.hear(lambda one: one["type"] == "subscribed")

    def hear(self, fits: Fits) -> JSONObject:
        """The next message that fits; the others are passed over."""
        while (said := self.duplex.recv_json()) is not None:
            if fits(said):
                return said
        raise SystemExit("the relay hung up")

    def answer(self, asked: JSONObject, option: str) -> str:
        """Send an answer; the command's id."""
        subject = str(asked["id"])
        command = self.sender.build(
            "control.attention.respond",
            str(asked["session"]),
            subject=subject,
            cause=subject,
            data={"answer": {"option": option}},
        )
        self.duplex.send_json(command)
        return str(command["id"])


async def ask_console(scratch: Scratch) -> JSONObject:
    return await request(scratch.where.socket, "console", b"token", timeout=5)


def hold(scratch: Scratch, person: Person, option: str, number: int) -> tuple[float, ...]:
    """Hold one call and answer it; the times to ask, reply and ack, in ms."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hook:
        hook.connect(str(scratch.where.socket))
        began = time.perf_counter()
        hook.sendall(frame(CALL * SESSIONS + number, SESSIONS))
        asked = person.hear(lambda one: one["type"] == "attention.requested")
        answering = time.perf_counter()
        command = person.answer(asked, option)
        said = hook.recv(4096)
        replied = time.perf_counter()
    if (said == b"0\n") != (option == "allow"):
        raise SystemExit(f"{option} came out as {said!r}")
    person.hear(lambda one: one.get("cause") == command)
    acked = time.perf_counter()
    return tuple((end - start) * 1000 for start, end in (
        (began, answering), (answering, replied), (answering, acked),
    ))  # fmt: skip


def main(holds: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    times: dict[str, list[tuple[float, ...]]] = {"deny": [], "allow": []}
    for first in range(0, holds, BURST):
        with daemon(core=cores[0], **SETTINGS) as scratch:
            person = Person(scratch)
            for number in range(first, min(first + BURST, holds)):
                option = ("deny", "allow")[number % 2]
                times[option].append(hold(scratch, person, option, number))
            person.duplex.close()
    print("| answer | from, to | holds | p50 ms | p95 ms | p99 ms | slowest ms |")
    print("|---|---|---|---|---|---|---|")
    for option, found in times.items():
        for what, each in zip(WHAT, zip(*found, strict=True), strict=True):
            p50, p95, p99 = percentiles(list(each))
            print(
                f"| {option} | {what} | {len(each)} "
                f"| {p50:.2f} | {p95:.2f} | {p99:.2f} | {max(each):.2f} |"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 800)
