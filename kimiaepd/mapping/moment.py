"""A moment of the wall clock, as text says it."""

from __future__ import annotations

from datetime import datetime

from kimiaepd.mapping.json_value import JSON


def moment_ns(text: JSON) -> int | None:
    """Nanoseconds since 1970 of an RFC 3339 time; None where it is none."""
    try:
        return (
            round(datetime.fromisoformat(text).timestamp() * 1e9) if isinstance(text, str) else None
        )
    except (ValueError, OverflowError):
        return None
