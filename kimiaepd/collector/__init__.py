"""The embedded relay: a small AEP collector, for whoever has no other (AEP-0003, AEP-0004).

Rules:
- It is a relay like any other: the daemon's own sender reaches it over loopback, and any AEP 0.1
  client works against it unchanged. Nothing here knows the daemon.
- It holds what it was sent in memory, bounded, and nothing on disk: the log is the store.
- An event goes out as it came in, byte for byte, unless a subscriber asked for less of it.
- A slow or hostile consumer costs itself: it is shed, then left; the others notice nothing.
- Observation and control need a token. Control goes to at most one claimant, or is refused.

Pure, and held to that by a test: `attr_match.py` (who wants an event), `downlevel.py` (how much of
it), `envelope.py` (whether it is one), `history.py` (what is held), `roster.py` (who claims what).
`hub.py` brings events and consumers together, `outgoing.py` is what waits for one of them,
`asked.py` what it wants; `access.py` says who may do what. `routes.py`, `stream.py` and `duplex.py`
speak HTTP, server-sent events and WebSocket, `http1.py` carries them, and `serve.py` runs it all.
`page.py` serves the console, whose files are in `console/`.
"""
