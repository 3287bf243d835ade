"""Anchors of heads in another log: a row and an entry for each, checked again whenever the log is.

Rules:
- An anchor is about the bytes of a signed head, as the log published them: who watches the other log can tell when we
  show another history, also if every key and every copy of ours is in one hand.
- It is stored with the head and the key it was checked with, so that it can be checked when the other log is gone;
  the row is under our log as any other.
- Whether that key is to be trusted, our log cannot say: the settings name it, and whoever gets a bundle compares it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from holdproof import paging
from holdproof.crypto import anchor, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import Tx, sql
from holdproof.errors import HoldproofError, ProofError
from holdproof.evidence import attested_heads, leaves, logged_tables
from holdproof.evidence.attested_heads import AttestedHeads
from holdproof.evidence.leaves import Projection
from holdproof.model.anchors import Anchor, AnchoredHead
from holdproof.model.page import Page

ANCHORS: Final = Projection(
    "head_anchors", 1, ("id", "origin", "size", "head", "url", "log", "log_index", "key", "proof", "created_at")
)
LOGGED: Final = (logged_tables.describe(ANCHORS, kinds=("audit",), key="id"),)


class AnchorRow(NamedTuple):
    """A row of the table."""

    id: str
    origin: str
    size: int
    head: str
    url: str | None
    log: str
    log_index: int
    key: str
    proof: str
    created_at: str

    @property
    def value(self) -> Anchor:
        """What clients are shown of it."""
        return Anchor(self.id, self.url, self.log, self.log_index, self.origin, self.size, self.created_at)

    @property
    def whole(self) -> AnchoredHead:
        """All of it."""
        return AnchoredHead(self.value, self.head, self.key, self.proof)


# --- writing -----------------------------------------------------------------------------------------------------

_ADD = sql(
    "INSERT INTO head_anchors (id, origin, size, head, url, log, log_index, key, proof, created_at, leaf_id, leaf_ver,"
    " leaf_salt) VALUES (:id, :origin, :size, :head, :url, :log, :log_index, :key, :proof, :created_at, :leaf_id,"
    " :leaf_ver, :leaf_salt)"
)


def record(tx: Tx, head: str, proof: TlogProof, *, key: VerifierKey, url: str | None = None) -> Anchor:
    """Record an anchor that was checked, with its entry; ProofError where the head is none of this log."""
    checked = attested_heads.parse_head(tx, head)
    row = AnchorRow(
        id=tx.new_id(),
        origin=checked.checkpoint.origin,
        size=checked.checkpoint.size,
        head=head,
        url=url,
        log=key.name,
        log_index=proof.index,
        key=key.encode(),
        proof=tlog_proof.encode(proof).decode(),
        created_at=tx.now,
    )
    mark = leaves.stamp(tx, "audit", ANCHORS, row._asdict())
    tx.execute(_ADD, **row._asdict(), **mark._asdict(), expect=1)
    return row.value


# --- reading -----------------------------------------------------------------------------------------------------

_ROWS: Final = AttestedHeads("head_anchors", AnchorRow._fields, "anchor", "anchors")


def list(tx: Tx, *, cursor: str | None = None, limit: int = 30) -> Page[Anchor]:
    """List the anchors, newest first."""
    rows = _ROWS.newest_first(tx, cursor, limit)
    return paging.page([AnchorRow(*row).value for row in rows], limit, lambda each: (each.id,))


def get(tx: Tx, id: str) -> AnchoredHead:
    """Return an anchor with the head, the proof and the other log's key; NotFoundError if there is none."""
    return AnchorRow(*_ROWS.one(tx, id)).whole


def covering(tx: Tx, index: int, head: SignedCheckpoint) -> AnchoredHead | None:
    """Return the earliest anchored head that a leaf is under and that this head continues; None if there is none."""
    row = _ROWS.covering(tx, index, head)
    return None if row is None else AnchorRow(*row).whole


def due(tx: Tx, every_s: float) -> bool:
    """Whether an anchor is due: the newest is older than that, and more was logged since than anchors and tokens."""
    return _ROWS.due(tx, every_s)


# --- checking ----------------------------------------------------------------------------------------------------


class AnchorFlaw(NamedTuple):
    """An anchor that does not hold, and why."""

    id: str
    what: str


class CheckedAnchors(NamedTuple):
    """What came of a page of anchors; `after` is where the next one begins, None at the end."""

    checked: int
    flaws: Sequence[AnchorFlaw]
    keys: frozenset[str]
    """The keys of other logs that the anchors hold under."""
    after: str | None


def check(tx: Tx, after: str = attested_heads.FIRST) -> CheckedAnchors:
    """Check a page of anchors: each under its key, over a head of this log that a log key signed."""
    rows = [AnchorRow(*row) for row in _ROWS.oldest_first(tx, after)]
    flaws = [*_flaws(tx, rows)]
    flawed = {each.id for each in flaws}
    keys = frozenset(row.key for row in rows if row.id not in flawed)
    return CheckedAnchors(len(rows), flaws, keys, rows[-1].id if len(rows) == attested_heads.BATCH else None)


def _flaws(tx: Tx, rows: Iterable[AnchorRow]) -> Iterator[AnchorFlaw]:
    for row in rows:
        try:
            attested_heads.check_head(tx, row.head, row.origin, row.size)
            key, proof = verify(row.whole)
            if (key.name, proof.index) != (row.log, row.log_index):
                raise ProofError("it says another log or another place than its proof")
        except HoldproofError as error:
            yield AnchorFlaw(row.id, error.message)


def verify(anchored: AnchoredHead) -> tuple[VerifierKey, TlogProof]:
    """Check an anchor for the head that it is stored with; ProofError or FormatError if it does not hold."""
    key = anchor.parse_key(anchored.key)
    proof = tlog_proof.parse(anchored.proof.encode())
    anchor.verify(proof, anchored.head.encode(), key)
    return key, proof
