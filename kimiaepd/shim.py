"""The hook command's program: stdin to the daemon's socket, the daemon's reply to stdout.

    python -I -S shim.py SOCKET SECONDS

Rules:
- Whatever happens it exits 0, and writes nothing to stderr: the CLI reads status 2 as a deny.
- It writes to stdout only a reply that came whole and says something. The CLI puts any byte on
  stdout, `{}` too, in front of the model.
- It reads all of stdin first, also when nobody listens: the CLI must not meet a broken pipe.
  A writer that never closes is cut after five seconds, and what came is sent.
- From the end of stdin it takes at most SECONDS, whatever the daemon does or does not do.
- It is copied to a place of its own, so it imports nothing of the package; and it starts at every
  hook, so it imports only modules in C: `socket` and `json` would triple its start-up.
- The frame is that of `wire.py`; its sending side stays open, so that the daemon sees it go.
"""

# ruff: noqa: I002 - `from __future__` imports a module written in Python, at each hook

import _signal  # type: ignore[import-not-found]  # in C, without a stub
import posix
import sys
import time

STARTED_NS = time.time_ns()
STDIN_SECONDS = 5.0
AGAIN = 0.01  # a timer repeats: one that fires just before a system call would be missed
CHUNK = 65536
LONGEST_REPLY = 1 << 20


def set_timer(seconds: float, handler: object) -> None:
    """Call `handler` after `seconds`; a blocked system call goes on after it returns."""
    _signal.signal(_signal.SIGALRM, handler)
    _signal.setitimer(_signal.ITIMER_REAL, seconds, AGAIN)


def leave(_number: int, _frame: object) -> None:
    """Go at once, saying nothing, without the interpreter's own farewell."""
    posix._exit(0)  # noqa: SLF001 - the public name is in os.py


def end_stdin(_number: int, _frame: object) -> None:
    """Put an empty file in the place of stdin: the read that waits on it sees the end."""
    _signal.setitimer(_signal.ITIMER_REAL, 0)
    posix.dup2(posix.open("/dev/null", posix.O_RDONLY), 0)


def read_stdin() -> bytes:
    """Everything that stdin gives within its five seconds; nothing of what memory cannot hold."""
    chunks = []
    set_timer(STDIN_SECONDS, end_stdin)
    try:
        while chunk := posix.read(0, CHUNK):
            chunks.append(chunk)
    except MemoryError:
        chunks.clear()
        while posix.read(0, CHUNK):
            pass
    except OSError:
        pass
    return b"".join(chunks)


def ask(path: str, body: bytes) -> bytes:
    """Send the one frame; the body of the reply if it came whole, else nothing."""
    import _socket  # noqa: PLC0415 - not at the top, where an error would reach stderr

    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    sock.connect(path)
    sock.sendall(b"AEPD1 hook %d %d\n%b" % (STARTED_NS, len(body), body))
    reply = b""
    while len(reply) < LONGEST_REPLY and (chunk := sock.recv(CHUNK)):
        reply += chunk
        length, newline, said = reply.partition(b"\n")
        if newline and (not length.isdigit() or len(said) >= int(length)):
            return said if length == b"%d" % len(said) else b""
    return b""


def main() -> None:
    """Carry one hook; any exception means that there is nothing to say."""
    _signal.signal(_signal.SIGINT, leave)
    body = read_stdin()
    _, path, seconds = sys.argv
    set_timer(max(float(seconds), 0.001), leave)
    said = ask(path, body)
    # Half a reply would be worse than a late one: from here on only stdout can hold us.
    set_timer(0, leave)
    # Braces and white space alone would show the model an empty object.
    if said.translate(None, b"{} \t\r\n"):
        while said:
            said = said[posix.write(1, said) :]


if __name__ == "__main__":
    try:
        main()
    finally:
        leave(0, None)
