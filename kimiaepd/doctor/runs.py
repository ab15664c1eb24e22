"""One run of a registered command as Kimi runs it, but in an empty environment and time-boxed.

Rules:
- `/bin/sh -c`, a session and process group of its own, the payload on stdin, and an end only when
  it has exited and both its outputs are closed: so kimi waits too.
- What still runs when the time is over is killed, the whole group. Nothing outlives the doctor.
- The environment is empty and the directory is `/`: what works here depends on nobody's shell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import trio
from attrs import frozen

PATIENCE_SECONDS = 10.0
"""How long a command may take: what kimi is told of a hook that only observes."""

FUNERAL_SECONDS = 2.0
"""How long a killed one may take to be gone; longer only where the disk under it hangs."""

KEPT_BYTES = 64 << 10
"""How much of each output is kept; the rest is read and counted."""


@frozen
class Output:
    """What came out of one descriptor: the beginning of it, and how many bytes in all."""

    kept: bytes
    size: int


@frozen
class Run:
    """How one run went.

    Attributes:
        status: the exit status, negative for a signal; None where it did not end in time.
        stdout: what it wrote there.
        stderr: what it wrote there.
        seconds: from its start to its end.
    """

    status: int | None
    stdout: Output
    stderr: Output
    seconds: float

    @property
    def ms(self) -> int:
        """How long it took, for people."""
        return round(self.seconds * 1000)


async def run(command: str, payload: bytes, *, patience: float = PATIENCE_SECONDS) -> Run:
    """Run one command to its end.

    Args:
        command: as it is registered.
        payload: what it gets on stdin.
        patience: how long it may take, in seconds.

    Raises:
        OSError: it cannot be started: there is no `/bin/sh`, or no process is free.
    """
    began = trio.current_time()
    process = await trio.lowlevel.open_process(
        ["/bin/sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
        start_new_session=True,
    )
    outputs: dict[str, Output] = {}
    ended = False
    try:
        with trio.move_on_after(patience):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_give, process.stdin, payload)
                nursery.start_soon(_take, process.stdout, outputs, "stdout")
                nursery.start_soon(_take, process.stderr, outputs, "stderr")
                nursery.start_soon(process.wait)
            ended = True
    finally:
        if not ended:
            await _bury(process)
    nothing = Output(b"", 0)
    return Run(
        status=process.returncode if ended else None,
        stdout=outputs.get("stdout", nothing),
        stderr=outputs.get("stderr", nothing),
        seconds=trio.current_time() - began,
    )


async def _give(stream: trio.abc.SendStream | None, payload: bytes) -> None:
    if stream:
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError):  # it need not read
                await stream.send_all(payload)


async def _take(
    stream: trio.abc.ReceiveStream | None, outputs: dict[str, Output], name: str
) -> None:
    kept, size = b"", 0
    if stream:
        async with stream:
            async for piece in stream:
                kept, size = (kept + bytes(piece))[:KEPT_BYTES], size + len(piece)
                outputs[name] = Output(kept, size)


async def _bury(process: trio.Process) -> None:
    """Kill the whole group: where the shell has gone, a child may still hold the outputs open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with trio.move_on_after(FUNERAL_SECONDS, shield=True):
        await process.wait()
