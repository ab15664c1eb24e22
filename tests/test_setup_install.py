"""Installing whole: the order of things, the messages, and the way back."""

from __future__ import annotations

import datetime as dt
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve, frozen

from kimiaepd import paths
from kimiaepd.errors import ConfigError
from kimiaepd.settings import GateSettings, HoldMs, Settings
from kimiaepd.setup.command import Budget, entries
from kimiaepd.setup.config_edit import Action
from kimiaepd.setup.events import Version, known_to
from kimiaepd.setup.install import inspect, install, install_in, intended, uninstall
from kimiaepd.setup.report import Report

NEW = Version(2, 1, 0)
MINE = b'# mine\ndefault_model = "mock"\n'


@frozen
class Place:
    """A vendor home and a place of ours."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "kimi home/config.toml"

    @property
    def shim(self) -> Path:
        return self.root / "it's data/shim.py"

    @property
    def socket(self) -> Path:
        return self.root / "s"

    def install(
        self,
        version: Version | None = NEW,
        *,
        shim: Path | None = None,
        program: bytes = b"pass\n",
        dry_run: bool = False,
        exceptions: dict[str, Budget] | None = None,
        now: dt.datetime | None = None,
    ) -> Report:
        return install(
            self.config,
            entries(
                socket=str(self.socket),
                shim=str(shim or self.shim),
                python=sys.executable,
                events=known_to(version),
                exceptions=exceptions or {},
            ),
            shim=shim or self.shim,
            version=version,
            program=program,
            dry_run=dry_run,
            now=now,
        )

    def uninstall(self) -> Report:
        return uninstall(self.config, shim=self.shim)

    def backups(self) -> list[Path]:
        return sorted(self.config.parent.glob("*.bak"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.config.parent.mkdir()
    made.config.write_bytes(MINE)
    return made


def registered(config: Path) -> list[str]:
    text = inspect(config)
    assert text
    return [str(hook.values["event"]) for hook in text.hooks if hook.ours]


def budgets_in(config: Path) -> dict[object, tuple[float, object]]:
    """The shim's seconds and the vendor's timeout of each of our hooks, by event."""
    text = inspect(config)
    assert text
    return {
        hook.values["event"]: (hook.ours.seconds, hook.values["timeout"])
        for hook in text.hooks
        if hook.ours
    }


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_an_install_registers_and_a_second_one_changes_nothing(place: Place) -> None:
    report = place.install()
    assert (report.action, report.old, report.shim_changed) == (Action.ADDED, MINE, True)
    assert place.config.read_bytes() == report.new
    assert registered(place.config) == list(known_to(NEW))
    assert report.backup
    assert report.backup.read_bytes() == MINE
    before = everything(place.root)
    again = place.install()
    assert (again.action, again.changed, again.backup) == (Action.UNCHANGED, False, None)
    assert everything(place.root) == before


def test_an_uninstall_gives_everything_back(place: Place) -> None:
    place.install()
    report = place.uninstall()
    assert (report.action, report.shim_changed) == (Action.REMOVED, True)
    assert place.config.read_bytes() == MINE
    assert not place.shim.parent.exists()
    again = place.uninstall()
    assert (again.changed, again.backup) == (False, None)


def test_an_upgrade_refreshes_the_shim_and_the_hooks_each_for_itself(place: Place) -> None:
    place.install(None)
    report = place.install(None, program=b"better\n")
    assert (report.action, report.shim_changed, report.backup) == (Action.UNCHANGED, True, None)
    assert place.shim.read_bytes() == b"better\n"
    report = place.install(NEW, program=b"better\n")
    assert (report.action, report.shim_changed) == (Action.REFRESHED, False)
    assert len(registered(place.config)) == 20
    report = place.install(None, program=b"better\n")
    assert len(registered(place.config)) == 16


def test_an_event_can_have_a_budget_of_its_own(place: Place) -> None:
    place.install(exceptions={"PreToolUse": Budget(seconds=53, timeout=60)})
    found = budgets_in(place.config)
    assert found.pop("PreToolUse") == (53.0, 60)
    assert set(found.values()) == {(0.25, 10)}


def test_the_gate_changes_the_hook_of_tool_calls_alone_and_changes_it_back(
    tmp_path: Path,
) -> None:
    watching = Settings(paths.resolve({"HOME": str(tmp_path)}))
    holding = evolve(watching, gate=GateSettings(enabled=True, hold_ms=HoldMs(50_000)))
    config = install_in(watching, NEW).config
    lines = config.read_text().splitlines()
    assert install_in(holding, NEW).action is Action.REFRESHED
    assert budgets_in(config)["PreToolUse"] == (53.0, 60)
    held = config.read_text().splitlines()
    changed = [pair for pair in zip(lines, held, strict=True) if pair[0] != pair[1]]
    assert len(changed) == 2
    assert changed[0][1] == changed[0][0].replace(" 0.25", " 53")
    assert changed[1] == ("timeout = 10", "timeout = 60")
    assert install_in(holding, NEW).action is Action.UNCHANGED
    assert install_in(watching, NEW).action is Action.REFRESHED
    assert config.read_text().splitlines() == lines


def test_the_registered_command_runs_the_installed_shim(place: Place) -> None:
    place.install(program=b"import sys; print(sys.argv, sys.flags.isolated, sys.flags.no_site)")
    text = inspect(place.config)
    assert text
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(place.socket))
        done = subprocess.run(
            ["/bin/sh", "-c", str(text.hooks[0].values["command"])],
            env={}, input=b"{}", capture_output=True, check=True,
        )  # fmt: skip
    assert done.stdout.decode() == f"{[str(place.shim), str(place.socket), '0.25']} 1 1\n"


# --- what is not there yet --------------------------------------------------------------------


def test_a_kimi_that_never_ran_gets_a_private_home_and_file(place: Place) -> None:
    place.config.unlink()
    place.config.parent.rmdir()
    report = place.install()
    assert (report.old, report.backup) == (None, None)
    assert stat.S_IMODE(place.config.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.config.stat().st_mode) == 0o600
    assert len(registered(place.config)) == 20


def test_a_misspelt_home_is_an_error_and_nothing_is_made(tmp_path: Path) -> None:
    place = Place(tmp_path / "no such directory")
    elsewhere = tmp_path / "shim.py"
    with pytest.raises(ConfigError, match=r"kimi home: .*No such file.*--home"):
        place.install(shim=elsewhere)
    assert everything(tmp_path) == {}


def test_a_home_that_was_made_for_nothing_goes_again(place: Place) -> None:
    place.config.unlink()
    place.config.parent.rmdir()
    (place.root / "it's data").write_text("in the way")
    with pytest.raises(ConfigError, match=r"shim\.py: the hook program cannot be installed"):
        place.install()
    assert not place.config.parent.exists()


def test_a_home_that_was_made_goes_again_where_the_edit_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.config.unlink()
    place.config.parent.rmdir()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kimiaepd.setup.config_file.os.link", fail)
    with pytest.raises(ConfigError, match="No space left"):
        place.install()
    assert not place.config.parent.exists()


def test_another_config_keeps_the_shim_only_while_it_names_this_one(place: Place) -> None:
    other = place.root / "other.toml"
    place.install(shim=place.root / "another/shim.py")
    other.write_bytes(place.config.read_bytes())
    place.install()
    report = uninstall(place.config, shim=place.shim, others=[other, place.root / "none.toml"])
    assert (report.shim_action, report.shim_kept) == (Action.REMOVED, None)
    place.install()
    other.write_bytes(place.config.read_bytes())
    report = uninstall(place.config, shim=place.shim, others=[other])
    assert (report.shim_changed, report.shim_kept) == (False, f"hooks in {other} use it")
    assert place.shim.exists()


def test_a_home_that_install_was_sent_to_keeps_the_shim_too(place: Place) -> None:
    """Such a home is in no variable and no setting: only install knows of it."""
    elsewhere = Place(place.root / "elsewhere")
    elsewhere.config.parent.mkdir(parents=True)
    place.install()
    install(
        elsewhere.config,
        entries(
            socket=str(place.socket),
            shim=str(place.shim),
            python=sys.executable,
            events=("Stop",),
        ),
        shim=place.shim,
        program=b"pass\n",
    )
    report = uninstall(place.config, shim=place.shim, dry_run=True)
    assert report.shim_kept == f"hooks in {elsewhere.config} use it"
    report = place.uninstall()
    assert (report.shim_changed, report.shim_kept) == (False, f"hooks in {elsewhere.config} use it")
    report = uninstall(elsewhere.config, shim=place.shim)
    assert report.shim_action is Action.REMOVED
    assert not place.shim.parent.exists(), "the list went with the program"


@pytest.mark.parametrize("listed", [b"", b"[", b"7", b'[7, "relative", null]', b"\xff"])
def test_a_list_of_homes_that_says_nothing_costs_nothing(place: Place, listed: bytes) -> None:
    place.install()
    (place.shim.parent / "homes.json").write_bytes(listed)
    assert place.uninstall().shim_action is Action.REMOVED
    assert not place.shim.parent.exists()


def test_uninstalling_where_nothing_is_does_nothing(tmp_path: Path) -> None:
    report = Place(tmp_path).uninstall()
    assert (report.action, report.old, report.changed) == (Action.UNCHANGED, None, False)
    assert everything(tmp_path) == {}


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "said"),
    [
        (b"a = 1\nb =\n", r"config\.toml:2: not TOML: .*; mend that line"),
        (
            b"a = 1\nhooks = 5\n",
            r"config\.toml:2: `hooks` is no array of tables.*; delete ",
        ),
        (
            b"[[hooks]]\nevent='X'\ncommand='y'\n",
            r"config\.toml:1: another tool's hook .*'X'; mend",
        ),
    ],
)
def test_a_refusal_names_file_line_reason_remedy_and_writes_nothing(
    place: Place, old: bytes, said: str
) -> None:
    place.config.write_bytes(old)
    before = everything(place.root)
    with pytest.raises(ConfigError, match=said) as caught:
        place.install()
    assert "\n" not in str(caught.value)
    assert everything(place.root) == before


def test_a_refused_uninstall_leaves_the_shim_too(place: Place) -> None:
    place.install()
    with place.config.open("ab") as file:
        file.write(b"yolo = true\n")
    before = everything(place.root)
    with pytest.raises(ConfigError, match=r"config\.toml:\d+: `yolo` stands inside our last"):
        place.uninstall()
    assert everything(place.root) == before


def test_a_shim_that_cannot_be_installed_leaves_the_config_as_it_was(place: Place) -> None:
    (place.root / "it's data").write_text("in the way")
    with pytest.raises(ConfigError, match=r"shim\.py: the hook program cannot be installed"):
        place.install()
    assert place.config.read_bytes() == MINE


def test_a_config_that_cannot_be_written_keeps_its_shim_on_uninstall(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.install()

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match="No space left"):
        place.uninstall()
    assert place.shim.exists()


def test_a_release_that_was_never_tried_is_refused(tmp_path: Path) -> None:
    places = paths.resolve({"HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"kimi 0\.27\.0 is older than 0\.28\.0"):
        install_in(Settings(places), Version(0, 27, 0))
    assert everything(tmp_path) == {}


# --- another writer, dry runs -----------------------------------------------------------------


def test_what_the_vendor_saves_while_we_install_is_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_fchmod = os.fchmod

    def save_first(handle: int, mode: int) -> None:
        real_fchmod(handle, mode)
        if place.config.read_bytes() == MINE:
            place.config.write_bytes(MINE + b"[saved]\nmeanwhile = true\n")

    place.install()
    place.config.write_bytes(MINE)
    monkeypatch.setattr(os, "fchmod", save_first)
    report = place.install()
    assert report.old == MINE + b"[saved]\nmeanwhile = true\n"
    assert place.config.read_bytes().startswith(report.old)
    assert len(registered(place.config)) == 20


def test_a_dry_run_shows_the_change_and_writes_nothing(place: Place) -> None:
    before = everything(place.root)
    report = place.install(dry_run=True)
    lines = report.diff().splitlines()
    assert everything(place.root) == before
    assert lines[:2] == [f"--- {place.config}", f"+++ {place.config}"]
    assert [line for line in lines[3:] if not line.startswith("+")] == [
        " # mine",
        ' default_model = "mock"',
    ]
    assert sum(line == "+[[hooks]]" for line in lines) == 20
    place.install()
    assert place.install(dry_run=True).diff() == ""
    assert uninstall(place.config, shim=place.shim, dry_run=True).new == MINE
    assert place.shim.exists()


def test_a_dry_run_tells_of_the_shim_and_does_not_touch_it(place: Place) -> None:
    assert place.install(dry_run=True).shim_changed
    assert not place.shim.exists()
    place.install()
    assert not place.install(dry_run=True).changed
    assert place.install(program=b"better\n", dry_run=True).shim_changed
    assert uninstall(place.config, shim=place.shim, dry_run=True).shim_changed
    report = uninstall(place.config, shim=place.shim, others=[place.config], dry_run=True)
    assert report.shim_changed  # the config itself is no other user of it
    place.uninstall()
    assert not uninstall(place.config, shim=place.shim, dry_run=True).changed


def test_a_dry_run_says_where_a_final_newline_is_missing(place: Place) -> None:
    place.config.write_bytes(MINE.strip())
    assert place.install(dry_run=True).diff().count("\n\\ No newline at end of file\n") == 2


def test_everything_comes_from_the_paths(tmp_path: Path) -> None:
    places = paths.resolve({"HOME": str(tmp_path)})
    report = install_in(Settings(places), None)
    assert report.config == tmp_path / ".kimi-code/config.toml"
    assert places.installed_shim.is_file()
    text = inspect(report.config)
    assert text
    assert {hook.ours and hook.ours.socket for hook in text.hooks} == {str(places.socket)}
    assert tuple(hook.entry() for hook in text.hooks) == intended(Settings(places), None)
    uninstall(report.config, shim=places.installed_shim)
    assert everything(tmp_path).pop(".kimi-code/config.toml") == b""
