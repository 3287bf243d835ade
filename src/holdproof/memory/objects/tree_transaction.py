"""The tree that objects live in, and the one way to change it.

Rules:
- Every change goes through `finish`: new blocks, the tree's new root, the ref with its leaf, the history,
  the index, the words and the vectors of what changed are written in one transaction, or nothing is.
- The tree of a namespace holds `object/<key>` and `meta/<key>`; the same objects give the same root, however they came.
- Index and words follow from the records, the history is a chain of its own (object_history.py); reading an object
  goes through the tree, never through them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from holdproof.content import blocks, encryption
from holdproof.crypto import cid as cids
from holdproof.crypto import mst, mst_diff, mst_edit
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import EMPTY_BLOCK, EMPTY_ROOT, Get, Nodes, Tree
from holdproof.db import Tx, sql
from holdproof.errors import FormatError
from holdproof.memory.objects import object_encryption, object_history, records, refs
from holdproof.memory.objects.object_encryption import Open
from holdproof.memory.objects.object_history import BEGINNING, StoredEntry, VersionWrite
from holdproof.memory.objects.records import META, OBJECT, ObjectRecord, Sealed
from holdproof.memory.objects.refs import Ref
from holdproof.memory.search import search_index, vectors
from holdproof.memory.search.search_index import Text
from holdproof.validation import name

MAIN: Final = "main"
_ASKED: Final = 500


def ref_name(ns: Any) -> str:
    """Return the ref of a namespace's tree."""
    return f"work/{name('namespace', ns)}"


def root(tx: Tx, ns: str) -> CID:
    """Return the root of a namespace's tree as it is now."""
    ref = refs.get(tx, ref_name(ns))
    return EMPTY_ROOT if ref is None else ref.cid


def view(tx: Tx, top: CID) -> "TreeReader":
    """Return a tree of the store, to read from."""
    return TreeReader(blocks.getter(tx), top, partial(encryption.open, tx))


class LatestVersion(NamedTuple):
    """The newest version of an object: which one it is in its history, and which it calls itself; 0 for none."""

    n: int = 0
    version: int = 0


class TreeReader:
    """A tree to read from, wherever its blocks are; the empty tree needs none. `open` unseals what is a subject's."""

    def __init__(self, get: Get, top: CID, open: Open = object_encryption.no_key) -> None:
        self.open = open
        self.get = Nodes(lambda cid: EMPTY_BLOCK if cid == EMPTY_ROOT else get(cid))
        self.root = top

    def find(self, key: str) -> CID | None:
        """Return the block that a key stands for."""
        if self.root == EMPTY_ROOT:
            return None
        return mst.find(self.get, self.root, key)

    def record(self, cid: CID, key: str | None = None) -> ObjectRecord:
        """Return a record, hashed; with a key, only if it is that object's."""
        record = records.decode(blocks.require(self.get, cid))
        if key is not None and records.key_of(record.id) != key:
            raise FormatError("record: of another object than its key says", key=key, id=record.id)
        return record

    def whole(self, record: ObjectRecord) -> ObjectRecord:
        """Return the record as it was put: its content from its pieces, unsealed."""
        return object_encryption.opened(records.whole(record, self.get), self.open)

    def holder(self, record: ObjectRecord) -> str | None:
        """Return whose record it is, by handle; None where it is nobody's."""
        if record.subject is not None or not records.is_sealed(record.content):
            return record.subject
        content = records.whole(record, self.get).content
        return encryption.subject_of(content.envelope) if isinstance(content, Sealed) else None

    def meta(self, key: str) -> dict[str, Any]:
        """Return the volatile fields of an object, none where it has none."""
        cid = self.find(META + key)
        if cid is None:
            return {}
        id, meta = records.decode_meta(blocks.require(self.get, cid))
        if records.key_of(id) != key:
            raise FormatError("record: volatile data of another object than its key says", key=key, id=id)
        return object_encryption.opened_meta(meta, self.open)


class TreeTransaction(TreeReader):
    """A namespace's tree under change; `finish` writes.

    `written` are blocks that this transaction has stored already: they need not be read back.
    """

    def __init__(self, tx: Tx, ns: str, written: Mapping[CID, bytes] = MappingProxyType({})) -> None:
        self.ns = ns
        # Held until the end of the transaction: the tree cannot move under the edit.
        self.ref: Ref | None = refs.hold(tx, ref_name(ns))
        top = EMPTY_ROOT if self.ref is None else self.ref.cid
        stored = blocks.getter(tx)
        get: Get = (lambda cid: written.get(cid) or stored(cid)) if written else stored
        super().__init__(get, top, partial(encryption.open, tx))
        self.tx = tx
        self.changes: dict[str, CID | None] = {}
        self.blocks: dict[CID, bytes] = {}
        self.known: dict[CID, ObjectRecord] = {}
        self._newest: dict[str, LatestVersion] = {}
        self.metas: dict[CID, Mapping[str, Any]] = {}
        self.history = BEGINNING if self.ref is None else self.ref.position
        self._adopted: dict[str, str | None] = {}

    def now(self, key: str) -> CID | None:
        """Return what a key stands for, with what this edit has changed so far."""
        return self.changes[key] if key in self.changes else self.find(key)

    def preload_versions(self, keys: Iterable[str]) -> None:
        """Look up the newest versions of many objects at once, before each is asked for."""
        unknown = [key for key in dict.fromkeys(keys) if key not in self._newest]
        for start in range(0, len(unknown), _ASKED):
            part = unknown[start : start + _ASKED]
            self._newest.update(dict.fromkeys(part, LatestVersion()))
            rows = self.tx.all(_NEWEST, ns=self.ns, keys=json.dumps(part))
            self._newest.update((key, LatestVersion(n, version)) for key, n, version in rows)

    def newest(self, key: str) -> LatestVersion:
        """Return the number of an object's newest version, and the one it has itself."""
        self.preload_versions([key])
        return self._newest[key]

    def put(self, record: ObjectRecord) -> CID:
        """Let an object be this record, sealed if it is a subject's."""
        encoded = records.encode(object_encryption.close(self.tx, record))
        cid = next(reversed(encoded))
        self.blocks.update(encoded)
        self.known[cid] = record
        self.changes[OBJECT + records.key_of(record.id)] = cid
        return cid

    def put_meta(self, id: str, meta: Mapping[str, Any], subject: str | None = None) -> None:
        """Let these be an object's volatile fields, sealed if it is a subject's."""
        key = META + records.key_of(id)
        if meta:
            cid, data = records.encode_meta(id, object_encryption.close_meta(self.tx, meta, subject))
            self.blocks[cid] = data
            self.metas[cid] = meta if subject is None else {}
            self.changes[key] = cid
        elif self.now(key) is not None:
            self.changes[key] = None

    def replace_with(self, target: CID) -> None:
        """Let the whole tree be another that the store holds."""
        self.apply_changes(mst_diff.diff(self.get, self.root, target))

    def apply_changes(self, changes: Iterable[mst_diff.TreeChange]) -> None:
        """Let keys stand for blocks that the store holds."""
        self.changes.update({change.key: change.new for change in changes})

    def finish(self) -> CID:
        """Write everything; the new root. Without a change nothing is written."""
        changed = {key: cid for key, cid in self.changes.items() if self.find(key) != cid}
        position = BEGINNING if self.ref is None else self.ref.position
        if not changed and self.history == position:
            return self.root
        # Blocks before the ref: on no database is there a moment at which the ref names a block that is not there.
        edit = mst_edit.apply(self.get, self.root, changed) if changed else Tree(self.root, {})
        written = {**self.blocks, **edit.blocks}
        self._check_limits(changed, sum(map(len, written.values())))
        blocks.put(self.tx, written)
        self._write_history({key[len(OBJECT) :]: cid for key, cid in changed.items() if key.startswith(OBJECT)})
        self.ref = refs.move(self.tx, ref_name(self.ns), self.ref, edit.root, ns=self.ns, history=self.history)
        self._write_vectors({key[len(META) :]: cid for key, cid in changed.items() if key.startswith(META)})
        self.root = edit.root
        self.changes = {}
        return edit.root

    def _check_limits(self, changed: Mapping[str, CID | None], size: int) -> None:
        """Refuse more than the namespace may have; what only removes is let through."""
        if self.tx.limiter is None:
            return
        if any(changed.values()):
            self.tx.limiter.admit(self.tx, self.ns, size)
        added = sum(
            key.startswith(OBJECT) and cid is not None and self.find(key) is None for key, cid in changed.items()
        )
        if added:
            self.tx.limiter.require(self.tx, self.ns, "objects", added)

    def _write_history(self, changed: Mapping[str, CID | None]) -> None:
        self.preload_versions(changed)
        rows: list[dict[str, Any]] = []
        deleted: list[dict[str, Any]] = []
        texts: list[Text] = []
        writes: list[VersionWrite] = []
        for key, cid in changed.items():
            row: dict[str, Any] = {"ns": self.ns, "key": key}
            if cid is None:
                deleted.append(row)
                # It keeps the number of the version that went, so that versions go on from there.
                self._add_version(writes, key, None, self._newest[key].version)
                continue
            record = self.known.get(cid) or self.record(cid, key)
            # Erasing a subject must find every record of theirs, also those that came with an import.
            if (handle := self.holder(record)) is not None:
                encryption.mark(self.tx, handle, str(cid), "objects")
            row |= {"cid": str(cid), "type": record.type}
            row["parent"] = None if record.parent is None else records.key_of(record.parent)
            rows.append(row)
            texts.append(Text(key, row["cid"], search_index.body(record, self.get)))
            self._add_version(writes, key, row["cid"], record.version)
        self.history = object_history.append(self.tx, self.ns, self.history, self.tx.now, writes=writes)
        self.tx.many(_INDEX, rows)
        self.tx.many(_UNINDEX, deleted)
        search_index.put(self.tx, self.ns, texts)
        search_index.remove(self.tx, self.ns, [row["key"] for row in deleted])

    def _add_version(self, writes: list[VersionWrite], key: str, cid: str | None, version: int) -> None:
        # An adopted history may end with this very version: then it is there already.
        if key in self._adopted and self._adopted[key] == cid:
            return
        n = self._newest[key].n + 1
        writes.append(VersionWrite(key, n, version, cid))
        self._newest[key] = LatestVersion(n, version)

    def adopt(self, chain: Sequence[StoredEntry]) -> None:
        """Adopt the history that came with an image or archive; the records it names are in the store."""
        self.preload_versions(write.key for each in chain for write in each.entry.writes)
        self.history, new_entries = object_history.adopt(
            self.tx, self.ns, self.history, chain, lambda key: self._newest[key].n
        )
        self._adopted = {write.key: write.cid for each in new_entries for write in each.entry.writes}
        current = {*self._adopted.values()}
        for each in new_entries:
            for write in each.entry.writes:
                # Erasing a subject must find every version of theirs; `_write_history` marks those in the tree.
                if write.cid is not None and write.cid not in current:
                    self._mark(cids.parse_text(write.cid))
        self._newest = {}

    def _mark(self, cid: CID) -> None:
        data = self.get(cid)
        handle = None if data is None else self.holder(records.decode(data))
        if handle is not None:
            encryption.mark(self.tx, handle, str(cid), "objects")

    def _write_vectors(self, changed: Mapping[str, CID | None]) -> None:
        rows = []
        removed = []
        for key, cid in changed.items():
            vector = None if cid is None else vectors.packed(self._volatile(cid))
            place = {"ns": self.ns, "key": key}
            if vector is None:
                removed.append(place)
            else:
                rows.append({**place, "cid": str(cid), **vector._asdict()})
        self.tx.many(vectors.PUT, rows)
        self.tx.many(vectors.REMOVE, removed)

    def index_vectors(self, keys: Iterable[str]) -> None:
        """Write the vectors of objects anew, as the tree has them."""
        self._write_vectors({key: self.find(META + key) for key in keys})

    def _volatile(self, cid: CID) -> Mapping[str, Any]:
        """Volatile fields that are in the open."""
        if cid in self.metas:
            return self.metas[cid]
        meta = records.decode_meta(blocks.require(self.get, cid))[1]
        return {} if isinstance(meta, Sealed) else meta


# A cross join, which SQLite keeps in this order: from each key to its versions, never through all of them.
_NEWEST = sql(
    "SELECT v.key, v.n, v.version FROM json_each(:keys) k CROSS JOIN object_versions v WHERE v.ns = :ns"
    " AND v.key = k.value AND v.n = (SELECT max(m.n) FROM object_versions m WHERE m.ns = :ns AND m.key = k.value)",
    postgres="SELECT v.key, v.n, v.version FROM json_array_elements_text(CAST(:keys AS JSON)) k CROSS JOIN"
    " object_versions v WHERE v.ns = :ns AND v.key = k.value"
    " AND v.n = (SELECT max(m.n) FROM object_versions m WHERE m.ns = :ns AND m.key = k.value)",
)
_INDEX = sql(
    "INSERT INTO object_index (ns, key, type, parent, cid) VALUES (:ns, :key, :type, :parent, :cid)"
    " ON CONFLICT (ns, key) DO UPDATE SET type = excluded.type, parent = excluded.parent, cid = excluded.cid"
)
_UNINDEX = sql("DELETE FROM object_index WHERE ns = :ns AND key = :key")
