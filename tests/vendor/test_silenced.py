"""What makes the real CLI drop every hook, or not start at all: how we meet it.

`setup install` refuses or mends it, `doctor` names what `kimi doctor` names, and in each case a
turn shows that it is so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from vendor.daemon import ask
from vendor.kimi import Kimi
from vendor.place import Place
from vendor.user import PLAIN_TURN, PROMPT, User, living, said_of

pytestmark = pytest.mark.vendor

REFUSED = 78

STOP = b"[[hooks]]\nevent = 'Stop'\ncommand = 'true'\n"
TAKEN = (
    STOP + b"timeout = 5.0\n",
    STOP + b"matcher = '('\n",
    b"[[hooks]]\nevent = 'Stop'\ncommand = ' '\n",
)
"""Hooks as tools may write them, odd but good."""
DROPPED = (
    b"[[hooks]]\nevent = 'Nope'\ncommand = 'true'\n",
    b"[[hooks]]\nevent = 'Stop'\n",
    b"[[hooks]]\ncommand = 'true'\n",
    b"[[hooks]]\nevent = 'Stop'\ncommand = ''\n",
    STOP + b"timeout = 0\n",
    STOP + b"timeout = 601\n",
    STOP + b"timeout = 2.5\n",
    STOP + b"matcher = 1\n",
    STOP + b"enabled = true\n",
)
"""Each of these drops every hook."""


@pytest.fixture(scope="module")
def user(kimi: Kimi, place: Place, config: bytes) -> Iterator[User]:
    with living(kimi, place, config) as user:
        yield user


def test_doctor_names_the_hooks_that_the_vendor_names(user: User) -> None:
    bad = user.install_anew() + b"".join((TAKEN[0], *DROPPED[:5], TAKEN[1], *DROPPED[5:], TAKEN[2]))
    user.place.config_file.write_bytes(bad)

    vendors = {int(number) for number in re.findall(r"hooks\[(\d+)\]", user.vendor_complains())}
    status, report = user.doctor("--kimi-version", user.kimi.version)

    found = re.findall(r"^finding: \S*config\.toml:(\d+): ", said_of(report, "hooks"), re.MULTILINE)
    assert {hook_at(bad, int(line)) for line in found} == vendors
    assert len(vendors) == len(DROPPED)
    assert (status, report["configured"]) == (1, False)


def hook_at(raw: bytes, line: int) -> int:
    """The number of the hook, as the vendor counts them, that a line belongs to."""
    lines = raw.splitlines()[:line]
    return sum(text.startswith(b"[[hooks]]") for text in lines) - 1


def test_a_key_below_our_block_is_refused_and_its_remedy_works(user: User) -> None:
    good = user.install_anew()
    bad = good + b"yolo = true\n"
    user.place.config_file.write_bytes(bad)
    assert "hooks" in user.turn_runs(ours=0, theirs=False)

    known = ("--kimi-version", user.kimi.version)
    refused = ask(user.kimi, user.place, "setup", "install", *known)

    line = good.count(b"\n") + 1
    assert refused.returncode == REFUSED
    assert f"{user.place.config_file}:{line}: `yolo` stands inside our last" in refused.stderr
    assert "move it above the first table of the file" in refused.stderr
    assert user.config == bad

    user.place.config_file.write_bytes(b"yolo = true\n" + good)
    user.install()
    user.turn_runs(ours=PLAIN_TURN, theirs=True)


def test_a_placeholder_that_kimi_cannot_start_beside_is_set_aside(
    user: User, config: bytes
) -> None:
    seeded = b"hooks = []\n" + config
    user.place.renew(seeded + STOP)
    # 0.28.0 says that this is no TOML; 2.1.0 reads nothing of it, and misses the model.
    assert user.kimi.run(user.place, *PROMPT).status == 1
    user.place.renew(seeded)
    user.vendor_is_content()

    user.install()

    user.turn_runs(ours=PLAIN_TURN, theirs=False)
    user.uninstall()
    assert user.config == seeded
