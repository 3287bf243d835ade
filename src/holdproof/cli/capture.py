"""Commands that record programs which know nothing of it: the MCP proxy, and a script under `instrument()`."""

import runpy
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Annotated

import click

from holdproof.adapters.capture_run import CaptureRun
from holdproof.adapters.instrument import instrument
from holdproof.adapters.mcp_proxy.http import HttpProxy
from holdproof.adapters.mcp_proxy.relay import Relay
from holdproof.adapters.mcp_proxy.stdio import StdioProxy
from holdproof.cli import render
from holdproof.cli.call import Argument, CommandContext, Namespace, Option, Subject, command
from holdproof.errors import InvalidInputError

COMMANDS: dict[str, click.Command] = {}


@command(COMMANDS, "mcp-proxy", example="holdproof mcp-proxy --gate -- mcp-server-time", group="Run")
def mcp_proxy(
    call: CommandContext,
    server: Annotated[list[str] | None, Argument("The server's command, after --.", "[-- COMMAND…]")] = None,
    *,
    to: Annotated[str | None, Option("--to", help="A server over HTTP, in place of a command.")] = None,
    port: Annotated[
        int, Option("--port", type=click.IntRange(0, 65_535), help="With --to: the port to listen on.")
    ] = 0,
    gate: Annotated[bool, Option("--gate", help="Let the store's policies decide about tool calls.")] = False,
    agent: Annotated[str, Option("--agent", help="The agent that calls, as policies and the log name it.")] = "mcp",
    subject: Subject = None,
    ns: Namespace = "main",
) -> None:
    """Stand between an MCP client and a server, and record every message; with --gate, decide about tool calls."""
    words = list(server or ())
    if (to is None) == (not words):
        raise InvalidInputError("name one server: its command after --, or its address with --to")
    with call.open(create=True) as store:
        run = CaptureRun(store, agent_id=agent, kind="mcp-proxy", subject=subject, ns=ns)
        # Of the arguments only the program: others may hold passwords.
        run.start({"server": to.partition("?")[0] if to is not None else words[0], "gate": gate})
        relay = Relay(run, gate=gate)
        code = StdioProxy(relay, words).run() if to is None else _over_http(relay, to, port)
        if run.unwritten:
            render.aside(f"{run.unwritten} messages could not be recorded: see `holdproof status`\n")
    raise click.exceptions.Exit(code)


def _over_http(relay: Relay, to: str, port: int) -> int:
    """Serve until a signal comes; return the exit code."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with HttpProxy(relay, to, port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        thread.start()
        render.aside(f"listening on {proxy.address}; stop it with Ctrl-C\n")
        while not stopping.wait(0.2):
            pass
        proxy.shutdown()
    relay.run.stop("stopped by a signal")
    return 0


@command(COMMANDS, "run", example="holdproof run --agent reporter report.py", group="Run")
def run(
    call: CommandContext,
    script: Annotated[Path, Argument("The script, then its own arguments.", "SCRIPT")],
    words: Annotated[list[str] | None, Argument("Arguments of the script, after --.", "[-- ARGUMENTS…]")] = None,
    *,
    agent: Annotated[str, Option("--agent", help="The agent's name in the log.")] = "script",
    subject: Subject = None,
    ns: Namespace = "main",
) -> None:
    """Run a Python script, and record the calls that it makes to models: `holdproof.instrument()` without code."""
    if not script.is_file():
        raise InvalidInputError(f"there is no script {script}", path=str(script))
    # As Python sets them for a script: its own name first, and its folder for imports.
    sys.argv = [str(script), *(words or ())]
    sys.path.insert(0, str(script.absolute().parent))
    code = 0
    with call.open(create=True) as store:
        try:
            with instrument(store, agent_id=agent, subject=subject, ns=ns):
                runpy.run_path(str(script), run_name="__main__")
        except Exception as error:
            # It is the script's, and no defect of the command: shown as Python shows it.
            render.aside("".join(traceback.format_exception(error)))
            code = 1
    raise click.exceptions.Exit(code)
