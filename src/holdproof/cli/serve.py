"""Commands that serve until they are stopped: the server, the tools over standard input, a witness."""

import asyncio
import signal
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import click

import holdproof
from holdproof import config, sync
from holdproof.api.worker import SyncWorker
from holdproof.cli import render
from holdproof.cli.application import Application, find_application
from holdproof.cli.call import CommandContext, Option, command, told_once
from holdproof.cli.demo import Teller, quiet
from holdproof.crypto.keys import Signer
from holdproof.crypto.vkey import COSIGNATURE_V1, VerifierKey
from holdproof.db.clock import system_clock
from holdproof.demo import live, require_own_store
from holdproof.errors import InvalidInputError, MissingExtraError, UnavailableError
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.witness_server import Cosigner, WitnessServer, WitnessState
from holdproof.model.namespaces import MAIN

if TYPE_CHECKING:
    from holdproof.server.serve import Listening
    from holdproof.server.state import ServerState

COMMANDS: dict[str, click.Command] = {}

_DRAIN_S: Final = 10.0
"""How long flows have to end when the server is stopped."""

_WITNESS: Final = "Run a witness: it cosigns the heads of logs it knows, each only if it continues the one before."
Name = Annotated[str, Option("--name", help="The witness's name, as it stands in its cosignatures.")]


@command(COMMANDS, "up", example="holdproof up --port 8420", group="Run")
def up(
    call: CommandContext,
    *,
    host: Annotated[
        str, Option("--host", help="Listen on this address; elsewhere than on this machine only with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, Option("--port", type=click.IntRange(0, 65_535), help="The port; 0 for any.")] = 8420,
    tls_cert: Annotated[Path | None, Option("--tls-cert", help="A certificate (PEM), for TLS.")] = None,
    tls_key: Annotated[Path | None, Option("--tls-key", help="Its key (PEM).")] = None,
    name: Annotated[list[str] | None, Option("--name", help="A name the server goes by; may be repeated.")] = None,
    proxy: Annotated[str | None, Option("--proxy", help="The address of a proxy that says who calls.")] = None,
    login_header: Annotated[
        str | None,
        Option("--login-header", help="With --proxy: the header in which it names the person, as OIDC proxies do."),
    ] = None,
    login_operator: Annotated[
        list[str] | None,
        Option("--login-operator", help="Who of them is an operator; may be repeated, * for everybody."),
    ] = None,
    login_auditor: Annotated[
        list[str] | None,
        Option("--login-auditor", help="Who of them is an auditor; may be repeated, * for everybody."),
    ] = None,
    public_log: Annotated[bool, Option("--public-log", help="Show checkpoint and tiles to everybody.")] = False,
    rate: Annotated[
        float, Option("--rate", type=click.FloatRange(0), help="Requests a second for each caller; 0: any.")
    ] = 1000.0,
    console: Annotated[bool, Option("--console/--no-console", help="Show the console.")] = True,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Option("--log-level", help="Log from this level on, to stderr.")
    ] = "info",
    log_json: Annotated[bool, Option("--log-json", help="Log lines of JSON.")] = False,
    witness: Annotated[
        str | None, Option("--witness", help="Be a witness of this name for other logs, at ADDRESS/witness.")
    ] = None,
    cosign: Annotated[
        list[str] | None,
        Option("--cosign", metavar="KEY", help="With --witness: a log to cosign, by its verifier key; repeat it."),
    ] = None,
    open_tenants: Annotated[
        int,
        Option("--open-tenants", type=click.IntRange(1), help="Have so many tenants open at once, at most."),
    ] = 16,
    app: Annotated[
        str | None,
        Option("--app", metavar="MODULE[:NAME]", help="Run a worker inside, for the flows of this program."),
    ] = None,
    open_: Annotated[bool, Option("--open", help="Open the console in a browser.")] = False,
    demo: Annotated[bool, Option("--demo", help="Play a story on it; without --home on a store of its own.")] = False,
    once: Annotated[bool, Option("--once", help="With --demo: end when the story is told.")] = False,
    pace: Annotated[
        float, Option("--pace", type=click.FloatRange(0), help="With --demo: seconds between its acts.")
    ] = 2.0,
) -> None:
    """Serve API and console on this store until it is stopped; prints the address and a link that opens it once."""
    try:
        from holdproof.server import ServerSettings, logs, serve  # noqa: PLC0415 (an optional extra)
        from holdproof.server.settings import ProxyLogin  # noqa: PLC0415 (an optional extra)
        from holdproof.server.tenants import TenantPool  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("the server needs more: pip install 'holdproof[server]'") from error

    if cosign and witness is None:
        raise InvalidInputError("--cosign needs --witness NAME: logs know a witness by its name")
    # Before the server's loop runs: a program may open a store of its own.
    application = None if app is None else find_application(app)
    home = _home(call, demo)
    served = None if witness is None else _witness_of(home, witness, cosign or [])

    def ready(at: "Listening") -> None:
        render.show(at, call.as_json)
        if open_:
            webbrowser.open(at.link)

    async def run() -> None:
        place = serve.ListenAddress(host, port, tls_cert, tls_key, frozenset(map(str.lower, name or ())), proxy)
        login = None
        if login_header is not None:
            login = ProxyLogin(login_header, frozenset(login_operator or ()), frozenset(login_auditor or ()))
        settings = ServerSettings(proxy_login=login, public_log=public_log, rate_s=rate, burst=2 * rate, witness=served)
        with told_once():
            opened = await holdproof.open(home, call.url)
        async with opened as store:
            render.greet(await store.status())
            pool = TenantPool(store, settings, most=open_tenants)
            beside: list[Callable[[ServerState], Coroutine[Any, Any, None]]] = [pool.run]
            if demo:
                beside.append(partial(_played, once=once, pace_s=pace))
            if application is not None:
                beside.append(partial(_worked, application=application))
            parts = (*serve.parts(console=console), pool.part)
            await serve.serve(store, place, settings, ready=ready, parts=parts, beside=beside)

    logs.configure(log_level, as_json=log_json)
    asyncio.run(run())
    raise click.exceptions.Exit(0)


def _home(call: CommandContext, demo: bool) -> str | None:
    """Return where the store is; a demonstration does not touch one that was not named."""
    if demo and call.home is None and call.url is None:
        folder = tempfile.mkdtemp(prefix="holdproof-demo-")
        require_own_store(folder)
        return folder
    return call.home


async def _worked(state: "ServerState", *, application: Application) -> None:
    """Run a worker beside the server, until that ends."""
    worker = application.worker_on(sync.Holdproof(state.store.core), ns=MAIN)
    if isinstance(worker, SyncWorker):
        await asyncio.to_thread(worker.start)
    else:
        await worker.start()
    try:
        await asyncio.Event().wait()
    finally:
        if isinstance(worker, SyncWorker):
            await asyncio.to_thread(worker.stop, _DRAIN_S)
        else:
            await worker.stop(_DRAIN_S)


async def _played(state: "ServerState", *, once: bool, pace_s: float) -> None:
    """Tell the story beside the server."""
    # The story is written for the sync client, so it runs in a thread, on the same core.
    stopping = threading.Event()
    store = sync.Holdproof(state.store.core)
    try:
        with quiet():
            await asyncio.to_thread(partial(live, store, Teller(), stopping, pause_s=pace_s))
        if once:
            # As an operator would stop it: connections are drained, the store is closed.
            signal.raise_signal(signal.SIGTERM)
    finally:
        stopping.set()


@command(COMMANDS, "mcp", example="holdproof mcp --operator --read-only", group="Run", reach="anywhere")
def mcp(
    call: CommandContext,
    *,
    read_only: Annotated[bool, Option("--read-only", help="Offer only what reads.")] = False,
    tools: Annotated[
        list[str] | None,
        Option("--tools", help="Offer this set of tools only: decide, ask, remember or prove; may be repeated."),
    ] = None,
    resource: Annotated[
        list[str] | None,
        Option("--resource", help="Offer every method of this resource instead of the sets; may be repeated."),
    ] = None,
    agent: Annotated[str | None, Option("--agent", help="Act as this agent, on its own flows only.")] = None,
    operator: Annotated[
        bool, Option("--operator", help="Act as the operator: the model may answer escalations itself.")
    ] = False,
) -> None:
    """Offer the store as tools over standard input and output (Model Context Protocol), until the client goes away.

    Name as whom the model acts: --agent, --operator, or with --token (or HOLDPROOF_TOKEN) the holder of that token.
    """
    # The token is shown to the store that is opened here: no server has to be named for it.
    replace(call, token=None).require_local("mcp", "a server offers the same tools at URL/mcp")
    if agent is not None and operator:
        raise InvalidInputError("--agent and --operator exclude each other: name one caller")
    if agent is None and not operator and call.secret is None:
        raise InvalidInputError(
            "say as whom the model acts: --agent NAME for an agent on its own flows, or --operator for everything"
        )
    try:
        from holdproof.server import mcp as server  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("this needs the extra mcp: pip install 'holdproof[mcp]'") from error
    if tools and resource:
        raise InvalidInputError("--tools and --resource exclude each other: name sets of tools, or whole resources")
    offer = server.Offer(server.named_resources(resource or ()), read_only, server.tool_sets(tools or ()))

    async def serve() -> None:
        async with holdproof.open(call.home, call.url) as store:
            granted = offer if tools or resource else None
            caller = await server.caller_for(store, call.secret, agent, granted, operator=operator)
            await server.over_stdio(store, caller, offer)

    asyncio.run(serve())
    raise click.exceptions.Exit(0)  # stdout is for the protocol, and for nothing else


@command(
    COMMANDS,
    "witness key",
    example="holdproof witness key --name witness.example",
    group="Prove",
    reach="anywhere",
    group_summary=_WITNESS,
)
def key(call: CommandContext, name: Name) -> dict[str, str]:
    """Show the verifier key that logs check this witness's answers with; made at its first use."""
    return {"key": VerifierKey(name, COSIGNATURE_V1, _signer(call.home).public).encode()}


@command(
    COMMANDS,
    "witness run",
    example="holdproof witness run --name witness.example --log KEY",
    group="Prove",
    reach="anywhere",
    group_summary=_WITNESS,
)
def run(
    call: CommandContext,
    name: Name,
    log: Annotated[list[str], Option("--log", help="A log's verifier key (`holdproof log verifier-keys`); repeat it.")],
    host: Annotated[str, Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", help="The port; 0 picks one.")] = 8432,
) -> dict[str, Any]:
    """Serve `POST /add-checkpoint` until interrupted; its memory is state/witness.json."""
    served = _witness_of(call.home, name, log)
    try:
        server = WitnessServer((host, port), served)
    except (OSError, OverflowError) as error:
        raise UnavailableError(f"cannot listen on {host}:{port}: {error}", host=host, port=port) from error
    # Stopped by a service manager or by Ctrl-C, it ends in the same way.
    signal.signal(signal.SIGTERM, _stop)
    with server:
        address = f"http://{host}:{server.server_address[1]}"
        render.aside(f"listening on {address} as {served.key.encode()}\n")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return {"served": address}
    return {"served": address}


def _stop(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _witness_of(home: str | None, name: str, logs: list[str]) -> Cosigner:
    """Return the witness of a home: one key, and one memory of what it cosigned, however it is run."""
    state = WitnessState(config.Paths.find(home).state / "witness.json")
    return Cosigner(name, _signer(home), logs, state, system_clock)


def _signer(home: str | None) -> Signer:
    """Return the witness's own key, which is none of a store's."""
    folder = KeyFolder(config.Paths.find(home).config / "witness")
    return folder.ensure("log")
