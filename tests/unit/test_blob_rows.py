"""What the listings of blobs read: as much as they return, wherever their keys stand among the others."""

import apsw
import pytest

from holdproof.db import Query
from holdproof.storage.blobs import blob_rows

_SCHEMA = "CREATE TABLE blobs (key TEXT PRIMARY KEY, size, sha256, content_type, place, address, put_at)"


def _instructions(connection: apsw.Connection, query: Query, start: str, after: str) -> tuple[list[str], int]:
    """Return the keys that a query lists, and about how many instructions SQLite runs for them."""
    hundreds = 0

    def count() -> bool:
        nonlocal hundreds
        hundreds += 1
        return False

    connection.set_progress_handler(count, 100)
    rows = connection.execute(query.sqlite, query.bind({"start": start, "after": after, "limit": 3})).fetchall()
    connection.set_progress_handler(None)
    return [str(row[0]) for row in rows], hundreds * 100


@pytest.mark.parametrize("query", [blob_rows._KEYS, blob_rows._STATS], ids=["keys", "stats"])
def test_the_keys_before_a_prefix_are_not_walked(query: Query) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(_SCHEMA)
    names = [f"a/{number:04}" for number in range(5_000)] + [f"z/{number}" for number in range(5)]
    connection.executemany("INSERT INTO blobs (key) VALUES (?)", [(name,) for name in names])
    first, instructions = _instructions(connection, query, "z/", "")
    assert (first, instructions < 1_000) == (["z/0", "z/1", "z/2"], True)
    second, _ = _instructions(connection, query, "z/2", "z/2")
    assert second == ["z/3", "z/4"]
