"""`kimiaepd service` on systemd, as a person types it, with a systemctl that can fail."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kimiaepd import __version__, errors
from kimiaepd.hook_socket.client import NotAnswering
from kimiaepd.service.manager import NoManager
from kimiaepd.service.steps import NotStartedError
from kimiaepd.service.tool import ToolError
from service_fakes import PID, Desk, sit_down

UNIT = ".config/systemd/user/kimiaepd.service"
WANTS = ".config/systemd/user/default.target.wants/kimiaepd.service"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("sys.platform", "linux")
    return sit_down(tmp_path, monkeypatch, UNIT)


# --- install -----------------------------------------------------------------------------------


def test_install_writes_enables_starts_and_says_who_answers(desk: Desk) -> None:
    result = desk.types("install")
    assert result.exit_code == 0
    socket = desk.home / ".local/state/kimiaepd/hook.sock"
    assert result.stdout.splitlines() == [
        f"{desk.file}: written",
        f"running: pid {PID} answers at {socket}",
    ]
    assert desk.asked() == [
        "--user daemon-reload",
        "--user enable kimiaepd.service",
        "--user reset-failed kimiaepd.service",
        "--user start kimiaepd.service",
    ]
    assert desk.files() == [WANTS, UNIT]
    assert "leads here: none is ours; run: kimiaepd setup install" in result.stderr


def test_what_the_unit_lets_be_written_is_there_and_private(desk: Desk) -> None:
    desk.types("install")
    for place in (".local/state/kimiaepd", ".aep/logs/kimi-code"):
        assert (desk.home / place).stat().st_mode & 0o777 == 0o700
        assert f"ReadWritePaths=-{desk.home / place}\n" in desk.file.read_text()


def test_a_second_install_changes_nothing_and_says_so(desk: Desk) -> None:
    desk.types("install")
    desk.asked()
    before = desk.file.stat()
    result = desk.types("install")
    assert result.stdout.splitlines()[0] == f"{desk.file}: as it was; nothing changed there"
    assert result.stdout.splitlines()[1].startswith(f"running: pid {PID}")
    assert desk.asked() == []
    after = desk.file.stat()  # it was read, so its access time may be another
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_an_install_with_other_settings_refreshes_and_restarts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.types("install")
    desk.asked()
    monkeypatch.setenv("AEP_CAPTURE", "full")
    desk.tell("starts-as", "4712")
    said = desk.types("install").stdout.splitlines()
    assert said[0] == f"{desk.file}: brought up to date"
    assert said[1] == "restarted"
    assert said[2].startswith("running: pid 4712")
    assert "--user restart kimiaepd.service" in desk.asked()
    assert "Environment=AEP_CAPTURE=full\n" in desk.file.read_text()


def test_an_older_daemon_is_restarted_by_a_newer_program(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.types("install")
    monkeypatch.setattr("kimiaepd.service.steps.__version__", "9.9")
    said = desk.types("install").stdout.splitlines()
    assert said[1] == f"restarted: version {__version__} was running, and this is 9.9"


def test_a_service_that_was_stopped_or_failed_is_started(desk: Desk) -> None:
    desk.types("install")
    desk.forget("pid")
    desk.tell("ended", "75")
    desk.asked()
    assert "running" in desk.types("install").stdout
    assert desk.asked() == [
        "--user reset-failed kimiaepd.service",
        "--user start kimiaepd.service",
    ]


def test_a_unit_that_systemd_has_not_read_again_is_read(desk: Desk) -> None:
    desk.types("install")
    desk.tell("stale")
    desk.asked()
    desk.types("install")
    assert desk.asked()[0] == "--user daemon-reload"


def test_a_dry_run_prints_a_diff_and_asks_nobody(desk: Desk) -> None:
    desk.tell("fail-show", "no bus")
    result = desk.types("install", "--dry-run")
    assert result.stdout.startswith(f"--- /dev/null\n+++ {desk.file}\n")
    assert "+Type=notify\n" in result.stdout
    assert desk.files() == []
    desk.forget("fail-show")
    desk.types("install")
    result = desk.types("install", "--dry-run")
    assert (result.stdout, result.stderr) == ("", "nothing would change\n")


def test_the_home_of_kimi_is_kept_to(desk: Desk, tmp_path: Path) -> None:
    said = desk.types("install", "--home", str(tmp_path / "a b"))
    assert f'Environment="KIMI_CODE_HOME={tmp_path}/a b"\n' in desk.file.read_text()
    assert f"run: kimiaepd setup install --home '{tmp_path}/a b'" in said.stderr


def test_a_home_without_a_name_is_not_the_current_directory(desk: Desk) -> None:
    result = desk.types("install", "--home", "")
    assert result.exit_code != 0
    assert "the directory has no name" in result.stderr
    assert desk.files() == []


def test_the_token_stays_out_and_that_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEP_TOKEN", "t0k3n")
    monkeypatch.setenv("MY_KEY", "s3cret")
    monkeypatch.setenv("AEP_REDACT_NAMES", "MY_KEY,NOT_SET")
    result = desk.types("install")
    assert "name it as relay.token_file in" in result.stdout
    assert "does not see the values of MY_KEY:" in result.stdout
    for secret in ("t0k3n", "s3cret"):
        assert secret not in desk.file.read_text() + result.output


@pytest.mark.parametrize("linger", ["no", ""])
def test_who_does_not_linger_is_told_how_to(desk: Desk, linger: str) -> None:
    desk.tell("linger", linger)
    assert "loginctl enable-linger" in desk.types("install").stdout


# --- install that is refused -------------------------------------------------------------------


def test_a_unit_of_somebody_else_is_refused_and_stays(desk: Desk) -> None:
    desk.file.parent.mkdir(parents=True)
    desk.file.write_text("[Service]\n")
    for words in (("install",), ("uninstall",), ("status",), ("install", "--dry-run")):
        with pytest.raises(errors.ConfigError, match="was not made by"):
            desk.types(*words)
    assert desk.file.read_text() == "[Service]\n"
    assert desk.asked() == []


def test_without_a_manager_nothing_is_written_and_the_other_way_is_named(desk: Desk) -> None:
    desk.tell("fail-show", "Failed to connect to bus: No such file or directory\n")
    with pytest.raises(NoManager) as refused:
        desk.types("install")
    assert str(refused.value) == (
        "no systemd of yours answers here (Failed to connect to bus: No such file or directory);"
        " run the daemon yourself: kimiaepd run"
    )
    assert desk.files() == []
    assert not (desk.home / ".local").exists()


def test_a_systemctl_that_does_nothing_or_is_missing_is_no_manager(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.tell("version", "")  # what it does in a chroot, with status 0
    with pytest.raises(NoManager, match="systemctl says nothing"):
        desk.types("install")
    monkeypatch.setenv("PATH", str(desk.home))
    with pytest.raises(NoManager, match="systemctl is not on PATH"):
        desk.types("install")
    assert desk.files() == []


def test_a_daemon_in_a_terminal_is_said_before_anything_is_written(desk: Desk) -> None:
    desk.tell("other", "99")
    with pytest.raises(errors.BusyError, match=r"pid 99\); stop it \(Ctrl-C where it runs\)"):
        desk.types("install")
    assert desk.files() == []


def test_so_is_one_that_only_holds_the_lock(desk: Desk) -> None:
    from kimiaepd.storage.daemon_lock import DaemonLock

    state = desk.home / ".local/state/kimiaepd"
    with DaemonLock.acquire(state):
        with pytest.raises(errors.BusyError, match="is not the service runs on"):
            desk.types("install")
        assert desk.files() == []
    assert desk.types("install").exit_code == 0


def test_so_is_one_that_does_not_answer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wedged(*_: object, **__: object) -> None:
        raise NotAnswering("it does not answer")

    monkeypatch.setattr("kimiaepd.service.rival.request", wedged)
    with pytest.raises(errors.BusyError, match="does not answer"):
        desk.types("install")
    assert desk.files() == []


@pytest.mark.parametrize("verb", ["daemon-reload", "enable"])
def test_where_systemd_refuses_nothing_is_left(desk: Desk, verb: str) -> None:
    desk.tell(f"fail-{verb}", "Refused to.\nmore\n")
    with pytest.raises(ToolError, match=rf"systemctl --user {verb}.*: Refused to\.; nothing was"):
        desk.types("install")
    assert desk.files() == []


def test_where_systemd_refuses_a_refresh_the_old_unit_is_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.types("install")
    before = desk.file.read_bytes()
    monkeypatch.setenv("AEP_CAPTURE", "full")
    desk.tell("fail-enable", "Refused to.")
    with pytest.raises(ToolError):
        desk.types("install")
    assert desk.file.read_bytes() == before
    assert desk.files() == [WANTS, UNIT]


def test_a_systemd_that_reads_elsewhere_is_said(desk: Desk) -> None:
    desk.tell("reads", "/etc/systemd/user/kimiaepd.service\n")
    with pytest.raises(ToolError, match=r"another HOME or XDG_CONFIG_HOME .* found /etc/systemd"):
        desk.types("install")
    assert desk.files() == []


def test_a_daemon_that_ends_at_once_is_said_with_the_reason_and_where_its_words_are(
    desk: Desk,
) -> None:
    desk.forget("starts-as")
    with pytest.raises(NotStartedError) as failed:
        desk.types("install")
    said = str(failed.value)
    assert "failed (failed), last end: exit-code, a setting or a directory is wrong" in said
    assert "journalctl --user -u kimiaepd.service" in said
    assert desk.files() == [WANTS, UNIT]


def test_a_log_directory_that_others_can_write_is_refused_first(desk: Desk) -> None:
    logs = desk.home / ".aep/logs/kimi-code"
    logs.mkdir(parents=True)
    logs.chmod(0o777)
    with pytest.raises(errors.ConfigError, match="can be written by others"):
        desk.types("install")
    assert desk.files() == []


# --- uninstall ---------------------------------------------------------------------------------


def test_uninstall_removes_exactly_what_install_wrote(desk: Desk) -> None:
    neighbour = desk.file.with_name("other.service")
    neighbour.parent.mkdir(parents=True)
    neighbour.write_text("x")
    before = desk.files()
    desk.types("install")
    desk.asked()
    assert desk.types("uninstall").stdout.splitlines() == [
        f"stopped: pid {PID}",
        f"removed: {desk.file}",
    ]
    assert desk.files() == before
    assert desk.asked() == [
        "--user stop kimiaepd.service",
        "--user disable kimiaepd.service",
        "--user daemon-reload",
        "--user reset-failed kimiaepd.service",
    ]
    assert desk.types("uninstall").stdout == f"no service at {desk.file}; nothing changed there\n"
    assert desk.asked() == []


def test_uninstall_without_a_manager_removes_the_unit_and_its_link(desk: Desk) -> None:
    desk.types("install")
    desk.tell("fail-show", "no bus")
    assert desk.types("uninstall").stdout == f"removed: {desk.file}\n"
    assert desk.files() == []


def test_uninstall_without_a_manager_leaves_a_link_that_is_not_to_ours(desk: Desk) -> None:
    desk.types("install")
    link = desk.home / WANTS
    link.unlink()
    link.symlink_to("/somewhere/else/kimiaepd.service")
    desk.tell("fail-show", "no bus")
    desk.types("uninstall")
    assert desk.files() == [WANTS]


def test_uninstall_where_the_stop_fails_keeps_the_unit_for_another_try(desk: Desk) -> None:
    desk.types("install")
    desk.tell("fail-stop", "Access denied")
    with pytest.raises(ToolError, match="Access denied"):
        desk.types("uninstall")
    assert desk.files() == [WANTS, UNIT]
    desk.forget("fail-stop")
    desk.types("uninstall")
    assert desk.files() == []


def test_a_wrong_settings_file_keeps_nobody_from_an_uninstall(desk: Desk) -> None:
    desk.types("install")
    config = desk.home / ".config/kimiaepd/config.toml"
    config.parent.mkdir()
    config.write_text("nonsense = 1\n")
    assert desk.types("uninstall").exit_code == 0
    assert not desk.file.exists()


# --- status ------------------------------------------------------------------------------------


def test_status_of_a_service_that_runs(desk: Desk) -> None:
    desk.types("install")
    result = desk.types("status")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"file     {desk.file}",
        "at login starts",
        f"service  active (running), pid {PID}",
        f"answers  pid {PID} at {desk.home}/.local/state/kimiaepd/hook.sock",
    ]
    assert json.loads(desk.types("status", "--json").stdout) == {
        "file": str(desk.file),
        "installed": True,
        "current": True,
        "enabled": True,
        "active": True,
        "said": "active (running)",
        "pid": int(PID),
        "answers": True,
        "other_pid": None,
    }


def test_status_where_nothing_is_installed(desk: Desk) -> None:
    result = desk.types("status")
    assert result.exit_code == 1
    assert "not there; to install it: kimiaepd service install" in result.stdout
    assert "does not start" in result.stdout
    assert "not-found" in result.stdout


def test_status_of_a_daemon_that_is_not_the_service(desk: Desk) -> None:
    desk.tell("other", "99")
    result = desk.types("status")
    assert result.exit_code == 1
    assert "not the service: pid 99 does" in result.stdout
    assert json.loads(desk.types("status", "--json").stdout)["other_pid"] == 99


def test_status_of_a_service_that_does_not_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.types("install")

    async def wedged(*_: object, **__: object) -> None:
        raise NotAnswering("it does not answer")

    monkeypatch.setattr("kimiaepd.service.rival.request", wedged)
    result = desk.types("status")
    assert result.exit_code == 3
    assert "answers  nobody at" in result.stdout


def test_status_of_a_unit_that_is_out_of_date_or_not_running(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.types("install")
    monkeypatch.setenv("AEP_CAPTURE", "full")
    desk.forget("pid")
    desk.tell("ended", "75")
    result = desk.types("status")
    assert result.exit_code == 1
    assert "is not what an install from here would write" in result.stdout
    assert "another daemon runs" in result.stdout


@pytest.mark.parametrize(
    ("result", "number", "words"),
    [
        ("signal", "9", "last end: signal, signal 9"),
        ("watchdog", "6", "last end: watchdog, signal 6"),
        ("exit-code", "70", "last end: exit-code, status 70"),
        ("exit-code", "78", "a setting or a directory is wrong"),
    ],
)
def test_status_says_how_a_daemon_ended(desk: Desk, result: str, number: str, words: str) -> None:
    desk.types("install")
    desk.forget("pid")
    desk.tell("ended", number)
    desk.tell("result", f"Result={result}\n")
    assert words in desk.types("status").stdout


def test_status_without_a_manager_says_so_and_fails_no_further(desk: Desk) -> None:
    desk.tell("fail-show", "no bus")
    result = desk.types("status")
    assert result.exit_code == 1
    assert "no systemd of yours answers here (no bus)" in result.stdout


def test_the_units_place_follows_the_xdg_variable(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "c"))
    unit = tmp_path / "c/systemd/user/kimiaepd.service"
    monkeypatch.setenv("UNIT", str(unit))
    desk.tell("reads", str(unit))
    desk.types("install")
    assert f"XDG_CONFIG_HOME={tmp_path}/c" in unit.read_text()
    assert os.path.lexists(unit.parent / "default.target.wants/kimiaepd.service")
