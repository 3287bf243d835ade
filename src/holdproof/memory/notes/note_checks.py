"""What must hold of notes: each is what its hash says. They are outside the log, so this finds damage, not intent."""

import json
from collections import defaultdict
from typing import Final

from holdproof.db import Tx, sql
from holdproof.memory.notes import notes as room
from holdproof.memory.objects.object_checks import CheckedPage, Flaw

_PAGE: Final = 100
_NOTES = sql("SELECT n, path, key, value, h FROM notes WHERE n > :after ORDER BY n LIMIT :limit")
_VECTORS = sql(
    "SELECT note, field, dimensions, vector FROM note_vectors WHERE note IN (SELECT value FROM json_each(:wanted))",
    postgres="SELECT note, field, dimensions, vector FROM note_vectors WHERE note IN"
    " (SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:wanted AS JSON)))",
)


def notes(tx: Tx, after: int | None) -> CheckedPage:
    """One page of notes, with the vectors they are found by."""
    rows = tx.all(_NOTES, after=-(2**62) if after is None else after, limit=_PAGE)
    vectors: dict[int, dict[str, bytes]] = defaultdict(dict)
    flaws = []
    for n, field, dimensions, vector in tx.all(_VECTORS, wanted=json.dumps([row[0] for row in rows])):
        vectors[n][field] = vector
        if len(vector) != 4 * dimensions:
            flaws.append(Flaw("note_vectors", f"{n} {field}", "a vector of a note has another length than it says"))
    for n, path, key, value, h in rows:
        if room.row_hash(path, key, value, vectors[n]) != h:
            flaws.append(Flaw("notes", str(n), "a note, or a vector of it, is damaged or was edited"))
    return CheckedPage(len(rows), flaws, rows[-1][0] if len(rows) == _PAGE else None)
