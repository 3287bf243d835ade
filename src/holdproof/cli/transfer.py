"""Commands whose files are larger than memory, or of another program: each reads or writes piece by piece."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import click

from holdproof import sync
from holdproof.cli import draw, storage
from holdproof.cli.application import find_application
from holdproof.cli.bar import bar
from holdproof.cli.call import Argument, CommandContext, Namespace, Option, command
from holdproof.cli.files import STDIO, opened_file, pieces
from holdproof.cli.index import ALIAS_GROUPS
from holdproof.errors import HoldproofError, InvalidInputError, NonDeterminismError, NotFoundError
from holdproof.model.blobs import Blob
from holdproof.model.flows import Recovery
from holdproof.model.storage import TelemetryEvent
from holdproof.model.threads import ThreadsImported

COMMANDS: dict[str, click.Command] = {}

_IMPORT: Final = ALIAS_GROUPS["import"]
# Large enough that commits cost little, small enough that an error loses little work.
_BATCH: Final = 1_000
_EVENT_FIELDS: Final = frozenset(each.name for each in fields(TelemetryEvent))
_VECTOR_FIELDS: Final = frozenset({"id", "vector", "metadata"})

Source = Annotated[str, Argument(metavar="FILE", help="The file; - is stdin.")]
Target = Annotated[str, Argument(metavar="FILE", help="Where to; - is stdout.")]
Key = Annotated[str, Argument(help="The key: a name like backups/today.bak, never a path.")]


@command(
    COMMANDS,
    "import vectors",
    example="holdproof import vectors vectors.jsonl",
    group="Operate",
    reach="server",
    group_summary=_IMPORT,
)
def import_vectors(call: CommandContext, source: Source) -> dict[str, int]:
    """Keep the vectors of a file of JSON lines (id, vector, metadata), a thousand a commit; twice changes nothing."""
    with storage.opened(call, "vectors", create=True) as vectors:
        return {"imported": vectors.add_many(_vectors(source))}


def _vectors(source: str) -> Iterator[tuple[str, Any, Any]]:
    for number, document in storage.documents(source):
        if not document.keys() <= _VECTOR_FIELDS or not document.keys() >= {"id", "vector"}:
            raise InvalidInputError(f"line {number} is to have id, vector and perhaps metadata", line=number)
        yield document["id"], document["vector"], document.get("metadata")


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
    with call.open(create=True) as store, bar() as tell:
        # The saver has no parameter for a namespace: it works in the one that its store is open for.
        scoped = sync.Holdproof(store.core, ns)
        return import_sqlite(scoped, source, allow=types, dry_run=dry_run, progress=tell)


@command(
    COMMANDS, "telemetry append", example="holdproof telemetry append events.jsonl", group="Inspect", reach="server"
)
def append_events(call: CommandContext, source: Source) -> dict[str, int]:
    """Keep the events of a file of JSON lines, a thousand a commit; an error says how many were kept before it."""
    count = 0
    events = _events(source)
    with storage.opened(call, "telemetry", create=True) as telemetry:
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
    reach="server",
)
def put_blob(
    call: CommandContext,
    key: Key,
    source: Source,
    content_type: Annotated[str | None, Option("--content-type", help="What it is, as HTTP says it.")] = None,
    subject: Annotated[str | None, Option("--subject", help="Whose it is: erased with that person.")] = None,
) -> Blob:
    """Keep a file, or stdin, under a key in the place of what was there: all of it or nothing."""
    with storage.opened(call, "blobs", create=True) as blobs, opened_file(source) as (file, total), bar() as tell:
        # Streamed: a file may be larger than memory.
        blobs.open_write(key, pieces(file, total, tell), content_type, subject=subject)
        return _present(blobs.stat(key), key)


@command(
    COMMANDS, "blobs get", example="holdproof blobs get backups/today.bak today.bak", group="Operate", reach="server"
)
def get_blob(
    call: CommandContext,
    key: Key,
    target: Target = STDIO,
) -> Blob:
    """Write the bytes of a key to a file, or to stdout, verified; a file is whole or not there."""
    with storage.opened(call, "blobs", create=False) as blobs, bar() as tell:
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
        raise NotFoundError(f"no blob {key}", listed_by="blobs list", key=key)
    return blob


@command(
    COMMANDS,
    "flows recover",
    example="holdproof flows recover --register my_agents:register",
    group="Run",
    reach="server",
)
def recover(
    call: CommandContext,
    register: Annotated[str, Option("--register", metavar="MODULE[:NAME]", help="A program of flows.")],
    worker: Annotated[str | None, Option("--worker", help="The name to lease flows under.")] = None,
    limit: Annotated[int, Option("--limit", help="How many, at most.")] = 100,
    ns: Namespace = "main",
) -> Recovery:
    """Run flows again whose worker is gone and whose function is registered; names those that are left."""
    with find_application(register).open(call, create=False) as store:
        return store.flows.recover(worker, limit=limit, ns=ns)


def _exit_different(replays: Sequence[dict[str, Any]]) -> int:
    return NonDeterminismError.exit_code if any(replay["differences"] for replay in replays) else 0


@command(
    COMMANDS,
    "flows replay",
    example="holdproof flows replay --all my_agents:register",
    group="Run",
    exit_code=_exit_different,
    draw=draw.replays,
)
def replay(
    call: CommandContext,
    register: Annotated[
        str,
        Argument(metavar="MODULE[:NAME]", help="The program: a function that registers flows, or an open store."),
    ],
    flow_ids: Annotated[list[str], Argument(metavar="FLOW_ID", help="The flows to replay.")] = [],  # noqa: B006 (click)
    *,
    every: Annotated[bool, Option("--all", help="Replay the flows of every function that is registered.")] = False,
    status: Annotated[str | None, Option("--status", help="Only flows with this status.")] = None,
    limit: Annotated[int, Option("--limit", help="How many flows of a function, at most, the newest first.")] = 1000,
    ns: Namespace = "main",
) -> list[dict[str, Any]]:
    """Run the code of flows again on what they recorded, without doing anything; exits with 4 where something differs.

    No step is executed and nothing is written: safe on a store in use, and in CI on a copy of one.
    """
    if every == bool(flow_ids):
        raise InvalidInputError("name flows, or pass --all", field="flow_ids")
    with find_application(register).open(call, create=False) as store:
        if every:
            replays = [*store.flows.replay_all(status=status, limit=limit, ns=ns)]
        else:
            replays = [store.flows.replay(flow_id, ns=ns) for flow_id in flow_ids]
        return [each.to_dict() for each in replays]
