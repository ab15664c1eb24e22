"""kimiaepd: Kimi Code CLI's hooks as AEP events, on disk and to a relay."""

from __future__ import annotations

__version__ = "0.1.0"
