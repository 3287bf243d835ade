"""Commits: signed states of a namespace's tree, each a row under the log, in a chain by `prev`.

Rules:
- A snapshot is a commit of the AT Protocol's repository format, signed with the `memory` key of this home; a revoked
  key signs nothing.
- The commit, its note (who, what, why) and its row with the leaf are written in one transaction, and the head moves
  there from the commit it names as `prev`.
- The note is a block of its own that names the commit: the same objects have the same root, whoever took the snapshot.
- The note also names the newest entry of the history (object_history.py), and is signed with the same key: a commit
  vouches for the objects as they are, its note for every version before.
- `rev` never goes back, whatever the clock does.
- Nothing is removed or replaced: a commit that was, is.
"""

from typing import Any, Final, NamedTuple

from holdproof.content import blocks
from holdproof.crypto import cid as cids
from holdproof.crypto import commit as formats
from holdproof.crypto import dagcbor, didkey, signatures, tid
from holdproof.crypto.cid import CID
from holdproof.crypto.commit import Commit
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.crypto.mst import EMPTY_BLOCK, EMPTY_ROOT
from holdproof.db import Row, Tx, sql
from holdproof.errors import (
    FormatError,
    InvalidInputError,
    NotFoundError,
    ProofError,
    StaleVersionError,
    UnknownKeyError,
)
from holdproof.evidence import keys, leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.memory.objects import refs, tree_transaction
from holdproof.memory.objects.object_history import BEGINNING, HistoryPosition
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model.memory import Snapshot
from holdproof.model.times import to_micros

IMPORTED: Final = "legacy_import"
"""The leaf of a snapshot that another store took: the log saw it arrive, not happen."""
NEWEST: Final = "head"
"""What stands for the newest snapshot wherever one is asked for."""
SNAPSHOTS: Final = Projection("snapshots", 1, ("id", "ns", "cid", "root", "rev", "prev", "note", "created_at"))
LOGGED: Final = (logged_tables.describe(SNAPSHOTS, kinds=("snapshot", IMPORTED), key="id"),)
_LONGEST: Final = 10_000


def parse(text: str) -> CID:
    """Return a CID that somebody gave; InvalidInputError where it is none of ours."""
    cid = cids.parse_argument(text)
    if not cid.plain:
        raise InvalidInputError("the CID names no block of SHA-256", cid=text)
    return cid


# --- notes -------------------------------------------------------------------------------------------------------


class CommitNote(NamedTuple):
    """Who took a snapshot, and why; `merged` is the commit that was brought in, if one was."""

    author: str = ""
    message: str = ""
    reason: str = ""
    merged: CID | None = None
    entries: int = 0
    history: str | None = None
    signature: bytes = b""

    @property
    def position(self) -> HistoryPosition:
        """Where the history stood; before its first entry where the note names none."""
        return HistoryPosition(self.entries, self.history)


def encode_note(commit: CID, note: CommitNote) -> tuple[CID, bytes]:
    """Return the block of a note on a commit."""
    data = dagcbor.encode({"v": 1, "snapshot": commit, **note._asdict()})
    return cids.of(data), data


def _signed_bytes(commit: CID, note: CommitNote) -> bytes:
    return encode_note(commit, note._replace(signature=b""))[1]


def verify_note(commit: CID, note: CommitNote, key: PublicKey) -> None:
    """Return if the key that signed a commit signed its note too, else raise ProofError."""
    try:
        der = signatures.from_raw(note.signature)
    except FormatError as error:
        raise ProofError("the note on a snapshot is not signed", cid=str(commit)) from error
    key.verify(_signed_bytes(commit, note), der)


def decode_note(data: bytes) -> tuple[CID, CommitNote]:
    """Return the commit a note is on, and the note, from untrusted bytes."""
    fields = dagcbor.decode(data)
    if not isinstance(fields, dict) or fields.keys() != {"v", "snapshot", *CommitNote._fields}:
        raise FormatError("note: not exactly the nine fields of version 1")
    commit = fields["snapshot"]
    merged = fields["merged"]
    author, message, reason = (fields[name] for name in ("author", "message", "reason"))
    if fields["v"] != 1 or not isinstance(commit, CID) or not isinstance(merged, CID | None):
        raise FormatError("note: of no commit, or of an unknown version")
    if not isinstance(author, str) or not isinstance(message, str) or not isinstance(reason, str):
        raise FormatError("note: author, message or reason is no text")
    entries, history, signature = (fields[name] for name in ("entries", "history", "signature"))
    if type(entries) is not int or not isinstance(history, str | None) or not isinstance(signature, bytes):
        raise FormatError("note: the history or the signature is of the wrong kind")
    return commit, CommitNote(author, message, reason, merged, entries, history, signature)


# --- writing -----------------------------------------------------------------------------------------------------

_ADD = sql(
    "INSERT INTO snapshots (id, ns, cid, root, rev, prev, note, created_at, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:id, :ns, :cid, :root, :rev, :prev, :note, :created_at, :leaf_id, :leaf_ver, :leaf_salt)"
)


def create(tx: Tx, signer: Signer, note: CommitNote, *, expected: str | None = None, ns: str = MAIN) -> Snapshot:
    """Sign the tree as it is now; `expected` is the head that it must follow."""
    text: Any
    for text in note[:3]:
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise InvalidInputError(f"author, message and reason are texts of at most {_LONGEST:,} characters")
    if not keys.is_registered(tx, signer.keyid, "memory"):
        raise UnknownKeyError("this memory key is not in the keyring", keyid=signer.keyid)
    # Both refs are held, always in this order: a writer of objects and a snapshot never wait for each other in a ring.
    tree = refs.hold(tx, tree_transaction.ref_name(ns))
    head = refs.hold(tx, ref_name(ns))
    if expected is not None and (head is None or parse(expected) != head.cid):
        raise StaleVersionError("another snapshot is the newest by now", head=None if head is None else str(head.cid))
    last = None if head is None else formats.parse(blocks.get(tx, head.cid))
    root = EMPTY_ROOT if tree is None else tree.cid
    # Never before the last one, whatever the clock says: revs are the order of snapshots.
    rev = tid.after(None if last is None else last.rev, to_micros(tx.now))
    commit = formats.sign(Commit(didkey.encode(signer.public), root, rev, head and head.cid), signer)
    block = formats.encode(commit)
    # The empty tree has no block of its own until a snapshot signs it.
    written = {EMPTY_ROOT: EMPTY_BLOCK} if root == EMPTY_ROOT else {}
    blocks.put(tx, {**written, cids.of(block): block})
    cid = cids.of(block)
    refs.move(tx, ref_name(ns), head, cid, ns=ns)
    position = BEGINNING if tree is None else tree.position
    note = note._replace(entries=position.entries, history=position.cid)
    raw = signatures.to_raw(signer.sign(_signed_bytes(cid, note)))
    return record(tx, cid, commit, note._replace(signature=signatures.lower_s(raw)), at=tx.now, ns=ns)


def record(tx: Tx, cid: CID, commit: Commit, note: CommitNote, *, at: str, ns: str, kind: str = "snapshot") -> Snapshot:
    """Return the row of a commit whose block is there, with its note and its leaf."""
    noted, data = encode_note(cid, note)
    blocks.put(tx, {noted: data})
    row = {
        "id": tx.new_id(),
        "ns": ns,
        "cid": str(cid),
        "root": str(commit.data),
        "rev": commit.rev,
        "prev": None if commit.prev is None else str(commit.prev),
        "note": str(noted),
        "created_at": at,
    }
    mark = leaves.stamp(tx, kind, SNAPSHOTS, row, ns=ns)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)
    return to_snapshot(tx, (row["ns"], row["cid"], row["note"], row["created_at"]))


def ref_name(ns: str) -> str:
    """Return the ref of a namespace's newest snapshot."""
    return tree_transaction.ref_name(ns).replace("work/", "head/", 1)


# --- reading -----------------------------------------------------------------------------------------------------

_BY_CID = sql("SELECT ns, cid, note, created_at FROM snapshots WHERE ns = :ns AND cid = :cid")
_BY_REV = sql("SELECT ns, cid, note, created_at FROM snapshots WHERE ns = :ns AND rev = :rev ORDER BY id LIMIT 1")


def head(tx: Tx, ns: str) -> CID | None:
    """Return the newest snapshot of a namespace, None before the first."""
    ref = refs.get(tx, ref_name(ns))
    return None if ref is None else ref.cid


def get(tx: Tx, snapshot: str = NEWEST, *, ns: str = MAIN) -> Snapshot:
    """Return a snapshot by its CID, its rev, or `head` for the newest."""
    cid_or_rev: str | None = snapshot
    if snapshot == NEWEST:
        newest = head(tx, ns)
        cid_or_rev = None if newest is None else str(newest)
    row = (
        None if cid_or_rev is None else tx.one(_BY_CID, ns=ns, cid=cid_or_rev) or tx.one(_BY_REV, ns=ns, rev=cid_or_rev)
    )
    if row is None:
        raise NotFoundError(f"there is no snapshot {snapshot}", listed_by="snapshots list", snapshot=snapshot, ns=ns)
    return to_snapshot(tx, row)


def history_of(tx: Tx, cid: CID, *, ns: str) -> HistoryPosition:
    """Return where the history stood when a snapshot was taken."""
    row = tx.one(_BY_CID, ns=ns, cid=str(cid))
    if row is None:
        raise NotFoundError(f"there is no snapshot {cid}", listed_by="snapshots list", snapshot=str(cid), ns=ns)
    _, _, noted, _ = row
    return decode_note(blocks.get(tx, parse(noted)))[1].position


def is_known(tx: Tx, cid: CID, *, ns: str) -> bool:
    """Return whether a commit is a snapshot of this namespace."""
    return tx.one(_BY_CID, ns=ns, cid=str(cid)) is not None


def root_of(tx: Tx, snapshot: str, *, ns: str) -> CID:
    """Return the root of the tree that a snapshot signs."""
    return read(tx, parse(get(tx, snapshot, ns=ns).cid)).data


def read(tx: Tx, cid: CID) -> Commit:
    """Return a commit, hashed; its signature is left to `verify`, which knows where in the log it stands."""
    return formats.parse(blocks.get(tx, cid))


def to_snapshot(tx: Tx, row: Row) -> Snapshot:
    """Return a row as a value: what the commit and its note say, hashed."""
    ns, text, noted, created_at = row
    cid = parse(text)
    commit = read(tx, cid)
    about, note = decode_note(blocks.get(tx, parse(noted)))
    if about != cid:
        raise FormatError("note: on another commit than its snapshot", cid=text)
    return Snapshot(
        text,
        str(commit.data),
        commit.rev,
        None if commit.prev is None else str(commit.prev),
        commit.did,
        *note[:3],
        None if note.merged is None else str(note.merged),
        created_at,
        ns,
    )
