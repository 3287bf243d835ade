"""What must hold between the blocks of memory, beyond the leaves of its rows: leaf, commit, tree, record.

The log covers refs and snapshots, and these name their blocks by hash. So it is enough that every block is what its CID
names and that none is missing that another needs: then all below a covered root is what it was. Foreign links in
records, which may lead anywhere, are needed by nobody.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from holdproof.content import blocks
from holdproof.crypto import cid as cids
from holdproof.crypto import commit as formats
from holdproof.crypto import dagcbor_fast, didkey, mst, mst_diff, mst_node
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import EMPTY_BLOCK, EMPTY_ROOT, Nodes
from holdproof.db import Tx, sql
from holdproof.errors import FormatError, HoldproofError, InvalidInputError, NotFoundError
from holdproof.evidence import keys
from holdproof.memory.objects import commits, object_history, records, refs, tree_transaction
from holdproof.memory.objects.object_history import CheckPosition
from holdproof.memory.objects.records import META, OBJECT
from holdproof.memory.objects.tree_transaction import TreeReader
from holdproof.memory.search import search_index
from holdproof.memory.search.vectors import Packed, packed
from holdproof.model.keys import Key

_NODE: Final = b"\xa2\x61e"
_PAGE: Final = 100


class ObjectFlaw(NamedTuple):
    """Something that does not hold: in which table, of which row, what."""

    table: str
    row: str
    what: str
    missing: bool = False
    """Whether it is only that words or vectors were never written: a store may be older than its search."""


class CheckedPage(NamedTuple):
    """A verified page: how many rows, what is wrong with them, and where the next page begins (None: the end)."""

    rows: int
    flaws: list[ObjectFlaw]
    last: Any


# --- blocks ------------------------------------------------------------------------------------------------------


def content(tx: Tx, after: int | bytes | None) -> CheckedPage:
    """One page of blocks: each is what its CID names, and has what it needs."""
    page = blocks.page(tx, after, _PAGE)
    flaws: list[ObjectFlaw] = []
    needed: dict[CID, list[CID]] = {}
    for raw, data in page.blocks:
        try:
            cid = cids.parse(raw)
            cids.verify(cid, data)
            for link in needs(cid, data):
                needed.setdefault(link, []).append(cid)
        except (HoldproofError, TypeError) as error:
            flaws.append(ObjectFlaw("objects", _shown(raw), f"a block is damaged or was exchanged: {error}"))
    # Missing blocks are rare: only then are the trees walked to see who needs them.
    lacking = {link: needed[link] for link in blocks.missing(tx, needed)}
    for link, cid in _missed(tx, lacking) if lacking else ():
        flaws.append(ObjectFlaw("objects", str(link), f"a block is missing that {cid} needs"))
    return CheckedPage(len(page.blocks), flaws, page.last)


def _missed(tx: Tx, lacking: Mapping[CID, Sequence[CID]]) -> Iterator[tuple[CID, CID]]:
    """Of what is missing, what is missed: a node that no tree has any more may lack something (see garbage.py)."""
    try:
        trees = _tree_nodes(tx)
    except HoldproofError:  # a tree lacks one of its nodes
        trees = {cid for above in lacking.values() for cid in above}
    for link, above in lacking.items():
        for cid in above:
            if cid in trees or not blocks.get(tx, cid).startswith(_NODE):
                yield link, cid
                break


_ROOTS = sql("SELECT root FROM snapshots ORDER BY id")


def _tree_nodes(tx: Tx) -> set[CID]:
    """Return the nodes of every namespace's tree as it is now and of every snapshot's.

    Raises NotFoundError where one is missing.
    """
    get = blocks.getter(tx)
    tree_nodes: set[CID] = set()
    before = EMPTY_ROOT
    tree = Nodes(lambda cid: EMPTY_BLOCK if cid == EMPTY_ROOT else get(cid))
    roots = [commits.parse(root) for (root,) in tx.all(_ROOTS)]
    roots += [ref.cid for ref in refs.every(tx) if ref.name.startswith("work/")]
    # Each tree is compared with the one before: what two have in common is looked at once.
    for root in roots:
        tree_nodes.update(step for step in mst_diff.steps(tree, before, root) if isinstance(step, CID))
        before = root
    return tree_nodes


def _shown(raw: Any) -> str:
    try:
        return str(cids.parse(raw))
    except (HoldproofError, TypeError):
        return repr(raw)[:100]


def needs(cid: CID, data: bytes) -> list[CID]:
    """The blocks without which this one cannot be read; one that others made, and a record links to, needs none."""
    try:
        return [*_needs(data)] if cid.raw.startswith(cids.CBOR_PREFIX) else []
    except FormatError:
        return []


def _needs(data: bytes) -> Iterator[CID]:
    if data.startswith(_NODE):
        node = mst_node.parse(data)
        yield from (child for child in node.children if child is not None)
        yield from node.values
        return
    fields = dagcbor_fast.decode(data)
    if not isinstance(fields, dict):
        return
    if fields.keys() == {"c", "h", "n"} and fields["h"] != 0 and isinstance(fields["c"], list):
        yield from (link for link in fields["c"][1::2] if isinstance(link, CID))
    elif len(fields) == 1:
        yield from (link for kind, link in fields.items() if kind in _LISTS and isinstance(link, CID))
    elif "sig" in fields:
        yield formats.parse(data).data  # what came before it has a row of its own
    elif "content" in fields and isinstance(pieces := records.decode(data).content, records.Pieces):
        yield from pieces.links


_LISTS: Final = ("list", "text", "bytes")
"""The kinds of values that are a Merkle list."""


# --- snapshots ---------------------------------------------------------------------------------------------------

# On PostgreSQL the leaf may still wait for the sequencer. It says all the same whether the snapshot was imported.
_SNAPSHOTS = sql(
    "SELECT s.id, s.ns, s.cid, s.root, s.rev, s.prev, s.note, s.created_at, l.idx, l.leaf FROM snapshots s"
    " LEFT JOIN log_leaves l ON l.id = s.leaf_id AND l.ver = 1 WHERE s.id > :after ORDER BY s.id LIMIT :limit",
    postgres="SELECT s.id, s.ns, s.cid, s.root, s.rev, s.prev, s.note, s.created_at, l.idx, coalesce(l.leaf, p.leaf)"
    " FROM snapshots s LEFT JOIN log_leaves l ON l.id = s.leaf_id AND l.ver = 1"
    " LEFT JOIN log_pending p ON p.id = s.leaf_id AND p.ver = 1"
    " WHERE s.id > :after ORDER BY s.id LIMIT :limit",
)


class _SnapshotRow(NamedTuple):
    id: str
    ns: str
    cid: str
    root: str
    rev: str
    prev: str | None
    note: str
    created_at: str
    log_index: int | None
    """Where its leaf stands in the log; None until the sequencer has integrated it."""
    leaf: str | None


def snapshots(tx: Tx, after: str | None) -> CheckedPage:
    """One page of snapshots: each row is what its commit and its note say, signed by a key that counted there."""
    rows = [_SnapshotRow(*row) for row in tx.all(_SNAPSHOTS, after=after or "", limit=_PAGE)]
    ring = {key.keyid: key for key in keys.keyring(tx, role="memory")}
    flaws = []
    for row in rows:
        try:
            wrong = _wrong(tx, row, ring)
        except HoldproofError as error:
            wrong = f"the snapshot cannot be read: {error}"
        if wrong:
            flaws.append(ObjectFlaw("snapshots", row.id, wrong))
    return CheckedPage(len(rows), flaws, rows[-1].id if len(rows) == _PAGE else None)


def _wrong(tx: Tx, row: _SnapshotRow, ring: dict[str, Key]) -> str:
    """Return what is wrong with a snapshot, or an empty text."""
    snapshot = commits.to_snapshot(tx, (row.ns, row.cid, row.note, row.created_at))
    if (snapshot.root, snapshot.rev, snapshot.prev) != (row.root, row.rev, row.prev):
        return "the row is not what its commit says"
    commit = commits.read(tx, commits.parse(row.cid))
    public = didkey.parse(commit.did)
    formats.verify(commit, public)
    _, note = commits.decode_note(blocks.get(tx, commits.parse(row.note)))
    if note.entries or note.signature:  # a commit that another program made has no history
        commits.verify_note(commits.parse(row.cid), note, public)
    key = ring.get(public.keyid)
    if key is None:
        # A snapshot of another store is signed with that store's key; its leaf says that it was imported.
        is_imported = row.leaf is not None and f'"t":"{commits.IMPORTED}"' in row.leaf
        return "" if is_imported else "signed by a key that is no memory key of this store"
    return "" if key.trusted_at(row.log_index) else f"the memory key does not count from leaf {key.revoked_from} on"


# --- refs and indexes --------------------------------------------------------------------------------------------


# The checks go through the namespaces that have a tree: rows of any other would be looked at by none of them.
_NAMESPACES: Final = {
    "object_history": sql("SELECT DISTINCT ns FROM object_history"),
    "object_versions": sql("SELECT DISTINCT ns FROM object_versions"),
    "object_index": sql("SELECT DISTINCT ns FROM object_index"),
    "object_text": sql("SELECT DISTINCT ns FROM object_text"),
    "object_vectors": sql("SELECT DISTINCT ns FROM object_vectors"),
}


def names(tx: Tx) -> tuple[list[str], list[ObjectFlaw]]:
    """Return the namespaces that have objects, and refs that lead nowhere."""
    namespaces = []
    flaws = []
    for ref in refs.every(tx):
        try:
            if ref.name == tree_transaction.ref_name(ref.ns):
                namespaces.append(ref.ns)
                mst.fetch_root(tree_transaction.view(tx, ref.cid).get, ref.cid)
            else:
                commits.get(tx, str(ref.cid), ns=ref.ns)
        except (HoldproofError, NotFoundError) as error:
            flaws.append(ObjectFlaw("refs", ref.name, f"the ref leads nowhere: {error}"))
    for table, query in _NAMESPACES.items():
        strays = {ns for (ns,) in tx.all(query)} - {*namespaces}
        flaws += [ObjectFlaw(table, ns, "there are rows of a namespace that has no tree") for ns in sorted(strays)]
    return namespaces, flaws


_INDEXED = sql(
    "SELECT i.key, i.cid, (SELECT v.cid FROM object_versions v WHERE v.ns = i.ns AND v.key = i.key ORDER BY v.n DESC"
    " LIMIT 1), i.type, i.parent, t.cid, t.body FROM object_index i LEFT JOIN object_text t"
    " ON t.ns = i.ns AND t.key = i.key"
    " WHERE i.ns = :ns AND i.key IN (SELECT value FROM json_each(:keys))",
    postgres="SELECT i.key, i.cid, (SELECT v.cid FROM object_versions v WHERE v.ns = i.ns AND v.key = i.key"
    " ORDER BY v.n DESC LIMIT 1), i.type, i.parent, t.cid, t.body FROM object_index i LEFT JOIN object_text t"
    " ON t.ns = i.ns AND t.key = i.key WHERE i.ns = :ns AND i.key IN"
    " (SELECT value FROM json_array_elements_text(CAST(:keys AS JSON)))",
)
_ROWS = sql(
    "SELECT key, cid FROM (SELECT key, cid FROM object_index WHERE ns = :ns AND key > :after"
    " UNION SELECT key, cid FROM object_text WHERE ns = :ns AND key > :after) AS rows ORDER BY key LIMIT :limit"
)


def tree(tx: Tx, ns: str, after: str | None) -> CheckedPage:
    """One page of a tree: history, index and words say of each object what the tree says."""
    view = tree_transaction.view(tx, tree_transaction.root(tx, ns))
    # NUL sorts before every character of a key: the walk begins right after the last one.
    start = OBJECT if after is None else after + "\x00"
    page: list[tuple[str, CID]] = []
    for item in mst.walk(view.get, view.root, start=start, end=OBJECT + "\x7f"):
        page.append(item)
        if len(page) == _PAGE:
            break
    keys_json = json.dumps([key[len(OBJECT) :] for key, _ in page])
    rows = {key: _IndexRow(*columns) for key, *columns in tx.all(_INDEXED, ns=ns, keys=keys_json)}
    flaws = [flaw for key, cid in page for flaw in _unfit(view, key, cid, rows.get(key[len(OBJECT) :]))]
    return CheckedPage(len(page), flaws, page[-1][0] if len(page) == _PAGE else None)


class _IndexRow(NamedTuple):
    """What the tables beside the tree say of an object."""

    cid: str
    history_cid: str | None
    type: str
    parent: str | None
    text_cid: str | None
    words: str | None


def _unfit(view: TreeReader, key: str, cid: CID, row: _IndexRow | None) -> Iterator[ObjectFlaw]:
    """Find what history, index and words have wrong about an object."""
    name = str(cid)
    if row is None or (row.cid, row.history_cid) != (name, name):
        yield ObjectFlaw("object_index", key, "index or history is not what the tree says")
        return
    kind, parent, words = _expected(view, cid)
    if (row.type, row.parent) != (kind, parent):
        yield ObjectFlaw("object_index", key, "the index has another type or parent than the object")
    if row.text_cid is None:
        yield ObjectFlaw("object_text", key, "a search does not find the object", missing=True)
    elif (row.text_cid, row.words) != (name, words):
        yield ObjectFlaw("object_text", key, "a search finds the object by words that it has not")


def _expected(view: TreeReader, cid: CID) -> tuple[str | None, str | None, str | None]:
    """Type, parent and words of an object, as its record has them."""
    try:
        record = view.record(cid)
        parent = None if record.parent is None else records.key_of(record.parent)
        return record.type, parent, search_index.body(record, view.get)
    except HoldproofError:  # a damaged block: the check of blocks has named it
        return None, None, None


_VECTORS = sql(
    "SELECT key, cid, dimensions, vector FROM object_vectors WHERE ns = :ns AND key IN"
    " (SELECT value FROM json_each(:keys))",
    postgres="SELECT key, cid, dimensions, vector FROM object_vectors WHERE ns = :ns AND key IN"
    " (SELECT value FROM json_array_elements_text(CAST(:keys AS JSON)))",
)
_VECTOR_ROWS = sql("SELECT key, cid FROM object_vectors WHERE ns = :ns AND key > :after ORDER BY key LIMIT :limit")


def vectors(tx: Tx, ns: str, after: str | None) -> CheckedPage:
    """One page of volatile fields: the vectors that a search compares are theirs."""
    view = tree_transaction.view(tx, tree_transaction.root(tx, ns))
    start = META if after is None else after + "\x00"
    page = [*islice(mst.walk(view.get, view.root, start=start, end=META + "\x7f"), _PAGE)]
    keys_json = json.dumps([key[len(META) :] for key, _ in page])
    rows = {key: tuple(columns) for key, *columns in tx.all(_VECTORS, ns=ns, keys=keys_json)}
    flaws = []
    for key, cid in page:
        vector = _vector(view, cid)
        row = rows.get(key[len(META) :])
        if row is None and vector is not None:
            flaws.append(ObjectFlaw("object_vectors", key, "a search by vector does not find the object", missing=True))
        elif row is not None and (vector is None or row != (str(cid), *vector)):
            flaws.append(ObjectFlaw("object_vectors", key, "a search finds the object by a vector that it has not"))
    return CheckedPage(len(page), flaws, page[-1][0] if len(page) == _PAGE else None)


def _vector(view: TreeReader, cid: CID) -> Packed | None:
    try:
        meta = records.decode_meta(blocks.require(view.get, cid))[1]
    except HoldproofError:  # a damaged block: the check of blocks has named it
        return None
    return None if isinstance(meta, records.Sealed) else packed(meta)


def vector_rows(tx: Tx, ns: str, after: str | None) -> CheckedPage:
    """One page of vectors: the tree has the volatile fields they are of."""
    view = tree_transaction.view(tx, tree_transaction.root(tx, ns))
    rows = tx.all(_VECTOR_ROWS, ns=ns, after=after or "", limit=_PAGE)
    flaws = [
        ObjectFlaw("object_vectors", key, "there is a vector of an object that has none")
        for key, cid in rows
        if str(_at(view, META, key)) != cid
    ]
    return CheckedPage(len(rows), flaws, rows[-1][0] if len(rows) == _PAGE else None)


def _at(view: TreeReader, kind: str, key: str) -> CID | None:
    """Return what the tree has there: nothing under what can be no key of it."""
    try:
        return view.find(kind + key)
    except InvalidInputError:
        return None


def index(tx: Tx, ns: str, after: str | None) -> CheckedPage:
    """One page of index and words: the tree has every object that they have."""
    view = tree_transaction.view(tx, tree_transaction.root(tx, ns))
    rows = tx.all(_ROWS, ns=ns, after=after or "", limit=_PAGE)
    flaws = [
        ObjectFlaw("object_index", key, "the index has an object that the tree has not")
        for key, cid in rows
        if str(_at(view, OBJECT, key)) != cid
    ]
    return CheckedPage(len(rows), flaws, rows[-1][0] if len(rows) == _PAGE else None)


# --- history -----------------------------------------------------------------------------------------------------


def history(tx: Tx, ns: str, after: CheckPosition | None) -> CheckedPage:
    """One page of a namespace's history: each entry follows the one before, and the versions are those it names.

    With the last page, the ref of the tree must name the newest entry, and there must be no further versions.
    """
    position = after or CheckPosition()
    rows = object_history.page(tx, ns, position.number, _PAGE)
    flaws = []
    for row in rows:
        position, wrong = object_history.check_entry(position, row, partial(object_history.find_rows, tx, ns))
        flaws += [ObjectFlaw(each.table, f"{ns} {each.row}", each.what) for each in wrong]
    if len(rows) == _PAGE:
        return CheckedPage(len(rows), flaws, position)
    ref = refs.get(tx, tree_transaction.ref_name(ns))
    if ref is None or ref.position != (position.number, position.cid):
        flaws.append(ObjectFlaw("object_history", ns, "the history does not end with the entry that the log covers"))
    if object_history.counts(tx, ns) != (position.writes, position.pruned):
        flaws.append(ObjectFlaw("object_versions", ns, "there are other versions than the history names"))
    return CheckedPage(len(rows), flaws, None)
