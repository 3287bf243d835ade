"""`holdproof watch`: a store as it lives."""

import sys
from collections.abc import Iterator
from typing import Annotated

import click
from rich.console import Console
from rich.live import Live

from holdproof.cli.call import CommandContext, Namespace, Option, command
from holdproof.cli.draw import frame
from holdproof.model.watch import Frame

COMMANDS: dict[str, click.Command] = {}


@command(COMMANDS, "watch", example="holdproof watch --every 2", group="Inspect", reach="server", draw=frame)
def watch(
    call: CommandContext,
    *,
    once: Annotated[bool, Option("--once", help="Show the store as it is now, and end.")] = False,
    every: Annotated[float, Option("--every", help="How many seconds between two looks.")] = 1.0,
    rounds: Annotated[int | None, Option("--rounds", help="Stop after so many looks.")] = None,
    limit: Annotated[int, Option("--limit", help="How many of each, at most.")] = 20,
    ns: Namespace = "main",
) -> Frame | Iterator[Frame]:
    """Watch flows, escalations, the log and what is wrong, until Ctrl-C; with --json one line for each change."""
    if once:
        with call.open(create=False) as store:
            return store.watch.look(limit=limit, ns=ns)
    return _frames(call, every_s=every, rounds=rounds, limit=limit, ns=ns)


def _frames(call: CommandContext, *, every_s: float, rounds: int | None, limit: int, ns: str) -> Iterator[Frame]:
    """Each frame; on a terminal it is drawn over the one before, and nothing is left to print."""
    with call.open(create=False) as store:
        frames = store.watch.follow(every_s=every_s, rounds=rounds, limit=limit, ns=ns)
        if call.as_json or not sys.stdout.isatty():
            yield from frames
            return
        # Refreshed by hand: the screen changes when a frame arrives, and at no other time.
        with Live(console=Console(), auto_refresh=False) as live:
            for each in frames:
                live.update(frame(each.to_dict()), refresh=True)
