"""`python -m kimiaepd` is `kimiaepd`."""

from __future__ import annotations

from kimiaepd.cli import main

if __name__ == "__main__":
    main()
