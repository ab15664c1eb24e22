"""A scratch daemon for a benchmark: its own HOME, a real process, gone at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from kimiaepd import paths


@frozen
class Scratch:
    """A running daemon.

    Attributes:
        home: its HOME.
        where: its places.
        environ: the environment that finds it.
        pid: its process id.
    """

    home: Path
    where: paths.Paths
    environ: dict[str, str]
    pid: int


@contextmanager
def daemon(
    *, sync: str = "interval", core: int | None = None, **variables: str
) -> Iterator[Scratch]:
    """A daemon with its hooks registered for 2.1.0, on one core where that is asked for."""
    home = Path(tempfile.mkdtemp(prefix="kb", dir="/tmp"))
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], **variables}
    where = paths.resolve(environ)
    where.config_file.parent.mkdir(parents=True)
    where.config_file.write_text(f'[log]\nsync = "{sync}"\n')
    where.kimi_home.mkdir()
    command = [sys.executable, "-m", "kimiaepd", "up", "--kimi-version", "2.1.0"]
    if core is not None:
        command = ["taskset", "-c", str(core), *command]
    running = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        for line in running.stdout:
            if "ready" in line:
                break
        else:
            raise SystemExit("the daemon did not start")
        yield Scratch(home, where, environ, running.pid)
    finally:
        running.terminate()
        running.wait(10)
        shutil.rmtree(home)


def percentiles(values: list[float]) -> tuple[float, float, float]:
    """p50, p95 and p99."""
    ordered = sorted(values)
    last = len(ordered) - 1
    at = [ordered[round(last * share)] for share in (0.50, 0.95, 0.99)]
    return at[0], at[1], at[2]
