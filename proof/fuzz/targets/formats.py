"""Content-addressed formats: what is accepted is the only way to write what it says."""

from collections.abc import Sequence
from functools import cache
from typing import Final

from holdproof.crypto import car, commit, dagcbor, dagcbor_fast, didkey, keys, mlist, mst, tid
from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.crypto.commit import Commit
from holdproof.errors import HoldproofError, ProofError
from proof.fuzz.targets.target import Target

KEY: Final = keys.from_seed(bytes(range(32)))
_LINK: Final = cids.of(b"")
_VALUES: Final[tuple[dagcbor.Value, ...]] = (
    {"v": 1, "id": "a", "content": "text ü", "children": ["b", "c"], "x": [1.5, None, True, -300]},
    [_LINK, {"l": _LINK, "e": [{"p": 7, "k": b"key", "t": None, "v": _LINK}]}],
    {"long": "x" * 300, "bytes": bytes(range(100)), "big": 2**60, "list": list(range(30))},
    [[[[[[[[{"deep": [0.5, -1, 2**64 - 1]}]]]]]]]],
)


def _dagcbor_seeds() -> Sequence[bytes]:
    return [dagcbor.encode(value) for value in _VALUES]


def _dagcbor(data: bytes) -> None:
    """The careful decoder and the fast one agree, and each value has one encoding."""
    try:
        value = dagcbor.decode(data)
    except HoldproofError as error:
        _refused_too(data, error)
        raise
    assert dagcbor.encode(value) == data, "two encodings of one value"
    assert repr(dagcbor_fast.decode(data)) == repr(value), "two decoders, two values"


def _refused_too(data: bytes, error: HoldproofError) -> None:
    try:
        dagcbor_fast.decode(data)
    except type(error):
        return
    raise AssertionError("the fast decoder accepts what the careful one refuses")


def _car_seeds() -> Sequence[bytes]:
    blocks = [(cids.of(data), data) for data in _dagcbor_seeds()]
    return [car.dump([blocks[0][0]], blocks), car.dump([], blocks[1:]), car.dump([cid for cid, _ in blocks], [])]


def _car(data: bytes) -> None:
    for cid, content in car.load(data).blocks.items():
        cids.verify(cid, content)


@cache
def _tree() -> tuple[mst.Tree, CID, bytes]:
    tree = mst.build((f"object/{number:03}", _LINK) for number in range(60))
    child, data = next((cid, data) for cid, data in tree.blocks.items() if cid != tree.root)
    return tree, child, data


def _mst(bad: bytes) -> None:
    """A damaged node under its true hash: both walks refuse it, or say the same."""
    tree, child, _ = _tree()
    renamed = {old: block.replace(child.raw, cids.of(bad).raw) for old, block in tree.blocks.items()}
    blocks = {cids.of(block): block for block in renamed.values()} | {cids.of(bad): bad}
    root = cids.of(renamed[tree.root])
    found = [*mst.walk(blocks.get, root)]
    assert found == sorted(set(found)), "a tree out of order"
    plain = {cid.raw: data for cid, data in blocks.items()}
    whole = [raw for values in mst.node_values(plain, root) for raw in values]
    assert len(whole) == len(found), "two walks, two trees"


@cache
def _list() -> mlist.List:
    return mlist.build(range(200))


def _mlist(bad: bytes) -> None:
    blocks = {**_list().blocks, cids.of(bad): bad}
    found = [*mlist.walk(blocks.get, cids.of(bad))]
    assert mlist.length(blocks.get, cids.of(bad)) == len(found), "a list that miscounts itself"


@cache
def _signed() -> bytes:
    judge = keys.load_private(keys.generate().to_pem())
    plain = Commit(didkey.encode(judge.public), mst.EMPTY_ROOT, tid.encode(1_700_000_000_000_000), _LINK)
    _JUDGE.append(judge.public)
    return commit.encode(commit.sign(plain, judge))


_JUDGE: Final[list[keys.PublicKey]] = []


def _commit(data: bytes) -> None:
    found = commit.parse(data)
    try:
        commit.verify(found, _JUDGE[0])
    except ProofError:
        return
    assert data == _signed(), "another commit under the same signature"


def _keys(data: bytes) -> None:
    """PEM of either half, or the name of a key."""
    if data.startswith(b"did:"):
        key = didkey.parse(data.decode(errors="replace"))
        assert didkey.encode(key).encode() == data, "two names of one key"
    elif b"PRIVATE" in data[:40]:
        keys.load_private(data, b"passphrase" if b"ENCRYPTED" in data[:40] else None)
    else:
        keys.load_public_pem(data)


def _key_seeds() -> Sequence[bytes]:
    pairs = [KEY, keys.generate()]
    halves = [half for key in pairs for half in (key.to_pem(), key.public.to_pem(), didkey.encode(key.public).encode())]
    return [*halves, keys.generate().to_pem(b"passphrase")]


TARGETS: Final = (
    Target("dag-cbor", _dagcbor_seeds, _dagcbor),
    Target("car", _car_seeds, _car),
    Target("mst", lambda: [_tree()[2]], _mst),
    Target("lists", lambda: [*_list().blocks.values()], _mlist),
    Target("commits", lambda: [_signed()], _commit),
    Target("keys", _key_seeds, _keys, (b"-----BEGIN PRIVATE KEY-----\n", b"-----END PUBLIC KEY-----\n", b"did:key:z")),
)
