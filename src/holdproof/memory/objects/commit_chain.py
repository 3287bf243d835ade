"""A line of commits as a stream of blocks, and back: what images and archives are made of.

Rules:
- The stream is that of the commits from the oldest on: each commit, its note, then what its tree has that the one
  before had not (a node before what is below it, a record where its key is), then what records lead to, as far as it
  is here. The same line gives the same stream, wherever it begins to be written.
- After it come the entries of the history that the newest note names, and the records of versions that no tree has.
- A line that arrives is believed only as a whole: every block is what its CID names, every commit is signed, the chain
  leads to its first commit or to one that is here, and every tree is complete; so is the history that the newest note
  names, with a record for every version that was not pruned.
- Nothing of a line that is not whole is written anywhere.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice, pairwise
from typing import Final, Generic, NamedTuple, TypeVar

from holdproof.content import blocks
from holdproof.crypto import cid as cids
from holdproof.crypto import commit as formats
from holdproof.crypto import didkey, mst, mst_diff
from holdproof.crypto.car import BlockMap
from holdproof.crypto.cid import CID
from holdproof.crypto.commit import Commit
from holdproof.crypto.mst import EMPTY_BLOCK, EMPTY_ROOT, Get, Nodes
from holdproof.db import Database, Tx, sql
from holdproof.errors import FormatError, HoldproofError, ProofError
from holdproof.memory.objects import commits, object_checks, object_history, records
from holdproof.memory.objects.commits import CommitNote
from holdproof.memory.objects.object_history import HistoryPosition, StoredEntry

T = TypeVar("T")

LONGEST: Final = 1_000_000
_AHEAD: Final = 500
LINK: Final = b"\xd8\x2a"
"""How a link begins in DAG-CBOR: a block without it leads nowhere."""


class ChainStep(NamedTuple):
    """One commit of a line, and its note where there is one."""

    cid: CID
    commit: Commit
    note: CID | None


_NOTE = sql("SELECT note FROM snapshots WHERE ns = :ns AND cid = :cid")


def back(tx: Tx, head: CID, *, ns: str, until: CID | None = None, most: int = LONGEST) -> list[ChainStep]:
    """The commits from the first (or the one after `until`, or after one that was pruned) to the head, oldest first."""
    steps: list[ChainStep] = []
    cid: CID | None = head
    while cid is not None and cid != until and len(steps) < most:
        notes = [commits.parse(note) for (note,) in tx.all(_NOTE, ns=ns, cid=str(cid))]
        if not notes and steps:  # a commit without a row was pruned: the chain begins after it
            break
        commit = commits.read(tx, cid)
        steps.append(ChainStep(cid, commit, notes[0] if notes else None))
        cid = commit.prev
    return steps[::-1]


def since(line: list[ChainStep]) -> str:
    """Return the commit before a line's first one, which was pruned; empty where nothing came before."""
    first = line[0].commit.prev
    return "" if first is None else str(first)


def stream(get: Get, line: list[ChainStep], before: CID = EMPTY_ROOT) -> Iterator[tuple[CID, bytes]]:
    """Yield the blocks of a line whose first commit follows the tree `before`; the same block may come twice."""
    nodes = _Spying(get)
    for step in line:
        yield step.cid, blocks.require(get, step.cid)
        if step.note is not None:
            yield step.note, blocks.require(get, step.note)
        if step.commit.data == EMPTY_ROOT:
            yield EMPTY_ROOT, EMPTY_BLOCK
        # Only what this tree has and the one before had not: the rest is already in the stream.
        fresh = mst_diff.fresh(Nodes(nodes, memory=256), before, step.commit.data)
        while part := [*islice(fresh, _AHEAD)]:
            # Blocks are read ahead in batches: one query for hundreds instead of one for each.
            if isinstance(get, BlockSource):
                get.expect(cid for cid, is_node in part if not is_node)
            for cid, is_node in part:
                if cid == EMPTY_ROOT:
                    continue
                data = nodes.seen.get(cid) or blocks.require(get, cid)
                yield cid, data
                if not is_node and LINK in data:
                    yield from _beyond(get, data)
            nodes.seen.clear()
        before = step.commit.data


def versions(source: "BlockSource", ns: str, newest: HistoryPosition, after: int = 0) -> Iterator[tuple[CID, bytes]]:
    """Yield the entries of a history after one of them, and the record of every version they name."""
    for entries in object_history.iterate(lambda: source.tx, ns, after, newest.entries, _AHEAD):
        named = _records(entries)
        for each in entries:
            yield each.cid, each.data
        for start in range(0, len(named), _AHEAD):
            part = named[start : start + _AHEAD]
            source.expect(part)
            for cid in part:
                data = source(cid)
                if data is None:
                    object_history.check_pruned(source.tx, ns, str(cid))
                    continue
                cids.verify(cid, data)
                yield cid, data
                if LINK in data:
                    yield from _beyond(source, data)


def _records(entries: Iterable[StoredEntry]) -> list[CID]:
    return [cids.parse_text(write.cid) for each in entries for write in each.entry.writes if write.cid]


def version_records(get: Get, history: list[StoredEntry]) -> Iterator[tuple[CID, bytes]]:
    """Yield the records of a verified history, with what they lead to; those that were pruned are not there."""
    for cid in _records(history):
        data = get(cid)
        if data is not None:
            yield cid, data
            if LINK in data:
                yield from _beyond(get, data)


class _Spying:
    """A `get` that keeps what it gave for nodes, which hash what they are given: nothing is read and hashed twice."""

    def __init__(self, get: Get) -> None:
        self.get = get
        self.seen: dict[CID, bytes] = {}

    def __call__(self, cid: CID) -> bytes | None:
        """See Get."""
        data = EMPTY_BLOCK if cid == EMPTY_ROOT else self.get(cid)
        if data is not None:
            self.seen[cid] = data
        return data


def _beyond(get: Get, data: bytes) -> Iterator[tuple[CID, bytes]]:
    """Yield what a record leads to, as far as it is here."""
    waiting = [*records.links(data)]
    visited = set[CID]()
    while waiting:
        cid = waiting.pop()
        if cid in visited or not cid.plain:
            continue
        visited.add(cid)
        block = get(cid)
        if block is None:
            continue
        cids.verify(cid, block)
        yield cid, block
        if cid.raw.startswith(cids.CBOR_PREFIX) and LINK in block:
            waiting += records.links(block)


# --- arriving ----------------------------------------------------------------------------------------------------


class CommitChain(NamedTuple):
    """A line that was verified: its commits, the oldest first, their notes, all of its blocks, and its history."""

    steps: list[ChainStep]
    notes: dict[CID, CommitNote]
    blocks: Mapping[CID, bytes]
    history: list[StoredEntry]

    @property
    def head(self) -> ChainStep:
        """The newest commit."""
        return self.steps[-1]


def verify(
    head: CID,
    contents: BlockMap,
    here: Get,
    *,
    shallow: bool = False,
    since: CID | None = None,
    notes: Mapping[CID, CommitNote] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CommitChain:
    """Return a line from blocks that are known to be what their CIDs name; `here` is what the store has already.

    A `shallow` one may begin anywhere: it is the export of a single state. `since` is the commit before its first
    one, which was pruned where the line comes from. `notes` are those whose place among the blocks says nothing.
    """
    steps: list[ChainStep] = []
    cid: CID | None = head
    while cid is not None:
        data = contents.get(cid)
        if data is None:
            if here(cid) is None and not (steps and (shallow or cid == since)):
                raise ProofError("the line of commits is cut: one is missing", cid=str(cid))
            break
        commit = formats.parse(data)
        formats.verify(commit, didkey.parse(commit.did))
        steps.append(ChainStep(cid, commit, None))
        cid = commit.prev
    if not steps:
        raise FormatError("the head is no commit of this line", cid=str(head))
    adjacent = _notes(contents, {step.cid.raw for step in steps})
    steps = [step._replace(note=adjacent[step.cid][0]) if step.cid in adjacent else step for step in reversed(steps)]
    # Revs order snapshots everywhere; a chain that goes back in time would break every listing.
    if any(one.commit.rev >= two.commit.rev for one, two in pairwise(steps)):
        raise FormatError("the commits of the line are not in the order of their revs", head=str(head))
    parent_block = None if cid is None else here(cid)
    before = EMPTY_ROOT if parent_block is None else formats.parse(parent_block).data
    _walk(contents, here, steps, before, progress)
    all_notes = {**{at: note for at, (_, note) in adjacent.items()}, **(notes or {})}
    return CommitChain(steps, all_notes, contents, _history(contents, steps[-1], all_notes.get(head)))


def _history(contents: BlockMap, newest: ChainStep, note: CommitNote | None) -> list[StoredEntry]:
    """Return the history that the note on the newest commit names, whole; none where there is no note."""
    if note is None or not (note.entries or note.signature):
        return []
    commits.verify_note(newest.cid, note, didkey.parse(newest.commit.did))
    chain = object_history.walk_back(contents.get, note.position)
    written = object_history.remaining(chain).values()
    _check_values(contents, lambda _: None, [cids.parse_text(write.cid).raw for write in written if write.cid])
    return chain


def _walk(
    contents: BlockMap, here: Get, steps: list[ChainStep], before: CID, progress: Callable[[int, int], None] | None
) -> None:
    """Every tree is complete: its nodes in their places, a block for every key."""
    # Nodes are parsed once and kept: neighbouring trees share nearly all of them.
    get = Nodes(lambda cid: contents.get(cid) or (EMPTY_BLOCK if cid == EMPTY_ROOT else here(cid)), memory=1 << 16)
    count = 0
    for step in steps:
        for values in _values(contents, get, before, step.commit.data):
            _check_values(contents, here, values)
            count += 1
            if progress is not None and count % 1000 == 0:
                progress(count, len(contents))
        before = step.commit.data


def _values(contents: BlockMap, get: Nodes, before: CID, root: CID) -> Iterator[list[bytes]]:
    """Yield the values that a tree has and the one before had not, through every node that is new."""
    if before == EMPTY_ROOT and root in contents:  # all of it: a fraction of the work of comparing with nothing
        yield from mst.node_values(contents.raw, root)
    else:
        yield from ([cid.raw] for cid, is_node in mst_diff.fresh(get, before, root) if not is_node)


def _check_values(contents: BlockMap, here: Get, values: list[bytes]) -> None:
    """Records are there, with the pieces of their content."""
    get = contents.raw.get
    for raw in values:
        data = get(raw) or here(cids.parse(raw))
        if data is None:
            raise ProofError("a record is missing", cid=str(cids.parse(raw)))
        if LINK[0] in data and LINK in data and raw.startswith(cids.CBOR_PREFIX):  # one byte is found far sooner
            for link in object_checks.needs(cids.parse(raw), data):
                if link not in contents and here(link) is None:
                    raise ProofError("a piece of a record is missing", cid=str(link))


def _notes(contents: BlockMap, commit_cids: set[bytes]) -> dict[CID, tuple[CID, CommitNote]]:
    """Return the notes among the blocks, by the commit they are on: each follows its commit."""
    notes: dict[CID, tuple[CID, CommitNote]] = {}
    # In the stream a note follows its commit; a block there that is no note is simply not one.
    for commit, after in pairwise(contents.raw):
        if commit in commit_cids:
            try:
                about, note = commits.decode_note(contents.raw[after])
            except HoldproofError:
                continue
            if about.raw == commit:
                notes[about] = (cids.parse(after), note)
    return notes


COMMIT: Final = b"\xa6cdidx"
"""How a commit begins: a map of six, its first key `did` with a text of 24 bytes or more."""


class BlockSource:
    """Blocks of a store across transactions: each page of a long walk has one of its own."""

    tx: Tx

    def __init__(self) -> None:
        self._ready: dict[CID, bytes] = {}

    def expect(self, cids: Iterable[CID]) -> None:
        """Read blocks that will be asked for next, all at once."""
        self._ready = blocks.find_all(self.tx, cids)

    def __call__(self, cid: CID) -> bytes | None:
        """See Get."""
        return self._ready.pop(cid, None) or blocks.find(self.tx, cid)


def paged(database: Database, begin: Callable[[BlockSource], Iterator[T]], most: int) -> Iterator[list[T]]:
    """Yield what a long walk through the blocks of a store gives, a page a transaction."""
    walk = _Walk(begin)
    start = 0
    while page := database.read(partial(walk.page, start=start, most=most)).result():
        yield page
        start += len(page)


class _Walk(Generic[T]):
    """Stands somewhere in a walk.

    A transaction may run again, or break in the middle. So a page is asked for by where it starts; a walk that does not
    stand there begins anew and goes as far, for what is at a CID never changes.
    """

    def __init__(self, begin: Callable[[BlockSource], Iterator[T]]) -> None:
        self._begin = begin
        self._at = -1

    def page(self, tx: Tx, start: int, most: int) -> list[T]:
        """Return what comes after the first `start`; nothing at the end."""
        if self._at != start:
            self._source = BlockSource()
            self._stream = self._begin(self._source)
            self._at = 0
        skipped = start - self._at
        self._at = -1  # nowhere, should this break
        self._source.tx = tx
        deque(islice(self._stream, skipped), maxlen=0)
        items = [*islice(self._stream, most)]
        self._at = start + len(items)
        return items


class ChainContent(NamedTuple):
    """What a CAR is made of: commits after a tree, and the history after one of its entries."""

    line: list[ChainStep]
    before: CID
    history: HistoryPosition
    after: int

    def blocks(self, source: BlockSource, ns: str) -> Iterator[tuple[CID, bytes]]:
        """Yield the blocks; the same one may come twice."""
        yield from stream(source, self.line, self.before)
        yield from versions(source, ns, self.history, self.after)
