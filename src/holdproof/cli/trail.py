"""What an auditor reads: `holdproof audit`, one timeline of everything, and `holdproof show`, a bundle."""

import csv
import io
from collections.abc import Iterator
from dataclasses import Field, fields
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Final

import click
from rich.text import Text

from holdproof.cli import draw
from holdproof.cli.call import Argument, CommandContext, Option, command
from holdproof.cli.files import read_bytes
from holdproof.cli.storage import delivered
from holdproof.cli.typed import moment, whole_ids
from holdproof.content import parquet
from holdproof.crypto import keys
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.model.namespaces import EVERY
from holdproof.model.page import Page
from holdproof.model.trail import TrailEntry
from holdproof.model.verdicts import Verdict
from holdproof.sync import Holdproof
from holdproof.upkeep.verification import offline, person_check
from holdproof.upkeep.verification.story import tell

COMMANDS: dict[str, click.Command] = {}

_COLUMNS: Final = ("at", "kind", "what", "agent_id", "flow_id", "person", "note")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""
_MOST: Final = 1_000
_GROUP: Final = 20_000
"""How many rows a group of a Parquet file has at least, but for the last."""
_SCHEMA: Final = "schema"
"""The kind of entries about migrations."""
_KINDS: Final[dict[str, parquet.Kind]] = {"index": "number", "version": "number", "at": "moment"}


def _drawn(value: Any) -> Any:
    """Draw the timeline in columns; a document that went to a file as its fields."""
    if "items" not in value:
        return draw.answer((), value)
    return draw.answer(_COLUMNS, {**value, "items": _folded(value["items"])})


def _folded(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put migrations that follow each other into one line: a new store begins with all that there are.

    Whoever asks for them alone (`--kind schema`) gets each.
    """
    if all(entry["kind"] == _SCHEMA for entry in entries):
        return entries
    folded: list[dict[str, Any]] = []
    for kind, group in groupby(entries, key=itemgetter("kind")):
        run = [*group]
        if kind == _SCHEMA and len(run) > 1:
            what = f"{len(run)} migrations applied"
            folded.append({**run[0], "what": what, "note": f"each: --kind {_SCHEMA}"})
        else:
            folded += run
    return folded


@command(
    COMMANDS, "audit", example="holdproof audit --since 1h --agent trader", group="Inspect", reach="server", draw=_drawn
)
def audit(
    call: CommandContext,
    *,
    since: Annotated[str | None, Option("--since", help="From this time on, or so long ago: 30m, 1h, 7d.")] = None,
    until: Annotated[str | None, Option("--until", help="Before this time, or up to so long ago.")] = None,
    agent: Annotated[str | None, Option("--agent", help="Only what this agent did.")] = None,
    flow: Annotated[str | None, Option("--flow", help="Only what happened in this flow.")] = None,
    person: Annotated[str | None, Option("--person", help="Only what this person did.")] = None,
    kind: Annotated[str | None, Option("--kind", help="Only this kind: decision, step, escalation, key, …")] = None,
    cursor: Annotated[str | None, Option("--cursor", help="Where the page before this one ended.")] = None,
    limit: Annotated[int, Option("--limit", help="How many entries a page has.")] = 100,
    ns: Annotated[str, Option("--ns", help="Only this namespace.")] = EVERY,
    as_csv: Annotated[bool, Option("--csv", help="All that matches as CSV, not one page.")] = False,
    as_parquet: Annotated[bool, Option("--parquet", help="The same as Parquet, for DuckDB and its like.")] = False,
    out: Annotated[Path | None, Option("--out", help="The file for --csv or --parquet; else stdout.")] = None,
) -> Any:
    """Show one timeline of everything: flows, steps, approvals, memory, keys, lockdowns, access; newest first."""
    if as_csv and as_parquet:
        raise InvalidInputError("one of --csv and --parquet", field="parquet")
    export = _csv if as_csv else _parquet if as_parquet else None
    if out is not None and export is None:
        raise InvalidInputError("--out is for --csv and --parquet", field="out")
    filters = {"since": since and moment(since, "since"), "until": until and moment(until, "until")}
    filters |= {"agent_id": agent, "flow_id": flow, "person": person, "kind": kind}
    with call.open(create=False) as store:
        whole_ids(store, filters)
        if export is None:
            page = store.audit.trail(cursor=cursor, limit=limit, ns=ns, **filters)
            if not page.items and page.next_cursor is None and cursor is None:
                _refuse_unknown(store, filters, ns)
            return page
        pages = _pages(store, cursor, {**filters, "ns": ns})
        size = delivered(export(pages), "-" if out is None else str(out), call.as_json)
    if out is None:
        raise click.exceptions.Exit(0)  # stdout has the lines: a summary would be read as one more
    return {"written": str(out), "bytes": size}


def _refuse_unknown(store: Holdproof, filters: dict[str, str | None], ns: str) -> None:
    """Raise where the log has nothing at all of a flow or an agent: "none" would read like "nothing happened"."""
    for name, word in (("flow_id", "flow"), ("agent_id", "agent")):
        value = filters[name]
        if value is None:
            continue
        page = store.audit.trail(limit=1, ns=ns, **{name: value})
        if not page.items and page.next_cursor is None:
            raise NotFoundError(
                f"the log has no entry of the {word} {value}", listed_by=f"{word}s list", **{name: value}
            )


def _story(value: Any) -> Text:
    """Draw a bundle as its page does: what was decided first, then what happened, then the verdict."""
    story = value["story"]
    if story is None:
        return draw.verification(value["report"])
    text = Text()
    heads = {"decided": [story["decided"]], "by": [story["by"]], "on": story["inputs"] or ["no recorded inputs"]}
    heads |= {"approved by": story["approvals"] or ["nobody was asked"]}
    heads |= {"when": [" to ".join(filter(None, (story["begun_at"], story["ended_at"])))]}
    for name, lines in heads.items():
        for at, line in enumerate(lines):
            text.append(f"{name if at == 0 else '':<12}", style="bold").append(f"{draw.cell(line)}\n")
    text.append("\n").append(draw.table(("at", "kind", "what", "person", "note", "index"), story["events"]))
    return text.append("\n").append(draw.verification(value["report"]))


@command(
    COMMANDS,
    "show",
    example="holdproof show evaluation-1.zip",
    group="Prove",
    reach="anywhere",
    exit_code=lambda answer: Verdict[answer["report"]["verdict"]].exit_code,
    draw=_story,
)
def show(
    _: CommandContext,
    bundle: Annotated[Path, Argument(help="The bundle, a zip file.")],
    *,
    root: Annotated[Path | None, Option("--root", help="The root's public key (PEM) you trust.")] = None,
) -> dict[str, Any]:
    """Show a bundle: what was decided, by whom, on what, approved by whom, when; nothing of one that does not hold."""
    trusted = None if root is None else keys.load_public_pem(read_bytes(root, 1 << 16))
    data = read_bytes(bundle, offline.MOST_BYTES + 1)
    if person_check.is_person_file(data):
        raise InvalidInputError(
            f"{bundle} is a person's file: read the report.html in it; `holdproof verify {bundle}` checks it",
            field="bundle",
        )
    report, records = offline.examine(data, root=trusted)
    story = tell(report.kind, records).to_dict() if records else None
    return {"story": story, "report": report.to_dict()}


def _pages(store: Holdproof, cursor: str | None, filters: dict[str, Any]) -> Iterator[Page[TrailEntry]]:
    while True:
        page = store.audit.trail(cursor=cursor, limit=_MOST, **filters)
        yield page
        if page.next_cursor is None:
            return
        cursor = page.next_cursor


def _csv(pages: Iterator[Page[TrailEntry]]) -> Iterator[bytes]:
    """Yield the lines of a CSV file, a page at a time; its columns are the fields of an entry."""
    names = [each.name for each in fields(TrailEntry)]
    yield _lines([names])
    for page in pages:
        yield _lines([[_cell(getattr(entry, name)) for name in names] for entry in page.items])


def _parquet(pages: Iterator[Page[TrailEntry]]) -> Iterator[bytes]:
    """Yield a Parquet file of the same columns, many pages in a group of rows."""
    columns = [_column(each) for each in fields(TrailEntry)]
    return parquet.write(columns, _groups(pages, [each.name for each in columns]))


def _column(field: Field[Any]) -> parquet.ParquetColumn:
    return parquet.ParquetColumn(field.name, _KINDS.get(field.name, "text"), optional=field.type == str | None)


def _groups(pages: Iterator[Page[TrailEntry]], names: list[str]) -> Iterator[list[list[Any]]]:
    rows: list[list[Any]] = []
    for page in pages:
        rows += [[getattr(entry, name) for name in names] for entry in page.items]
        if len(rows) >= _GROUP:
            yield rows
            rows = []
    yield rows


def _lines(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Return a value as a cell: a text that a spreadsheet would run as a formula is marked as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
