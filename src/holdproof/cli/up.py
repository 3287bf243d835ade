"""`holdproof up`: the server on this store."""

import asyncio
import signal
import tempfile
import threading
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import holdproof
from holdproof import sync
from holdproof.cli import render
from holdproof.cli.call import Call, command
from holdproof.cli.demo import Teller, quiet
from holdproof.demo import live
from holdproof.errors import MissingExtraError

if TYPE_CHECKING:
    from holdproof.server.serve import Listening
    from holdproof.server.state import State

app = typer.Typer()


@command(app, example="holdproof up --port 8420")
def up(
    call: Call,
    *,
    host: Annotated[
        str, typer.Option("--host", help="Listen on this address; elsewhere than on this machine only with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port; 0 for any.")] = 8420,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="A certificate (PEM), for TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A name the server goes by; may be repeated.")
    ] = None,
    proxy: Annotated[str | None, typer.Option("--proxy", help="The address of a proxy that says who calls.")] = None,
    public_log: Annotated[bool, typer.Option("--public-log", help="Show checkpoint and tiles to everybody.")] = False,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Requests a second for each caller; 0: any.")] = 1000.0,
    console: Annotated[bool, typer.Option("--console/--no-console", help="Show the console.")] = True,
    open_: Annotated[bool, typer.Option("--open", help="Open the console in a browser.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Play a story on it; without --home on a store of its own.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --demo: end when the story is told.")] = False,
    pace: Annotated[float, typer.Option("--pace", min=0, help="With --demo: seconds between its acts.")] = 2.0,
) -> None:
    """Serve API and console on this store until it is stopped; prints the address and a link that opens it once."""
    try:
        from holdproof.server import Settings, serve  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("the server needs more: pip install 'holdproof[server]'") from error

    def ready(at: "Listening") -> None:
        render.show(at, call.as_json)
        if open_:
            webbrowser.open(at.link)

    async def run() -> None:
        place = serve.Place(host, port, tls_cert, tls_key, frozenset(map(str.lower, name or ())), proxy)
        settings = Settings(public_log=public_log, rate_s=rate, burst=2 * rate)
        async with holdproof.open(_home(call, demo), call.url) as store:
            render.greet(await store.status())
            beside = [partial(_played, once=once, pace_s=pace)] if demo else []
            parts = serve.parts(console=console)
            await serve.serve(store, place, settings, ready=ready, parts=parts, beside=beside)

    asyncio.run(run())
    raise typer.Exit


def _home(call: Call, demo: bool) -> str | None:
    """Where the store lies; a demonstration does not touch one that was not named."""
    if demo and call.home is None and call.url is None:
        return tempfile.mkdtemp(prefix="holdproof-demo-")
    return call.home


async def _played(state: "State", *, once: bool, pace_s: float) -> None:
    """Tell the story beside the server."""
    stopping, store = threading.Event(), sync.Holdproof(state.store.core)
    try:
        with quiet():
            await asyncio.to_thread(partial(live, store, Teller(), stopping, pause_s=pace_s))
        if once:
            signal.raise_signal(signal.SIGTERM)
    finally:
        stopping.set()
