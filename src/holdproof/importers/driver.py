"""The import driver: every importer plans what to write, and this writes it.

Rules:
- An importer reads its whole source first, so that a damaged one is an error before anything is written.
- Units are written in batches, one transaction each; a unit (a flow and its transitions, a whole file) is never split.
- A dry run reads what is needed to tell the outcome, and writes nothing.
- Importing twice is harmless: a record is known by its `fingerprint`, and `write` says so instead of writing it again.
- Nothing of a source is lost: values that have no column here are stored as JSON (`as_json`) beside the row.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any, Final, TypeVar

from holdproof.db import Call, Read, Tx, Work, Write, ask

BATCH: Final = 200

U = TypeVar("U")
R = TypeVar("R")
Progress = Callable[[int, int], None]
"""Called with how many outcomes there are, of how many expected."""


def _one(unit: object) -> int:
    del unit
    return 1


def import_units(
    units: Sequence[U],
    *,
    write: Callable[[Tx, U], Sequence[R]],
    preview: Callable[[Tx, U], Sequence[R]],
    dry_run: bool = False,
    size: Callable[[U], int] = _one,
    after_commit: Callable[[Sequence[U]], None] | None = None,
    progress: Progress | None = None,
) -> Work[list[R]]:
    """Write units batch by batch; return the outcome of each record in the order of the source.

    `size` says how many records a unit has, `after_commit` does what must follow a commit (files, for example).
    """
    total = sum(map(size, units))
    outcomes: list[R] = []
    for batch in batches(units, size):
        if dry_run:
            outcomes += yield from ask(Read(_each(preview, batch)))
        else:
            outcomes += yield from ask(Write(_each(write, batch)))
            # Never inside the transaction, which may be run again.
            if after_commit is not None:
                yield Call(_bind(after_commit, batch))
        if progress is not None:
            progress(len(outcomes), total)
    return outcomes


def _each(act: Callable[[Tx, U], Sequence[R]], batch: list[U]) -> Callable[[Tx], list[R]]:
    def run(tx: Tx) -> list[R]:
        return [outcome for unit in batch for outcome in act(tx, unit)]

    return run


def _bind(act: Callable[[Sequence[U]], None], batch: list[U]) -> Callable[[], None]:
    def run() -> None:
        act(batch)

    return run


def batches(units: Iterable[U], size: Callable[[U], int] = _one) -> Iterator[list[U]]:
    """Split units into lists of at least `BATCH` records; the last may be shorter."""
    batch: list[U] = []
    count = 0
    for unit in units:
        batch.append(unit)
        count += size(unit)
        if count >= BATCH:
            yield batch
            batch = []
            count = 0
    if batch:
        yield batch


# --- values of other programs, as JSON -------------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """A value of SQLite as JSON: bytes in hex, numbers that are not finite as text."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float) and not isfinite(value):
        return {"float": repr(value)}
    return value


def row_as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON, by column."""
    return {name: as_json(value) for name, value in row.items()}


def fingerprint(row: Mapping[str, Any], counts: Counter[str], of: str = "") -> str:
    """A hash that identifies a row within its source: of its content, and of its number among equal rows.

    `counts` is shared by all rows of a source; `of` is the table, where a source has several.
    """
    # Equal rows of one source are told apart by their number, so that both are imported, and neither twice.
    content = of + json.dumps(row_as_json(row), sort_keys=True)
    counts[content] += 1
    return sha256(f"{content}#{counts[content]}".encode()).hexdigest()
