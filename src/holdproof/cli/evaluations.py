"""`holdproof evaluations`: evaluations and their signed DBOMs."""

from pathlib import Path
from typing import Annotated

import typer

from holdproof.cli import complete
from holdproof.cli.call import Call, Cursor, Limit, Namespace, Since, command, options
from holdproof.cli.files import load
from holdproof.model.evaluations import Evaluation
from holdproof.model.page import Page

app = typer.Typer(
    help="Submit and read evaluations.", epilog="Example: holdproof evaluations list --limit 20", no_args_is_help=True
)
app.callback()(options)

EvaluationId = Annotated[
    str, typer.Argument(metavar="EVALUATION_ID", help="The evaluation's id.", autocompletion=complete.evaluations)
]
RowId = Annotated[int | None, typer.Option("--id", help="The row, where an evaluation has several; else the newest.")]


@command(app, example="holdproof evaluations submit result.json --evaluation-id b-1 --score 0.87")
def submit(
    call: Call,
    *,
    result: Annotated[str, typer.Argument(help="A JSON file with the full result, or - for stdin.")],
    evaluation_id: Annotated[str, typer.Option("--evaluation-id", help="The id of this evaluation.")],
    score: Annotated[float, typer.Option("--score", help="The final score.")],
    breakdown: Annotated[str | None, typer.Option("--breakdown", help="Why it is this score.")] = None,
    intent: Annotated[Path | None, typer.Option("--intent", help="A JSON file with the intent vector.")] = None,
    timestamp: Annotated[str | None, typer.Option("--timestamp", help="When it was; now by default.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Whom it is about; seals the result.")] = None,
    ns: Namespace = "main",
) -> Evaluation:
    """Record an evaluation: sign its DBOM, write row and log leaf at once, then the DBOM file."""
    value, vector = load(result), None if intent is None else load(str(intent))
    with call.open() as store:
        return store.evaluations.submit(
            value,
            evaluation_id=evaluation_id,
            score=score,
            breakdown=breakdown,
            intent=vector,
            timestamp=timestamp,
            subject=subject,
            ns=ns,
        )


@command(app, example="holdproof evaluations list --since 2026-01-01 --min-score 0.5 --json")
def list(
    call: Call,
    *,
    evaluation_id: Annotated[str | None, typer.Option("--evaluation-id", help="Only this evaluation.")] = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option("--until", help="Before this time.")] = None,
    min_score: Annotated[float | None, typer.Option("--min-score", help="This score or more.")] = None,
    max_score: Annotated[float | None, typer.Option("--max-score", help="This score or less.")] = None,
    imported: Annotated[bool | None, typer.Option("--imported/--own", help="Only imported ones, or only ours.")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[Evaluation]:
    """List evaluations, the newest first."""
    with call.open() as store:
        return store.evaluations.list(
            evaluation_id=evaluation_id,
            since=since,
            until=until,
            min_score=min_score,
            max_score=max_score,
            imported=imported,
            cursor=cursor,
            limit=limit,
            ns=ns,
        )


@command(app, example="holdproof evaluations show b-1")
def show(call: Call, evaluation_id: EvaluationId, row: RowId = None, ns: Namespace = "main") -> Evaluation:
    """Show one evaluation with everything that is stored of it."""
    with call.open() as store:
        return store.evaluations.get(evaluation_id, id=row, ns=ns)
