"""What partitions of audit events are called, and how a divided schema is read as the plain one; pure.

Rules:
- Only exactly what `db partition` makes is read as the plain table: a further column, index, constraint, trigger or
  policy of a partition stays in the schema, where verification finds it as it finds any other.
"""

import re
from collections import Counter
from datetime import datetime
from typing import Final

TABLE: Final = "decision_audit_events"
BEFORE: Final = f"{TABLE}_before"
REST: Final = f"{TABLE}_rest"
_PARTITION: Final = re.compile(rf"{TABLE}_(?:before|rest|[0-9]{{4}}_(?:0[1-9]|1[0-2]))")

Objects = dict[str, str]
"""The definition of every object of a schema, by kind and name."""


def month_name(start: datetime) -> str:
    """Return the name of the partition of a month."""
    return f"{TABLE}_{start:%Y_%m}"


def months(now: datetime, count: int) -> list[datetime]:
    """Return where this month and those after it begin."""
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    numbers = (first.year * 12 + first.month - 1 + step for step in range(count))
    return [first.replace(year=number // 12, month=number % 12 + 1) for number in numbers]


def without_partitions(objects: Objects, plain: Objects) -> Objects:
    """Return the objects of a schema with the divided table as `plain`, the schema that migrations make, has it.

    A schema that is not divided, or divided otherwise, is returned as it is.
    """
    expected = Counter(_DIVIDED.get(each, each) for each in _parts(plain, TABLE).values())
    if not objects.get(f"relation {TABLE}", "").startswith("p") or Counter(_parts(objects, TABLE).values()) != expected:
        return objects
    names = [name.removeprefix("relation ") for name in objects if name.startswith("relation ")]
    read = {name: text for name, text in objects.items() if name not in _parts(objects, TABLE)}
    for partition in filter(_PARTITION.fullmatch, names):
        parts = _parts(objects, partition)
        if Counter(parts.values()) == expected:
            read = {name: text for name, text in read.items() if name not in parts}
    return read | {name: plain[name] for name in _parts(plain, TABLE)}


_INDEX: Final = re.compile(r"CREATE (UNIQUE )?INDEX \S+ ON (?:ONLY )?(\S+) USING (.*)", re.DOTALL)
_IDENTITY: Final = "id bigint true d "
_NUMBERED: Final = f"id bigint true   nextval('{TABLE}_id_seq'::regclass)"


def _parts(objects: Objects, table: str) -> Objects:
    """Return the objects of a table, each by its name as a text that is the same for every partition."""
    parts: Objects = {}
    for name, definition in objects.items():
        kind, _, called = name.partition(" ")
        if kind == "relation" and called == table:
            # Its kind, r or p, is what differs.
            parts[name] = f"relation {definition[1:].replace(_IDENTITY, _NUMBERED)}"
        elif kind == "constraint" and called.startswith(f"{table}."):
            parts[name] = f"constraint {definition}"
        elif kind == "index" and (index := _INDEX.fullmatch(definition)) and index[2] == table:
            parts[name] = f"index {index[1] or ''}{index[3]}"
    return parts


_DIVIDED: Final = {
    "index UNIQUE btree (id) truetrue": "index UNIQUE btree (id, created_at) truetrue",
    "constraint PRIMARY KEY (id) true": "constraint PRIMARY KEY (id, created_at) true",
}
"""The key of the plain table, and what it becomes."""
