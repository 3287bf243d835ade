"""Which witnesses cosign this log: a row and an entry for each that is added, changed or removed.

Rules:
- A witness is trusted by the key that somebody gave for it, never by one that its own address offered.
- A witness that is removed stays in the table with the reason: it can be added again, and its entries stand.
- It is one witness however many addresses it has: keys are compared, not names.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.crypto import vkey
from holdproof.crypto.vkey import COSIGNING, VerifierKey
from holdproof.db import Tx, sql
from holdproof.errors import ConflictError, InvalidInputError, NotFoundError
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.model.witnesses import Witness

WITNESSES: Final = Projection("log_witnesses", 1, ("url", "vkey", "locks", "added_at", "removed_at", "reason"))
LOGGED: Final = (logged_tables.describe(WITNESSES, kinds=("audit",), key="url"),)


class Peer(NamedTuple):
    """A witness that is asked: its address, its key, and whether its word locks the store."""

    url: str
    key: VerifierKey
    locks: bool


def parse_key(text: str) -> VerifierKey:
    """Parse the verifier key of a witness; InvalidInputError for that of a log."""
    key = vkey.parse(text.strip())
    if key.kind not in COSIGNING:
        raise InvalidInputError("that is the key of a log, not the cosignature key of a witness", name=key.name)
    return key


_ACTIVE = sql("SELECT url, vkey, locks FROM log_witnesses WHERE removed_at IS NULL ORDER BY url")


def active(tx: Tx) -> list[Peer]:
    """Return the witnesses that are asked."""
    return [Peer(url, vkey.parse(text), bool(locks)) for url, text, locks in tx.all(_ACTIVE)]


def get(tx: Tx, url: str) -> Peer:
    """Return one of them; NotFoundError if it was never added, or was removed."""
    for peer in active(tx):
        if peer.url == url:
            return peer
    raise NotFoundError(
        f"the witness {url} is not known yet: `holdproof witness add {url} --key KEY`, with the verifier key that its"
        " operator gives you",
        url=url,
    )


_ENTRY = sql("SELECT leaf_id, leaf_ver FROM log_witnesses WHERE url = :url")
_PUT = sql(
    "INSERT INTO log_witnesses (url, vkey, locks, added_at, removed_at, reason, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:url, :vkey, :locks, :added_at, :removed_at, :reason, :leaf_id, :leaf_ver, :leaf_salt)"
    " ON CONFLICT (url) DO UPDATE SET vkey = excluded.vkey, locks = excluded.locks, added_at = excluded.added_at,"
    " removed_at = excluded.removed_at, reason = excluded.reason, leaf_id = excluded.leaf_id,"
    " leaf_ver = excluded.leaf_ver, leaf_salt = excluded.leaf_salt"
)


_COLUMNS = sql("SELECT vkey, locks, added_at FROM log_witnesses WHERE url = :url AND removed_at IS NULL")


def add(tx: Tx, url: str, key: VerifierKey, *, locks: bool) -> None:
    """Add a witness, or change its key; ConflictError for a key that another address has already."""
    peers = active(tx)
    if Peer(url, key, locks) in peers:
        return
    for peer in peers:
        if peer.url != url and peer.key.public == key.public:
            raise ConflictError(
                f"that is the key of the witness {peer.url}: one witness under two addresses counts once;"
                f" `holdproof witness remove {peer.url} --reason TEXT` first",
                url=peer.url,
            )
    # Only a removal settles what a witness said before (witness_disputes.py): one that is changed is no new one.
    _, _, added_at = tx.one(_COLUMNS, url=url) or (None, None, tx.now)
    _write(tx, {"url": url, "vkey": key.encode(), "locks": int(locks), "added_at": added_at})


def remove(tx: Tx, url: str, *, reason: str) -> Witness:
    """Ask a witness no longer; its entries stay. What it said against the log is settled by this, with the reason."""
    validation.words("reason", reason, least=1)
    peer = get(tx, url)
    row = tx.one(_COLUMNS, url=url)
    assert row is not None, "it was just read"
    text, locks, added_at = row
    _write(tx, {"url": url, "vkey": text, "locks": locks, "added_at": added_at}, removed_at=tx.now, reason=reason)
    return Witness(url, peer.key.name, text, bool(locks), added_at, removed_at=tx.now)


def _write(tx: Tx, columns: Mapping[str, Any], *, removed_at: str | None = None, reason: str | None = None) -> None:
    """Write the next version of a witness's row, with its entry."""
    row = {**columns, "removed_at": removed_at, "reason": reason}
    older = tx.one(_ENTRY, url=row["url"])
    handle: str | None = None
    version = 0
    if older is not None:
        handle, version = older
    mark = leaves.stamp(tx, "audit", WITNESSES, row, leaf_id=handle, leaf_ver=(version or 0) + 1)
    tx.execute(_PUT, **row, **mark._asdict(), expect=1)


_LIST = sql(
    "SELECT w.url, w.vkey, w.locks, w.added_at, w.removed_at, c.size, c.cosigned_at FROM log_witnesses w"
    " LEFT JOIN log_cosignatures c ON c.url = w.url ORDER BY w.added_at DESC, w.url"
)


def every(tx: Tx, *, all: bool, disputes: Mapping[str, str]) -> list[Witness]:
    """List the witnesses, the newest first; with `all` also those that were removed."""
    listed = []
    for url, text, locks, added_at, removed_at, size, cosigned_at in tx.all(_LIST):
        if removed_at is None or all:
            name = vkey.parse(text).name
            dispute = disputes.get(url)
            listed.append(Witness(url, name, text, bool(locks), added_at, removed_at, size, cosigned_at, dispute))
    return listed
