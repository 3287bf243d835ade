"""The history of objects: a chain of entries that says which versions were written and which were pruned.

    entry 1 ← entry 2 ← entry 3          each names the one before by its CID
                          ↑
    refs: work/<ns>       history        every move of the ref is an entry of the log

Rules:
- Whoever changes the tree or prunes a version appends to the chain in the same transaction (`append`); the ref of the
  tree then names the newest entry. So one log entry covers every version there ever was, at no further cost.
- `object_versions` follows from the chain: it is there to be searched, and `verify` compares it with the entries.
- Entries name versions by text and not by link: the record of a pruned version may be gone, the entry stays readable.
- The chain travels with images and archives as it is, so a restored history is equal byte for byte. Where another
  store has a history of its own, what arrives is appended to it (`adopt`), and the versions are numbered anew.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeVar

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor_fast
from holdproof.crypto.cid import CID
from holdproof.db import Row, Tx, sql
from holdproof.errors import FormatError, HoldproofError, ProofError
from holdproof.model.times import to_micros

V = TypeVar("V", bound=tuple[Any, ...])

_WRITES: Final = 500
"""How many versions an entry has at most: with the longest keys it still fits into a block."""
_FIELDS: Final = frozenset({"v", "n", "prev", "at", "writes", "pruned"})


class HistoryPosition(NamedTuple):
    """Where a chain stands: how many entries it has, and the CID of the newest; 0 and None before the first."""

    entries: int = 0
    cid: str | None = None


BEGINNING: Final = HistoryPosition()


class VersionWrite(NamedTuple):
    """One version of an object: `cid` is None where it was deleted, and `version` then that of the record that went."""

    key: str
    n: int
    version: int
    cid: str | None


class VersionKey(NamedTuple):
    """Which version of which object."""

    key: str
    n: int


class HistoryEntry(NamedTuple):
    """What one change of a namespace wrote or pruned, and when."""

    number: int
    prev: str | None
    at: str
    writes: tuple[VersionWrite, ...]
    pruned: tuple[VersionKey, ...] = ()


class StoredEntry(NamedTuple):
    """An entry together with its block."""

    cid: CID
    data: bytes
    entry: HistoryEntry


# --- blocks ------------------------------------------------------------------------------------------------------


def encode(entry: HistoryEntry) -> StoredEntry:
    """Return an entry with its block."""
    data = dagcbor_fast.encode(
        {
            "v": 1,
            "n": entry.number,
            "prev": entry.prev,
            "at": entry.at,
            "writes": [list(each) for each in entry.writes],
            "pruned": [list(each) for each in entry.pruned],
        }
    )
    return StoredEntry(cids.of(data), data, entry)


def decode(cid: CID, data: bytes) -> StoredEntry:
    """Return an entry from untrusted bytes.

    Raises ProofError where they are not what the CID names, and FormatError where they are no entry.
    """
    cids.verify(cid, data)
    fields = dagcbor_fast.decode(data)
    if not isinstance(fields, dict) or fields.keys() != _FIELDS or fields["v"] != 1:
        raise FormatError("history: not exactly the six fields of version 1", cid=str(cid))
    number, prev, at, writes, pruned = (fields[name] for name in ("n", "prev", "at", "writes", "pruned"))
    if type(number) is not int or not isinstance(prev, str | None) or not isinstance(at, str):
        raise FormatError("history: number, previous entry or time is of the wrong kind", cid=str(cid))
    to_micros(at)
    if not isinstance(writes, list) or not isinstance(pruned, list):
        raise FormatError("history: no lists of versions", cid=str(cid))
    entry = HistoryEntry(
        number,
        prev,
        at,
        tuple(VersionWrite(*_typed(each, (str, int, int, str | None))) for each in writes),
        tuple(VersionKey(*_typed(each, (str, int))) for each in pruned),
    )
    return StoredEntry(cid, data, entry)


def _typed(fields: Any, kinds: tuple[Any, ...]) -> list[Any]:
    matches = isinstance(fields, list) and len(fields) == len(kinds)
    if not matches or not all(isinstance(field, kind) for field, kind in zip(fields, kinds, strict=True)):
        raise FormatError("history: a version with other fields than its own")
    checked: list[Any] = fields
    return checked


def walk_back(get: Callable[[CID], bytes | None], newest: HistoryPosition) -> list[StoredEntry]:
    """Return a whole chain from its blocks, the oldest entry first.

    Raises ProofError where an entry is missing, is not what its CID names, or does not stand where its number says.
    """
    chain: list[StoredEntry] = []
    text = newest.cid
    for number in range(newest.entries, 0, -1):
        cid = None if text is None else cids.parse_text(text)
        data = None if cid is None else get(cid)
        if cid is None or data is None:
            raise ProofError("an entry of the history is missing", cid=str(cid))
        stored = decode(cid, data)
        if stored.entry.number != number:
            raise ProofError("an entry of the history has another number than its place", cid=str(cid))
        chain.append(stored)
        text = stored.entry.prev
    if text is not None:
        raise ProofError("the history begins before its first entry", cid=text)
    return chain[::-1]


def remaining(chain: Iterable[StoredEntry]) -> dict[VersionKey, VersionWrite]:
    """Return the versions that a whole chain has not pruned.

    Raises FormatError where an object's versions are not numbered 1, 2, 3 …, or one is pruned that there is not.
    """
    newest: dict[str, int] = {}
    versions: dict[VersionKey, VersionWrite] = {}
    for stored in chain:
        for write in stored.entry.writes:
            if write.n != newest.get(write.key, 0) + 1:
                raise FormatError("history: versions of an object are not numbered in order", key=write.key)
            newest[write.key] = write.n
            versions[VersionKey(write.key, write.n)] = write
        for pruned in stored.entry.pruned:
            if versions.pop(pruned, None) is None:
                raise FormatError("history: a version is pruned that there is not", key=pruned.key)
    return versions


# --- rows --------------------------------------------------------------------------------------------------------

_ENTRY = sql("INSERT INTO object_history (ns, entry, cid, data) VALUES (:ns, :entry, :cid, :data)")
_VERSION = sql("INSERT INTO object_versions (ns, key, n, cid, version, at) VALUES (:ns, :key, :n, :cid, :version, :at)")
_PRUNED = sql("UPDATE object_versions SET pruned_at = :at WHERE ns = :ns AND key = :key AND n = :n")


def append(
    tx: Tx,
    ns: str,
    position: HistoryPosition,
    at: str,
    *,
    writes: Sequence[VersionWrite] = (),
    pruned: Sequence[VersionKey] = (),
) -> HistoryPosition:
    """Append versions that were written or pruned, and return where the chain stands then; the caller moves the ref."""
    stored: list[StoredEntry] = []
    # Sorted, so that the same change gives the same entry whatever order it was made in.
    for some_writes, some_pruned in zip_longest(_parts(writes), _parts(pruned), fillvalue=()):
        entry = HistoryEntry(position.entries + 1, position.cid, at, some_writes, some_pruned)
        stored.append(encode(entry))
        position = HistoryPosition(entry.number, str(stored[-1].cid))
    _insert(tx, ns, stored)
    return position


def _parts(versions: Sequence[V]) -> Iterator[tuple[V, ...]]:
    ordered = sorted(versions)
    return (tuple(ordered[start : start + _WRITES]) for start in range(0, len(ordered), _WRITES))


def _insert(tx: Tx, ns: str, chain: Sequence[StoredEntry]) -> None:
    """Write entries as they are, and the rows of `object_versions` that follow from them."""
    tx.many(_ENTRY, [_row(ns, each) for each in chain])
    versions = [{"ns": ns, **write._asdict(), "at": each.entry.at} for each in chain for write in each.entry.writes]
    tx.many(_VERSION, versions)
    pruned = [{"ns": ns, **which._asdict(), "at": each.entry.at} for each in chain for which in each.entry.pruned]
    tx.many(_PRUNED, pruned)


def _row(ns: str, stored: StoredEntry) -> dict[str, Any]:
    return {"ns": ns, "entry": stored.entry.number, "cid": str(stored.cid), "data": stored.data}


def adopt(
    tx: Tx, ns: str, position: HistoryPosition, chain: Sequence[StoredEntry], newest: Callable[[str], int]
) -> tuple[HistoryPosition, Sequence[StoredEntry]]:
    """Append the entries of a verified chain that this store does not have; `newest` numbers an object's last version.

    A chain that continues the one here is taken over as it is. After one that differs, the versions are appended as
    further versions of their objects, at their own times: nothing of either history is lost. Returns where the chain
    stands then, and the entries that were new.
    """
    common = _common(tx, ns, position, chain)
    rest = chain[common:]
    if not rest:
        return position, rest
    if common == position.entries:
        _insert(tx, ns, rest)
        return HistoryPosition(rest[-1].entry.number, str(rest[-1].cid)), rest
    numbers: dict[VersionKey, int] = {}
    last: dict[str, int] = {}
    for each in rest:
        writes = []
        for write in each.entry.writes:
            n = last.get(write.key, newest(write.key)) + 1
            last[write.key] = n
            numbers[VersionKey(write.key, write.n)] = n
            writes.append(write._replace(n=n))
        # What was pruned of the part that both share stays here.
        pruned = [VersionKey(which.key, numbers[which]) for which in each.entry.pruned if which in numbers]
        position = append(tx, ns, position, each.entry.at, writes=writes, pruned=pruned)
    return position, rest


_CID = sql("SELECT cid FROM object_history WHERE ns = :ns AND entry = :entry")


def _common(tx: Tx, ns: str, position: HistoryPosition, chain: Sequence[StoredEntry]) -> int:
    """Return how many entries both chains begin with: an equal CID means that all before it is equal too."""
    low = 0
    high = min(position.entries, len(chain))
    while low < high:
        middle = (low + high + 1) // 2
        if tx.one(_CID, ns=ns, entry=middle) == (str(chain[middle - 1].cid),):
            low = middle
        else:
            high = middle - 1
    return low


_PAGE = sql("SELECT entry, cid, data FROM object_history WHERE ns = :ns AND entry > :after ORDER BY entry LIMIT :limit")


def page(tx: Tx, ns: str, after: int, limit: int) -> list[Row]:
    """Return some rows of a chain as they are stored, not verified: number, CID and data."""
    return tx.all(_PAGE, ns=ns, after=after, limit=limit)


def entries(tx: Tx, ns: str, after: int, limit: int) -> list[StoredEntry]:
    """Return some entries of a chain, verified, the oldest first."""
    return [decode(cids.parse_text(cid), data) for _, cid, data in page(tx, ns, after, limit)]


# --- checks ------------------------------------------------------------------------------------------------------


class CheckPosition(NamedTuple):
    """How far a check has come: the last entry, its CID, and how many versions were written and pruned until then."""

    number: int = 0
    cid: str | None = None
    writes: int = 0
    pruned: int = 0


_ROWS = sql(
    "SELECT v.key, v.n, v.version, v.cid, v.at, v.pruned_at FROM json_each(:which) w CROSS JOIN object_versions v"
    " WHERE v.ns = :ns AND v.key = json_extract(w.value, '$[0]') AND v.n = json_extract(w.value, '$[1]')",
    postgres="SELECT v.key, v.n, v.version, v.cid, v.at, v.pruned_at FROM json_array_elements(CAST(:which AS JSON)) w"
    " CROSS JOIN object_versions v WHERE v.ns = :ns AND v.key = w ->> 0 AND v.n = CAST(w ->> 1 AS BIGINT)",
)


class VersionRow(NamedTuple):
    """A row of `object_versions`, without its namespace and key."""

    version: int
    cid: str | None
    at: str
    pruned_at: str | None


class EntryFlaw(NamedTuple):
    """What is wrong with an entry, or with a version that it names."""

    table: str
    row: str
    what: str


def check_entry(
    position: CheckPosition, row: Row, find: Callable[[list[VersionKey]], Mapping[VersionKey, VersionRow]]
) -> tuple[CheckPosition, list[EntryFlaw]]:
    """Compare an entry with the one before and with the rows that follow from it; return the position after it."""
    number, text, data = row
    try:
        entry = decode(cids.parse_text(text), data).entry
    except (HoldproofError, TypeError) as error:
        what = f"the entry is not what its CID names: {error}"
        return position._replace(number=number, cid=text), [EntryFlaw("object_history", str(number), what)]
    flaws = []
    if (number, entry.number, entry.prev) != (position.number + 1, position.number + 1, position.cid):
        flaws.append(EntryFlaw("object_history", str(number), "the entry does not follow the one before"))
    rows = find([VersionKey(write.key, write.n) for write in entry.writes] + [*entry.pruned])
    for write in entry.writes:
        version = rows.get(VersionKey(write.key, write.n))
        if version is None or (version.version, version.cid, version.at) != (write.version, write.cid, entry.at):
            what = "a version is missing, or is not what the history says"
            flaws.append(EntryFlaw("object_versions", f"{write.key} {write.n}", what))
    for which in entry.pruned:
        version = rows.get(which)
        if version is None or version.pruned_at != entry.at:
            what = "a version was pruned, and its row does not say so"
            flaws.append(EntryFlaw("object_versions", f"{which.key} {which.n}", what))
    writes = position.writes + len(entry.writes)
    return CheckPosition(number, text, writes, position.pruned + len(entry.pruned)), flaws


def find_rows(tx: Tx, ns: str, which: list[VersionKey]) -> dict[VersionKey, VersionRow]:
    """Return the rows of some versions."""
    rows = tx.all(_ROWS, ns=ns, which=json.dumps([list(each) for each in which]))
    return {VersionKey(key, n): VersionRow(*rest) for key, n, *rest in rows}


_COUNTS = sql("SELECT count(*), count(pruned_at) FROM object_versions WHERE ns = :ns")


def counts(tx: Tx, ns: str) -> tuple[int, int]:
    """Return how many versions there are rows of, and how many of these say that they were pruned."""
    [(versions, pruned)] = tx.all(_COUNTS, ns=ns)
    return versions, pruned


_IS_PRUNED = sql("SELECT 1 FROM object_versions WHERE cid = :cid AND ns = :ns AND pruned_at IS NOT NULL LIMIT 1")


def check_pruned(tx: Tx, ns: str, cid: str) -> None:
    """Return if the record of a version was pruned; ProofError where it is missing and nobody pruned it."""
    if tx.one(_IS_PRUNED, ns=ns, cid=cid) is None:
        raise ProofError("the record of a version is missing", cid=cid, ns=ns)


def iterate(tx_of: Callable[[], Tx], ns: str, after: int, until: int, limit: int) -> Iterator[list[StoredEntry]]:
    """Yield the entries after one number up to another, a page at a time, each from the transaction that is current."""
    while after < until:
        some = entries(tx_of(), ns, after, min(limit, until - after))
        if not some:
            raise ProofError("an entry of the history is missing", ns=ns, entry=after + 1)
        after = some[-1].entry.number
        yield some
