"""Which home of Kimi's is looked at, why that one, and whether it is there.

`~/.kimi` belongs to another program, the retired kimi-cli, which people still have beside the new
one. It is named where somebody may have taken it for Kimi Code's; nothing is changed in it.
"""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

from kimiaepd.doctor.check import Check, Level, Patient, finding, ok, warning
from kimiaepd.errors import ConfigError
from kimiaepd.setup.install import CONFIG_NAME, inspect
from kimiaepd.setup.retired import BELONGS, is_anothers, retired_home
from kimiaepd.setup.standing import same_file

NAME = "kimi home"

_ANOTHER = "name the right one with --home, or in KIMI_CODE_HOME"
_OWN = "use Kimi Code's own home: ~/.kimi-code"


def examine(patient: Patient) -> tuple[Check, ...]:
    """Look at Kimi's home; a finding where there is none to look into."""
    home = patient.settings.paths.kimi_home
    which = _which(patient)
    retired = retired_home(patient.environ)
    try:
        is_directory = stat.S_ISDIR(home.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return (_missing(patient, which, retired),)
    except OSError as error:
        why = error.strerror or error
        return (finding(NAME, f"{which} cannot be looked at: {why}", _ANOTHER),)
    if not is_directory:
        return (
            finding(
                NAME, f"{which} is no directory", f"move it away, then run: {patient.setup_command}"
            ),
        )
    if same_file(str(retired), str(home)):
        return (_retired_itself(patient, which),)
    config = retired / CONFIG_NAME
    too = (_retired_too(home, config),) if _has_ours(config) else ()
    return (ok(NAME, which), *too)


def is_there(checks: tuple[Check, ...]) -> bool:
    """Whether there is a home to look into, by what `examine` found."""
    return all(check.level is not Level.FINDING for check in checks)


def _which(patient: Patient) -> str:
    home = patient.settings.paths.kimi_home
    usual = str(Path(patient.environ.get("HOME") or "/", ".kimi-code"))
    vendors = patient.environ.get("KIMI_CODE_HOME") or usual
    if same_file(vendors, str(home)):
        return f"{home} ({patient.home_by})"
    return f"{home} ({patient.home_by}; a kimi that is started here reads {vendors})"


def _missing(patient: Patient, which: str, retired: Path) -> Check:
    home = patient.settings.paths.kimi_home
    other = f"; {retired} is there, but {BELONGS}" if retired.is_dir() else ""
    remedy = f"run: {patient.setup_command}" if home.parent.is_dir() else _ANOTHER
    return finding(NAME, f"{which} does not exist{other}", remedy)


def _retired_itself(patient: Patient, which: str) -> Check:
    said = f"{which} {BELONGS}; Kimi Code reads it only where its own KIMI_CODE_HOME says so"
    judge = finding if is_anothers(patient.settings.paths.kimi_home, patient.environ) else warning
    return judge(NAME, said, _OWN)


def _retired_too(home: Path, config: Path) -> Check:
    return warning(
        NAME,
        f"{config} has hooks of ours too, but {BELONGS}: Kimi Code reads {home}",
        f"run: kimiaepd setup uninstall --home {shlex.quote(str(config.parent))}",
    )


def _has_ours(config: Path) -> bool:
    try:
        text = inspect(config)
    except ConfigError:
        return False  # it is nobody's business here what is wrong with it
    return text is not None and any(hook.ours for hook in text.hooks)
