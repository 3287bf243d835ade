"""Commands that move files in and out: `export WHAT`, `import WHAT`, blobs as files, and backups.

Each calls the method that its summary names; what it adds is the file: read or written piece by piece, with progress.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click

from holdproof import sync
from holdproof.cli import complete, render, storage
from holdproof.cli.bar import bar
from holdproof.cli.call import Argument, CommandContext, Namespace, Option, Since, command, find_function
from holdproof.cli.files import STDIO, opened_file, pieces
from holdproof.cli.storage import filed
from holdproof.cli.trust import written
from holdproof.errors import HoldproofError, InvalidInputError, NotFoundError
from holdproof.model.backup import Backup
from holdproof.model.blobs import Blob
from holdproof.model.flows import Recovery
from holdproof.model.imports import Imported, Takeover
from holdproof.model.lisp import LispExported, LispImported
from holdproof.model.memory import Archived, SnapshotsImported
from holdproof.model.storage import TelemetryEvent
from holdproof.model.threads import ThreadsImported
from holdproof.model.times import BEGINNING
from holdproof.upkeep.backups import backup_list

COMMANDS: dict[str, click.Command] = {}

_EXPORT: Final = "Write what a store holds for other people and other programs."
_IMPORT: Final = "Take in files: what `export` wrote elsewhere, and other programs' data."
# Large enough that commits cost little, small enough that an error loses little work.
_BATCH: Final = 1_000
_EVENT_FIELDS: Final = frozenset(each.name for each in fields(TelemetryEvent))
_VECTOR_FIELDS: Final = frozenset({"id", "vector", "metadata"})

Source = Annotated[str, Argument(metavar="FILE", help="The file; - is stdin.")]
Target = Annotated[str, Argument(metavar="FILE", help="Where to; - is stdout.")]
Key = Annotated[str, Argument(help="The key: a name like backups/today.bak, never a path.")]
EvaluationId = Annotated[
    str, Argument(metavar="EVALUATION_ID", help="The evaluation's id.", complete=complete.evaluations)
]
Did = Annotated[str | None, Option("--did", help="Trust this key: for an archive of another store.")]
DryRun = Annotated[bool, Option("--dry-run", help="Change nothing; only report what would be done.")]
# From the environment too: arguments are visible to every user of the machine.
_SECRET: Final = "HOLDPROOF_ARCHIVE_PASSPHRASE"  # noqa: S105 (the variable's name)


@command(
    COMMANDS,
    "export dbom",
    example="holdproof export dbom evaluation-1 --format sigstore --out b.json",
    group="Operate",
    group_summary=_EXPORT,
)
def export_dbom(
    call: CommandContext,
    evaluation_id: EvaluationId,
    out: Annotated[Path | None, Option("--out", help="Where to write the envelope; stdout without it.")] = None,
    *,
    format: Annotated[
        Literal["dsse", "sigstore"], Option("--format", help="A DSSE envelope, or a Sigstore bundle of it.")
    ] = "dsse",
    row: Annotated[int | None, Option("--id", help="The row; else the newest.")] = None,
    ns: Namespace = "main",
) -> Any:
    """Export a DBOM as a DSSE envelope (an in-toto attestation) or a Sigstore bundle; needs no private key."""
    with call.open() as store:
        return written(store.dbom.envelope(evaluation_id, id=row, ns=ns, format=format), out)


@command(
    COMMANDS,
    "export car",
    example="holdproof export car memory.car --snapshot head",
    group="Operate",
    group_summary=_EXPORT,
)
def export_car(
    call: CommandContext,
    *,
    path: Annotated[str, Argument(help="The file to write.")],
    snapshot: Annotated[str, Option("--snapshot", help="Its CID or rev, or head for the newest.")] = "head",
    alone: Annotated[
        bool, Option("--alone", help="Only that state, without its history: what AT Protocol tools expect.")
    ] = False,
    encrypt: Annotated[
        str | None, Option("--encrypt", metavar="PASSPHRASE", envvar=_SECRET, help="Encrypt it first.")
    ] = None,
    ns: Namespace = "main",
) -> Archived:
    """Write a snapshot with its history to a CAR file."""
    with call.open() as store, bar() as tell:
        return store.archive.export_car(
            path, snapshot=snapshot, history=not alone, encrypt=encrypt, ns=ns, progress=tell
        )


@command(
    COMMANDS, "export vectors", example="holdproof export vectors vectors.jsonl", group="Operate", group_summary=_EXPORT
)
def export_vectors(call: CommandContext, target: Target = STDIO) -> dict[str, Any]:
    """Write every vector as a line of JSON (id, vector, metadata), by id."""
    with storage.opened(call, "vectors") as vectors:
        return storage.exported("vectors", vectors.export(), target, total=vectors.count(), as_json=call.as_json)


@command(
    COMMANDS,
    "export bundle",
    example="holdproof export bundle evaluation-1 --out evaluation-1.zip",
    group="Operate",
    group_summary=_EXPORT,
)
def export_bundle(
    call: CommandContext,
    subject: Annotated[str, Argument(help="The evaluation_id, or the id of a flow.")],
    out: Annotated[Path, Option("--out", help="Where to write the zip.")],
    kind: Annotated[str, Option("--kind", help="evaluation or flow.")] = "evaluation",
) -> dict[str, object]:
    """Write one zip that anybody can check: `holdproof verify FILE`, or openssl and the page of Python inside."""
    with call.open() as store:
        data = store.bundle.export(subject, kind=kind)
    filed([data], out)
    return {"written": str(out), "bytes": len(data), "next": f"holdproof verify {out}"}


@command(
    COMMANDS,
    "export lisp",
    example="holdproof export lisp memory.sexp --at head",
    group="Operate",
    group_summary=_EXPORT,
)
def export_lisp(
    call: CommandContext,
    path: Annotated[Path, Argument(help="The file to write.")],
    at: Annotated[str | None, Option("--at", metavar="SNAPSHOT", help="As it was in this snapshot.")] = None,
    ns: Namespace = "main",
) -> LispExported:
    """Write the objects as the archive of a Lisp memory."""
    with call.open() as store, bar() as tell:
        return store.archive.export_lisp(path, at=at, ns=ns, progress=tell)


@command(
    COMMANDS,
    "export flows",
    example="holdproof export flows flows.jsonl --since 2026-01-01T00:00:00Z",
    group="Operate",
    group_summary=_EXPORT,
)
def export_flows(
    call: CommandContext, target: Target = STDIO, since: Since = None, ns: Namespace = "main"
) -> dict[str, Any]:
    """Write every flow with its transitions and steps as a line of JSON, oldest first."""
    with call.open() as store:
        flows = store.flows.export(since=since or BEGINNING, ns=ns)
        return storage.exported("flows", flows, target, as_json=call.as_json)


@command(
    COMMANDS,
    "export audit",
    example="holdproof export audit audit.jsonl --severity ERROR",
    group="Operate",
    group_summary=_EXPORT,
)
def export_audit(
    call: CommandContext,
    target: Target = STDIO,
    *,
    event_type: Annotated[str | None, Option("--event-type", help="Only events of this type.")] = None,
    severity: Annotated[str | None, Option("--severity", help="Only events of this severity.")] = None,
    since: Since = None,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Write every event of every flow as a line of JSON, oldest first."""
    with call.open() as store:
        events = store.audit.export(event_type=event_type, severity=severity, since=since or BEGINNING, ns=ns)
        return storage.exported("events", events, target, as_json=call.as_json)


@command(
    COMMANDS,
    "export telemetry",
    example="holdproof export telemetry events.jsonl",
    group="Operate",
    group_summary=_EXPORT,
)
def export_telemetry(call: CommandContext, target: Target = STDIO) -> dict[str, Any]:
    """Write every telemetry event as a line of JSON, as `telemetry append` reads them."""
    with storage.opened(call, "telemetry") as store:
        return storage.exported("events", store.export(), target, total=store.count(), as_json=call.as_json)


@command(COMMANDS, "import car", example="holdproof import car memory.car", group="Operate", group_summary=_IMPORT)
def import_car(
    call: CommandContext,
    *,
    path: Annotated[str, Argument(help="The file to read.")],
    did: Did = None,
    passphrase: Annotated[
        str | None, Option("--passphrase", metavar="PASSPHRASE", envvar=_SECRET, help="Decrypts what was encrypted.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Even if it is older, or there are other changes here.")] = False,
    ns: Namespace = "main",
) -> SnapshotsImported:
    """Import what a CAR file holds, once every block, signature and tree of it is verified."""
    with call.open() as store, bar() as tell:
        return store.archive.import_car(path, did=did, passphrase=passphrase, force=force, ns=ns, progress=tell)


@command(
    COMMANDS, "import vectors", example="holdproof import vectors vectors.jsonl", group="Operate", group_summary=_IMPORT
)
def import_vectors(call: CommandContext, source: Source) -> dict[str, int]:
    """Keep the vectors of a file of JSON lines (id, vector, metadata), a thousand a commit; twice changes nothing."""
    with storage.opened(call, "vectors") as vectors:
        return {"imported": vectors.add_many(_vectors(source))}


def _vectors(source: str) -> Iterator[tuple[str, Any, Any]]:
    for number, document in storage.documents(source):
        if not document.keys() <= _VECTOR_FIELDS or not document.keys() >= {"id", "vector"}:
            raise InvalidInputError(f"line {number} is to have id, vector and perhaps metadata", line=number)
        yield document["id"], document["vector"], document.get("metadata")


@command(
    COMMANDS,
    "import green-agent",
    example="holdproof import green-agent battles.db --dboms data/dboms --dry-run",
    group="Operate",
    group_summary=_IMPORT,
)
def import_green_agent(
    call: CommandContext,
    source: Annotated[Path, Argument(metavar="BATTLES_DB", help="The Green Agent's database.")],
    dboms: Annotated[Path | None, Option("--dboms", help="Its folder of DBOM files.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what each row is.")] = False,
    ns: Namespace = "main",
) -> Imported:
    """Import a Green Agent's battles: every row, each with a verdict; doing it again changes nothing."""
    with call.open() as store, bar() as tell:
        return store.imports.green_agent(source, dboms=dboms, dry_run=dry_run, ns=ns, progress=_rows(tell))


@command(
    COMMANDS, "import dir", example="holdproof import dir dir.db --dry-run", group="Operate", group_summary=_IMPORT
)
def import_dir(
    call: CommandContext,
    source: Annotated[Path, Argument(metavar="DIR_DB", help="DIR's SQLite database.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what each row is.")] = False,
    ns: Namespace = "main",
) -> Takeover:
    """Import a database of the Decision Intelligence Runtime: every row, each with a verdict; twice changes nothing."""
    with call.open() as store, bar() as tell:
        return store.imports.dir(source, dry_run=dry_run, ns=ns, progress=_rows(tell))


@command(
    COMMANDS,
    "import lisp",
    example="holdproof import lisp memory-image.lisp --dry-run",
    group="Operate",
    group_summary=_IMPORT,
)
def import_lisp(
    call: CommandContext,
    source: Annotated[Path, Argument(metavar="FILE", help="An image or an archive of a Lisp memory.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what would be done.")] = False,
    ns: Namespace = "main",
) -> LispImported:
    """Import a Lisp memory as objects with their history; nothing is evaluated, and doing it again changes nothing."""
    with call.open() as store, bar() as tell:
        return store.archive.import_lisp(source, dry_run=dry_run, ns=ns, progress=tell)


@command(
    COMMANDS,
    "import langgraph",
    example="holdproof import langgraph checkpoints.sqlite --allow myapp.state:Plan",
    group="Operate",
    group_summary=_IMPORT,
)
def import_langgraph(
    call: CommandContext,
    source: Annotated[Path, Argument(metavar="FILE", help="What SqliteSaver or AsyncSqliteSaver wrote.")],
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="MODULE:TYPE", help="A type of yours; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only read the file.")] = False,
    ns: Namespace = "main",
) -> ThreadsImported:
    """Import the checkpoints of LangGraph's SQLite saver as threads; doing it again changes nothing."""
    from holdproof.adapters.langgraph import import_sqlite  # noqa: PLC0415 - an optional extra

    types = [(module, name) for module, _, name in (each.partition(":") for each in allow or [])]
    with call.open() as store, bar() as tell:
        # The saver has no parameter for a namespace: it works in the one that its store is open for.
        scoped = sync.Holdproof(store.core, ns)
        return import_sqlite(scoped, source, allow=types, dry_run=dry_run, progress=tell)


def _rows(tell: Callable[[str, int, int], None] | None) -> Callable[[int, int], None] | None:
    """A bar for work that counts rows."""
    return None if tell is None else lambda count, total: tell("rows", count, total)


@command(COMMANDS, "telemetry append", example="holdproof telemetry append events.jsonl", group="Inspect")
def append_events(call: CommandContext, source: Source) -> dict[str, int]:
    """Keep the events of a file of JSON lines, a thousand a commit; an error says how many were kept before it."""
    count = 0
    events = _events(source)
    with storage.opened(call, "telemetry") as telemetry:
        try:
            while batch := [*islice(events, _BATCH)]:
                telemetry.append(batch)
                count += len(batch)
        except HoldproofError as error:
            # Earlier batches are committed: the count says from which line on to try again.
            error.fields.setdefault("appended", count)
            raise
    return {"appended": count}


def _events(source: str) -> Iterator[TelemetryEvent]:
    for number, document in storage.documents(source):
        if unknown := sorted(document.keys() - _EVENT_FIELDS):
            raise InvalidInputError(f"line {number}: an event has no {unknown[0]}", line=number)
        try:
            event = TelemetryEvent(**document)
        except TypeError as error:
            raise InvalidInputError(f"line {number}: an event needs event_type and timestamp", line=number) from error
        yield event


@command(
    COMMANDS,
    "blobs put",
    example="holdproof blobs put backups/today.bak today.bak --content-type application/gzip",
    group="Operate",
)
def put_blob(
    call: CommandContext,
    key: Key,
    source: Source,
    content_type: Annotated[str | None, Option("--content-type", help="What it is, as HTTP says it.")] = None,
    subject: Annotated[str | None, Option("--subject", help="Whose it is: erased with that person.")] = None,
) -> Blob:
    """Keep a file, or stdin, under a key in the place of what was there: all of it or nothing."""
    with storage.opened(call, "blobs") as blobs, opened_file(source) as (file, total), bar() as tell:
        # Streamed: a file may be larger than memory.
        blobs.open_write(key, pieces(file, total, tell), content_type, subject=subject)
        return _present(blobs.stat(key), key)


@command(COMMANDS, "blobs get", example="holdproof blobs get backups/today.bak today.bak", group="Operate")
def get_blob(
    call: CommandContext,
    key: Key,
    target: Target = STDIO,
) -> Blob:
    """Write the bytes of a key to a file, or to stdout, verified; a file is whole or not there."""
    with storage.opened(call, "blobs") as blobs, bar() as tell:
        blob = _present(blobs.stat(key), key)
        count = 0

        def read() -> Any:
            nonlocal count
            for piece in blobs.open_read(key):
                yield piece
                count += len(piece)
                if tell is not None:
                    tell("bytes", count, blob.size)

        storage.delivered(read(), target, call.as_json)
    # stdout has the bytes: a summary after them would be part of the file.
    if target == STDIO:
        raise click.exceptions.Exit(0)
    return blob


def _present(blob: Blob | None, key: str) -> Blob:
    if blob is None:
        raise NotFoundError(f"no blob {key}", key=key)
    return blob


@command(COMMANDS, "backup", example="holdproof backup /mnt/backups/monday", group="Operate")
def back_up(
    call: CommandContext,
    dest: Annotated[Path, Argument(help="The folder to make; it must not exist.")],
    keys: Annotated[bool, Option("--keys", help="Put the private keys in, and those of subjects.")] = False,
) -> Backup:
    """Copy the whole store as it stands into a new folder, signed; writers go on."""
    with call.open() as store, bar() as progress:
        backup = store.backup.create(dest, keys=keys, progress=progress)
    # A warning, not an error: leaving the keys out is the default, and most backups are right without them.
    if backup.sealed and not backup.keys:
        render.aside(
            f"note: the keys of {backup.sealed} subjects are not in it: what is sealed opens only with this store,"
            " or with a backup made with --keys and stored apart\n"
        )
    render.warn_outside(backup.outside)
    return backup


@command(COMMANDS, "backup list", example="holdproof backup list /mnt/backups", group="Operate")
def list_backups(
    _: CommandContext, folder: Annotated[Path, Argument(help="The folder that holds backups.")]
) -> dict[str, Any]:
    """Show the backups in a folder, the oldest first: the moments and log indices that can be restored."""
    return {Path(each.path).name: each.to_dict() for each in backup_list.list_backups(folder)}


@command(COMMANDS, "backup check", example="holdproof backup check /mnt/backups/monday", group="Operate")
def check_backup(
    _: CommandContext,
    src: Annotated[Path, Argument(help="The backup.")],
    key: Annotated[str | None, Option("--key", help="The id of the log key that must have signed it.")] = None,
) -> Backup:
    """Check a backup: signature, every file, the database, the log; needs no store."""
    with bar() as progress:
        backup = backup_list.inspect(src, key=key, tell=progress or backup_list.no_progress)
    render.warn_outside(backup.outside)
    return backup


@command(COMMANDS, "flows recover", example="holdproof flows recover --register my_agents:register", group="Run")
def recover(
    call: CommandContext,
    register: Annotated[
        str, Option("--register", metavar="MODULE:FUNCTION", help="Gets the store, registers functions on it.")
    ],
    worker: Annotated[str | None, Option("--worker", help="The name to lease flows under.")] = None,
    limit: Annotated[int, Option("--limit", help="How many, at most.")] = 100,
    ns: Namespace = "main",
) -> Recovery:
    """Run flows again whose worker is gone and whose function is registered; names those that are left."""
    registering = find_function(register)
    with call.open() as store:
        registering(store)
        return store.flows.recover(worker, limit=limit, ns=ns)
