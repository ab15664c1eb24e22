"""An error for people as a check: its line, parted into what is wrong and what to do."""

from __future__ import annotations

from kimiaepd.doctor.check import Check, finding
from kimiaepd.errors import UserError


def told(name: str, error: UserError, *, remedy: str) -> Check:
    """A finding that says what the error says.

    Args:
        name: the check's subject.
        error: its line is "what is wrong; what to do", as every error's for people is.
        remedy: what to do where it does not say.
    """
    said, _, cure = str(error).rpartition("; ")
    return finding(name, said, cure) if said else finding(name, cure, remedy)
