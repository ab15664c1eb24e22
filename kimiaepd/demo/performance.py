"""A whole performance: an instance, its daemon, a person, the acts, the log's check, and the end.

Rules:
- A signal ends it at any moment, and what it made is gone before anybody hears of that: no process
  and no directory is left. The caller passes the signal on.
- `keep` keeps an instance whose story was told: its daemon until a signal, its files for good.
- A daemon that ends before the story does ends that with one line.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NoReturn

import trio
from attrs import define, evolve

from kimiaepd.demo import scratch
from kimiaepd.demo.human import Human
from kimiaepd.demo.player import Player, Say, Terms, Who, told_of
from kimiaepd.demo.scratch import KIMI_VERSION, Scratch
from kimiaepd.demo.story import Act
from kimiaepd.errors import UserError
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.storage.log_reader import as_object
from kimiaepd.views.relay import find
from kimiaepd.views.relay_consumer import Wish, consuming

CHECKED = "the log keeps to the standard"
"""The step that the story ends with."""


@define
class Verdict:
    """How it went.

    Attributes:
        gaps: what was missing, by step, once the story was told to its end.
        signal: the one that ended it before.
    """

    gaps: dict[str, list[str]] | None = None
    signal: signal.Signals | None = None


async def perform(
    acts: Sequence[Act], environ: Mapping[str, str], terms: Terms, say: Say, *, keep: bool = False
) -> Verdict:
    """Perform the acts on an instance of their own.

    Args:
        acts: what to play.
        environ: ours.
        terms: how to play it.
        say: where it is told.
        keep: whether the instance stays.

    Raises:
        UserError: there is no place for it, or its daemon did not start or did not last.
        OSError: what is said cannot be written.
    """
    verdict = Verdict()
    endings = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it goes on
        endings.add(signal.SIGHUP)
    with trio.open_signal_receiver(*endings) as signals:
        made = scratch.make(environ)
        try:
            async with trio.open_nursery() as demo_nursery:
                demo_nursery.start_soon(_obey, signals, demo_nursery.cancel_scope, verdict)
                await _perform_on(made, acts, terms, say, verdict, keep=keep)
                demo_nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            if not keep or verdict.gaps is None:
                scratch.remove(made)
    return verdict


async def _obey(signals: AsyncIterator[int], scope: trio.CancelScope, verdict: Verdict) -> None:
    async for number in signals:
        if verdict.gaps is None:
            verdict.signal = signal.Signals(number)
        scope.cancel()


async def _perform_on(
    made: Scratch, acts: Sequence[Act], terms: Terms, say: Say, verdict: Verdict, *, keep: bool
) -> None:
    made.configure()
    there = f"KIMIAEPD_CONFIG={shlex.quote(str(made.config))} {terms.program}"
    say("demo", f"a session of Kimi Code {KIMI_VERSION} on a scratch instance in {made.home}")
    async with made.daemon() as (process, url), trio.open_nursery() as watch_nursery:
        watch_nursery.start_soon(_mourn, made, process)
        say("demo", f"console: {url}")
        say("demo", f"the code is good once, for a minute; another: {there} console")
        relay = find(made.settings(), made.environ, may_control=True)
        async with (
            consuming(relay, Wish(since="all"), "kimiaepd-demo") as consumer,
            trio.open_nursery() as human_nursery,
        ):
            human = Human(consumer, lambda event: say(_who_says(event), told_of(event)))
            human_nursery.start_soon(human.look)
            on_it = evolve(terms, program=there)
            player = Player(made.registered(), human, on_it, say, made.log_lines)
            await player.play(acts)
            await _check(made, player)
            human_nursery.cancel_scope.cancel()
        verdict.gaps = player.gaps
        if keep:
            say("demo", f"\nkept in {made.home}: {there} status; Ctrl-C stops its daemon")
            await trio.sleep_forever()
        watch_nursery.cancel_scope.cancel()


def _who_says(event: JSONObject) -> Who:
    """Whose event it is: a command has no place in the session's order."""
    return "event" if "seq" in event else "person"


async def _mourn(made: Scratch, process: trio.Process) -> NoReturn:
    await process.wait()
    raise UserError(f"the demo's daemon ended with {process.returncode}: {made.complaint()}")


async def _check(made: Scratch, player: Player) -> None:
    """The last step: the log, by the standard, by what is secret, and by what the relay said."""
    player.begin(CHECKED)
    done = await trio.run_process(
        [sys.executable, "-m", "kimiaepd", "validate", *made.logs()],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=made.environ,
        cwd=made.home,
    )
    summary = done.stderr.decode("utf-8", "replace").strip()
    player.say("log", f"kimiaepd validate: {summary}")
    if done.returncode:
        finding = done.stdout.decode("utf-8", "replace").partition("\n")[0]
        player.miss(f"a log without findings, such as {finding or summary}")
    lines = made.log_lines()
    if any(secret.encode() in line for secret in player.secrets for line in lines):
        player.miss("a log without the secret")
    logged: list[JSONObject] = [{"id": found["id"]} for line in lines if (found := as_object(line))]
    untold = await player.human.misses(logged, 0)
    if untold or not logged:
        player.miss(f"all of the log at the relay: {len(untold)} of {len(logged)} did not come")
    else:
        player.say("log", f"the relay had all {len(logged)} of them")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """A failure for people out of the nurseries' wrapping; the group itself where it is more."""
    known, rest = group.split((UserError, OSError))
    found: BaseException | None = known
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return group if rest or found is None else found
