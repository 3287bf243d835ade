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
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor_fast, mlist
from holdproof.crypto.cid import CID
from holdproof.db import Tx, sql
from holdproof.errors import FormatError, InvalidInputError, NotFoundError, ProofError
from holdproof.model.threads import Part, Run

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


class InPlace(NamedTuple):
    """A value that stands in its reference."""

    tag: str
    data: bytes


class Block(NamedTuple):
    """A value in a block."""

    tag: str
    digest: Digest


class Listed(NamedTuple):
    """A list: of its first `size` elements the root, of the others the hashes."""

    tag: str
    root: Digest | None
    size: int
    tail: tuple[Digest, ...]


Ref = InPlace | Block | Listed

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


class Space:
    """The blocks of one thread, within a transaction."""

    def __init__(self, tx: Tx, thread: int) -> None:
        self.tx, self.thread = tx, thread
        self.fresh: dict[Digest, bytes] = {}

    def add(self, digest: Digest, data: bytes) -> None:
        """A block to be written by `flush`."""
        if len(data) > MOST:
            raise InvalidInputError("a value of a thread has at most 64 MiB", size=len(data), limit=MOST)
        if sha256(data).digest() != digest:
            raise InvalidInputError("a block of a thread is not what its SHA-256 says", sha256=digest.hex())
        self.fresh[digest] = data

    def flush(self) -> None:
        """Write what was added and is not there yet."""
        if self.fresh:
            self.tx.many(_PUT, [{"thread": self.thread, "h": h, "data": data} for h, data in self.fresh.items()])
            self.fresh = {}

    def find(self, digest: Digest) -> bytes | None:
        """A block as it is stored; None where there is none."""
        if digest in self.fresh:
            return self.fresh[digest]
        row = self.tx.one(_ONE, thread=self.thread, h=digest)
        return None if row is None else row[0]

    def node(self, cid: CID) -> bytes | None:
        """A node of a list, as Merkle lists ask for it; they hash it themselves."""
        return self.find(cid.digest)

    def missing(self, wanted: Iterable[Digest]) -> list[Digest]:
        """Which of these blocks are not there."""
        asked = [digest for digest in dict.fromkeys(wanted) if digest not in self.fresh]
        held = {row[0] for part in _parts(asked) for row in self.tx.all(_HELD, thread=self.thread, wanted=part)}
        return [digest for digest in asked if digest not in held]

    def read(self, wanted: Iterable[Digest]) -> dict[Digest, bytes]:
        """These blocks, hashed; ProofError where one is missing or another."""
        asked = list(dict.fromkeys(wanted))
        found = {
            row[0]: row[1] for part in _parts(asked) for row in self.tx.all(_SOME, thread=self.thread, wanted=part)
        }
        for digest in asked:
            if digest not in found:
                raise ProofError("a block of a thread is missing", sha256=digest.hex())
            if sha256(found[digest]).digest() != digest:
                raise ProofError("a block of a thread is damaged or was exchanged", sha256=digest.hex())
        return found


def _parts(asked: list[Digest]) -> Iterator[str]:
    for start in range(0, len(asked), _ASKED):
        yield json.dumps([digest.hex() for digest in asked[start : start + _ASKED]])


# --- lists -------------------------------------------------------------------------------------------------------


T = TypeVar("T")


class Memo(Generic[T]):
    """The last few of what a hash says all about: so it never has to be forgotten in time."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._known: OrderedDict[Digest, T] = OrderedDict()

    def get(self, root: Digest) -> T | None:
        """What is remembered under a hash."""
        with self._lock:
            found = self._known.get(root)
            if found is not None:
                self._known.move_to_end(root)
            return found

    def keep(self, root: Digest, known: T) -> None:
        """Remember it."""
        with self._lock:
            self._known[root] = known
            self._known.move_to_end(root)
            while len(self._known) > self._most:
                self._known.popitem(last=False)


_MEMO: Final[Memo[tuple[Digest, ...]]] = Memo(256)


def hashes(space: Space, listed: Listed) -> tuple[Digest, ...]:
    """The hashes of all elements of a list."""
    if listed.root is None:
        return listed.tail
    known = _MEMO.get(listed.root)
    if known is None:
        known = walked(space, listed.root)
        _MEMO.keep(listed.root, known)
    if len(known) != listed.size:
        raise FormatError("a list of a thread has another length than its reference says", sha256=listed.root.hex())
    return known + listed.tail


def walked(space: Space, root: Digest) -> tuple[Digest, ...]:
    """The hashes below a root, read from its blocks."""
    found = tuple(mlist.walk(space.node, _cid(root)))
    if not all(isinstance(each, bytes) and len(each) == _HASH for each in found):
        raise FormatError("a list of a thread holds what is no hash", sha256=root.hex())
    return cast("tuple[Digest, ...]", found)


def _cid(digest: Digest) -> CID:
    return CID(cids.CBOR_PREFIX + digest)


def _grown(space: Space, run: Run, before: Ref | None) -> Listed:
    """The reference of a list; what it has in common with the one before is not written again."""
    wanted = run.digests
    known: tuple[Digest, ...] = hashes(space, before) if isinstance(before, Listed) else ()
    size = len(wanted) - len(wanted) % STEP
    same = wanted[: len(known)] == known
    _elements(space, run, wanted[len(known) :] if same else {*wanted}.difference(known))
    made: mlist.List | None = None
    root: Digest | None = None
    closed = before.size if isinstance(before, Listed) else 0
    if isinstance(before, Listed) and 0 < closed <= size and wanted[:closed] == known[:closed]:
        root = cast("Digest", before.root)
        if closed < size:
            made = mlist.append(space.node, _cid(root), list(wanted[closed:size]))
    elif size:
        made = mlist.build(list(wanted[:size]))
    if made is not None:
        root = made.root.digest
        for cid, data in made.blocks.items():
            space.add(cid.digest, data)
        _MEMO.keep(root, wanted[:size])
    return Listed(run.tag, root, size, wanted[size:])


def _elements(space: Space, run: Run, wanted: Iterable[Digest]) -> None:
    """Write elements that the list before did not have."""
    absent = []
    for digest in wanted:
        if type(digest) is not bytes or len(digest) != _HASH:
            raise InvalidInputError("the elements of a list are named by their SHA-256")
        data = run.data.get(digest)
        if data is None:
            absent.append(digest)
        else:
            space.add(digest, data)
    if absent and (lost := space.missing(absent)):
        raise NotFoundError("an element of a list is not known here: give its bytes", sha256=lost[0].hex())


# --- references --------------------------------------------------------------------------------------------------


def store(space: Space, value: Any, before: Ref | None = None) -> Ref:
    """Keep a value: encoded ones as they are, others as DAG-CBOR; its reference. `before` is the last one's."""
    if isinstance(value, Run):
        return _grown(space, _tagged(value), before)
    if isinstance(value, Part):
        tag, data = _tagged(value).tag, value.data
    elif type(value) is list:
        return _grown(space, Run.of(PLAIN, map(dagcbor_fast.encode, value)), before)
    else:
        tag, data = PLAIN, dagcbor_fast.encode(value)
    if not isinstance(data, bytes):
        raise InvalidInputError("the data of a value are bytes", tag=tag)
    if len(data) <= _INLINE:
        return InPlace(tag, data)
    digest = sha256(data).digest()
    space.add(digest, data)
    return Block(tag, digest)


def _tagged(value: Any) -> Any:
    if not isinstance(value.tag, str) or not 0 < len(value.tag) <= _TAG:
        raise InvalidInputError("the tag of a value is a text of 1 to 100 characters", tag=str(value.tag)[:100])
    return value


def decode(found: Any) -> Ref:
    """A reference as it was written; FormatError where it is none."""
    match found:
        case [0, str(tag), bytes(data)]:
            return InPlace(tag, data)
        case [1, str(tag), bytes(digest)] if len(digest) == _HASH:
            return Block(tag, digest)
        case [2, str(tag), (bytes() | None) as root, int(size), bytes(tail)] if _fits(root, size, tail):
            return Listed(tag, root, size, tuple(tail[at : at + _HASH] for at in range(0, len(tail), _HASH)))
    raise FormatError("a reference of a thread is malformed")


def _fits(root: bytes | None, size: int, tail: bytes) -> bool:
    whole = size % STEP == 0 and len(tail) % _HASH == 0 and len(tail) < STEP * _HASH
    return whole and (size == 0 if root is None else size > 0 and len(root) == _HASH)


def needs(space: Space, refs: Iterable[Ref]) -> dict[Digest, None]:
    """The blocks with the content of values, without those of lists' nodes."""
    found: dict[Digest, None] = {}
    for ref in refs:
        if isinstance(ref, Block):
            found[ref.digest] = None
        elif isinstance(ref, Listed):
            found.update(dict.fromkeys(hashes(space, ref)))
    return found


def nodes(space: Space, ref: Ref) -> Iterator[Digest]:
    """The blocks of a list's nodes."""
    if not isinstance(ref, Listed) or ref.root is None:
        return
    waiting = [_cid(ref.root)]
    while waiting:
        cid = waiting.pop()
        yield cid.digest
        found = cast("dict[str, Any]", dagcbor_fast.decode(space.read([cid.digest])[cid.digest]))
        if found.get("h"):
            waiting += found["c"][1::2]


def value(space: Space, ref: Ref, content: Mapping[Digest, bytes]) -> Any:
    """What a reference stands for; plain values as they were given, others still encoded."""
    match ref:
        case InPlace(tag, data):
            found: Any = Part(tag, data)
        case Block(tag, digest):
            found = Part(tag, content[digest])
        case Listed(tag):
            order = hashes(space, ref)
            found = Run(tag, order, {digest: content[digest] for digest in order})
    if found.tag != PLAIN:
        return found
    if isinstance(found, Part):
        return dagcbor_fast.decode(found.data)
    return [dagcbor_fast.decode(element) for element in found.elements]
