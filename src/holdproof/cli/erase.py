"""`holdproof erase`: a person or a record, for good."""

import sys
from typing import Annotated, Any

import typer

from holdproof.cli.call import Call, command, options
from holdproof.errors import InvalidInputError
from holdproof.model.erasure import Erasure

app = typer.Typer(
    help="Erase a person or a record for good; proofs stay whole.",
    epilog="Example: holdproof erase subject 'Ada Lovelace' --yes",
    no_args_is_help=True,
)
app.callback()(options)

Who = Annotated[str, typer.Option("--who", help="Who erases; kept with the erasure.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@command(app, example="holdproof erase subject 'Ada Lovelace' --who dpo --yes")
def subject(
    call: Call,
    name: Annotated[str, typer.Argument(help="The person, as labelled.")],
    who: Who = "operator",
    yes: Yes = False,
) -> Erasure:
    """Destroy a person's key and remove every row and file labelled with it; this cannot be undone."""
    _confirm(f"Erase everything of {name!r} for good?", yes)
    with call.open() as store:
        return store.erase.subject(name, who=who)


@command(app, example="holdproof erase record battles 17 --yes")
def record(
    call: Call,
    table: Annotated[str, typer.Argument(help="The table.")],
    id: Annotated[str, typer.Argument(help="The id of the record.")],
    who: Who = "operator",
    yes: Yes = False,
) -> Erasure:
    """Remove one record, its content, salt and file; this cannot be undone."""
    _confirm(f"Erase record {id} of {table} for good?", yes)
    with call.open() as store:
        return store.erase.record(table, id, who=who)


@command(app, example="holdproof erase list --json")
def list(call: Call) -> dict[str, Any]:
    """Show every erasure: who, when, how many, by handles only."""
    with call.open() as store:
        return {each.id: each.to_dict() for each in store.erase.list(limit=1_000).items}


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidInputError("erasing cannot be undone: say --yes")
    typer.confirm(question, abort=True, err=True)
