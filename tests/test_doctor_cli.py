"""`kimiaepd doctor` as a person types it: its lines, its JSON, its exit statuses."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from attrs import evolve

from doctor_room import Room, checks, room
from kimiaepd.doctor import command, fired, storage, versions
from kimiaepd.doctor.check import Level
from kimiaepd.doctor.examine import examine
from kimiaepd.errors import UsageError
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.setup.events import Version
from kimiaepd.setup.kimi_version import NONE_FOUND, Installed
from live import Live, scratch
from patients import lines, patient

NOW = dt.datetime(2026, 11, 30, 21, 0, 0, tzinfo=dt.UTC)


@pytest.fixture
def here() -> Iterator[Room]:
    """A set-up without a daemon."""
    with scratch() as live, room(live) as here:
        yield here


def run(here: Room, *words: str) -> tuple[int, str, str]:
    """The whole command, in a process of its own."""
    done = Live(here.folder, here.environ).run("doctor", *words)
    return done.returncode, done.stdout, done.stderr


# --- what is printed ---------------------------------------------------------------------------


def test_a_line_a_check_the_remedy_below_it_and_the_sum_last(here: Room) -> None:
    here.shim.unlink()
    status, printed, complained = run(here, "--kimi-version", "2.1.0")
    assert (status, complained) == (1, "")
    told = printed.splitlines()
    at = told.index(
        f"finding  our hooks        {here.config}: these hooks do nothing: {here.shim} is missing"
    )
    assert told[at + 1].strip() == "-> run: kimiaepd setup install --kimi-version 2.1.0"
    assert told[0].startswith("ok       settings         ")
    assert told[-1] == (
        "configured: no; probe passed: no; last real hook: none known; 2 findings, 0 warnings"
    )
    assert "\x1b" not in printed


def test_what_is_looked_at_comes_in_this_order(here: Room) -> None:
    found = here.report()["checks"]
    assert isinstance(found, list)
    assert [*dict.fromkeys(check["name"] for check in found if isinstance(check, dict))] == [
        "settings", "versions", "kimi home", "config file", "hooks", "our hooks", "hook program",
        "hook command", "without daemon", "state directory", "socket", "daemon", "log directory",
        "disk space", "clock", "relay", "gate", "notifier", "steering", "kimi web", "last hook",
    ]  # fmt: skip


def test_json_has_the_same_and_its_names_stay(here: Room) -> None:
    report = here.report()
    assert [*report] == ["checks", "configured", "probed", "fired", "findings", "warnings"]
    found = report["checks"]
    assert isinstance(found, list)
    for check in found:
        assert isinstance(check, dict)
        assert [*check] == ["name", "level", "said", "remedy"]
        assert check["level"] in ("ok", "warning", "finding")
    assert (report["findings"], report["fired"]) == (1, None)
    assert report["warnings"] == len(checks(report, "warning"))
    assert all(remedy == "None" for _, _, remedy in checks(report, "ok"))
    assert "None" not in {remedy for _, _, remedy in checks(report, "finding")}


def test_what_a_file_makes_us_say_cannot_move_the_cursor(here: Room) -> None:
    here.write('[[hooks]]\n"\\u001b[2J" = 1\n')
    here.environ["HOME"] += "/\x9bx"
    Path(here.environ["HOME"]).mkdir()
    _, printed = here.types()
    assert all(line.isprintable() for line in printed.splitlines())


# --- how it is asked ---------------------------------------------------------------------------


def test_a_version_that_is_none_is_a_wrong_use(here: Room) -> None:
    status, printed, complained = run(here, "--kimi-version", "newest")
    assert (status, printed) == (64, "")
    assert complained.startswith("kimiaepd: --kimi-version: ")


def home_line(here: Room, *words: str) -> str:
    found = {name: said for name, said, _ in checks(here.report(*words), "ok")}
    return found["kimi home"]


def test_it_says_which_home_and_why(here: Room) -> None:
    home = here.where.kimi_home
    assert home_line(here) == f"{home} (KIMI_CODE_HOME)"
    assert home_line(here, "--home", str(home)) == f"{home} (--home)"
    del here.environ["KIMI_CODE_HOME"]
    here.where.config_file.parent.mkdir(parents=True)
    here.where.config_file.write_text(f'kimi_home = "{home}"\n')
    usual = Path(here.environ["HOME"], ".kimi-code")
    assert home_line(here) == (
        f"{home} (kimi_home in {here.where.config_file}; a kimi that is started here reads {usual})"
    )
    here.where.config_file.unlink()
    here.where.kimi_home.mkdir()
    assert home_line(here) == f"{usual} (the default)"


def test_what_mends_a_home_names_it_with_the_kimi_that_was_asked(here: Room) -> None:
    kimi = here.folder / "a kimi"
    kimi.write_text("#!/bin/sh\necho 2.1.0\n")
    kimi.chmod(0o755)
    here.write("")
    words = ("--home", str(here.where.kimi_home), "--kimi", str(kimi))
    report = here.report(*words)
    remedies = {name: remedy for name, _, remedy in checks(report, "finding")}
    assert remedies["our hooks"] == (
        f"run: kimiaepd setup install --home {here.where.kimi_home} --kimi '{kimi}'"
    )
    said = {name: said for name, said, _ in checks(report, "ok")}
    assert said["versions"].endswith(f"kimi 2.1.0 ({kimi})")


def test_a_kimi_that_gives_no_version_is_a_finding_and_the_rest_is_looked_at(here: Room) -> None:
    report = here.report("--kimi", "/bin/true")
    found = {name: (said, remedy) for name, said, remedy in checks(report, "finding")}
    assert found["versions"][0].startswith("--kimi: /bin/true did not answer")
    assert "--kimi-version" in found["versions"][1]
    assert report["configured"] is True


# --- when something else fails -----------------------------------------------------------------


async def test_a_look_that_fails_is_a_finding_and_stops_no_other(
    here: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error", "/somewhere")

    async def fail_later(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        fail()

    monkeypatch.setattr(storage, "examine", fail)
    monkeypatch.setattr(command, "examine", fail_later)
    report = await examine(patient(here.environ), lambda: NONE_FOUND, lambda: NOW)
    found = [check for check in report.checks if check.level is Level.FINDING]
    assert [check.name for check in found] == ["daemon", "hook command", "log directory"]
    assert "Input/output error: '/somewhere'" in found[1].said
    assert report.configured


async def test_the_version_is_asked_in_a_thread_while_the_rest_is_looked_at(here: Room) -> None:
    asked: list[bool] = []

    def ask() -> Installed:
        trio.from_thread.run(trio.lowlevel.checkpoint)  # fails where this is no thread of Trio's
        asked.append(True)
        return Installed(Version(2, 1, 0), "a test")

    report = await examine(patient(here.environ), ask, lambda: NOW)
    assert asked == [True]
    assert any("kimi 2.1.0 (a test)" in check.said for check in report.checks)


async def test_a_wrong_kimi_is_told_by_the_error_itself(here: Room) -> None:
    def ask() -> Installed:
        raise UsageError("--kimi: it is none; give another")

    report = await examine(patient(here.environ), ask, lambda: NOW)
    (found,) = (check for check in report.checks if check.name == "versions")
    assert (found.said, found.remedy) == ("--kimi: it is none", "give another")


# --- versions, and when a hook last came -------------------------------------------------------


def versions_line(installed: Installed) -> str:
    (line,) = lines([versions.examine(installed)])
    return line


def test_releases_that_were_not_tried_are_told_apart() -> None:
    known = Installed(Version(2, 1, 0), "/usr/bin/kimi")
    ours = f"Python {sys.version.split()[0]}"
    assert versions_line(known).startswith("ok versions: kimiaepd ")
    assert ours in versions_line(known)
    newer = versions_line(evolve(known, version=Version(2, 2, 0)))
    assert newer.startswith("ok")
    assert "newer than 2.1.0, the newest that was tried" in newer
    older = versions_line(evolve(known, version=Version(0, 27, 0)))
    assert older.startswith("finding")
    none = versions_line(NONE_FOUND)
    assert none.startswith("warning")
    assert "no kimi found" in none
    silent = versions_line(Installed(None, "no answer to --version from /usr/bin/kimi"))
    assert "kimi's version is not known: no answer to --version from /usr/bin/kimi" in silent
    others = versions_line(evolve(known, others=(Path("/opt/kimi"),)))
    assert "not asked: /opt/kimi" in others


def last(state_dir: Path, status: JSONObject | None, *, configured: bool = True) -> str:
    (line,) = lines([fired.examine(state_dir, status, NOW, configured=configured).check])
    return line


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (dt.timedelta(seconds=-3), "0 seconds ago"),
        (dt.timedelta(seconds=119), "119 seconds ago"),
        (dt.timedelta(minutes=119), "119 minutes ago"),
        (dt.timedelta(hours=47), "47 hours ago"),
        (dt.timedelta(days=20), "20 days ago"),
    ],
)
def test_how_long_ago_the_last_hook_came(tmp_path: Path, before: dt.timedelta, words: str) -> None:
    then = NOW - before
    status: JSONObject = {"last_hook_ms": int(then.timestamp() * 1000)}
    said = f"ok last hook: {then.isoformat(sep=' ', timespec='seconds')}, {words} -> None"
    assert last(tmp_path, status) == said


@pytest.mark.parametrize("ms", [None, "soon", 10**30, {}])
def test_a_time_that_is_none_is_no_hook(tmp_path: Path, ms: str | int | JSONObject | None) -> None:
    assert "no hook of a real kimi has come yet" in last(tmp_path, {"last_hook_ms": ms})


def test_that_none_ever_came_is_a_warning_only_where_one_could(tmp_path: Path) -> None:
    assert last(tmp_path, None).endswith("start a new kimi session, or /reload in one that runs")
    assert last(tmp_path, None, configured=False).startswith("ok last hook: no hook of a real")


def test_the_newest_of_the_ledger_counts_and_what_is_no_record_does_not(tmp_path: Path) -> None:
    seen = [int(NOW.timestamp()) - 600, int(NOW.timestamp()) - 300]
    records = [{"session": f"s{n}", "record": {"seen_s": at}} for n, at in enumerate(seen)]
    text = "\n".join(json.dumps(record) for record in reversed(records))
    (tmp_path / "ledger.jsonl").write_text(f"{text}\nnot a record\n")
    assert "5 minutes ago" in last(tmp_path, None)


def test_a_ledger_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").mkdir()
    assert "not known: the ledger in" in last(tmp_path, None)
