"""`holdproof worker`: a process that runs queued and recovered flows until it is stopped."""

import asyncio
import logging
import os
import signal
import threading
from types import FrameType
from typing import Annotated, Any, Final

import click

from holdproof.api.worker import DRAIN_S, AsyncWorker, SyncWorker
from holdproof.cli import render
from holdproof.cli.application import find_application
from holdproof.cli.call import Argument, CommandContext, Namespace, Option, command
from holdproof.model.defaults import CONCURRENCY

COMMANDS: dict[str, click.Command] = {}

_INTERRUPTED: Final = 130


class _Signals:
    """The first SIGTERM or Ctrl-C asks to stop, the second ends the process at once."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._come)

    def _come(self, _: int, __: FrameType | None) -> None:
        if self.stopping.is_set():
            # Nothing is cleaned up: what was under way is recovered, as after a power cut.
            os._exit(_INTERRUPTED)
        self.stopping.set()


@command(COMMANDS, "worker", example="holdproof worker my_agents --queue payments --concurrency 8", group="Run")
def worker(
    call: CommandContext,
    app: Annotated[
        str,
        Argument(
            "The program of flows: a function that gets the store and registers them, `register` by default, or the"
            " store that the module opened.",
            "MODULE[:NAME]",
        ),
    ],
    *,
    queue: Annotated[
        list[str] | None, Option("--queue", help="Work on this queue; may be repeated. Every one by default.")
    ] = None,
    concurrency: Annotated[
        int, Option("--concurrency", type=click.IntRange(1), help="How many flows run at once.")
    ] = CONCURRENCY,
    name: Annotated[str | None, Option("--name", help="The worker's name, as `workers list` shows it.")] = None,
    drain_s: Annotated[
        float,
        Option("--drain-s", type=click.FloatRange(0), help="Seconds that flows have to end when it is stopped."),
    ] = DRAIN_S,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Run queued, sleeping and recovered flows, schedules and deadlines, until SIGTERM or Ctrl-C drains it."""
    application = find_application(app)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = {"ns": ns, "queues": queue or None, "concurrency": concurrency, "name": name or None}
    with application.open_worker(call, **options) as working:
        signals = _Signals()
        functions = ", ".join(sorted(working.functions))
        render.aside(f"worker {working.spec.name} runs {functions}; stop it with Ctrl-C\n")
        if isinstance(working, SyncWorker):
            working.start()
            signals.stopping.wait()
            drained = working.stop(drain_s)
        else:
            drained = asyncio.run(_work(working, signals.stopping, drain_s))
    return {"worker": working.spec.name, "drained": drained}


async def _work(working: AsyncWorker, stopping: threading.Event, drain_s: float) -> bool:
    await working.start()
    await asyncio.to_thread(stopping.wait)
    return await working.stop(drain_s)
