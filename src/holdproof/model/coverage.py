"""How each column of a table is covered: by an entry of the log, by being rebuilt, by a hash of its own, or not at all.

Every column of every kernel table is declared, beside the table's descriptor or in `upkeep/kernel_tables.py`. A test
compares the declarations with the schema, docs/format.md and docs/threat-model.md are made from them, and `verify`
prints what is not covered.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class Cover(Enum):
    """What finds an edited value."""

    ENTRY = "entry"
    """An entry of the log commits to it, or it is the log: an edit is found, whoever makes it without the log key."""
    REBUILT = "rebuilt"
    """It is computed anew from what entries commit to, and compared: as good as an entry."""
    HASHED = "hashed"
    """A hash in the same row or table is compared: damage is found, but not an edit that renews the hash as well."""
    NONE = "not covered"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a column is covered, and by what; of one that is not, why not and what an edit could do."""

    cover: Cover
    by: str


Columns = Mapping[str, Coverage]
"""How the columns of a table are covered, by name."""


def columns(names: str | Iterable[str], cover: Cover, by: str) -> dict[str, Coverage]:
    """Declare several columns that are covered in the same way."""
    return dict.fromkeys(names.split() if isinstance(names, str) else names, Coverage(cover, by))


def not_covered(tables: Mapping[str, Columns]) -> list[str]:
    """Return what is not covered, one line for each reason: the tables, with columns where it is only some."""
    by_reason: dict[str, list[str]] = {}
    for table, declared in sorted(tables.items()):
        reasons: dict[str, list[str]] = {}
        for column, coverage in declared.items():
            if coverage.cover is Cover.NONE:
                reasons.setdefault(coverage.by, []).append(column)
        for reason, names in reasons.items():
            some = "" if len(names) == len(declared) else f" ({', '.join(f'`{name}`' for name in names)})"
            by_reason.setdefault(reason, []).append(f"{table}{some}")
    return [f"{', '.join(named)}: {reason}" for reason, named in by_reason.items()]
