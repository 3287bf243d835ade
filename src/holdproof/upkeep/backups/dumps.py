"""The tables of a server's store as files of a backup: a `Target` that writes them, a `TableSnapshot` that reads them.

`<space>/<table>.copy` is COPY's text of one table. `membrane/application.json` has the definitions of tables that
applications created, and their rows are in `membrane/application/<n>.copy`, numbered in the order of that file. They
are read without a server.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

from holdproof.content import disk
from holdproof.crypto import canonical, keys
from holdproof.crypto.vkey import ML_DSA_44, VerifierKey
from holdproof.db import copy_text
from holdproof.db.row_stream import ApplicationTables, RowStream
from holdproof.errors import CorruptError, FormatError
from holdproof.evidence.leaves import StampedLeaf
from holdproof.evidence.sequencer import pending_leaf
from holdproof.evidence.tree import LogState
from holdproof.model.backup import Manifest
from holdproof.upkeep.backups import stream
from holdproof.upkeep.verification.log_check import LogKey, StoreParts

FOLDERS: Final = ("kernel", "membrane", "telemetry")
APPLICATION: Final = "membrane/application.json"
_CHUNK: Final = 1 << 20


class DumpTarget:
    """Writes tables as files; see Target."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(
        self, space: str, tables: Mapping[str, list[str]], rows: Mapping[str, RowStream], counters: Mapping[str, int]
    ) -> None:
        """See Target; the counters are in the manifest."""
        del counters
        (self._folder / space).mkdir(mode=0o700, exist_ok=True)
        for table in tables:
            _write(self._folder / space / f"{table}.copy", rows[table])

    def fill_application(self, application: ApplicationTables, rows: Mapping[str, RowStream]) -> None:
        """Write definitions and rows of the tables that applications created."""
        folder = self._folder / "membrane" / "application"
        folder.mkdir(mode=0o700, parents=True)
        for number, table in enumerate(application.tables, 1):
            _write(folder / f"{number}.copy", rows[table])
        # A list keeps the order, which the numbers of the files follow; canonical JSON sorts the keys of an object.
        listed: Any = {**asdict(application), "tables": [[name, names] for name, names in application.tables.items()]}
        disk.create(self._folder / APPLICATION, canonical.dumps({"v": 1, **listed}))


def _write(path: Path, rows: RowStream) -> None:
    assert rows.text is not None, "the tables of a server are COPY text"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        for chunk in rows.text():
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


class DumpSnapshot:
    """Reads the tables of a backup; see TableSnapshot. Every file is compared with the manifest while it is read."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest
        self.spaces = [space for space in FOLDERS if space in manifest.tables]

    def ledger(self, space: str) -> dict[str, str]:
        """See TableSnapshot."""
        return dict(self._manifest.migrations.get(space, {}))

    def tables(self, space: str) -> dict[str, list[str]]:
        """See TableSnapshot."""
        listed = self._manifest.tables[space]
        return {table: [name for name, _ in listed[table]] for table in listed}

    def count(self, space: str, table: str) -> int:
        """See TableSnapshot."""
        del space, table
        return 0

    def rows(self, space: str, table: str, columns: list[str]) -> RowStream:
        """See TableSnapshot; `columns` are all of the table's, in its order."""
        listed = self._manifest.tables.get(space, {}).get(table)
        if listed is None or [name for name, _ in listed] != columns:
            raise CorruptError(f"the backup has no table {table} with these columns", table=table)
        types = [type_name for _, type_name in listed]
        name = f"{space}/{table}.copy"
        return RowStream(lambda: copy_text.parse(self._chunks(name), types), lambda: self._chunks(name))

    def counters(self, space: str) -> dict[str, int]:
        """See TableSnapshot."""
        listed = self._manifest.sequences.get(space, {})
        return {name.partition(".")[0]: int(last) for name, last in listed.items()}

    def pending(self) -> list[StampedLeaf]:
        """Return the entries of the log that no head covered, in their order."""
        if stream.PENDING not in self._manifest.tables["kernel"]:
            return []
        columns = self.tables("kernel")[stream.PENDING]
        rows = [dict(zip(columns, row, strict=True)) for row in self.rows("kernel", stream.PENDING, columns)]
        rows.sort(key=lambda row: int(row["seq"]))
        # A backup of an older version does not say whose entries they are: those get no number.
        return [
            pending_leaf(
                (row["id"], row["ver"], row["leaf"]),
                row.get("agent_id"),
                row.get("dfid"),
                is_sourced=bool(row.get("sourced")),
            )
            for row in rows
        ]

    def application(self) -> ApplicationTables | None:
        """Return the definitions of the tables that applications created; None if the backup has none."""
        if APPLICATION not in self._manifest.files:
            return None
        tree = cast("dict[str, Any]", canonical.loads(b"".join(self._chunks(APPLICATION))))
        try:
            tables = {str(name): [str(column) for column in names] for name, names in tree["tables"]}
            lists = {name: [*map(str, tree[name])] for name in ("before", "after", "outside")}
            return ApplicationTables(tables=tables, **lists)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{APPLICATION} is not as a backup has it", file=APPLICATION) from error

    def application_names(self) -> list[str]:
        """Return the names of the tables that applications created."""
        application = self.application()
        return [] if application is None else [*application.tables]

    def application_rows(self, application: ApplicationTables) -> dict[str, RowStream]:
        """Return the rows of each table that applications created, as COPY text."""
        return {
            table: _text_only(self, f"membrane/application/{number}.copy")
            for number, table in zip(count(1), application.tables)
        }

    def _chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file; FormatError at their end if hash or size is not the manifest's."""
        entry = self._manifest.files.get(name)
        if entry is None:
            raise FormatError(f"{name} is missing from the backup", file=name)
        digest = sha256()
        size = 0
        with (self._folder / name).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                yield chunk
        if (digest.hexdigest(), size) != (entry.sha256, entry.size):
            raise FormatError(f"{name} is not as the backup's manifest says: it was changed or is damaged", file=name)


def _text_only(snapshot: DumpSnapshot, name: str) -> RowStream:
    def no_rows() -> Iterator[Any]:
        raise CorruptError(f"{name} has types that only PostgreSQL reads", file=name)

    return RowStream(no_rows, lambda: snapshot._chunks(name))


def parts(src: Path, manifest: Manifest) -> StoreParts:
    """Return the store's id, log state, log keys and leaves from the copied tables."""
    try:
        return _parts(DumpSnapshot(src, manifest))
    except (KeyError, ValueError, TypeError) as error:  # a column that is not there, or not of its kind
        raise CorruptError(f"the backup's tables are not those of a store: {error}") from error


def _parts(snapshot: DumpSnapshot) -> StoreParts:
    facts = {row["key"]: row["value"] for row in _records(snapshot, "store_facts")}
    state = [
        LogState(str(row["origin"]), int(row["size"]), bytes(row["frontier"]), str(row["head"]))
        for row in _records(snapshot, "log_state")
    ]
    if len(state) != 1 or not facts.get("store_id"):
        raise CorruptError("the backup's log has no state, or its store no name")
    ring = [
        LogKey(keys.load_public_pem(str(row["public"]).encode()), row["revoked_from"])
        for row in _records(snapshot, "keyring")
        if row["role"] == "log"
    ]
    second = [*_second_keys(snapshot, state[0])]
    # In the order of the file, which is that of the index: in another order they would not give the root of the head.
    leaves = (str(row["leaf"]) for row in _records(snapshot, "log_leaves"))
    return StoreParts(str(facts["store_id"]), state[0], ring, second, leaves)


def _second_keys(snapshot: DumpSnapshot, state: LogState) -> Iterator[VerifierKey]:
    """Yield the ML-DSA-44 keys of which one has to have signed the head: those whose entry is in the tree."""
    rows = [row for row in _records(snapshot, "keyring") if row["role"] == "log-pq"]
    # The entries are read only where there are such keys: they can be gigabytes.
    handles = {row["leaf_id"] for row in rows}
    logged = {row["id"] for row in _records(snapshot, "log_leaves") if row["id"] in handles} if rows else set()
    for row in rows:
        if row["leaf_id"] in logged and (row["revoked_from"] is None or state.size <= row["revoked_from"]):
            yield VerifierKey(state.origin, ML_DSA_44, keys.load_public_pem(str(row["public"]).encode()))


def _records(snapshot: DumpSnapshot, table: str) -> Iterator[dict[str, Any]]:
    columns = snapshot.tables("kernel").get(table)
    if columns is None:
        raise CorruptError(f"the backup has no table {table}", table=table)
    for row in snapshot.rows("kernel", table, columns):
        yield dict(zip(columns, row, strict=True))
