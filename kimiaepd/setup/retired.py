"""`~/.kimi`: the home of another program, the retired kimi-cli, which people still have.

Nothing is registered there: a hook in that file would be seen by nobody, or by the wrong program.
Only where Kimi Code itself was told to use it (its own KIMI_CODE_HOME) it is a home like any other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kimiaepd.setup.standing import same_file

BELONGS = "belongs to another program, the retired kimi-cli"


def retired_home(environ: Mapping[str, str]) -> Path:
    """Where the retired program keeps its own."""
    return Path(environ.get("HOME") or "/", ".kimi")


def is_anothers(home: Path, environ: Mapping[str, str]) -> bool:
    """Whether a home is the retired program's, and no Kimi Code that is started here reads it."""
    retired = os.fspath(retired_home(environ))
    told = environ.get("KIMI_CODE_HOME")
    return same_file(str(home), retired) and not (told and same_file(told, retired))
