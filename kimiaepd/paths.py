"""Where things are: one pure resolution of HOME, the XDG variables and our own variables.

Rules:
- Everything follows `HOME` and the XDG variables, so a scratch `HOME` isolates a whole instance.
- What is set wins over a default; a relative XDG path is ignored, as its specification says.
- A socket path is at most 103 bytes (macOS allows that many, Linux 107). A *default* that is longer
  moves to a short name made from its hash, under a directory of our own; one that somebody *said*
  is an error, because a hook command and a daemon that disagree never meet.

It touches no file: whether a directory is private is `endpoint.py`'s business. `platformdirs`
is not used here because it reads the process environment itself and answers differently on macOS.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from kimiaepd.errors import ConfigError

SOCKET_BYTES = 103
"""The longest socket path, in bytes, that every supported system can bind (rule I7)."""


@frozen
class Paths:
    """Every place that one instance uses.

    Attributes:
        config_file: our own settings; it need not exist.
        state_dir: lock, epoch, ledger and socket; private to the user.
        socket: where hooks and clients reach the daemon.
        log_dir: one JSONL file a session.
        installed_shim: the copy of `shim.py` that Kimi's config names.
        kimi_home: the vendor's home; its `config.toml` is where hooks are registered.
    """

    config_file: Path
    state_dir: Path
    socket: Path
    log_dir: Path
    installed_shim: Path
    kimi_home: Path


@frozen
class Said:
    """A path that somebody gave, and where: "KIMIAEPD_SOCKET", or a file and its key."""

    value: str
    by: str

    def path(self) -> Path:
        """The path itself.

        Raises:
            ConfigError: it is not absolute.
        """
        if "\0" in self.value:
            raise ConfigError(f"{self.by}: a path cannot have a NUL in it")
        if not self.value.startswith("/"):
            raise ConfigError(f"{self.by}: {self.value!r} is not an absolute path; start it with /")
        return Path(self.value)


VARIABLES = {
    "state_dir": "KIMIAEPD_STATE_DIR",
    "socket": "KIMIAEPD_SOCKET",
    "log.dir": "AEP_LOG_DIR",
    "kimi_home": "KIMI_CODE_HOME",
}
"""The setting of each place that can be said, and its variable."""


def config_file(environ: Mapping[str, str]) -> Path:
    """Our own settings file: `KIMIAEPD_CONFIG`, else in the XDG configuration directory.

    Raises:
        ConfigError: no home directory is known, or the variable is no absolute path.
    """
    if said := environ.get("KIMIAEPD_CONFIG"):
        return Said(said, "KIMIAEPD_CONFIG").path()
    return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "kimiaepd/config.toml"


def resolve(environ: Mapping[str, str], said: Mapping[str, Said] | None = None) -> Paths:
    """All places.

    Args:
        environ: the environment; its own variables for places count too.
        said: what the settings file says, by setting (`VARIABLES`); the environment wins over it.

    Raises:
        ConfigError: no home directory is known, or a path that was said cannot be used.
    """
    places = dict(said or {})
    for setting, variable in VARIABLES.items():
        if value := environ.get(variable):
            places[setting] = Said(value, variable)
    state_dir = _place(
        places, "state_dir", _xdg(environ, "XDG_STATE_HOME", ".local/state") / "kimiaepd"
    )
    return Paths(
        config_file=config_file(environ),
        state_dir=state_dir,
        socket=_socket(state_dir, places.get("socket")),
        log_dir=_place(places, "log.dir", _home(environ) / ".aep/logs") / "kimi-code",
        installed_shim=_xdg(environ, "XDG_DATA_HOME", ".local/share") / "kimiaepd/shim.py",
        kimi_home=_place(places, "kimi_home", _home(environ) / ".kimi-code"),
    )


def _place(places: Mapping[str, Said], setting: str, default: Path) -> Path:
    said = places.get(setting)
    return said.path() if said else default


def _socket(state_dir: Path, said: Said | None) -> Path:
    if said:
        path = said.path()
        if len(os.fsencode(path)) > SOCKET_BYTES:
            raise ConfigError(
                f"{said.by}: the socket path is {len(os.fsencode(path))} bytes long, and at most "
                f"{SOCKET_BYTES} can be bound; give a shorter one: {path}"
            )
        return path
    path = state_dir / "hook.sock"
    if len(os.fsencode(path)) <= SOCKET_BYTES:
        return path
    name = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    return Path(f"/tmp/kimiaepd-{os.getuid()}") / f"{name}.sock"  # noqa: S108 - made 0700, checked ours


def _home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME")
    if not home or not home.startswith("/"):
        raise ConfigError("HOME is not set to an absolute path; set it to your home directory")
    return Path(home)


def _xdg(environ: Mapping[str, str], name: str, below_home: str) -> Path:
    value = environ.get(name, "")
    return Path(value) if value.startswith("/") else _home(environ) / below_home
