"""What imports found: a record under the log for each row of a source, which makes importing twice harmless."""

import json
from typing import Any, Final

from holdproof import validation
from holdproof.db import Tx, sql
from holdproof.evidence.tables import IMPORTED, Table, numbered
from holdproof.model import jsontext
from holdproof.model.imports import ImportPage, ImportRecord
from holdproof.model.namespaces import MAIN

KEPT: Final = Table(
    "imported_rows",
    ImportRecord,
    kind=IMPORTED,
    key="id",
    logged=(
        *("id", "source_key", "importer", "source", "source_table", "source_id", "row_key", "verdict", "note"),
        *("beside", "imported_at", "ns"),
    ),
    loads={"beside": jsontext.load},
)

_KNOWN = sql("SELECT verdict, note FROM imported_rows WHERE source_key = :key")


def known(tx: Tx, key: str, *, ns: str) -> tuple[str, str] | None:
    """Verdict and note of a row that was imported before."""
    found = tx.one(_KNOWN, key=f"{ns}/{key}")
    return None if found is None else (found[0], found[1])


_NEXT = numbered("SELECT {id}", "imported_rows")
_ADD = sql(KEPT.insert())


def add(tx: Tx, key: str, found: dict[str, Any], beside: dict[str, Any], *, ns: str) -> None:
    """Record what became of a row."""
    number = tx.one(_NEXT)
    assert number is not None
    row = {"id": number[0], "source_key": f"{ns}/{key}", **found, "imported_at": tx.now, "ns": ns}
    KEPT.add(tx, _ADD, row | {"beside": json.dumps(beside, sort_keys=True)})


_LIST = sql(
    KEPT.select(
        "WHERE ns = :ns AND id > :after AND (CAST(:verdict AS TEXT) IS NULL OR verdict = :verdict)"
        " AND (CAST(:table AS TEXT) IS NULL OR source_table = :table) ORDER BY id LIMIT :limit"
    )
)


def list(
    tx: Tx, *, verdict: str | None = None, table: str | None = None, ns: str = MAIN, after: int = 0, limit: int = 100
) -> ImportPage:
    """What imports found, oldest first, a page at a time: pass `next` of a page as `after`."""
    rows = tx.all(_LIST, verdict=verdict, table=table, ns=ns, after=after, limit=validation.limited(limit))
    records = tuple(KEPT.from_row(row) for row in rows)
    return ImportPage(records, records[-1].id if len(records) == limit else None)
