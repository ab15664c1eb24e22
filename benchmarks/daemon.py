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

MANY, FEW = 1000, 8
"""Sessions in turn: more than files are kept open for, and what a busy workstation has."""


def frame(number: int, sessions: int) -> bytes:
    """The hooks of a session's turn, over and over: prompt, tool, tool's end, stop."""
    turn, step = divmod(number // sessions, 4)
    session = f"session_{number % sessions}"
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


def work(path: str, first: int, step: int, events: int, sessions: int) -> None:
    for number in range(first, events, step):
        if ask(path, frame(number, sessions)) != b"0\n":
            raise SystemExit("a hook was not acknowledged")


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def round_trips(path: str, hooks: int, sessions: int = FEW, pause: float = 0.0) -> list[float]:
    """Milliseconds of each hook, one after the other; so many seconds apart."""
    times = []
    for number in range(hooks):
        request = frame(number, sessions)
        began = time.perf_counter()
        ask(path, request)
        times.append((time.perf_counter() - began) * 1000)
        if pause:
            time.sleep(pause)
    return times


def latency(scratch: Scratch, sync: str, sessions: int, hooks: int = 5000) -> None:
    before = cpu_seconds(scratch.pid)
    times = round_trips(str(scratch.where.socket), hooks, sessions)
    p50, p95, p99 = percentiles(times)
    cpu = (cpu_seconds(scratch.pid) - before) / hooks * 1000
    print(f"| {sync} | {sessions} | {p50:.3f} | {p95:.3f} | {p99:.3f} | {cpu:.3f} |")


def throughput(scratch: Scratch, events: int, sessions: int) -> None:
    path = str(scratch.where.socket)
    workers = 4
    before, cpu = rss_mib(scratch.pid), cpu_seconds(scratch.pid)
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.starmap(work, [(path, n, workers, events, sessions) for n in range(workers)])
    took = time.perf_counter() - began
    cpu = (cpu_seconds(scratch.pid) - cpu) / events * 1000
    written = sum(file.stat().st_size for file in scratch.where.log_dir.glob("*.jsonl")) / 2**20
    print(
        f"| {sessions} | {events} | {events / took:.0f} | {cpu:.3f} | {before:.1f} "
        f"| {rss_mib(scratch.pid):.1f} | {written:.0f} |"
    )


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    print("| log.sync | sessions | p50 ms | p95 ms | p99 ms | daemon CPU ms a hook |")
    print("|---|---|---|---|---|---|")
    for sync, sessions in (("os", FEW), ("interval", FEW), ("always", FEW), ("interval", MANY)):
        with daemon(sync=sync, core=cores[0]) as scratch:
            latency(scratch, sync, sessions)
    print("\n| sessions | events | hooks a second | CPU ms a hook | MiB before | after | log MiB |")
    print("|---|---|---|---|---|---|---|")
    for sessions in (FEW, MANY):
        with daemon(core=cores[0]) as scratch:
            throughput(scratch, events, sessions)


if __name__ == "__main__":
    main()
