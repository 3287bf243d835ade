"""The log's tree in the database: frontier and full tiles, appended to in O(log n), read for proofs.

Rules:
- Size and frontier are read from the database inside the transaction that extends them, never kept in memory.
- What a `TreeWriter` caches of the open tile counts only under exactly the frontier that the database holds: a frontier
  commits to every leaf, so another process, a roll-back or a restored file cannot make the cache wrong.
- A tree that another process extended is continued only under a head that a log key of the keyring signed.
- It continues under the origin of its newest head; only the record of a restore moves it to another (`moves`).
- Full tiles are written once and never change; partial ones are computed from leaves and stems when requested.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from holdproof.crypto import checkpoint, frontier, keys, merkle, tiles, vkey
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.crypto.tiles import WIDTH, EntryBundle, Tile
from holdproof.crypto.vkey import ED25519, ML_DSA_44, Kind, VerifierKey
from holdproof.db import Tx, sql
from holdproof.errors import CorruptError, FormatError, InvalidInputError, NotFoundError, ProofError
from holdproof.evidence.leaves import Leaf

Sign = Callable[[LogCheckpoint, str], str]
"""Signs a head that is made at a time."""


class LogState(NamedTuple):
    """The one row of state: origin, size, right edge (frontier) and newest signed head of the log."""

    origin: str
    size: int
    frontier: bytes
    head: str


_BEGIN = sql(
    "INSERT INTO log_state (id, origin, size, frontier, head, updated_at)"
    " VALUES (1, :origin, 0, :frontier, '', :now) ON CONFLICT (id) DO NOTHING"
)


def begin(tx: Tx, origin: str) -> None:
    """Create the log's row of state, unless it exists."""
    tx.execute(_BEGIN, origin=origin, frontier=frontier.EMPTY.to_bytes(), now=tx.now)


_BEGUN = sql("SELECT 1 FROM log_state WHERE id = 1")


def exists(tx: Tx) -> bool:
    """Whether the log has its row of state."""
    # A missing row is an empty database, not an empty log: an empty log has a row with size 0.
    return tx.one(_BEGUN) is not None


_READ_STATE = sql("SELECT origin, size, frontier, head FROM log_state WHERE id = 1")


def state(tx: Tx) -> LogState:
    """Return the state of the log; NotFoundError in a database without one."""
    row = tx.one(_READ_STATE)
    if row is None:
        raise NotFoundError("this store has no log yet")
    return LogState(*row)


_GROWING = sql(
    "SELECT origin, size, frontier, head FROM log_state WHERE id = 1",
    postgres="SELECT origin, size, frontier, head FROM log_state WHERE id = 1 FOR UPDATE",
)


def lock(tx: Tx) -> LogState:
    """Return the state of the log and lock it until this transaction ends."""
    row = tx.one(_GROWING)
    assert row is not None, "a log is begun when its store is opened"
    return LogState(*row)


_ADD_LEAF = sql("INSERT INTO log_leaves (idx, id, ver, leaf) VALUES (:idx, :id, :ver, :leaf)")
_ADD_STEM = sql("INSERT INTO log_stems (level, idx, hash) VALUES (:level, :idx, :hash)")
_ADVANCE = sql("UPDATE log_state SET size = :size, frontier = :frontier, head = :head, updated_at = :now WHERE id = 1")
_ADD_TILE = sql("INSERT INTO log_tiles (level, idx, hashes) VALUES (:level, :idx, :hashes)")
_DROP_STEMS = sql("DELETE FROM log_stems WHERE level = :level AND idx >= :first AND idx < :end")


class TreeWriter:
    """Appends leaves to the tree; one for each writer. With `moves` it may continue under another origin."""

    def __init__(self, *, moves: bool = False) -> None:
        self._moves = moves
        self._under = b""
        self._open: list[bytes] = []
        # The last state that this writer wrote, and its right edge decoded.
        self._own: LogState | None = None
        self._edge = frontier.EMPTY

    def integrate(self, tx: Tx, before: LogState, leaves: Sequence[Leaf], sign: Sign) -> str:
        """Append leaves to a locked log, write the tiles they fill, sign the new head and return it."""
        tx.many(
            _ADD_LEAF,
            [
                {"idx": index, "id": handle, "ver": ver, "leaf": text}
                for index, (handle, ver, text) in enumerate(leaves, before.size)
            ],
        )
        _, _, texts = zip(*leaves, strict=True)
        return self.grow(tx, before, map(str.encode, texts), sign)

    def grow(self, tx: Tx, before: LogState, texts: Iterable[bytes], sign: Sign) -> str:
        """Do the same for leaves that are in `log_leaves` already, from `before.size` on."""
        # Our own last state was verified when it was written; any other came from another process or a forger.
        if before != self._own:
            _refuse_forged(tx, before, moves=self._moves)
            self._edge = frontier.from_bytes(before.frontier)
        hashes = merkle.leaf_hashes(texts)
        growth = frontier.append(self._edge, hashes)
        grown = growth.frontier
        if growth.stems:
            tx.many(_ADD_STEM, [{"level": s.level, "idx": s.index, "hash": s.hash} for s in growth.stems])
        rest = self._seal(tx, before, hashes)
        # Level 0 was written above from the hashes at hand; higher levels are read from stems.
        for tile in tiles.new_tiles(before.size, grown.size) if growth.stems else ():
            if tile.level and tile.width == WIDTH:
                _seal_stems(tx, tile)
        now = tx.now
        head = sign(LogCheckpoint(before.origin, grown.size, grown.root()), now)
        right_edge = grown.to_bytes()
        tx.execute(_ADVANCE, size=grown.size, frontier=right_edge, head=head, now=now, expect=1)
        self._under, self._open = (b"", []) if rest is None else (right_edge, rest)
        self._own = LogState(before.origin, grown.size, right_edge, head)
        self._edge = grown
        return head

    def _seal(self, tx: Tx, before: LogState, hashes: list[bytes]) -> list[bytes] | None:
        """Write the tiles of leaf hashes that have become full; return the rest, None if it was not read."""
        tile, width = divmod(before.size, WIDTH)
        if width == 0:
            row = hashes
        elif before.frontier == self._under:
            row = self._open + hashes
        elif width + len(hashes) < WIDTH:
            return None  # no tile becomes full, so the hashes before ours are not needed
        else:
            row = merkle.leaf_hashes(entries(tx, EntryBundle(tile, width))) + hashes
        whole = len(row) // WIDTH
        for number in range(whole):
            joined = b"".join(row[number * WIDTH : (number + 1) * WIDTH])
            tx.execute(_ADD_TILE, level=0, idx=tile + number, hashes=joined, expect=1)
        return row[whole * WIDTH :]


def _refuse_forged(tx: Tx, before: LogState, *, moves: bool) -> None:
    """Raise ProofError unless the right edge is the one under the newest head, and a log key signed that head.

    A revoked key counts here: its last head is what the first head of its successor continues. Another origin is
    refused too: a log that was put back could pass for a restored one, and kept heads would not count.
    """
    # A new log has no head to continue.
    if not before.head and not before.size:
        return
    signed = checkpoint.parse(before.head.encode())
    newest = signed.checkpoint
    if (newest.size, newest.root) != (before.size, frontier.from_bytes(before.frontier).root()):
        raise ProofError("the log's right edge is not the one under its newest head: run `holdproof verify`")
    if newest.origin != before.origin and not moves:
        raise ProofError(
            "the log has another name than its newest head, and no restore did that: run `holdproof verify`"
        )
    log_keys = verifiers(tx, size=newest.size, origin=newest.origin, even_revoked=True)
    try:
        checkpoint.verify(signed, origin=newest.origin, log_keys=log_keys)
    except ProofError as error:
        raise ProofError(f"the log's newest head does not hold ({error.message}): run `holdproof verify`") from error


# Versions of a key's row follow its first one, whose entry is where it came in.
_KEYS = sql(
    "SELECT k.role, k.public, k.revoked_from, l.idx FROM keyring k"
    " LEFT JOIN log_leaves l ON l.id = k.leaf_id AND l.ver = 1 WHERE k.role IN ('log', 'log-pq') ORDER BY k.keyid"
)


def verifiers(
    tx: Tx, *, size: int | None = None, origin: str | None = None, even_revoked: bool = False
) -> tuple[VerifierKey, ...]:
    """Return the keys whose signature under a head of that size counts: those not revoked before it.

    Keys of two types where one of the second role (ML-DSA-44) counted at that size: such a head needs both. With
    `even_revoked` also those that are revoked, of each type that is needed.
    """
    now = state(tx)
    at = now.size if size is None else size
    name = now.origin if origin is None else origin
    if not vkey.is_name(name):
        raise CorruptError("the log has a name that no log is given", origin=name)
    ring = [_HeadKey(*row) for row in tx.all(_KEYS)]
    able = [key for key in ring if key.counts(at)]
    roles = {key.role for key in able} | ({"log"} if even_revoked else set())
    # A log key has always signed; the second signature never stands in for it.
    if "log" not in roles:
        return ()
    chosen = [key for key in ring if key.role in roles] if even_revoked else able
    try:
        return tuple(VerifierKey(name, key.kind, keys.load_public_pem(key.pem.encode())) for key in chosen)
    except FormatError as error:
        raise FormatError(f"a log key of the keyring cannot be read: {error}", tables=("keyring",)) from error


class _HeadKey(NamedTuple):
    """A key of the keyring that signs heads, and where its own entry stands."""

    role: str
    pem: str
    revoked_from: int | None
    entry: int | None

    @property
    def kind(self) -> Kind:
        return ML_DSA_44 if self.role == "log-pq" else ED25519

    def counts(self, size: int) -> bool:
        """Whether it counts under a head of that size; one of the second role from the head above its own entry on."""
        if self.role == "log-pq" and (self.entry is None or self.entry >= size):
            return False
        return self.revoked_from is None or size <= self.revoked_from


def _seal_stems(tx: Tx, tile: Tile) -> None:
    """Write a full tile above the leaves, and delete its stems, which are in it now."""
    tx.execute(_ADD_TILE, level=tile.level, idx=tile.index, hashes=_loose(tx, tile), expect=1)
    first = tile.index * WIDTH
    tx.execute(_DROP_STEMS, level=tile.level, first=first, end=first + WIDTH, expect=WIDTH)


_LEAVES = sql("SELECT leaf FROM log_leaves WHERE idx >= :first AND idx < :end ORDER BY idx")


def entries(tx: Tx, bundle: EntryBundle) -> list[bytes]:
    """Return the leaves under a tile of level 0; NotFoundError if one is missing."""
    first = bundle.index * WIDTH
    texts = [leaf.encode() for (leaf,) in tx.all(_LEAVES, first=first, end=first + bundle.width)]
    if len(texts) < bundle.width:
        raise NotFoundError(f"the log has no entries {bundle.path}", path=bundle.path)
    return texts


_STEMS = sql("SELECT hash FROM log_stems WHERE level = :level AND idx >= :first AND idx < :end ORDER BY idx")


def _loose(tx: Tx, tile: Tile) -> bytes:
    """Compute the hashes of a tile that is not stored, from leaves or stems."""
    if tile.level == 0:
        return b"".join(merkle.leaf_hashes(entries(tx, EntryBundle(tile.index, tile.width))))
    first = tile.index * WIDTH
    hashes = [digest for (digest,) in tx.all(_STEMS, level=tile.level, first=first, end=first + tile.width)]
    if len(hashes) < tile.width:
        raise NotFoundError(f"the log has no tile {tile.path}", path=tile.path)
    return b"".join(hashes)


_TILE = sql("SELECT hashes FROM log_tiles WHERE level = :level AND idx = :idx")


def fetch(tx: Tx, tile: Tile) -> bytes:
    """Return the hashes of a tile, full or partial."""
    row = tx.one(_TILE, level=tile.level, idx=tile.index)
    if row is None:
        return _loose(tx, tile)
    (hashes,) = row
    return bytes(hashes[: tile.width * tiles.HASH])


def open_tiles(tx: Tx, size: int) -> dict[int, list[bytes]]:
    """Return the open tiles above the leaves, by level, that the tree had at a size that ends with a tile."""
    by_level: dict[int, list[bytes]] = {}
    for level in range(1, 8):
        index, width = divmod(size >> 8 * level, WIDTH)
        if width:
            hashes = fetch(tx, Tile(level, index, width))
            by_level[level] = [hashes[at : at + tiles.HASH] for at in range(0, len(hashes), tiles.HASH)]
    return by_level


def _lookup(tx: Tx, size: int) -> merkle.Lookup:
    """Return a lookup of nodes of the tree of that size; the right edge of the newest comes from the frontier."""
    find = tiles.lookup(size, lambda tile: fetch(tx, tile))
    edge = frontier.from_bytes(state(tx).frontier)
    if size != edge.size:
        return find
    # The frontier holds the roots of the largest full subtrees, which are no tiles.
    peaks = dict(zip(merkle.root_nodes(size), edge.peaks, strict=True))
    return lambda level, index: peaks.get((level, index)) or find(level, index)


def prove_inclusion(tx: Tx, index: int, size: int) -> tuple[bytes, ...]:
    """Return the path from a leaf to the root of the tree of that size."""
    return merkle.prove_inclusion(index, size, _lookup(tx, size))


def prove_many(tx: Tx, indexes: Sequence[int], size: int) -> tuple[bytes, ...]:
    """Return the hashes that, with the leaves at these indexes, give the root of the tree of that size."""
    return merkle.prove_many(indexes, size, _lookup(tx, size))


def prove_consistency(tx: Tx, old: int, new: int) -> tuple[bytes, ...]:
    """Return the proof that the tree of size `new` continues the one of size `old`."""
    size = state(tx).size
    if not 0 < old <= new <= size:
        raise InvalidInputError(f"no proof leads from size {old} to {new} in a log of {size}", old=old, new=new)
    return merkle.prove_consistency(old, new, _lookup(tx, new))


def root_at(tx: Tx, size: int) -> bytes:
    """Return the root that the tree had at a size, computed from its tiles."""
    return roots(tx)(size)


def roots(tx: Tx) -> Callable[[int], bytes]:
    """Return a function from a size to the root that the tree had then; full tiles are read once for all sizes."""
    most = state(tx).size
    full_tiles: dict[tuple[int, int], bytes] = {}

    def hashes(tile: Tile) -> bytes:
        place = (tile.level, tile.index)
        if place not in full_tiles:
            row = tx.one(_TILE, level=tile.level, idx=tile.index)
            if row is None:  # still open: its width differs from size to size
                return _loose(tx, tile)
            (full_tiles[place],) = row
        return bytes(full_tiles[place][: tile.width * tiles.HASH])

    def root(size: int) -> bytes:
        if not 0 <= size <= most:
            raise InvalidInputError(f"the log of {most} leaves never had the size {size} yet", size=size)
        return tiles.root_at(size, hashes)

    return root
