"""`kimiaepd doctor` beside the real CLI: they agree about config files, and about who ran what."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator

import pytest
from attrs import evolve, frozen

from kimiaepd.doctor import config as config_room
from kimiaepd.doctor.check import Level
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.setup.events import Version
from kimiaepd.setup.kimi_version import Installed
from patients import patient
from vendor.daemon import ask, environ, register, running
from vendor.kimi import Kimi
from vendor.place import Place

pytestmark = pytest.mark.vendor

HOOK = b'\n[[hooks]]\nevent = "Stop"\ncommand = "true"\n'


@frozen
class Written:
    """What stands before and after a config with our hooks."""

    before: bytes = b""
    after: bytes = b""


VARIANTS = {
    "as setup wrote it": Written(),
    "another tool's hook": Written(after=HOOK + b'matcher = "Bash"\ntimeout = 600\n'),
    "a timeout of 5.0": Written(after=HOOK + b"timeout = 5.0\n"),
    "a timeout of 2.5": Written(after=HOOK + b"timeout = 2.5\n"),
    "a matcher that is a number": Written(after=HOOK + b"matcher = 1\n"),
    "an event of the newer release": Written(after=HOOK.replace(b"Stop", b"TurnStarted")),
    "a key below our block": Written(after=b"yolo = true\n"),
    "a byte-order mark": Written(before=b"\xef\xbb\xbf"),
}


@pytest.fixture(scope="module")
def registered(kimi: Kimi, place: Place, config: bytes) -> bytes:
    """The config with our hooks."""
    return register(kimi, place, config)


@pytest.mark.parametrize("written", VARIANTS.values(), ids=VARIANTS)
def test_we_find_a_file_bad_where_the_vendor_does(
    kimi: Kimi, place: Place, registered: bytes, written: Written
) -> None:
    place.config_file.write_bytes(written.before + registered + written.after)
    installed = Installed(Version.parse(kimi.version), "a test")
    whom = evolve(patient(environ(kimi, place)), installed=installed)
    found = [
        check
        for check in config_room.examine(whom).checks
        if check.level is Level.FINDING and check.name in (config_room.FILE, config_room.HOOKS)
    ]
    assert len(found) == (0 if kimi.run(place, "doctor").status == 0 else 1)


@pytest.fixture
def listening(kimi: Kimi, place: Place, config: bytes) -> Iterator[None]:
    register(kimi, place, config)
    with running(kimi, place):
        yield


def examined(kimi: Kimi, place: Place) -> JSONObject:
    """What our doctor says, as this user runs it."""
    done = ask(kimi, place, "doctor", "--json")
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    assert (done.returncode, report["findings"]) == (0, 0), done.stdout
    return report


def test_it_knows_whether_a_real_kimi_has_run_our_hooks(
    kimi: Kimi, place: Place, listening: None
) -> None:
    before = examined(kimi, place)
    assert (before["configured"], before["probed"], before["fired"]) == (True, True, None)
    assert kimi.run(place, "-p", "mock:plain go").status == 0
    after = examined(kimi, place)
    fired = dt.datetime.fromisoformat(str(after["fired"]))
    assert dt.timedelta() <= dt.datetime.now(dt.UTC) - fired < dt.timedelta(minutes=1)
    assert f"kimi {kimi.version} (" in json.dumps(after["checks"])
