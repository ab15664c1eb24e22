"""The systemd unit, as text; it touches nothing.

Rules of quoting (systemd.syntax(7), systemd.service(5); tried on 252):
- Inside double quotes a backslash escapes a quote and itself, on every line that is used here, and
  `%` is doubled everywhere.
- `ExecStart=` expands `$` too, but not in the program's path; and a path with a quote, a backslash
  or a dollar cannot stand there at all. A shell that becomes the program takes it as an argument.

What of the hardening needs a mount namespace (`ProtectSystem=`, `ReadWritePaths=`) a user's manager
can only do inside a user namespace. Newer ones make one by themselves; 252 does with
`PrivateUsers=yes`, and goes on without any of it otherwise. That line is not written: where making
user namespaces is forbidden it would end the start. `docs/service.md` says how to add it.
Left out, because a command that a person wants to be told by may be any program:
`MemoryDenyWriteExecute=` (a JIT), `RestrictNamespaces=` and a filter of `@mount` (browsers and
Flatpak make sandboxes), `ProtectHome=` and `PrivateTmp=` (Kimi's home is read, sockets meet there).
`ProtectClock=`, `ProtectKernelModules=` and the like need capabilities that no user's manager has.
"""

from __future__ import annotations

import re

from kimiaepd.service.wanted import Service

NAME = "kimiaepd.service"
MARKER = "# Written by `kimiaepd service install`; `kimiaepd service uninstall` removes it."

WATCHDOG_SECONDS = 30
STOP_SLACK_SECONDS = 10
"""What a stop may take beside the daemon's own grace: the last sync of a slow disk."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:=@+,-]+")
_NO_PROGRAM = re.compile(r"[\"'\\$]")

_TEXT = """\
{marker}
# To change something: systemctl --user edit kimiaepd

[Unit]
Description=Turn what Kimi Code CLI does into AEP events
# Five failures in a minute are no accident; another start does not mend them.
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
ExecStart={program}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=1
# Wrong usage, a daemon that runs already, a wrong setting: a person has to mend these.
RestartPreventExitStatus=64 75 78
TimeoutStopSec={stop}
# Fed by a ping through the daemon's own socket.
WatchdogSec={watchdog}
SyslogIdentifier=kimiaepd
{environment}

# Logs and sockets are the user's alone; a core would hold what was redacted from them.
UMask=0077
LimitCORE=0
NoNewPrivileges=yes
# It writes its state, its log and its socket; everything else is read-only.
ProtectSystem=strict
{writable}
# Hooks, relays, and netlink for the resolver, which asks what addresses there are.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
# It looks into no other process.
SystemCallFilter=~@debug
SystemCallErrorNumber=EPERM
SystemCallArchitectures=native
LockPersonality=yes
RestrictSUIDSGID=yes

[Install]
WantedBy=default.target
"""


def render(service: Service) -> str:
    """The unit's text."""
    return _TEXT.format(
        marker=MARKER,
        program=exec_start(service.program),
        stop=service.stop_seconds + STOP_SLACK_SECONDS,
        watchdog=WATCHDOG_SECONDS,
        environment="\n".join(
            f"Environment={word(f'{name}={value}')}" for name, value in service.environment.items()
        ),
        # The dash: a directory that is missing is the daemon's to complain of, in words.
        writable="\n".join(f"ReadWritePaths={word(f'-{path}')}" for path in service.writable),
    )


def exec_start(program: tuple[str, ...]) -> str:
    """The command as `ExecStart=` reads it."""
    if _NO_PROGRAM.search(program[0]):
        program = ("/bin/sh", "-c", 'exec "$0" "$@"', *program)
    return " ".join((word(program[0]), *(word(part.replace("$", "$$")) for part in program[1:])))


def word(text: str) -> str:
    """One word of `Environment=`, `ExecStart=` or `ReadWritePaths=`."""
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
