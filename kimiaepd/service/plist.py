"""The launchd agent, as a property list; it touches nothing.

launchd cannot be told that some exit statuses are final: a daemon that cannot start is tried again
each `THROTTLE_SECONDS`, and a setting that was mended takes effect by itself. `service install`
makes sure that no other daemon runs. There is no watchdog and no journal: what the daemon says goes
to a file in the state directory.
"""

from __future__ import annotations

import plistlib

from kimiaepd.service.wanted import Service

LABEL = "local.kimiaepd"
MARKER = "<!-- Written by `kimiaepd service install`; `kimiaepd service uninstall` removes it. -->"
LOG_NAME = "service.log"

THROTTLE_SECONDS = 30
STOP_SLACK_SECONDS = 10
_PRIVATE = 0o077


def render(service: Service) -> str:
    """The agent's text."""
    log = str(service.state_dir / LOG_NAME)
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(service.program),
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": THROTTLE_SECONDS,
        "ExitTimeOut": service.stop_seconds + STOP_SLACK_SECONDS,
        # A person's agent waits for each hook; the other types may be slowed down.
        "ProcessType": "Interactive",
        "Umask": _PRIVATE,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    head, _, body = plistlib.dumps(agent, sort_keys=False).decode("utf-8").partition("<plist")
    return f"{head}{MARKER}\n<plist{body}"
