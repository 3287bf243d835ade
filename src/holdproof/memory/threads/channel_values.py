"""Values of threads: bytes under their SHA-256, lists as Merkle lists of elements, each stored once in its thread.

A value stands in a checkpoint as a small reference, a DAG-CBOR list:

    [0, tag, bytes]               at most 96 bytes, in place
    [1, tag, sha256]              a block
    [2, tag, root, n, hashes]     a list: the Merkle list of the hashes of its first n elements (n is a multiple of 8;
                                  root is null where n is 0), and the hashes of the others, one after the other

Rules:
- A list that has grown costs its new elements, and every eighth one a leaf and the nodes above it; the hashes that
  make no whole eight yet stand in the reference. The same elements give the same reference, however they came.
- Blocks belong to one thread: what a thread had goes with it, whatever other threads have.
- A block is hashed before it is written and after it is read. One that is missing is a ProofError.
- An element whose bytes are not given must be there already, else NotFoundError: the caller gives them all then.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor_fast, mlist
from holdproof.crypto.cid import CID
from holdproof.db import Tx, sql
from holdproof.errors import FormatError, InvalidInputError, NotFoundError, ProofError
from holdproof.model.threads import EncodedList, EncodedValue

STEP: Final = 8
PLAIN: Final = "dag-cbor"
"""The tag of values that nobody encoded before they came here."""
MOST: Final = 2**26
_INLINE: Final = 96
_HASH: Final = 32
_ASKED: Final = 500
_TAG: Final = 100

Digest = bytes
Get = Callable[[Digest], bytes | None]
Cached = Callable[[Iterable[Digest]], Collection[Digest]]
"""Says which of these elements need not be read."""


class InlineRef(NamedTuple):
    """A value that stands in its reference."""

    tag: str
    data: bytes


class BlockRef(NamedTuple):
    """A value in a block."""

    tag: str
    digest: Digest


class ListRef(NamedTuple):
    """A list: of its first `size` elements the root, of the others the hashes."""

    tag: str
    root: Digest | None
    size: int
    tail: tuple[Digest, ...]


Ref = InlineRef | BlockRef | ListRef

# --- blocks ------------------------------------------------------------------------------------------------------

_PUT = sql("INSERT INTO thread_blocks (thread, h, data) VALUES (:thread, :h, :data) ON CONFLICT (thread, h) DO NOTHING")
_ONE = sql("SELECT data FROM thread_blocks WHERE thread = :thread AND h = :h")
_SOME = sql(
    "SELECT h, data FROM thread_blocks WHERE thread = :thread AND h IN (SELECT unhex(value) FROM json_each(:wanted))",
    postgres="SELECT h, data FROM thread_blocks WHERE thread = :thread AND h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:wanted AS JSON)))",
)
_HELD = sql(
    "SELECT h FROM thread_blocks WHERE thread = :thread AND h IN (SELECT unhex(value) FROM json_each(:wanted))",
    postgres="SELECT h FROM thread_blocks WHERE thread = :thread AND h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:wanted AS JSON)))",
)


class ThreadBlocks:
    """The blocks of one thread, within a transaction."""

    def __init__(self, tx: Tx, thread: int) -> None:
        self.tx = tx
        self.thread = thread
        self.fresh: dict[Digest, bytes] = {}

    def add(self, digest: Digest, data: bytes) -> None:
        """A block to be written by `flush`."""
        if len(data) > MOST:
            raise InvalidInputError("a value of a thread has at most 64 MiB", size=len(data), limit=MOST)
        if sha256(data).digest() != digest:
            raise InvalidInputError("a block of a thread is not what its SHA-256 says", sha256=digest.hex())
        self.fresh[digest] = data

    def flush(self, ns: str, size: int) -> None:
        """Write what was added and is not there yet, for a row of so many bytes in a thread of the namespace."""
        if self.tx.limiter is not None:
            # Here, since most checkpoints have no entry that it could be counted with.
            self.tx.limiter.store(self.tx, ns, size + sum(map(len, self.fresh.values())))
        if self.fresh:
            self.tx.many(_PUT, [{"thread": self.thread, "h": h, "data": data} for h, data in self.fresh.items()])
            self.fresh = {}

    def find(self, digest: Digest) -> bytes | None:
        """Return a block as it is stored; None where there is none."""
        if digest in self.fresh:
            return self.fresh[digest]
        return next((data for (data,) in self.tx.all(_ONE, thread=self.thread, h=digest)), None)

    def node(self, cid: CID) -> bytes | None:
        """Return a node of a list, as Merkle lists ask for it; they hash it themselves."""
        return self.find(cid.digest)

    def missing(self, digests: Iterable[Digest]) -> list[Digest]:
        """Return which of these blocks are not there."""
        unwritten = [digest for digest in dict.fromkeys(digests) if digest not in self.fresh]
        present = {h for part in _parts(unwritten) for (h,) in self.tx.all(_HELD, thread=self.thread, wanted=part)}
        return [digest for digest in unwritten if digest not in present]

    def read(self, digests: Iterable[Digest]) -> dict[Digest, bytes]:
        """Return these blocks, hashed; ProofError where one is missing or another."""
        unique = list(dict.fromkeys(digests))
        blocks: dict[Digest, bytes] = {}
        for part in _parts(unique):
            blocks.update(self.tx.all(_SOME, thread=self.thread, wanted=part))
        for digest in unique:
            if digest not in blocks:
                raise ProofError("a block of a thread is missing", sha256=digest.hex())
            if sha256(blocks[digest]).digest() != digest:
                raise ProofError("a block of a thread is damaged or was exchanged", sha256=digest.hex())
        return blocks


def _parts(digests: list[Digest]) -> Iterator[str]:
    for start in range(0, len(digests), _ASKED):
        yield json.dumps([digest.hex() for digest in digests[start : start + _ASKED]])


# --- lists -------------------------------------------------------------------------------------------------------


T = TypeVar("T")


class LruCache(Generic[T]):
    """The last few of what a hash says all about: so it never has to be forgotten in time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[Digest, T] = OrderedDict()

    def get(self, root: Digest) -> T | None:
        """Return what is remembered under a hash."""
        with self._lock:
            value = self._known.get(root)
            if value is not None:
                self._known.move_to_end(root)
            return value

    def keep(self, root: Digest, value: T) -> None:
        """Remember it."""
        with self._lock:
            self._known[root] = value
            self._known.move_to_end(root)
            while len(self._known) > self._most:
                self._known.popitem(last=False)


_MEMO: Final[LruCache[tuple[Digest, ...]]] = LruCache(256)


def hashes(space: ThreadBlocks, listed: ListRef) -> tuple[Digest, ...]:
    """Return the hashes of all elements of a list."""
    if listed.root is None:
        return listed.tail
    head = _MEMO.get(listed.root)
    if head is None:
        head = read_leaves(space, listed.root)
        _MEMO.keep(listed.root, head)
    # A root determines its leaves, not their number as the reference claims it: a forged reference is caught here.
    if len(head) != listed.size:
        raise FormatError("a list of a thread has another length than its reference says", sha256=listed.root.hex())
    return head + listed.tail


def read_leaves(space: ThreadBlocks, root: Digest) -> tuple[Digest, ...]:
    """Return the hashes below a root, read from its blocks."""
    leaves = tuple(mlist.walk(space.node, _cid(root)))
    if not all(isinstance(each, bytes) and len(each) == _HASH for each in leaves):
        raise FormatError("a list of a thread holds what is no hash", sha256=root.hex())
    return cast("tuple[Digest, ...]", leaves)


def _cid(digest: Digest) -> CID:
    return CID(cids.CBOR_PREFIX + digest)


def _store_list(space: ThreadBlocks, run: EncodedList, before: Ref | None) -> ListRef:
    """Return the reference of a list; what it has in common with the one before is not written again."""
    digests = run.digests
    old: tuple[Digest, ...] = hashes(space, before) if isinstance(before, ListRef) else ()
    # Only full groups of eight enter the tree; the rest stays in the reference, so most appends write no node.
    size = len(digests) - len(digests) % STEP
    # The usual case is a list that has grown at its end: then only the new elements are looked at.
    same = digests[: len(old)] == old
    _elements(space, run, digests[len(old) :] if same else {*digests}.difference(old))
    tree: mlist.List | None = None
    root: Digest | None = None
    closed = before.size if isinstance(before, ListRef) else 0
    if isinstance(before, ListRef) and 0 < closed <= size and digests[:closed] == old[:closed]:
        root = cast("Digest", before.root)
        if closed < size:
            tree = mlist.append(space.node, _cid(root), list(digests[closed:size]))
    elif size:
        tree = mlist.build(list(digests[:size]))
    if tree is not None:
        root = tree.root.digest
        for cid, data in tree.blocks.items():
            space.add(cid.digest, data)
        _MEMO.keep(root, digests[:size])
    return ListRef(run.tag, root, size, digests[size:])


def _elements(space: ThreadBlocks, run: EncodedList, digests: Iterable[Digest]) -> None:
    """Write elements that the list before did not have."""
    absent = []
    for digest in digests:
        if type(digest) is not bytes or len(digest) != _HASH:
            raise InvalidInputError("the elements of a list are named by their SHA-256")
        data = run.data.get(digest)
        if data is None:
            absent.append(digest)
        else:
            space.add(digest, data)
    if absent and (missing := space.missing(absent)):
        raise NotFoundError("an element of a list is not known here: give its bytes", sha256=missing[0].hex())


# --- references --------------------------------------------------------------------------------------------------


def store(space: ThreadBlocks, value: Any, before: Ref | None = None) -> Ref:
    """Keep a value: encoded ones as they are, others as DAG-CBOR; its reference. `before` is the last one's."""
    if isinstance(value, EncodedList):
        return _store_list(space, _tagged(value), before)
    if isinstance(value, EncodedValue):
        tag = _tagged(value).tag
        data = value.data
    elif type(value) is list:
        return _store_list(space, EncodedList.of(PLAIN, map(dagcbor_fast.encode, value)), before)
    else:
        tag = PLAIN
        data = dagcbor_fast.encode(value)
    if not isinstance(data, bytes):
        raise InvalidInputError("the data of a value are bytes", tag=tag)
    if len(data) <= _INLINE:
        return InlineRef(tag, data)
    digest = sha256(data).digest()
    space.add(digest, data)
    return BlockRef(tag, digest)


def _tagged(value: Any) -> Any:
    if not isinstance(value.tag, str) or not 0 < len(value.tag) <= _TAG:
        raise InvalidInputError("the tag of a value is a text of 1 to 100 characters", tag=str(value.tag)[:100])
    return value


def decode(fields: Any) -> Ref:
    """Return a reference as it was written; FormatError where it is none."""
    match fields:
        case [0, str(tag), bytes(data)]:
            return InlineRef(tag, data)
        case [1, str(tag), bytes(digest)] if len(digest) == _HASH:
            return BlockRef(tag, digest)
        case [2, str(tag), (bytes() | None) as root, int(size), bytes(tail)] if _fits(root, size, tail):
            return ListRef(tag, root, size, tuple(tail[at : at + _HASH] for at in range(0, len(tail), _HASH)))
    raise FormatError("a reference of a thread is malformed")


def _fits(root: bytes | None, size: int, tail: bytes) -> bool:
    whole = size % STEP == 0 and len(tail) % _HASH == 0 and len(tail) < STEP * _HASH
    return whole and (size == 0 if root is None else size > 0 and len(root) == _HASH)


def needs(space: ThreadBlocks, refs: Iterable[Ref], cached: Cached | None = None) -> dict[Digest, None]:
    """Return the blocks with the content of values, without those of lists' nodes and of elements that are cached."""
    digests: dict[Digest, None] = {}
    elements: dict[Digest, None] = {}
    for ref in refs:
        if isinstance(ref, BlockRef):
            digests[ref.digest] = None
        elif isinstance(ref, ListRef):
            # Plain elements are decoded here: their bytes are needed whatever the caller has.
            (digests if ref.tag == PLAIN else elements).update(dict.fromkeys(hashes(space, ref)))
    if cached is not None and elements:
        present = cached(elements)
        elements = {digest: None for digest in elements if digest not in present}
    return digests | elements


def nodes(space: ThreadBlocks, ref: Ref) -> Iterator[Digest]:
    """Yield the blocks of a list's nodes."""
    if not isinstance(ref, ListRef) or ref.root is None:
        return
    waiting = [_cid(ref.root)]
    while waiting:
        cid = waiting.pop()
        yield cid.digest
        node = cast("dict[str, Any]", dagcbor_fast.decode(space.read([cid.digest])[cid.digest]))
        if node.get("h"):
            waiting += node["c"][1::2]


def value(space: ThreadBlocks, ref: Ref, content: Mapping[Digest, bytes]) -> Any:
    """Return what a reference stands for; plain values as they were given, others still encoded."""
    match ref:
        case InlineRef(tag, data):
            encoded: Any = EncodedValue(tag, data)
        case BlockRef(tag, digest):
            encoded = EncodedValue(tag, content[digest])
        case ListRef(tag):
            order = hashes(space, ref)
            # What is missing was read and not there, or is cached by the caller: the first was refused by `read`.
            encoded = EncodedList(tag, order, {digest: content[digest] for digest in order if digest in content})
    if encoded.tag != PLAIN:
        return encoded
    if isinstance(encoded, EncodedValue):
        return dagcbor_fast.decode(encoded.data)
    return [dagcbor_fast.decode(element) for element in encoded.elements]
