"""`holdproof sweep`: what time has ended, put away."""

import typer

from holdproof.cli.call import Call, command, options
from holdproof.model.coordination import SweepResult

app = typer.Typer(
    help="Put away what time has ended: expired locks, keys and notes, questions past their deadline.",
    epilog="Example: holdproof sweep run",
    no_args_is_help=True,
)
app.callback()(options)


@command(app, example="holdproof sweep run --json")
def run(call: Call) -> SweepResult:
    """Sweep once; also counts the flows and keys that need somebody."""
    with call.open() as store:
        return store.sweep.run()
