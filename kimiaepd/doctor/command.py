"""The registered command: the program that it names, and what it does when it is run.

Rules:
- What is registered is run to the byte, with a probe for its payload: it must exit 0, write not one
  byte, and the probe must arrive at the daemon that answers.
- What happens without a daemon is tried without stopping anybody's: the same command with another
  socket, in a scratch directory of our own, once absent and once left behind by a dead daemon.
- Only commands of our own shape are run; another tool's hook never is.
- A command that names something missing does nothing. `ours.py` says so; it is not run.
- A program that misbehaves because it is not this version's is one finding, not two.

How a command is run is `runs.py`'s business.
"""

from __future__ import annotations

import secrets
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from attrs import evolve, frozen

from kimiaepd import probe
from kimiaepd.doctor.check import Check, Level, Patient, finding, ok, warning
from kimiaepd.doctor.runs import PATIENCE_SECONDS, Run, run
from kimiaepd.errors import UserError
from kimiaepd.hook_socket.client import request
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.setup import installed_shim
from kimiaepd.setup.command import OBSERVED, Command
from kimiaepd.setup.standing import causes

PROGRAM, COMMAND, ALONE = "hook program", "hook command", "without daemon"

SLOW_SECONDS = 1.0
"""A hook that takes longer is felt: kimi waits for it at each prompt and tool call."""

STATUS_SECONDS = 2.0
"""How long the daemon may take to say whether the probe came."""

SCRATCH = "/tmp"  # noqa: S108 - a directory of our own is made there
"""Where sockets are made that nobody listens at. TMPDIR of macOS is too long for one."""

TRIES = 3
"""How often a probe is sent that did not arrive: another doctor's may come after it."""

MOST_RUN = 4
"""How many different commands are run; setup registers one, or two with control on."""


@frozen
class Seen:
    """What was seen of the command.

    Attributes:
        checks: in the order in which they are shown.
        probed: whether a probe of each command arrived at the daemon, and nothing was wrong.
    """

    checks: tuple[Check, ...]
    probed: bool


@frozen
class _Tried:
    """One run: what was wrong with it, where the probe got to, and how long it took."""

    wrong: str | None
    arrived: bool | None
    ms: int


async def examine(
    patient: Patient, commands: Mapping[str, Command], status: JSONObject | None
) -> Seen:
    """Run every command of ours that can do anything.

    Args:
        patient: who is examined.
        commands: each that is registered, to the byte, and its parts.
        status: what the daemon answered; None where none did.

    Raises:
        OSError: nothing can be started.
        ConfigError: the package is damaged.
    """
    paths = patient.settings.paths
    able = {text: parts for text, parts in commands.items() if not causes(parts, paths)}
    if not able:
        return Seen((), probed=False)
    stale = _not_current(able.values())
    setup = f"run: {patient.setup_command}"
    tried = [
        await _registered(text, parts, paths.socket, status)
        for text, parts in islice(able.items(), MOST_RUN)
    ]
    check = _verdict(tried, paths.socket, stale, setup)
    if any(one.wrong or one.arrived is False for one in tried):
        return Seen((check,), probed=False)
    try:
        alone = await _without_daemon(able.values(), stale, setup)
    except OSError as error:
        said = f"cannot be tried: {error.strerror}: {SCRATCH}"
        alone = warning(ALONE, said, f"make {SCRATCH} writable, to have it tried")
    if alone.level is Level.FINDING:
        return Seen((check, alone), probed=False)
    program = (
        finding(PROGRAM, f"{stale}: it is of another version, or damaged", setup)
        if stale
        else ok(PROGRAM, f"{next(iter(able.values())).shim} is this version's")
    )
    return Seen((program, check, alone), probed=all(one.arrived for one in tried))


def _not_current(commands: Iterable[Command]) -> str | None:
    program = installed_shim.source()
    for shim in dict.fromkeys(command.shim for command in commands):
        if not installed_shim.is_current(Path(shim), program):
            return f"{shim} is not this version's"
    return None


# --- as it is registered -----------------------------------------------------------------------


async def _registered(text: str, parts: Command, path: Path, status: JSONObject | None) -> _Tried:
    tried = await _once(text, parts, path, status)
    for _ in range(TRIES - 1):
        if tried.arrived is not False:
            break
        tried = await _once(text, parts, path, status)
    return tried


async def _once(text: str, parts: Command, path: Path, status: JSONObject | None) -> _Tried:
    nonce = secrets.token_hex(16)
    done = await run(text, probe.payload(nonce))
    if done.status is None and status is None and parts.seconds >= PATIENCE_SECONDS:
        return _Tried(None, None, done.ms)  # it may wait that long for a daemon that hangs
    wrong = _wrong(done)
    arrived = await _came(path, nonce) if status and not wrong else None
    return _Tried(wrong, arrived, done.ms)


async def _came(path: Path, nonce: str) -> bool | None:
    """Whether the daemon's last probe was this one; None where it cannot say."""
    try:
        status = await request(path, "status", timeout=STATUS_SECONDS)
    except UserError:
        return None
    return status.get("last_probe") == nonce if "last_probe" in status else None


def _verdict(tried: list[_Tried], path: Path, stale: str | None, setup: str) -> Check:
    for one in tried:
        if one.wrong:
            remedy = setup if stale else f"{setup}; if it stays so, please report this"
            return finding(
                COMMAND, f"run in an empty environment {one.wrong}{_because(stale)}", remedy
            )
    if any(one.arrived is False for one in tried):
        said = f"it exits 0, but its probe did not arrive at the daemon at {path}{_because(stale)}"
        return finding(COMMAND, said, setup if stale else "start the daemon again, and look again")
    slowest = max(one.ms for one in tried)
    if all(one.arrived for one in tried):
        end = "its probe arrived at the daemon"
    else:
        end = "whether its probe arrives cannot be said without a daemon that answers"
    said = f"exits 0 in an empty environment, says nothing, takes {slowest} ms; {end}"
    if slowest > SLOW_SECONDS * 1000:
        return warning(COMMAND, said, "find out what keeps the machine busy: kimi waits for it")
    return ok(COMMAND, said)


def _because(stale: str | None) -> str:
    return f" ({stale})" if stale else ""


def _wrong(done: Run) -> str | None:
    """What kimi would make of a run that is not silence and 0."""
    if done.status is None:
        return f"it does not end within {PATIENCE_SECONDS:g} s, and kimi waits for it"
    words = done.stderr.kept.decode("utf-8", "replace").strip()
    last = f": {tame(words.splitlines()[-1])}" if words else ""
    if done.status == 2:  # noqa: PLR2004 - the one status that means something to kimi
        return f"it exits 2, and kimi takes that for a DENY of every prompt and tool call{last}"
    if done.status:
        how = f"exits {done.status}" if done.status > 0 else f"dies of signal {-done.status}"
        return f"it {how}{last}"
    if done.stdout.size:
        return f"it writes {done.stdout.size} bytes to stdout, which kimi gives to the model"
    if done.stderr.size:
        return f"it writes {done.stderr.size} bytes to stderr{last}"
    return None


# --- without a daemon --------------------------------------------------------------------------


async def _without_daemon(commands: Iterable[Command], stale: str | None, setup: str) -> Check:
    programs = dict.fromkeys(evolve(each, seconds=OBSERVED.seconds) for each in commands)
    took: list[int] = []
    with _sockets() as sockets:
        for command in islice(programs, MOST_RUN):
            for what, path in sockets.items():
                other = evolve(command, socket=str(path))
                done = await run(other.render(), probe.payload(secrets.token_hex(16)))
                if wrong := _wrong(done):
                    said = f"with {what} at its path {wrong}{_because(stale)}"
                    return finding(ALONE, said, setup)
                took.append(done.ms)
    said = (
        f"it exits 0 and says nothing, with no socket ({took[0]} ms) and a dead one ({took[1]} ms)"
    )
    return ok(ALONE, said)


@contextmanager
def _sockets() -> Iterator[dict[str, Path]]:
    """What a hook meets where no daemon runs: nothing, and a socket that nobody listens at."""
    with tempfile.TemporaryDirectory(prefix="kimiaepd-", dir=SCRATCH) as scratch:
        left = Path(scratch, "dead.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
            dead.bind(str(left))
        yield {"no socket": Path(scratch, "absent.sock"), "a dead daemon's socket": left}
