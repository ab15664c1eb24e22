"""`kimiaepd service`: the daemon as a service of the user's own service manager.

Rules:
- Everything is per user: a unit of `systemd --user`, or an agent of launchd. Nothing needs root.
- The file carries the variables that decide places and settings, as they were at the install, and
  never a secret: `wanted.py` has the list.
- A file of our name that we did not write is refused, never replaced and never removed.
- Where there is no manager nothing is written; where it refuses, what was written is taken back.
- Programs of the system are found on PATH, run without a shell and time-boxed (`tool.py`).

`wanted` says what a service must know; `unit` and `plist` write that down and touch nothing;
`own_file` is the file; `systemd` and `launchd` talk to the managers; `steps` is what the commands
do, on either. The daemon's own side is `service_notify.py` and `watchdog.py`.
"""
