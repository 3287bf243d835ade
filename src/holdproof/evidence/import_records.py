"""The records of imports: one under the log for each row of a source, which makes importing twice harmless."""

import json
from typing import Any, Final

from holdproof.db import Tx, sql
from holdproof.evidence.tables import IMPORTED, Table, numbered
from holdproof.model import jsontext
from holdproof.model.imports import ImportRecord
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page

IMPORTED_ROWS: Final = Table(
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

_FIND = sql("SELECT verdict, note FROM imported_rows WHERE source_key = :key")


def find(tx: Tx, key: str, *, ns: str) -> tuple[str, str] | None:
    """Verdict and note of a row that was imported before; None if it was not."""
    row = tx.one(_FIND, key=f"{ns}/{key}")
    if row is None:
        return None
    verdict, note = row
    return verdict, note


_NEXT = numbered("SELECT {id}", "imported_rows")
_ADD = sql(IMPORTED_ROWS.insert())


def add(tx: Tx, key: str, columns: dict[str, Any], beside: dict[str, Any], *, ns: str) -> None:
    """Record what became of a row; `beside` are the values that its row here does not hold."""
    # The leaf names the number of the row, so it is drawn before the row is written.
    [(id,)] = tx.all(_NEXT)
    row = {"id": id, "source_key": f"{ns}/{key}", **columns, "imported_at": tx.now, "ns": ns}
    row["beside"] = json.dumps(beside, sort_keys=True)
    IMPORTED_ROWS.add(tx, _ADD, row)


# CAST: PostgreSQL cannot infer the type of a bare parameter in IS NULL.
_LIST = sql(
    IMPORTED_ROWS.select(
        "WHERE ns = :ns AND id < :before AND (CAST(:verdict AS TEXT) IS NULL OR verdict = :verdict)"
        " AND (CAST(:table AS TEXT) IS NULL OR source_table = :table) ORDER BY id DESC LIMIT :limit"
    )
)


def list(
    tx: Tx,
    *,
    verdict: str | None = None,
    table: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[ImportRecord]:
    """List what was imported row by row, the newest first: its verdict, and the values its row here cannot hold."""
    return IMPORTED_ROWS.page(tx, _LIST, cursor, limit, verdict=verdict, table=table, ns=ns)
