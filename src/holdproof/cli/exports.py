"""`holdproof export`: everything that leaves a store as a file, in one place.

What is written for others (a record with its proof, a snapshot, rows as JSON lines) is `export WHAT`; what is taken in
is `import WHAT`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from holdproof.cli import archive, dbom, storage, vectors
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, Namespace, Since, command, options
from holdproof.cli.storage import Target, filed
from holdproof.model.lisp import LispExported
from holdproof.model.times import BEGINNING

app = typer.Typer(
    help="Write what a store holds for other people and other programs.",
    epilog="Example: holdproof export bundle evaluation-1 --out evaluation-1.zip",
    no_args_is_help=True,
)
app.callback()(options)

command(app, name="dbom", example="holdproof export dbom evaluation-1 --format sigstore --out b.json")(dbom.export)
command(app, name="car", example="holdproof export car memory.car --snapshot head")(archive.export)
command(app, name="vectors", example="holdproof export vectors vectors.jsonl")(vectors.export)


@command(app, example="holdproof export bundle evaluation-1 --out evaluation-1.zip")
def bundle(
    call: Call,
    subject: Annotated[str, typer.Argument(help="The evaluation_id, or the id of a flow.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the zip.")],
    kind: Annotated[str, typer.Option("--kind", help="evaluation or flow.")] = "evaluation",
) -> dict[str, object]:
    """Write one zip that anybody can check: `holdproof verify FILE`, or openssl and the page of Python inside."""
    with call.open() as store:
        data = store.bundle.export(subject, kind=kind)
    filed([data], out)
    return {"written": str(out), "bytes": len(data), "next": f"holdproof verify {out}"}


@command(app, example="holdproof export lisp memory.sexp --at head")
def lisp(
    call: Call,
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    at: Annotated[str | None, typer.Option("--at", metavar="SNAPSHOT", help="As it was in this snapshot.")] = None,
    ns: Namespace = "main",
) -> LispExported:
    """Write the objects as the archive of a Lisp memory."""
    with call.open() as store, bar() as tell:
        return store.archive.export_lisp(path, at=at, ns=ns, progress=tell)


@command(app, example="holdproof export flows flows.jsonl --since 2026-01-01T00:00:00Z")
def flows(call: Call, target: Target = storage.STDIO, since: Since = None, ns: Namespace = "main") -> dict[str, Any]:
    """Write every flow with its transitions and steps as a line of JSON, oldest first."""
    with call.open() as store:
        found = store.flows.export(since=since or BEGINNING, ns=ns)
        return storage.exported("flows", found, target, as_json=call.as_json)


@command(app, example="holdproof export audit audit.jsonl --severity ERROR")
def audit(
    call: Call,
    target: Target = storage.STDIO,
    *,
    event_type: Annotated[str | None, typer.Option("--type", help="Only events of this type.")] = None,
    severity: Annotated[str | None, typer.Option("--severity", help="Only events of this severity.")] = None,
    since: Since = None,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Write every event of every flow as a line of JSON, oldest first."""
    with call.open() as store:
        found = store.audit.export(event_type=event_type, severity=severity, since=since or BEGINNING, ns=ns)
        return storage.exported("events", found, target, as_json=call.as_json)


@command(app, example="holdproof export telemetry events.jsonl")
def telemetry(call: Call, target: Target = storage.STDIO) -> dict[str, Any]:
    """Write every telemetry event as a line of JSON, as `telemetry append` reads them."""
    with storage.opened(call, "telemetry") as store:
        return storage.exported("events", store.export(), target, total=store.count(), as_json=call.as_json)
