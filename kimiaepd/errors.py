"""What can go wrong in words for people, with the exit status that says which kind it was.

A `UserError` is printed as one line and ends the program with its status. Nothing here knows how
it is printed, and nothing that a hook or a relay sends ever raises one: those are counted.

Exit statuses (operations rule I12): 0 clean, 64 usage, 75 already running, 78 bad configuration;
1 where a command did its work and the answer is no (a log with findings, a daemon that is not
there), 3 where a daemon is there and does not answer, 70 where the defect is ours. Of a command
that is sent to a session: 4 rejected, 66 no such ask or session, 77 the token may only look.
"""

from __future__ import annotations

EXIT_NO = 1
EXIT_SILENT = 3
EXIT_REJECTED = 4
EXIT_USAGE = 64
EXIT_NOT_FOUND = 66
EXIT_DEFECT = 70
EXIT_BUSY = 75
EXIT_NOT_ALLOWED = 77
EXIT_CONFIG = 78


class UserError(Exception):
    """A failure that the person at the terminal can mend; `str()` is the one line they read."""

    status = EXIT_NO


class UsageError(UserError):
    """The command line asks for something that does not exist."""

    status = EXIT_USAGE


class BusyError(UserError):
    """Another daemon holds what this one needs."""

    status = EXIT_BUSY


class ConfigError(UserError):
    """A setting, a file or a directory is not as it must be; the line names it and the remedy."""

    status = EXIT_CONFIG
