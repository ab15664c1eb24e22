"""The real CLI with our hooks registered and the rest of us broken: nobody must notice.

For each way to be broken: the turn completes, the tool runs, and provider and terminal see, to the
byte, what they see without hooks. Where something still listens, it would deny everything: if a
broken piece let a word of it through, the turn would differ.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from attrs import frozen

from kimiaepd.setup.interpreter import running_interpreter
from vendor.daemon import Impostor, register, running
from vendor.kimi import Kimi
from vendor.likeness import Seen, watch
from vendor.place import Place
from vendor.provider import Provider

pytestmark = pytest.mark.vendor

TOOL = [["-p", "mock:bashok go"]]
MEGABYTE = [["-p", "mock:big1m go"]]

PATIENCE_S = 8
"""How much longer a turn may take: its seven hooks at 250 ms each and a slow machine, but less than
the ten seconds after which the CLI would kill one that hangs."""

DENIAL = json.dumps(
    {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "denied by the impostor",
        }
    }
).encode()
DENY = b"%d\n%b" % (len(DENIAL), DENIAL)


@frozen
class House:
    """One scratch user with our hooks: the CLI, the place, and the config.toml that names them."""

    kimi: Kimi
    place: Place
    config: bytes


@frozen
class Bare:
    """What the two scripts look like without hooks, and how long they take."""

    tool: Seen
    megabyte: Seen
    seconds: float


@pytest.fixture(scope="module")
def house(kimi: Kimi, place: Place, config: bytes) -> House:
    return House(kimi, place, register(kimi, place, config))


@pytest.fixture(scope="module")
def bare(kimi: Kimi, place: Place, provider: Provider, config: bytes) -> Bare:
    began = time.monotonic()
    tool = watch(kimi, place, provider, config, TOOL)
    seconds = time.monotonic() - began
    return Bare(tool, watch(kimi, place, provider, config, MEGABYTE), seconds)


@contextmanager
def absent(house: House) -> Iterator[bytes]:
    """No daemon has ever run."""
    assert not house.place.socket.exists()
    yield house.config


@contextmanager
def crashed(house: House) -> Iterator[bytes]:
    """The daemon is gone and its socket is still there."""
    house.place.state_dir.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(house.place.socket))
    try:
        yield house.config
    finally:
        house.place.socket.unlink()


@contextmanager
def stopped(house: House) -> Iterator[bytes]:
    """The daemon listens, and never answers."""
    with running(house.kimi, house.place) as daemon:
        daemon.send_signal(signal.SIGSTOP)
        yield house.config


@contextmanager
def killed_mid_reply(house: House) -> Iterator[bytes]:
    """The daemon says half of a deny, and dies."""
    with Impostor(house.place, DENY[:-10]).listening() as impostor:
        yield house.config
    assert any(b'"PreToolUse"' in said for said in impostor.heard), "no hook came this far"


@contextmanager
def shim_deleted(house: House) -> Iterator[bytes]:
    """Somebody cleaned up the hook program."""
    away = house.place.shim.with_suffix(".away")
    with Impostor(house.place, DENY).listening() as impostor:
        house.place.shim.rename(away)
        try:
            yield house.config
        finally:
            away.rename(house.place.shim)
    assert impostor.heard == []


@contextmanager
def interpreter_deleted(house: House) -> Iterator[bytes]:
    """The Python that the hooks name was uninstalled."""
    with Impostor(house.place, DENY).listening() as impostor:
        yield with_interpreter(house, house.place.root / "python-that-was")
    assert impostor.heard == []


def with_interpreter(house: House, python: Path) -> bytes:
    """The hooks with another interpreter in place of the registered one."""
    registered = str(running_interpreter()).encode()
    assert registered in house.config
    return house.config.replace(registered, bytes(python))


BREAKAGES: tuple[Callable[[House], AbstractContextManager[bytes]], ...] = (
    absent,
    crashed,
    stopped,
    killed_mid_reply,
    shim_deleted,
    interpreter_deleted,
)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_a_turn_goes_on_as_if_there_were_no_hooks(
    house: House,
    provider: Provider,
    bare: Bare,
    breakage: Callable[[House], AbstractContextManager[bytes]],
) -> None:
    with breakage(house) as config:
        began = time.monotonic()
        seen = watch(house.kimi, house.place, provider, config, TOOL)
        seconds = time.monotonic() - began

    assert seen == bare.tool
    assert seconds < bare.seconds + PATIENCE_S


def test_a_megabyte_that_nobody_reads_harms_no_turn(
    house: House, provider: Provider, bare: Bare
) -> None:
    # The guard exits and leaves stdin unread: the CLI meets a broken pipe.
    with absent(house) as config:
        seen = watch(house.kimi, house.place, provider, config, MEGABYTE)

    assert seen == bare.megabyte
    assert (house.place.work / "big.txt").stat().st_size == 1_000_000


def test_a_whole_deny_would_have_been_obeyed(house: House, provider: Provider) -> None:
    """The control of this file: through unbroken pieces the impostor's word does arrive."""
    python = house.place.root / "python"
    python.symlink_to(running_interpreter())
    with Impostor(house.place, DENY).listening():
        seen = watch(house.kimi, house.place, provider, with_interpreter(house, python), TOOL)

    assert seen.requests == (), "the prompt was denied, and reached the provider"
