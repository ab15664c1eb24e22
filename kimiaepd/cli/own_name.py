"""What this program is called where it was called: people copy what it prints."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

NAME = "kimiaepd"


def own_name() -> str:
    """`kimiaepd` where the PATH has it, else the way in which it was started."""
    if shutil.which(NAME):
        return NAME
    started = sys.argv[0]
    if Path(started).name == NAME:
        return shlex.quote(started)
    return f"{shlex.quote(sys.executable)} -m {NAME}"
