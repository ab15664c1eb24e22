"""The ways in which a scripted `kimi web` server, or what stands at its port, can fail."""

from __future__ import annotations

from attrs import define, field


@define(eq=False)
class Switches:
    """How a server misbehaves; may be changed while it runs.

    Attributes:
        hang_up: close each TCP connection as soon as it is there.
        never_shakes_hands: take the WebSocket's handshake and say nothing.
        no_hello: shake hands, and answer, but say no hello.
        no_ack: subscribe, and never say so.
        never_close: leave a client's goodbye unanswered, and the connection open.
        ping_at_goodbye: send protocol pings before the answer to it.
        instead: what goes back to a REST call, by its name such as "GET /api/v1/meta": these bytes,
            or nothing for ever. It has no effect then.
        reacts: an approval that is answered, and a turn that is aborted, are said to have ended.
    """

    hang_up: bool = False
    never_shakes_hands: bool = False
    no_hello: bool = False
    no_ack: bool = False
    never_close: bool = False
    ping_at_goodbye: bool = False
    instead: dict[str, bytes | None] = field(factory=dict)
    reacts: bool = True
