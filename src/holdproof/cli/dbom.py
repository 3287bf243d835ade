"""`holdproof dbom`: signed decision records."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from holdproof.cli.call import Call, Namespace, command, find_function, options
from holdproof.cli.evaluations import EvaluationId, RowId
from holdproof.cli.storage import filed
from holdproof.model.evaluations import Bom, DbomChecked, Repaired
from holdproof.model.spread import Spread
from holdproof.store.context import Embedder
from holdproof.upkeep.intent_spread import IntentCheck

app = typer.Typer(
    help="Show, verify, export and compare DBOMs.",
    epilog="Example: holdproof dbom verify dboms/dbom_b-1.json",
    no_args_is_help=True,
)
app.callback()(options)


@command(app, example="holdproof dbom show b-1 --json")
def show(call: Call, evaluation_id: EvaluationId, row: RowId = None, ns: Namespace = "main") -> Bom:
    """Show the DBOM of an evaluation: its seven fields."""
    with call.open() as store:
        return store.dbom.get(evaluation_id, id=row, ns=ns)


@command(app, example="holdproof dbom verify dboms/dbom_b-1.json", exit_code=lambda outcome: outcome.verdict.exit_code)
def verify(
    call: Call, file: Annotated[Path, typer.Argument(help="A DBOM file.")], ns: Namespace = "main"
) -> DbomChecked:
    """Say what is proven of a DBOM; exits with 0, 10 unsigned, 11 unlogged, 12 revoked key, 20 tampered with."""
    with call.open() as store:
        return store.dbom.verify(file, ns=ns)


def export(
    call: Call,
    evaluation_id: EvaluationId,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the envelope; stdout without it.")] = None,
    *,
    format: Annotated[
        Literal["dsse", "sigstore"], typer.Option("--format", help="A DSSE envelope, or a Sigstore bundle of it.")
    ] = "dsse",
    row: RowId = None,
    ns: Namespace = "main",
) -> Any:
    """Export a DBOM as a DSSE envelope (an in-toto attestation) or a Sigstore bundle; needs no private key."""
    with call.open() as store:
        return written(store.dbom.envelope(evaluation_id, id=row, ns=ns, format=format), out)


@command(app, example="holdproof dbom repair --full")
def repair(
    call: Call, full: Annotated[bool, typer.Option("--full", help="Compare the content of every file.")] = False
) -> Repaired:
    """Write DBOM files that are missing, from the database; with --full also those that differ."""
    with call.open() as store:
        return store.dbom.repair(full=full)


@command(app, example="holdproof dbom spread --threshold 0.85")
def spread(
    call: Call,
    threshold: Annotated[
        float, typer.Option("--threshold", help="The cosine that makes two evaluations neighbours.")
    ] = 0.9,
    limit: Annotated[int, typer.Option("--limit", help="Only the newest so many evaluations.")] = 2000,
    ns: Namespace = "main",
) -> Spread:
    """Show how the intent vectors spread: pairwise cosine, clusters, outliers, a plot."""
    with call.open() as store:
        return store.dbom.spread(ns=ns, threshold=threshold, limit=limit)


@command(
    app,
    example="holdproof dbom check-intent --embedder my_models:embed",
    exit_code=lambda outcome: 0 if outcome.ok else 20,
)
def check_intent(
    call: Call,
    embedder: Annotated[str, typer.Option("--embedder", metavar="MODULE:FUNCTION", help="From a text to its vector.")],
    evaluation_id: Annotated[str | None, typer.Option("--evaluation-id", help="Only this evaluation.")] = None,
    at_least: Annotated[float, typer.Option("--at-least", help="The cosine that still counts as the same.")] = 0.999,
    ns: Namespace = "main",
) -> IntentCheck:
    """Embed the stored tasks again and compare with the recorded vectors; exits with 20 if any drifted."""
    function: Embedder = find_function(embedder)
    with call.open() as store:
        return store.dbom.check_intent(function, evaluation_id=evaluation_id, ns=ns, at_least=at_least)


def written(text: str, out: Path | None) -> Any:
    """Write a document to a file and say so; without a file the document itself."""
    if out is None:
        return text
    filed([f"{text}\n".encode()], out)
    return {"written": str(out)}
