"""`holdfast sweep`: what time has ended, put away."""

import typer

from holdfast.cli.call import Call, command, options
from holdfast.model.guards import Swept

app = typer.Typer(
    help="Put away what time has ended: expired locks, keys and notes, questions past their deadline.",
    epilog="Example: holdfast sweep run",
    no_args_is_help=True,
)
app.callback()(options)


@command(app, example="holdfast sweep run --json")
def run(call: Call) -> Swept:
    """Sweep once; also counts the flows and keys that need somebody."""
    with call.open() as store:
        return store.sweep.run()
