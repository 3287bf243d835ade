"""`holdproof import`: data of other programs."""

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from holdproof import sync
from holdproof.cli import archive, vectors
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, Limit, Namespace, command, options
from holdproof.model.imports import Imported, ImportRecord, Takeover
from holdproof.model.lisp import LispImported
from holdproof.model.page import Page
from holdproof.model.threads import ThreadsImported

app = typer.Typer(
    help="Take in files: what `export` wrote elsewhere, and other programs' data.",
    epilog="Example: holdproof import green-agent battles.db --dboms data/dboms",
    no_args_is_help=True,
)
app.callback()(options)

command(app, name="car", example="holdproof import car memory.car")(archive.import_)
command(app, name="vectors", example="holdproof import vectors vectors.jsonl")(vectors.import_)


@command(app, example="holdproof import green-agent battles.db --dboms data/dboms --dry-run")
def green_agent(
    call: Call,
    source: Annotated[Path, typer.Argument(metavar="BATTLES_DB", help="The Green Agent's database.")],
    dboms: Annotated[Path | None, typer.Option("--dboms", help="Its folder of DBOM files.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what each row is.")] = False,
    ns: Namespace = "main",
) -> Imported:
    """Import a Green Agent's battles: every row, each with a verdict; doing it again changes nothing."""
    with call.open() as store, bar() as tell:
        return store.imports.green_agent(source, dboms=dboms, dry_run=dry_run, ns=ns, progress=_rows(tell))


@command(app, example="holdproof import dir dir.db --dry-run")
def dir(
    call: Call,
    source: Annotated[Path, typer.Argument(metavar="DIR_DB", help="DIR's SQLite database.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what each row is.")] = False,
    ns: Namespace = "main",
) -> Takeover:
    """Import a database of the Decision Intelligence Runtime: every row, each with a verdict; twice changes nothing."""
    with call.open() as store, bar() as tell:
        return store.imports.dir(source, dry_run=dry_run, ns=ns, progress=_rows(tell))


@command(app, example="holdproof import lisp memory-image.lisp --dry-run")
def lisp(
    call: Call,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="An image or an archive of a Lisp memory.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    ns: Namespace = "main",
) -> LispImported:
    """Import a Lisp memory as objects with their history; nothing is evaluated, and doing it again changes nothing."""
    with call.open() as store, bar() as tell:
        return store.archive.import_lisp(source, dry_run=dry_run, ns=ns, progress=tell)


@command(app, example="holdproof import langgraph checkpoints.sqlite --allow myapp.state:Plan")
def langgraph(
    call: Call,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What SqliteSaver or AsyncSqliteSaver wrote.")],
    allow: Annotated[
        builtins.list[str] | None,
        typer.Option("--allow", metavar="MODULE:TYPE", help="A type of yours; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only read the file.")] = False,
    ns: Namespace = "main",
) -> ThreadsImported:
    """Import the checkpoints of LangGraph's SQLite saver as threads; doing it again changes nothing."""
    from holdproof.adapters.langgraph import import_sqlite  # noqa: PLC0415 - an optional extra

    types = [(module, name) for module, _, name in (each.partition(":") for each in allow or [])]
    with call.open() as store, bar() as tell:
        scoped = sync.Holdproof(store.core, ns)
        return import_sqlite(scoped, source, allow=types, dry_run=dry_run, progress=tell)


@command(app, example="holdproof import list --verdict KEPT")
def list(
    call: Call,
    *,
    verdict: Annotated[str | None, typer.Option("--verdict", help="Only TAKEN, ADAPTED or KEPT.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only rows of this table of the source.")] = None,
    cursor: Annotated[str | None, typer.Option("--cursor", help="next_cursor of the page before.")] = None,
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[ImportRecord]:
    """What imports found of each row, and the values that its own row here does not hold as they were."""
    with call.open() as store:
        return store.imports.list(verdict=verdict, table=table, ns=ns, cursor=cursor, limit=limit)


def _rows(tell: Callable[[str, int, int], None] | None) -> Callable[[int, int], None] | None:
    """A bar for work that counts rows."""
    return None if tell is None else lambda done, total: tell("rows", done, total)
