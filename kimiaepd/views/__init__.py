"""Views: what people see of their agents, and how they answer them, in a terminal.

Rules:
- A view is an ordinary consumer of whatever relay is configured, the daemon's own by default, or a
  reader of the log. Nothing here reaches into the daemon.
- What folds events is pure and never raises, whatever JSON comes; what prints is apart from it.
- What only looks on says so, by the token that observes: whoever connects with the other one is
  somebody who could answer, and calls would wait for him.
"""
