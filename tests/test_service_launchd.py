"""`kimiaepd service` on macOS, as a person types it, with a launchctl that can fail."""

from __future__ import annotations

import json
import os
import plistlib
from pathlib import Path

import pytest

from kimiaepd import errors
from kimiaepd.service import steps
from kimiaepd.service.manager import NoManager
from kimiaepd.service.steps import NotStartedError
from kimiaepd.service.tool import ToolError
from service_fakes import PID, Desk, sit_down

AGENT = "Library/LaunchAgents/local.kimiaepd.plist"
TARGET = f"gui/{os.getuid()}/local.kimiaepd"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("sys.platform", "darwin")
    return sit_down(tmp_path, monkeypatch, AGENT)


def test_install_writes_loads_and_says_who_answers(desk: Desk) -> None:
    said = desk.types("install").stdout.splitlines()
    assert said[0] == f"{desk.file}: written"
    assert said[1].startswith(f"running: pid {PID} answers at ")
    assert len(said) == 2
    assert desk.asked() == [f"enable {TARGET}", f"bootstrap gui/{os.getuid()} {desk.file}"]
    assert desk.files() == [AGENT]
    assert plistlib.loads(desk.file.read_bytes())["Label"] == "local.kimiaepd"


def test_a_second_install_changes_nothing_and_says_so(desk: Desk) -> None:
    desk.types("install")
    desk.asked()
    assert "as it was; nothing changed there" in desk.types("install").stdout
    assert desk.asked() == []


def test_an_install_with_other_settings_unloads_and_loads(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.types("install")
    desk.asked()
    desk.tell("starts-as", "4712")
    monkeypatch.setenv("AEP_CAPTURE", "full")
    said = desk.types("install").stdout.splitlines()
    assert said[1] == "restarted"
    assert [line.split()[0] for line in desk.asked()] == ["bootout", "enable", "bootstrap"]
    agent = plistlib.loads(desk.file.read_bytes())
    assert agent["EnvironmentVariables"]["AEP_CAPTURE"] == "full"


def test_an_agent_that_is_loaded_and_does_not_run_is_loaded_anew_or_kicked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.types("install")
    desk.forget("pid")
    desk.asked()
    assert "running" in desk.types("install").stdout
    assert desk.asked() == [f"kickstart {TARGET}"]
    desk.forget("pid")
    monkeypatch.setenv("AEP_CAPTURE", "full")
    desk.types("install")
    assert [line.split()[0] for line in desk.asked()] == ["bootout", "enable", "bootstrap"]


def test_without_a_session_at_the_screen_nothing_is_written(desk: Desk) -> None:
    desk.tell("fail-print", "Could not find domain for gui\n")
    with pytest.raises(NoManager, match=r"Could not find domain for gui.*kimiaepd run"):
        desk.types("install")
    assert desk.files() == []


def test_an_agent_of_somebody_else_is_refused_and_stays(desk: Desk) -> None:
    desk.file.parent.mkdir(parents=True)
    desk.file.write_bytes(plistlib.dumps({"Label": "local.kimiaepd"}))
    with pytest.raises(errors.ConfigError, match="was not made by"):
        desk.types("install")
    with pytest.raises(errors.ConfigError, match="was not made by"):
        desk.types("uninstall")
    assert desk.asked() == []


def test_a_load_that_is_refused_is_said(desk: Desk) -> None:
    desk.tell("fail-bootstrap", "Bootstrap failed: 125: Domain does not support specified action")
    with pytest.raises(NotStartedError, match=r"launchctl bootstrap .*: Bootstrap failed: 125"):
        desk.types("install")


def test_a_daemon_that_ends_at_once_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "UP_SECONDS", 0.1)
    desk.forget("starts-as")
    with pytest.raises(NotStartedError, match=r"last exit code 78: EX_CONFIG; .* service\.log in"):
        desk.types("install")


def test_uninstall_unloads_and_removes_and_a_second_one_has_nothing_to_do(desk: Desk) -> None:
    desk.types("install")
    desk.asked()
    assert desk.types("uninstall").stdout.splitlines() == [
        f"stopped: pid {PID}",
        f"removed: {desk.file}",
    ]
    assert desk.files() == []
    assert desk.asked() == [f"bootout {TARGET}"]
    assert desk.types("uninstall").stdout == f"no service at {desk.file}; nothing changed there\n"


def test_an_agent_whose_file_was_deleted_is_unloaded(desk: Desk) -> None:
    desk.types("install")
    desk.file.unlink()
    assert desk.types("uninstall").stdout.startswith(f"stopped: pid {PID}\n")
    assert desk.asked()[-1] == f"bootout {TARGET}"


def test_an_unloading_that_fails_keeps_the_file(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.types("install")
    monkeypatch.setattr(steps, "STOP_SECONDS", 0.1)
    desk.tell("fail-bootout", "Boot-out failed: 1: Operation not permitted")
    with pytest.raises(ToolError, match="Operation not permitted"):
        desk.types("uninstall")
    assert desk.files() == [AGENT]


def test_status_tells_the_services_own_facts_from_those_of_its_endpoints(desk: Desk) -> None:
    desk.types("install")
    found = json.loads(desk.types("status", "--json").stdout)
    assert (found["said"], found["pid"], found["answers"]) == ("running", int(PID), True)
    desk.forget("pid")
    result = desk.types("status")
    assert result.exit_code == 1
    assert "spawn scheduled, last exit code 78: EX_CONFIG" in result.stdout
