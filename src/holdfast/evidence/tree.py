"""The log's tree in the database: frontier and full tiles, appended to in O(log n), read for proofs.

Rules:
- Size and frontier are read from the database inside the transaction that grows them, never kept in memory.
- Full tiles are written once and never change; partial ones are made from leaves and stems when asked for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.crypto import frontier, merkle, tiles
from holdfast.crypto.checkpoint import Checkpoint
from holdfast.crypto.tiles import WIDTH, Bundle, Tile
from holdfast.db import Tx, sql
from holdfast.errors import InvalidInputError, NotFoundError
from holdfast.evidence.leaves import Leaf

Sign = Callable[[Checkpoint], str]


class State(NamedTuple):
    """Where the log stands."""

    origin: str
    size: int
    frontier: bytes
    head: str


_GROWING = sql(
    "SELECT origin, size, frontier, head FROM log_state",
    postgres="SELECT origin, size, frontier, head FROM log_state FOR UPDATE",
)
_BEGIN = sql(
    "INSERT INTO log_state (id, origin, size, frontier, head, updated_at)"
    " VALUES (1, :origin, 0, :frontier, '', :now) ON CONFLICT (id) DO NOTHING"
)


def begin(tx: Tx, origin: str) -> None:
    """Make the log's one row of state, if it is not there."""
    tx.execute(_BEGIN, origin=origin, frontier=frontier.EMPTY.to_bytes(), now=tx.now)


def state(tx: Tx) -> State:
    """Where the log stands."""
    row = tx.one(_READ_STATE)
    if row is None:
        raise NotFoundError("this store has no log yet")
    return State(*row)


_READ_STATE = sql("SELECT origin, size, frontier, head FROM log_state")
_ADD_LEAF = sql("INSERT INTO log_leaves (idx, id, ver, leaf) VALUES (:idx, :id, :ver, :leaf)")
_ADD_STEM = sql("INSERT INTO log_stems (level, idx, hash) VALUES (:level, :idx, :hash)")
_ADVANCE = sql("UPDATE log_state SET size = :size, frontier = :frontier, head = :head, updated_at = :now WHERE id = 1")


def integrate(tx: Tx, leaves: Sequence[Leaf], sign: Sign) -> str:
    """Append leaves, seal the tiles they fill, sign the new head and give it back."""
    row = tx.one(_GROWING)
    assert row is not None, "a log is begun when its store is opened"
    before = State(*row)
    texts = [leaf.text.encode() for leaf in leaves]
    growth = frontier.append(frontier.from_bytes(before.frontier), merkle.leaf_hashes(texts))
    tx.many(
        _ADD_LEAF,
        (
            {"idx": before.size + number, "id": leaf.id, "ver": leaf.ver, "leaf": leaf.text}
            for number, leaf in enumerate(leaves)
        ),
    )
    tx.many(_ADD_STEM, ({"level": stem.level, "idx": stem.index, "hash": stem.hash} for stem in growth.stems))
    grown = growth.frontier
    _seal(tx, before.size, grown.size)
    head = sign(Checkpoint(before.origin, grown.size, grown.root()))
    tx.execute(_ADVANCE, size=grown.size, frontier=grown.to_bytes(), head=head, now=tx.now, expect=1)
    return head


_ADD_TILE = sql("INSERT INTO log_tiles (level, idx, hashes) VALUES (:level, :idx, :hashes)")
_DROP_STEMS = sql("DELETE FROM log_stems WHERE level = :level AND idx >= :first AND idx < :end")


def _seal(tx: Tx, old: int, new: int) -> None:
    """Write the tiles that have become full; their stems are in them now."""
    if old // WIDTH == new // WIDTH:
        return
    for tile in tiles.new_tiles(old, new):
        if tile.width < WIDTH:
            continue
        tx.execute(_ADD_TILE, level=tile.level, idx=tile.index, hashes=_loose(tx, tile), expect=1)
        if tile.level:
            first = tile.index * WIDTH
            tx.execute(_DROP_STEMS, level=tile.level, first=first, end=first + WIDTH, expect=WIDTH)


_LEAVES = sql("SELECT leaf FROM log_leaves WHERE idx >= :first AND idx < :end ORDER BY idx")
_STEMS = sql("SELECT hash FROM log_stems WHERE level = :level AND idx >= :first AND idx < :end ORDER BY idx")


def entries(tx: Tx, bundle: Bundle) -> list[bytes]:
    """The leaves under a tile of level 0."""
    first = bundle.index * WIDTH
    found = [row[0].encode() for row in tx.all(_LEAVES, first=first, end=first + bundle.width)]
    if len(found) < bundle.width:
        raise NotFoundError(f"the log has no entries {bundle.path}", path=bundle.path)
    return found


def _loose(tx: Tx, tile: Tile) -> bytes:
    """The hashes of a tile that is not stored as one."""
    if tile.level == 0:
        return b"".join(merkle.leaf_hashes(entries(tx, Bundle(tile.index, tile.width))))
    first = tile.index * WIDTH
    found = [row[0] for row in tx.all(_STEMS, level=tile.level, first=first, end=first + tile.width)]
    if len(found) < tile.width:
        raise NotFoundError(f"the log has no tile {tile.path}", path=tile.path)
    return b"".join(found)


_TILE = sql("SELECT hashes FROM log_tiles WHERE level = :level AND idx = :idx")


def fetch(tx: Tx, tile: Tile) -> bytes:
    """The hashes of a tile, full or partial."""
    row = tx.one(_TILE, level=tile.level, idx=tile.index)
    if row is None:
        return _loose(tx, tile)
    return bytes(row[0][: tile.width * tiles.HASH])


def prove_inclusion(tx: Tx, index: int, size: int) -> tuple[bytes, ...]:
    """The path from a leaf to the root of the tree of that size."""
    return tiles.prove_inclusion(index, size, lambda tile: fetch(tx, tile))


def prove_consistency(tx: Tx, old: int, new: int) -> tuple[bytes, ...]:
    """The proof that the tree of size `new` continues the one of size `old`."""
    if not 0 < old <= new:
        raise InvalidInputError(f"no proof leads from size {old} to {new}", old=old, new=new)
    return tiles.prove_consistency(old, new, lambda tile: fetch(tx, tile))
