"""Delivery: every event of the log to an AEP relay, at least once, in order per session.

Rules (operations section 4):
- The log is the outbox. In memory there is only a bounded window; what does not fit is read back
  from disk when its turn comes (I40).
- A session's position moves forward on proof alone: the relay's `pong` to a `ping` that was sent
  after the event. A dead relay, link or daemon costs repetitions, never a gap (I41, I42).
- Nothing here is on a hook's way: the emitter leaves a line and goes on (I48).
- What the WebSocket library does wrong stays inside one connection's nursery (`connection.py`).

`outbox.py` decides what is sent next and holds no I/O; `backlog.py` reads the log back; `link.py`
is one connection's talk, `sender.py` the life of all of them; `positions.py` is what outlives them.
"""
