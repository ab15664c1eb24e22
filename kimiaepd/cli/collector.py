"""`kimiaepd collector`: the embedded relay alone, in the foreground."""

from __future__ import annotations

import ipaddress
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import click
import structlog
import trio

from kimiaepd import log_lines
from kimiaepd import settings as settings_room
from kimiaepd.collector import envelope
from kimiaepd.collector import serve as serving
from kimiaepd.collector.access import CODE_SECONDS, Access
from kimiaepd.collector.history import Bounds, History
from kimiaepd.collector.hub import Hub
from kimiaepd.collector.routes import Collector
from kimiaepd.collector.same_site import Site
from kimiaepd.collector.serve import PORT, Tls
from kimiaepd.errors import UsageError
from kimiaepd.storage.private_directory import create_private

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65_535),
    help="The port, or the next free one; 0: any.",
)
@click.option("--name", "names", multiple=True, help="A name by which it is reached; repeatable.")
@click.option("--cert", type=_FILE, help="A TLS certificate chain; needed off this machine.")
@click.option("--key", type=_FILE, help="Its key.")
@click.option(
    "--buffer",
    default=Bounds().events,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="Events of one session that are held.",
)
def collector(
    *,
    host: str,
    port: int,
    names: tuple[str, ...],
    cert: Path | None,
    key: Path | None,
    buffer: int,
) -> None:
    """Run a small AEP relay in the foreground, until Ctrl-C or SIGTERM.

    Emitters send it events, consumers subscribe, commands go between them. It holds what it was
    sent in memory, bounded; nothing is written. The tokens are `kimiaepd token show`.

    The code on the ready line lets in one browser, or another client that can send its token in a
    URL alone, within 60 s: POST {"code": ...} to /session, which gives a token that ends with this
    process. There is one code a start; whoever can set a header needs none.
    """
    log_lines.configure(verbose=False)
    tls = _tls(host, cert, key)
    state_dir = settings_room.load(os.environ).paths.state_dir
    create_private(state_dir)
    listener = serving.bind(host, port)
    bound = listener.getsockname()[1]
    site = Site.at(host, bound, names=names, tls=tls is not None)
    made = Collector(Hub(History(Bounds(events=buffer))), Access.open(state_dir, site))
    envelope.warm()
    where = f"{site.scheme}://{f'[{host}]' if ':' in host else host}:{bound}"
    trio.run(_run, made, partial(serving.serve, made, listener, tls=tls), where)


def _tls(host: str, cert: Path | None, key: Path | None) -> Tls | None:
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise UsageError(f"--host: {host!r} is no address in numbers, such as 127.0.0.1") from None
    if cert and key:
        return Tls(cert, key)
    if cert or key:
        raise UsageError("--cert and --key go together")
    if not is_here:
        raise UsageError(
            f"--host: {host} is reached from other machines, and a token must not travel there in"
            " plain text; give --cert and --key"
        )
    return None


async def _run(made: Collector, serve: Callable[..., Awaitable[None]], where: str) -> None:
    async with trio.open_nursery() as run_nursery:
        await run_nursery.start(_obey_signals, made)
        await run_nursery.start(serve)
        code = made.access.issue(trio.current_time())
        click.echo(
            f"kimiaepd collector ready: {where}, token: kimiaepd token show,"
            f" code {code} (once, within {CODE_SECONDS:.0f} s)"
        )
        await made.stopping.wait()
        run_nursery.cancel_scope.deadline = trio.current_time() + 2 * serving.GRACE_SECONDS


async def _obey_signals(
    made: Collector, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            made.stopping.set()
            return
