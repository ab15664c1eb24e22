"""What the daemon can take: round trip, hooks a second, and memory after 200 000 events.

    python benchmarks/daemon.py [events]

The daemon runs on one core, the clients on the others. A client here is a socket and not a process,
so the figures are the daemon's own. Each hook is one connection, as a shim makes it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path

from scratch import Scratch, daemon, percentiles

SESSIONS = 1000


def frame(number: int) -> bytes:
    """The hooks of a session's turn, over and over: prompt, tool, tool's end, stop."""
    turn, step = divmod(number // SESSIONS, 4)
    session = f"session_{number % SESSIONS}"
    tool = {"tool_name": "Bash", "tool_call_id": f"call_{turn}", "tool_input": {"command": "ls"}}
    event, fields = (
        ("UserPromptSubmit", {"prompt": [{"type": "text", "text": f"turn {turn}"}]}),
        ("PreToolUse", tool),
        ("PostToolUse", {**tool, "tool_output": "file\n" * 40}),
        ("Stop", {"stop_hook_active": False}),
    )[step]
    payload = {"hook_event_name": event, "session_id": session, "cwd": "/home/user", **fields}
    body = json.dumps(payload).encode()
    return b"AEPD1 hook %d %d\n%b" % (time.time_ns(), len(body), body)


def ask(path: str, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(path)
        client.sendall(request)
        return client.recv(64)


def work(path: str, first: int, step: int, events: int) -> None:
    for number in range(first, events, step):
        if ask(path, frame(number)) != b"0\n":
            raise SystemExit("a hook was not acknowledged")


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def latency(scratch: Scratch, sync: str) -> None:
    times = []
    path = str(scratch.where.socket)
    for number in range(5000):
        request = frame(number)
        began = time.perf_counter()
        ask(path, request)
        times.append((time.perf_counter() - began) * 1000)
    p50, p95, p99 = percentiles(times)
    print(f"round trip, sync {sync}: p50 {p50:.3f} ms, p95 {p95:.3f} ms, p99 {p99:.3f} ms")


def throughput(scratch: Scratch, events: int) -> None:
    path = str(scratch.where.socket)
    workers = 4
    before = rss_mib(scratch.pid)
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.starmap(work, [(path, n, workers, events) for n in range(workers)])
    took = time.perf_counter() - began
    print(f"hooks: {events} in {took:.1f} s, {events / took:.0f} a second, {workers} clients")
    after = rss_mib(scratch.pid)
    print(f"memory: {before:.1f} MiB before, {after:.1f} MiB after, {SESSIONS} sessions")
    written = sum(file.stat().st_size for file in scratch.where.log_dir.glob("*.jsonl"))
    print(f"log: {written / 2**20:.0f} MiB")


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others[1:] or others)
    for sync in ("os", "interval", "always"):
        with daemon(sync=sync, core=others[0]) as scratch:
            latency(scratch, sync)
    with daemon(core=others[0]) as scratch:
        throughput(scratch, events)


if __name__ == "__main__":
    main()
