"""What listings read on SQLite: as much as they return, whatever stands beside it."""

import json
from typing import Any

import apsw
import pytest

from holdproof.db import Query
from holdproof.memory.objects import objects
from holdproof.storage.blobs import blob_rows

_BLOBS = "CREATE TABLE blobs (key TEXT PRIMARY KEY, size, sha256, content_type, place, address, put_at)"
_VERSIONS = "CREATE TABLE object_versions (ns TEXT, key TEXT, n, at TEXT, PRIMARY KEY (ns, key, n))"


def _read(connection: apsw.Connection, query: Query, params: dict[str, Any]) -> tuple[list[Any], int]:
    """Return the rows of a query, and about how many instructions SQLite runs for them."""
    hundreds = 0

    def count() -> bool:
        nonlocal hundreds
        hundreds += 1
        return False

    connection.set_progress_handler(count, 100)
    rows = connection.execute(query.sqlite, query.bind(params)).fetchall()
    connection.set_progress_handler(None)
    return rows, hundreds * 100


@pytest.mark.parametrize("query", [blob_rows._KEYS, blob_rows._STATS], ids=["keys", "stats"])
def test_the_keys_before_a_prefix_are_not_walked(query: Query) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(_BLOBS)
    names = [f"a/{number:04}" for number in range(5_000)] + [f"z/{number}" for number in range(5)]
    connection.executemany("INSERT INTO blobs (key) VALUES (?)", [(name,) for name in names])
    first, instructions = _read(connection, query, {"start": "z/", "after": "", "limit": 3})
    assert ([row[0] for row in first], instructions < 1_000) == (["z/0", "z/1", "z/2"], True)
    second, _ = _read(connection, query, {"start": "z/2", "after": "z/2", "limit": 3})
    assert [row[0] for row in second] == ["z/3", "z/4"]


def test_of_all_writes_of_an_object_the_last_alone_is_read() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(_VERSIONS)
    writes = [("main", "often", number, f"{number:05}") for number in range(5_000)] + [("main", "once", 1, "1")]
    connection.executemany("INSERT INTO object_versions VALUES (?, ?, ?, ?)", writes)
    keys = json.dumps(["often", "once", "never"])
    rows, instructions = _read(connection, objects._WRITTEN, {"ns": "main", "keys": keys})
    assert (rows, instructions < 1_000) == ([("often", "04999"), ("once", "1"), ("never", None)], True)
