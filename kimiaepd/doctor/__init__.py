"""`kimiaepd doctor`: what is wrong with a set-up, in one line each, and how to mend it.

Rules:
- Three truths are told apart, because each can hold without the next: *configured* (Kimi's file
  says what it must), *probed* (the registered command, run as Kimi runs it, does what it must) and
  *fired* (a real kimi has run it; when).
- It looks and mends nothing. What it runs leaves no trace: a probe is no hook, and a file that it
  must make stands in a scratch directory of its own.
- Every look is time-boxed, and one that fails in a way of its own is a finding, never a traceback.
- A token is never printed, and is sent to nobody but the one it is for.

A module a subject; `check.py` says what a check is, `examine.py` in which order they come.
"""
