"""Where hooks and clients meet the daemon: a Unix-domain socket, and the protocol on it.

    wire.py           the protocol, without I/O
    endpoint.py       the socket's file: bound in private, removed by its maker
    activation.py     a socket that a service manager bound
    server.py         listening and stopping; conversation.py: one connection's talk
    connection.py     a stream that tries before it waits; peer.py: who is at the other end
    limits.py         what clients can cost
    client.py         asks a running daemon

`shim.py` speaks the same protocol and imports nothing of this.
"""

from __future__ import annotations
