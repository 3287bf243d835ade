"""`holdproof witness`: a small C2SP witness that cosigns the heads of logs it knows."""

import signal
from types import FrameType
from typing import Annotated, Any

import typer

from holdproof import config
from holdproof.cli import render
from holdproof.cli.call import Call, command, options
from holdproof.crypto.keys import Signer
from holdproof.crypto.vkey import COSIGNATURE_V1, VerifierKey
from holdproof.db.clock import system_clock
from holdproof.errors import UnavailableError
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.witness_server import Witness, WitnessServer, WitnessState

app = typer.Typer(
    help="Run a witness: it cosigns the heads of logs it knows, each only if it continues the one before.",
    epilog="Example: holdproof witness key --name witness.example",
    no_args_is_help=True,
)
app.callback()(options)

Name = Annotated[str, typer.Option("--name", help="The witness's name, as it stands in its cosignatures.")]


@command(app, example="holdproof witness key --name witness.example")
def key(call: Call, name: Name) -> dict[str, str]:
    """Show the verifier key that logs check this witness's answers with; made at its first use."""
    return {"key": VerifierKey(name, COSIGNATURE_V1, _signer(call).public).encode()}


@command(app, example="holdproof witness run --name witness.example --log KEY")
def run(
    call: Call,
    name: Name,
    log: Annotated[list[str], typer.Option("--log", help="A log's verifier key (`holdproof log head`); repeat it.")],
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 picks one.")] = 8432,
) -> dict[str, Any]:
    """Serve `POST /add-checkpoint` until interrupted; its memory is state/witness.json."""
    state = WitnessState(config.Paths.find(call.home).state / "witness.json")
    served = Witness(name, _signer(call), log, state, system_clock)
    try:
        server = WitnessServer((host, port), served)
    except (OSError, OverflowError) as error:
        raise UnavailableError(f"cannot listen on {host}:{port}: {error}", host=host, port=port) from error
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


def _signer(call: Call) -> Signer:
    """The witness's own key, apart from those of a store."""
    folder = KeyFolder(config.Paths.find(call.home).config / "witness")
    return folder.ensure("log")
