"""`python -m kimiaepd` is `kimiaepd`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from kimiaepd.cli import main
    except ModuleNotFoundError as error:
        sys.exit(
            f"kimiaepd: not installed for this Python ({sys.executable}): no module {error.name}; "
            "use the one that it was installed with, such as .venv/bin/kimiaepd"
        )
    main()
