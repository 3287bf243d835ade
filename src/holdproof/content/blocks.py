"""Blocks: immutable bytes under their own hash, stored once.

Rules:
- A block is hashed before it is written and after it is read: a reader gets what the CID names, or an error.
- Writing a block that exists is a no-op; two writers of one block do not conflict.
- A block has at most 1 MiB; callers split what is larger.
- The key is the CID in bytes, so that a walk through the table knows the codec of each block.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import MAX_SIZE
from holdproof.crypto.mst import Get
from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError, NotFoundError, ProofError

_BATCH: Final = 500
"""How many CIDs one query of `missing` asks for."""

_PUT = sql("INSERT INTO objects (h, data) VALUES (:h, :data) ON CONFLICT (h) DO NOTHING")


def put(tx: Tx, blocks: Mapping[CID, bytes]) -> None:
    """Store the blocks that are not stored yet; each is hashed once more before.

    Raises InvalidInputError for a block that is too large or has no plain CID, ProofError for one that does not match.
    """
    for cid, data in blocks.items():
        check_form(cid, data)
        cids.verify(cid, data)
    put_verified(tx, blocks)


def check_form(cid: CID, data: bytes) -> None:
    """Raise InvalidInputError for a block that is too large or has no plain CID; it is not hashed."""
    if len(data) > MAX_SIZE or not cid.plain:
        raise InvalidInputError("a block has at most 1 MiB and a plain CID", cid=str(cid), size=len(data))


def put_verified(tx: Tx, blocks: Mapping[CID, bytes]) -> None:
    """Store blocks that the caller has hashed and given to `check_form`."""
    # In one order everywhere: two transactions with the same blocks could otherwise deadlock.
    if tx.limiter is not None:
        tx.stored_bytes += sum(map(len, blocks.values()))
    rows = sorted(({"h": cid.raw, "data": data} for cid, data in blocks.items()), key=_key)
    tx.many(_PUT, rows)


def _key(row: dict[str, bytes]) -> bytes:
    return row["h"]


_GET = sql("SELECT data FROM objects WHERE h = :h")


def find(tx: Tx, cid: CID) -> bytes | None:
    """Return a block as it is stored, not verified; None where it is absent."""
    row = tx.one(_GET, h=cid.raw)
    if row is None:
        return None
    (data,) = row
    return data  # type: ignore[no-any-return]


def get(tx: Tx, cid: CID) -> bytes:
    """Return a verified block; NotFoundError where it is absent, ProofError where it does not match its CID."""
    data = find(tx, cid)
    if data is None:
        raise NotFoundError("no such block", cid=str(cid))
    cids.verify(cid, data)
    return data


def require(get: Get, cid: CID) -> bytes:
    """Return a verified block that must exist; ProofError where it is missing or does not match its CID."""
    data = get(cid)
    if data is None:
        raise ProofError("a block is missing", cid=str(cid))
    cids.verify(cid, data)
    return data


def getter(tx: Tx) -> Get:
    """Return the `get` of trees and lists, which verify the blocks themselves."""
    return lambda cid: find(tx, cid)


_FIND_ALL = sql(
    "SELECT h, data FROM objects WHERE h IN (SELECT unhex(value) FROM json_each(:keys))",
    postgres="SELECT h, data FROM objects WHERE h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:keys AS JSON)))",
)


def find_all(tx: Tx, blocks: Iterable[CID]) -> dict[CID, bytes]:
    """Return those of the blocks that exist, as they are stored, not verified; a quarter of the cost of `find` each."""
    rows = tx.all(_FIND_ALL, keys=_keys(blocks))
    return {CID(raw): data for raw, data in rows}


def _keys(blocks: Iterable[CID]) -> str:
    """Encode CIDs as the JSON list of hex texts that both databases unpack in one parameter."""
    return json.dumps([cid.raw.hex() for cid in blocks])


_EXISTING = sql(
    "SELECT h FROM objects WHERE h IN (SELECT unhex(value) FROM json_each(:keys))",
    postgres="SELECT h FROM objects WHERE h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:keys AS JSON)))",
)


def missing(tx: Tx, blocks: Iterable[CID]) -> list[CID]:
    """Return those of the blocks that do not exist, each once, in order."""
    distinct = list(dict.fromkeys(blocks))
    absent: list[CID] = []
    for start in range(0, len(distinct), _BATCH):
        batch = distinct[start : start + _BATCH]
        existing = {raw for (raw,) in tx.all(_EXISTING, keys=_keys(batch))}
        absent += [cid for cid in batch if cid.raw not in existing]
    return absent


class BlockPage(NamedTuple):
    """Some blocks as they are stored, by the bytes of their CIDs; `last` begins the next page, None at the end."""

    blocks: list[tuple[bytes, bytes]]
    last: int | bytes | None


# The cheapest order to read: by row on SQLite, whose table is not clustered by hash, by key on PostgreSQL.
_PAGE = sql(
    "SELECT rowid, h, data FROM objects WHERE rowid > :after ORDER BY rowid LIMIT :limit",
    postgres="SELECT h, h, data FROM objects WHERE h > :after ORDER BY h LIMIT :limit",
)
_FIRST: Final[dict[str, int | bytes]] = {"sqlite": -1, "postgres": b""}


def page(tx: Tx, after: int | bytes | None = None, limit: int = 200) -> BlockPage:
    """Return the next page of all blocks; start without `after`, continue with `last` of the page before."""
    rows = tx.all(_PAGE, after=_FIRST[tx.dialect] if after is None else after, limit=limit)
    last = None
    blocks = []
    for position, raw, data in rows:
        blocks.append((raw, data))
        last = position
    # A short page is the last one.
    return BlockPage(blocks, last if len(rows) == limit else None)
