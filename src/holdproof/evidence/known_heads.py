"""Heads over time: those that somebody vouched for. Most heads leave no trace, since each is replaced by the next.

Rules:
- A known head is one that was verified, stamped by a time authority, anchored in another log, or cosigned by a
  witness last; and the newest.
- Of each kind the newest so many are read: what it costs does not grow with the log.
"""

from typing import Final

from holdproof import validation
from holdproof.db import Tx, sql
from holdproof.model.log import KnownHead

MOST: Final = 500

_NEWEST = sql("SELECT updated_at, size FROM log_state WHERE size > 0")
_VERIFIED = sql("SELECT verified_at, log_size, who, verdict, leaf_id FROM verifications ORDER BY id DESC LIMIT :limit")
_STAMPED = sql("SELECT stamped_at, size, authority, leaf_id FROM time_tokens ORDER BY id DESC LIMIT :limit")
_ANCHORED = sql("SELECT created_at, size, log, leaf_id FROM head_anchors ORDER BY id DESC LIMIT :limit")
_COSIGNED = sql("SELECT cosigned_at, size, url FROM log_cosignatures ORDER BY size DESC, url LIMIT :limit")


def list(tx: Tx, *, limit: int = 200) -> tuple[KnownHead, ...]:
    """List the heads that are known, oldest first: at most `limit` of each kind, and the newest of the log."""
    most = validation.count("limit", limit, least=1, most=MOST)
    heads = [KnownHead(at, size, "signed") for at, size in tx.all(_NEWEST)]
    for at, size, who, verdict, entry in tx.all(_VERIFIED, limit=most):
        heads.append(KnownHead(at, size, "verified", who, verdict, entry))
    for at, size, authority, entry in tx.all(_STAMPED, limit=most):
        heads.append(KnownHead(at, size, "stamped", authority, "", entry))
    for at, size, name, entry in tx.all(_ANCHORED, limit=most):
        heads.append(KnownHead(at, size, "anchored", name, "", entry))
    for at, size, url in tx.all(_COSIGNED, limit=most):
        heads.append(KnownHead(at, size, "cosigned", url))
    return tuple(sorted(heads, key=lambda each: (each.at, each.size, each.kind)))
