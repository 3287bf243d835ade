"""Blocks: bytes under their own hash, stored once, never changed.

Rules:
- A block is hashed before it is written and after it is read: what comes back is what its CID names, or an error.
- To write a block that is there already is no work and no error; two writers never fight over one.
- A block has at most 1 MiB; what is larger is split by whoever puts it.
- The key is the CID in bytes, so that whoever walks the table knows what each block is.
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

_ASKED: Final = 500

_PUT = sql("INSERT INTO objects (h, data) VALUES (:h, :data) ON CONFLICT (h) DO NOTHING")


def put(tx: Tx, blocks: Mapping[CID, bytes]) -> None:
    """Write blocks that are not there yet, each hashed once more."""
    rows = []
    for cid, data in blocks.items():
        if len(data) > MAX_SIZE or not cid.plain:
            raise InvalidInputError("a block has at most 1 MiB and a plain CID", cid=str(cid), size=len(data))
        cids.verify(cid, data)
        rows.append({"h": cid.raw, "data": data})
    rows.sort(key=_key)  # or two that write the same blocks might each wait for the other
    tx.many(_PUT, rows)


def _key(row: dict[str, bytes]) -> bytes:
    return row["h"]


_GET = sql("SELECT data FROM objects WHERE h = :h")


def find(tx: Tx, cid: CID) -> bytes | None:
    """A block as it is stored, not hashed; None where there is none."""
    row = tx.one(_GET, h=cid.raw)
    return None if row is None else row[0]


def get(tx: Tx, cid: CID) -> bytes:
    """A block, hashed; NotFoundError where there is none, ProofError where it is another."""
    data = find(tx, cid)
    if data is None:
        raise NotFoundError("no such block", cid=str(cid))
    cids.verify(cid, data)
    return data


def require(get: Get, cid: CID) -> bytes:
    """A block that must be wherever `get` looks, hashed; ProofError where it is missing or another."""
    data = get(cid)
    if data is None:
        raise ProofError("a block is missing", cid=str(cid))
    cids.verify(cid, data)
    return data


def getter(tx: Tx) -> Get:
    """What trees and lists read their blocks with; they hash them themselves."""
    return lambda cid: find(tx, cid)


_FIND_ALL = sql(
    "SELECT h, data FROM objects WHERE h IN (SELECT unhex(value) FROM json_each(:wanted))",
    postgres="SELECT h, data FROM objects WHERE h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:wanted AS JSON)))",
)


def find_all(tx: Tx, wanted: Iterable[CID]) -> dict[CID, bytes]:
    """Those of some blocks that are there, as they are stored, not hashed: a quarter of the price of one by one."""
    rows = tx.all(_FIND_ALL, wanted=json.dumps([cid.raw.hex() for cid in wanted]))
    return {CID(raw): data for raw, data in rows}


_HELD = sql(
    "SELECT h FROM objects WHERE h IN (SELECT unhex(value) FROM json_each(:wanted))",
    postgres="SELECT h FROM objects WHERE h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:wanted AS JSON)))",
)


def missing(tx: Tx, wanted: Iterable[CID]) -> list[CID]:
    """Which of these blocks are not there, each once, in their order."""
    asked = list(dict.fromkeys(wanted))
    lacking: list[CID] = []
    for start in range(0, len(asked), _ASKED):
        part = asked[start : start + _ASKED]
        held = {row[0] for row in tx.all(_HELD, wanted=json.dumps([cid.raw.hex() for cid in part]))}
        lacking += [cid for cid in part if cid.raw not in held]
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
    """Every block there is, a few at a time, in the order that is cheapest to read."""
    rows = tx.all(_PAGE, after=_FIRST[tx.dialect] if after is None else after, limit=limit)
    return BlockPage([(row[1], row[2]) for row in rows], rows[-1][0] if len(rows) == limit else None)
