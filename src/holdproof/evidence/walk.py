"""Walk the whole log for an audit: read pages of leaves ahead, recompute them with `Replay`, compare with the tables.

Rules:
- Reading overlaps hashing: a page is read as one row, and hashed on another core where there is one.
- A page that does not match is read again row by row, to name the leaf.
- A leaf is stored under the handle and version it names: a lookup by these must not find another record's.
- A read may run twice (a lost connection); nothing is fed to the replay inside a transaction.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from holdproof.crypto import merkle
from holdproof.crypto.lines import MAX_SIZE
from holdproof.crypto.tiles import FULL, HASH, WIDTH
from holdproof.db import Database, Row, Tx, sql
from holdproof.evidence import tree
from holdproof.evidence.digests import digest
from holdproof.evidence.hashers import Digests, Hashers
from holdproof.evidence.replay import Replay, roots_of
from holdproof.model.log import Audited, Flaw
from holdproof.model.verdicts import Verdict, worst

T = TypeVar("T")

PAGE: Final = 32 * WIDTH
_MOST_FLAWS = 100
_WORTH_HELPERS = 100_000


class Flaws:
    """Collects flaws up to a bound; the worst verdict counts beyond it."""

    def __init__(self) -> None:
        self.found: list[Flaw] = []
        self.left_off = 0
        self._verdicts = {Verdict.VALID}

    def add(self, index: int | None, what: str, verdict: Verdict = Verdict.TAMPERED) -> None:
        """Add a flaw; past the bound it is only counted."""
        self._verdicts.add(verdict)
        if len(self.found) < _MOST_FLAWS:
            self.found.append(Flaw(index, what, verdict))
        else:
            self.left_off += 1

    def outcome(self, *, full: bool, size: int, root: str, pending: int, heads: int) -> Audited:
        """Return the outcome of the audit."""
        return Audited(worst(self._verdicts), full, size, pending, heads, self.found, self.left_off, root)


@dataclass(frozen=True, slots=True)
class _Page:
    """Leaves from `first` on as they are stored, one to a line, and the tiles over them."""

    first: int
    width: int
    text: str
    tiles: dict[int, bytes]
    misfiled: list[int]


_PAGE = sql(
    "SELECT string_agg(leaf, '\n')"
    " FROM (SELECT leaf FROM log_leaves WHERE idx >= :first AND idx < :end ORDER BY idx) page"
)
# `leaves.is_filed`, by the database: SQLite stores a value of any type in any column, and tells them apart.
_MISFILED = sql(
    "SELECT idx FROM log_leaves WHERE idx >= :first AND idx < :end AND (typeof(leaf) <> 'text' OR typeof(id) <> 'text'"
    """ OR substr(leaf, 73, length(id) + 13) <> '"id":"' || id || '","ns":'"""
    """ OR substr(leaf, -length(ver) - 8) <> ',"ver":' || ver || '}') ORDER BY idx LIMIT 100""",
    postgres="SELECT idx FROM log_leaves WHERE idx >= :first AND idx < :end"
    """ AND (substr(leaf, 73, length(id) + 13) <> '"id":"' || id || '","ns":'"""
    """ OR right(leaf, length(ver::text) + 8) <> ',"ver":' || ver || '}') ORDER BY idx LIMIT 100""",
)
_TILES = sql("SELECT idx, hashes FROM log_tiles WHERE level = :level AND idx >= :first AND idx < :end ORDER BY idx")


def _read(tx: Tx, first: int, width: int) -> _Page:
    row = tx.one(_PAGE, first=first, end=first + width)
    assert row is not None, "an aggregate always has a row"
    tiles = tx.all(_TILES, level=0, first=first // WIDTH, end=-(-(first + width) // WIDTH))
    misfiled = [index for (index,) in tx.all(_MISFILED, first=first, end=first + width)]
    (text,) = row
    return _Page(first, width, text or "", dict(tiles), misfiled)


class _Rest(NamedTuple):
    """The last page, and all that must fit it, in one snapshot."""

    page: _Page
    stems: list[Row]
    tiles: dict[int, int]


_STEMS = sql("SELECT level, idx, hash FROM log_stems ORDER BY level, idx")
_COUNTS = sql("SELECT level, count(*) FROM log_tiles GROUP BY level ORDER BY level")
_TILE = sql("SELECT hashes FROM log_tiles WHERE level = :level AND idx = :idx")
_ROWS = sql("SELECT idx, leaf FROM log_leaves WHERE idx >= :first AND idx < :end ORDER BY idx")


class Walk:
    """One walk over the log of a database, over `most` leaves at the most; it goes on where the replay stands."""

    def __init__(self, database: Database, flaws: Flaws, replay: Replay, *, most: int = MAX_SIZE) -> None:
        self._database = database
        self._flaws = flaws
        self._most = most
        self.replay = replay

    def run(self, last: Callable[[Tx], T], progress: Callable[[int, int], None] | None) -> T:
        """Walk all of it; return what `last` reads in the snapshot of the last page."""
        # Writers go on: after the full pages, what is left may have grown to more than a page, so it starts over.
        while True:
            for size in self._pages():
                if progress is not None:
                    progress(self.replay.size, size)
            end = self._database.read(lambda tx: (self._rest(tx), last(tx))).result()
            if end[0] is not None:
                self._finish(end[0])
                if progress is not None:
                    progress(self.replay.size, self.replay.size)
                return end[1]

    def _pages(self) -> Iterator[int]:
        """Check full pages while the next ones are read and hashed; yields the size of the log after each."""
        size = min(self._most, self._database.read(lambda tx: tree.state(tx).size).result())
        firsts = iter(range(self.replay.size, size - PAGE + 1, PAGE))
        out: deque[_Page] = deque()
        with Hashers(1 if size - self.replay.size < _WORTH_HELPERS else None) as hashers:
            ahead = self._ask(next(firsts, None))
            while ahead is not None or hashers.busy:
                if ahead is not None and hashers.free:
                    out.append(ahead.result())
                    ahead = self._ask(next(firsts, None))
                    hashers.put(out[-1].text.encode())
                else:
                    self._check(out.popleft(), hashers.take())
                    yield size

    def _ask(self, first: int | None) -> "Future[_Page] | None":
        return None if first is None else self._database.read(partial(_read, first=first, width=PAGE))

    def _check(self, page: _Page, digests: Digests) -> None:
        """Check one page: its leaf hashes against its tiles, and the tiles above that it fills."""
        hashes, roots = digests
        end = page.first + page.width
        for index in page.misfiled:
            self._flaws.add(index, "the leaf is filed under another record or version than its own")
        stored = [page.tiles.get(number, b"") for number in range(page.first // WIDTH, end // WIDTH)]
        # A leaf with a line break, or a missing one, changes the number of hashes.
        if len(hashes) != page.width * HASH or hashes[: len(stored) * FULL] != b"".join(stored):
            hashes = self._look_closer(page, stored)
            roots = roots_of(hashes)
        for sealed in self.replay.feed(hashes, roots):
            row = self._database.read(lambda tx, s=sealed: tx.one(_TILE, level=s.level, idx=s.index)).result()  # type: ignore[misc]
            if row != (sealed.hashes,):
                what = f"tile {sealed.index} of level {sealed.level} is missing or not that of its leaves"
                self._flaws.add(sealed.index * WIDTH << 8 * sealed.level, what)

    def _look_closer(self, page: _Page, stored: Sequence[bytes]) -> bytes:
        """Name what is wrong on this page; return the hashes of its leaves, to continue with."""
        end = page.first + page.width
        read = self._database.read(lambda tx: tx.all(_ROWS, first=page.first, end=end))
        rows: dict[int, Any] = dict(read.result())
        hashes: list[bytes] = []
        for index in range(page.first, end):
            tile = stored[number] if (number := (index - page.first) // WIDTH) < len(stored) else b""
            at = index % WIDTH * HASH
            expected = tile[at : at + HASH]
            if index not in rows:
                self._flaws.add(index, "the leaf is missing")
                hashes.append(expected if len(expected) == HASH else merkle.leaf_hash(b""))
                continue
            leaf = rows[index]
            data = leaf.encode() if isinstance(leaf, str) else bytes(leaf)
            hashes.append(merkle.leaf_hash(data))
            if number < len(stored) and hashes[-1] != expected:
                self._flaws.add(index, "the leaf is not the one in its tile")
        return b"".join(hashes)

    def _rest(self, tx: Tx) -> _Rest | None:
        """Read what is left, with all that must fit it; None if that is more than a page."""
        size = min(self._most, tree.state(tx).size)
        done = self.replay.size
        # Too much to read in one snapshot.
        if size - done >= PAGE:
            return None
        page = _read(tx, done, max(0, size - done))
        return _Rest(page, tx.all(_STEMS), dict(tx.all(_COUNTS)))

    def _finish(self, rest: _Rest) -> None:
        """Check the last page, the stems, and the number of tiles."""
        self._check(rest.page, digest(rest.page.text.encode()) if rest.page.text else (b"", b""))
        expected = {(stem.level, stem.index): stem.hash for stem in self.replay.stems()}
        stored = {(level, index): digest for level, index, digest in rest.stems}
        for level, index in sorted(expected.keys() | stored.keys()):
            if expected.get((level, index)) != stored.get((level, index)):
                self._flaws.add(index << 8 * level, f"stem {index} of level {level} is not that of its leaves")
        if rest.tiles != self.replay.tile_counts():
            self._flaws.add(None, f"there are {rest.tiles} tiles by level, {self.replay.tile_counts()} are due")
