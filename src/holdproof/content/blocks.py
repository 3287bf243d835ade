"""Blocks: bytes under their own hash, stored once, never changed.

Rules:
- A block is hashed before it is written and after it is read: what comes back is what its CID names, or an error.
- Writing a block that exists is no work and no error; concurrent writers never conflict.
- A block has at most 1 MiB; larger content is split by its writer.
- The key is the CID in bytes, so the table alone says what each block is.
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

# Blocks per query: a query's parameters have a limit.
_PER_QUERY: Final = 500

_PUT = sql("INSERT INTO objects (h, data) VALUES (:h, :data) ON CONFLICT (h) DO NOTHING")


def put(tx: Tx, blocks: Mapping[CID, bytes]) -> None:
    """Write blocks that are not there yet, each hashed once more."""
    rows = []
    for cid, data in blocks.items():
        if len(data) > MAX_SIZE or not cid.plain:
            raise InvalidInputError("a block has at most 1 MiB and a plain CID", cid=str(cid), size=len(data))
        cids.verify(cid, data)
        rows.append({"h": cid.raw, "data": data})
    rows.sort(key=_key)  # one order for all writers, or two with the same blocks could deadlock
    tx.many(_PUT, rows)


def _key(row: dict[str, bytes]) -> bytes:
    return row["h"]


_GET = sql("SELECT data FROM objects WHERE h = :h")


def find(tx: Tx, cid: CID) -> bytes | None:
    """Return a block as it is stored, not hashed; None where there is none."""
    for (data,) in tx.all(_GET, h=cid.raw):
        return data  # type: ignore[no-any-return]
    return None


def get(tx: Tx, cid: CID) -> bytes:
    """Return a block, hashed; NotFoundError where there is none, ProofError where it is another."""
    data = find(tx, cid)
    if data is None:
        raise NotFoundError("no such block", cid=str(cid))
    cids.verify(cid, data)
    return data


def require(get: Get, cid: CID) -> bytes:
    """Return a block that must be wherever `get` looks, hashed; ProofError where it is missing or another."""
    data = get(cid)
    if data is None:
        raise ProofError("a block is missing", cid=str(cid))
    cids.verify(cid, data)
    return data


def getter(tx: Tx) -> Get:
    """Return the function that trees and lists read their blocks with; they verify the hashes themselves."""
    return lambda cid: find(tx, cid)


_FIND_ALL = sql(
    "SELECT h, data FROM objects WHERE h IN (SELECT unhex(value) FROM json_each(:cids))",
    postgres="SELECT h, data FROM objects WHERE h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:cids AS JSON)))",
)


def find_all(tx: Tx, requested: Iterable[CID]) -> dict[CID, bytes]:
    """Return those blocks that exist, as stored, not hashed; four times cheaper than one by one."""
    rows = tx.all(_FIND_ALL, cids=json.dumps([cid.raw.hex() for cid in requested]))
    return {CID(raw): data for raw, data in rows}


_STORED = sql(
    "SELECT h FROM objects WHERE h IN (SELECT unhex(value) FROM json_each(:cids))",
    postgres="SELECT h FROM objects WHERE h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:cids AS JSON)))",
)


def missing(tx: Tx, requested: Iterable[CID]) -> list[CID]:
    """Return which of these blocks are not there, each once, in their order."""
    distinct = list(dict.fromkeys(requested))
    lacking: list[CID] = []
    for start in range(0, len(distinct), _PER_QUERY):
        part = distinct[start : start + _PER_QUERY]
        stored = {raw for (raw,) in tx.all(_STORED, cids=json.dumps([cid.raw.hex() for cid in part]))}
        lacking += [cid for cid in part if cid.raw not in stored]
    return lacking


class BlockPage(NamedTuple):
    """Some blocks as they are stored, by the bytes of their CIDs; `last` begins the next page, None at the end."""

    blocks: list[tuple[bytes, bytes]]
    last: int | bytes | None


_PAGE = sql(
    "SELECT rowid, h, data FROM objects WHERE rowid > :after ORDER BY rowid LIMIT :limit",
    postgres="SELECT h, h, data FROM objects WHERE h > :after ORDER BY h LIMIT :limit",
)
_FIRST: Final[dict[str, int | bytes]] = {"sqlite": -1, "postgres": b""}


def page(tx: Tx, after: int | bytes | None = None, limit: int = 200) -> BlockPage:
    """Return every block there is, a few at a time, in the order that is cheapest to read."""
    rows = tx.all(_PAGE, after=_FIRST[tx.dialect] if after is None else after, limit=limit)
    blocks = [(raw, data) for _, raw, data in rows]
    positions = [position for position, _, _ in rows]
    return BlockPage(blocks, positions[-1] if len(rows) == limit else None)
