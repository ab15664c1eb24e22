"""What a service is told: taken from the shell of the install, and never a secret."""

from __future__ import annotations

import os
import plistlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd import settings
from kimiaepd.errors import ConfigError
from kimiaepd.service import plist
from kimiaepd.service.wanted import Service, wanted


def described(environ: dict[str, str], home: Path | None = None) -> Service:
    return wanted(settings.load(environ, kimi_home=home), environ, kimi_home=home)


def test_the_program_is_this_interpreter_and_looks_for_modules_in_no_working_directory() -> None:
    assert described({"HOME": "/h"}).program == (sys.executable, "-P", "-m", "kimiaepd", "run")


def test_variables_that_decide_something_are_carried_and_no_others(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("stop_seconds = 9\n")
    carried = {
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": "/s",
        "KIMIAEPD_CONFIG": str(config),
        "AEP_CAPTURE": "full",
        "AEP_RELAY_URL": "wss://relay.example",
    }
    service = described(
        {**carried, "AEP_TOKEN": "t0k3n", "PATH": "/bin", "AEP_CAPTURE_ATTENTION": ""}
    )
    assert service.environment == carried
    assert service.stop_seconds == 9
    assert "t0k3n" not in repr(service)


def test_a_relative_xdg_path_means_nothing_to_a_service_either() -> None:
    assert described({"HOME": "/h", "XDG_DATA_HOME": "data"}).environment == {"HOME": "/h"}


def test_the_flags_home_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    environ = {"HOME": "/h", "KIMI_CODE_HOME": "/k"}
    assert described(environ).environment["KIMI_CODE_HOME"] == "/k"
    assert described(environ, Path("tmp")).environment["KIMI_CODE_HOME"] == "/tmp"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["/h/.local/state/kimiaepd", "/h/.aep/logs/kimi-code"]),
        ({"AEP_LOG_DIR": "/h/.local/state/kimiaepd/l"}, ["/h/.local/state/kimiaepd"]),
        (
            {"KIMIAEPD_SOCKET": "/h/so/k.sock"},
            ["/h/.local/state/kimiaepd", "/h/.aep/logs/kimi-code", "/h/so"],
        ),
        ({"KIMIAEPD_STATE_DIR": "/h/a/../s", "AEP_LOG_DIR": "/l"}, ["/h/s", "/l/kimi-code"]),
        ({"AEP_LOG_DIR": "/"}, ["/h/.local/state/kimiaepd", "/kimi-code"]),
    ],
)
def test_what_the_daemon_writes_in_is_writable(
    environ: dict[str, str], expected: list[str]
) -> None:
    assert [str(path) for path in described({"HOME": "/h", **environ}).writable] == expected


def test_a_tree_that_is_emptied_between_boots_is_writable_as_a_whole() -> None:
    """The daemon makes its directory there again, which a missing one would not let it."""
    deep = "/h/" + "d" * 100
    places = described({"HOME": "/h", "KIMIAEPD_STATE_DIR": deep}).writable
    assert Path(os.path.realpath("/tmp")) in places
    run = f"/run/user/{os.getuid()}"
    places = described({"HOME": "/h", "KIMIAEPD_SOCKET": f"{run}/kimiaepd/k.sock"}).writable
    assert Path(run) in places


def test_a_link_to_the_log_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "disk")
    places = described({"HOME": str(tmp_path), "AEP_LOG_DIR": str(tmp_path / "logs")}).writable
    assert tmp_path / "disk/kimi-code" in places


def test_what_no_service_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"AEP_LOG_DIR: .* control character"):
        described({"HOME": "/h", "AEP_LOG_DIR": "/a\nb"})
    with pytest.raises(ConfigError, match=r"HOME: .* not UTF-8"):
        described({"HOME": "/h\udcff"})
    loaded = settings.load({"HOME": "/h"})
    with pytest.raises(ConfigError, match="does not know its own path"):
        wanted(loaded, {"HOME": "/h"}, python="")
    with pytest.raises(ConfigError, match=r"the interpreter: .* control character"):
        wanted(loaded, {"HOME": "/h"}, python="/a\x07/python")


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff")))
def test_a_property_list_gives_back_what_was_put_in(text: str) -> None:
    service = Service((f"/{text}", "run"), {"HOME": text}, (), Path("/s") / f"x{text}", 5)
    made = plist.render(service)
    assert made.splitlines().count(plist.MARKER) == 1
    agent = plistlib.loads(made.encode())
    assert agent["ProgramArguments"] == [f"/{text}", "run"]
    assert agent["EnvironmentVariables"] == {"HOME": text}
    assert agent["StandardErrorPath"] == str(service.state_dir / "service.log")
