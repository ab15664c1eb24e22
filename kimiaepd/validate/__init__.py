"""Whether a log keeps to the AEP 0.1 standard; where it does not, the line and the rule.

    LogChecker   the core: lines in, findings out, no file and no clock
    check_file   the same for a file

One room an idea: `shape` (envelope and payload), `levels` (what may ride at which capture level),
`forms` (form answers), `order` (ids and positions), `lifecycle` (ends); `log` has them in order.

It checks what the standard lets a reader see in a log, by any emitter. What only the emitter can
know is not judged: whether text was redacted, a digest is right, or an event is true.
"""

from __future__ import annotations

from kimiaepd.validate.files import check_file, in_order, read_lines
from kimiaepd.validate.finding import Finding
from kimiaepd.validate.log import LogChecker

__all__ = ["Finding", "LogChecker", "check_file", "in_order", "read_lines"]
