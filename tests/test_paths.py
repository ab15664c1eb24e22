"""Where things are: HOME and XDG alone decide, and a socket path always fits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kimiaepd import paths
from kimiaepd.errors import ConfigError


@pytest.mark.parametrize(
    ("environ", "member", "expected"),
    [
        ({}, "config_file", "/h/.config/kimiaepd/config.toml"),
        ({}, "state_dir", "/h/.local/state/kimiaepd"),
        ({}, "socket", "/h/.local/state/kimiaepd/hook.sock"),
        ({}, "log_dir", "/h/.aep/logs/kimi-code"),
        ({}, "installed_shim", "/h/.local/share/kimiaepd/shim.py"),
        ({}, "kimi_home", "/h/.kimi-code"),
        ({"XDG_STATE_HOME": "/s"}, "socket", "/s/kimiaepd/hook.sock"),
        ({"XDG_STATE_HOME": "s"}, "socket", "/h/.local/state/kimiaepd/hook.sock"),
        ({"XDG_STATE_HOME": ""}, "socket", "/h/.local/state/kimiaepd/hook.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/1"}, "socket", "/h/.local/state/kimiaepd/hook.sock"),
        ({"TMPDIR": "/elsewhere"}, "socket", "/h/.local/state/kimiaepd/hook.sock"),
        ({"KIMIAEPD_STATE_DIR": "/d"}, "socket", "/d/hook.sock"),
        ({"KIMIAEPD_SOCKET": "/d/x.sock"}, "socket", "/d/x.sock"),
        ({"XDG_DATA_HOME": "/data"}, "installed_shim", "/data/kimiaepd/shim.py"),
        ({"AEP_LOG_DIR": "/l"}, "log_dir", "/l/kimi-code"),
        ({"KIMI_CODE_HOME": "/k"}, "kimi_home", "/k"),
    ],
)
def test_the_table_of_places(environ: dict[str, str], member: str, expected: str) -> None:
    found = paths.resolve({"HOME": "/h", **environ})
    assert getattr(found, member) == Path(expected)


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_without_a_home_nothing_is_guessed(home: str | None) -> None:
    environ = {} if home is None else {"HOME": home}
    with pytest.raises(ConfigError, match="HOME"):
        paths.resolve(environ)


@pytest.mark.parametrize("length", [103, 104, 107, 108])
@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_said_socket_is_measured_in_bytes(length: int, letter: str) -> None:
    room = length - len("/.sock")
    name = letter * (room // len(letter.encode()))
    said = f"/{name}{'x' * (room - len(name.encode()))}.sock"
    assert len(os.fsencode(said)) == length
    environ = {"HOME": "/h", "KIMIAEPD_SOCKET": said}
    if length <= 103:
        assert paths.resolve(environ).socket == Path(said)
    else:
        with pytest.raises(ConfigError, match=f"KIMIAEPD_SOCKET: .* {length} bytes .* 103"):
            paths.resolve(environ)


def test_a_default_socket_that_is_too_long_moves_to_a_short_place() -> None:
    long = {"HOME": "/h", "KIMIAEPD_STATE_DIR": "/" + "deep/" * 30}
    other = {"HOME": "/h", "KIMIAEPD_STATE_DIR": "/" + "deep/" * 31}
    found = paths.resolve(long).socket
    assert len(os.fsencode(found)) <= 103
    assert found == paths.resolve(long).socket
    assert found != paths.resolve(other).socket
    assert found.parent == Path(f"/tmp/kimiaepd-{os.getuid()}")
