"""The tables and operations the suites play with."""

from holdproof.db import Migration, Tx, sql

MIGRATIONS = [
    Migration(
        "0001_suite",
        """
        CREATE TABLE counters (
          name TEXT PRIMARY KEY,
          value @int NOT NULL CHECK (value BETWEEN 0 AND 100)
        );
        CREATE TABLE entries (
          id TEXT PRIMARY KEY,
          counter TEXT NOT NULL REFERENCES counters (name),
          amount @real,
          body @blob,
          data @json,
          at @time NOT NULL
        );
        CREATE INDEX idx_entries_counter ON entries (counter);
        """,
    )
]

ADD_COUNTER = sql("INSERT INTO counters (name, value) VALUES (:name, :value)")
# Queries are module constants: `sql` compiles them for both databases at import.
GET_COUNTER = sql("SELECT value FROM counters WHERE name = :name")
COUNTERS = sql("SELECT name, value FROM counters WHERE name > :after ORDER BY name LIMIT :limit")
TAKE = sql("UPDATE counters SET value = value - 1 WHERE name = :name AND value > 0 RETURNING value")
SET_COUNTER = sql("UPDATE counters SET value = :value WHERE name = :name")
ADD_ENTRY = sql(
    "INSERT INTO entries (id, counter, amount, body, data, at) VALUES (:id, :counter, :amount, :body, :data, :at)"
)
GET_ENTRY = sql("SELECT id, counter, amount, body, data, at FROM entries WHERE id = :id")
COUNT_ENTRIES = sql("SELECT count(*) FROM entries")
BROKEN = sql("SELECT nonsense FROM counters")


def add(tx: Tx, name: str, value: int = 0) -> str:
    """Add a counter."""
    tx.execute(ADD_COUNTER, name=name, value=value, expect=1)
    return name


def value(tx: Tx, name: str) -> int | None:
    """The value of a counter; None if there is none."""
    row = tx.one(GET_COUNTER, name=name)
    if row is None:
        return None
    (number,) = row
    return int(number)


def take(tx: Tx, name: str) -> str | None:
    """Decrement a counter and add an entry for it; None at zero. The guard is one statement."""
    if tx.one(TAKE, name=name) is None:
        return None
    return enter(tx, name)


def enter(tx: Tx, name: str) -> str:
    """Add an entry for a counter."""
    entry = tx.new_id()
    tx.execute(ADD_ENTRY, id=entry, counter=name, amount=1.0, body=b"", data="{}", at=tx.now, expect=1)
    return entry


def entries(tx: Tx) -> int:
    """How many entries there are."""
    [(number,)] = tx.all(COUNT_ENTRIES)
    return int(number)
