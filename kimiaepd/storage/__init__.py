"""What stands on disk: the log of every session, the ledger, the epoch, and the locks on them.

    journal.py        append to the log of a session; the one that writers use
    log_reader.py     read it back
    log_files.py      lines and torn tails; log_names.py: how files are called
    log_sync.py       when lines are on the disk itself; open_logs.py: the files kept open
    retention.py      what is removed, and when too little disk is free
    ledger.py         the newest record of each session; epoch.py: the number of each start
    daemon_lock.py    one daemon a state directory
    file_safety.py, private_directory.py
                      files and directories that are ours alone

It stores lines and records; what is in them is for others to say.
"""

from __future__ import annotations
