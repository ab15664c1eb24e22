"""The demo: everything that kimiaepd does in a minute, without Kimi.

One room an idea: `session.jsonl` is what is played, `story` reads it, `scratch` is the instance it
is played on, `human` the person who looks on and answers, and `player` runs the hooks and says
what came of them.

Rules:
- Nothing is made up: the registered commands run as Kimi runs them, through the installed shim and
  the socket to a daemon in a process of its own, and what is shown came from its relay, to an
  ordinary consumer. What a step promises and does not show fails the demo.
- It touches nothing of the user's: its home, its ports and its daemon are its own, and both are
  gone at the end, however it ends.
- The session is ours, in the shapes of Kimi Code 2.1.0.
"""
