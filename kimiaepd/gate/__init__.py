"""The held gate: a tool call that waits for a person's word, within its terms.

    answers.py   the options, and what an answer means: an option, or nothing
    wording.py   what is asked, and what a refused call is told
    standing.py  whether a session's gate stands: nobody waits for a person who is not there
    gate.py      the hold itself: one cancel scope, one outcome

The first three are pure. What a call may do without anybody is `policy.py`'s business; the events
of a hold, and that it ends once, are `lifecycle.holds`'.

The gate is a veto for honest agents. It is no boundary against a program that runs as the same
user: that one can read the token, and answer.
"""

from __future__ import annotations
