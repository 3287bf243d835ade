"""Read the tables of a backup from PostgreSQL without a server: `kernel/<table>.copy`, in COPY's text format."""

import re
from collections.abc import Iterator
from pathlib import Path

from holdproof.crypto import keys
from holdproof.errors import CorruptError
from holdproof.evidence.tree import LogState
from holdproof.model.backup import Manifest
from holdproof.upkeep.verification.log_check import LogKey, StoreParts

FOLDER = "kernel"
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def rows(src: Path, manifest: Manifest, table: str) -> Iterator[dict[str, str | None]]:
    """Yield the rows of a table by column name, every value as text."""
    columns = manifest.tables.get(table)
    if columns is None:
        raise CorruptError(f"the backup has no table {table}", table=table)
    with (src / FOLDER / f"{table}.copy").open(encoding="utf-8", newline="\n") as file:
        for line in file:
            values = [_value(part) for part in line.removesuffix("\n").split("\t")]
            if len(values) != len(columns):
                raise CorruptError(f"a row of {table} has another number of columns", table=table)
            yield dict(zip(columns, values, strict=True))


def parts(src: Path, manifest: Manifest) -> StoreParts:
    """Return the store's id, log state, log keys and leaves from the copied tables."""
    try:
        return _parts(src, manifest)
    except (KeyError, ValueError) as error:  # a column that is not there, or not of its kind
        raise CorruptError(f"the backup's tables are not those of a store: {error}") from error


def _parts(src: Path, manifest: Manifest) -> StoreParts:
    facts = {row["key"]: row["value"] for row in rows(src, manifest, "store_facts")}
    state = [
        LogState(
            str(row["origin"]), int(row["size"] or 0), bytes.fromhex((row["frontier"] or "")[2:]), str(row["head"])
        )
        for row in rows(src, manifest, "log_state")
    ]
    if len(state) != 1 or not facts.get("store_id"):
        raise CorruptError("the backup's log has no state, or its store no name")
    ring = [_key(row) for row in rows(src, manifest, "keyring") if row["role"] == "log"]
    leaves = (row["leaf"] or "" for row in rows(src, manifest, "log_leaves"))
    return StoreParts(str(facts["store_id"]), state[0], ring, leaves)


def _key(row: dict[str, str | None]) -> LogKey:
    revoked = row["revoked_from"]
    return LogKey(keys.load_public_pem((row["public"] or "").encode()), None if revoked is None else int(revoked))


def _value(part: str) -> str | None:
    if part == "\\N":
        return None
    return _ESCAPE.sub(lambda match: _MEANS.get(match[1], match[1]), part) if "\\" in part else part
