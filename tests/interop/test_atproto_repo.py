"""npm `@atproto/repo` verifies what we export and refuses it damaged; we verify what it writes."""

import random
from pathlib import Path

import pytest

from holdproof.crypto import car, dagcbor, didkey, keys, mst, signatures, tid
from holdproof.crypto import cid as cids
from holdproof.crypto import commit as commits
from holdproof.crypto.cid import CID
from holdproof.crypto.commit import Commit
from holdproof.errors import FormatError
from tests.interop.npm import Node

PACKAGE = "@atproto/repo@0.9.1"

SCRIPT = """
const repo = require("@atproto/repo");
const { P256Keypair } = require("@atproto/crypto");
const { parseCid } = require("@atproto/lex-data");

const verdict = async (path, did, key) => {
  try {
    const found = await repo.verifyRepoCar(new Uint8Array(fs.readFileSync(path)), did, key);
    const creates = found.creates.map((c) => [c.collection + "/" + c.rkey, c.cid.toString()]);
    return { good: true, rev: found.commit.rev, creates };
  } catch (error) {
    return { good: false, error: String(error) };
  }
};

const root = async (keys, value) => {
  let tree = await repo.MST.create(new repo.MemoryBlockstore());
  for (const key of keys) tree = await tree.add(key, parseCid(value));
  return (await tree.getPointer()).toString();
};

const write = async (path, count) => {
  const storage = new repo.MemoryBlockstore();
  const key = await P256Keypair.create();
  const writes = [];
  for (let at = 0; at < count; at++)
    writes.push({ action: "create", collection: "com.example.note", rkey: "note-" + at, record: { at, n: "n" + at } });
  const made = await repo.Repo.create(storage, key.did(), key, writes);
  const parts = [];
  for await (const part of repo.getFullRepo(storage, made.cid)) parts.push(part);
  fs.writeFileSync(path, Buffer.concat(parts));
  return { did: key.did(), rev: made.commit.rev, root: made.cid.toString() };
};

const calls = { verdict, root, write };
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("atproto"), SCRIPT, PACKAGE)


KEY = keys.generate()
DID = didkey.encode(KEY.public)


def records(count: int) -> dict[str, bytes]:
    found = {}
    for number in range(count):
        value: dict[str, dagcbor.Value] = {"v": 1, "id": f"n{number}", "content": "ü" * (number % 40), "children": []}
        found[f"object/n{number}"] = dagcbor.encode({**value, "link": cids.of(b"x"), "bytes": b"\x00\xff"})
        found[f"meta/n{number}"] = dagcbor.encode({"v": 1, "vector": bytes(number % 64)})
    return found


def export(items: dict[str, bytes], *, sig: bytes | None = None) -> tuple[bytes, Commit]:
    """A repository as one CAR: commit, tree in preorder, records."""
    tree = mst.build(sorted((key, cids.of(data)) for key, data in items.items()))
    signed = commits.sign(Commit(DID, tree.root, tid.encode(1_700_000_000_000_000)), KEY)
    if sig is not None:
        signed = Commit(signed.did, signed.data, signed.rev, signed.prev, sig)
    head = commits.encode(signed)
    nodes = [(cid, tree.blocks[cid]) for cid, _ in mst.nodes(tree.blocks.get, tree.root)]
    leaves = [(cids.of(data), data) for _, data in sorted(items.items())]
    return car.dump([cids.of(head)], [(cids.of(head), head), *nodes, *leaves]), signed


def verify(data: bytes, did: str) -> tuple[Commit, dict[str, CID]]:
    """What a reader does: every hash, the signature, the owner, the tree, and that nothing is missing."""
    archive = car.load(data)
    (root,) = archive.roots
    head = commits.parse(archive.blocks.get(root, b""))
    commits.verify(head, didkey.parse(did))
    if head.did != did:
        raise FormatError("another owner")
    found = dict(mst.walk(archive.blocks.get, head.data))
    for value in found.values():
        dagcbor.decode(archive.blocks.get(value, b""))
    return head, found


def save(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def test_our_export_is_accepted_with_every_record(node: Node, tmp_path: Path) -> None:
    for count in (0, 1, 500):
        items = records(count)
        data, signed = export(items)
        (answer,) = node.run(["verdict", save(tmp_path, "good.car", data), DID, DID])
        assert answer.get("good"), answer
        assert answer["rev"] == signed.rev
        assert dict(answer["creates"]) == {k: str(cids.of(d)) for k, d in items.items()}
        assert verify(data, DID) == (signed, {key: cids.of(content) for key, content in items.items()})


def test_our_export_is_refused_after_one_flipped_byte_by_both(node: Node, tmp_path: Path) -> None:
    data, _ = export(records(20))
    rng = random.Random(6)
    places = sorted({0, 1, 5, 20, len(data) - 1, *(rng.randrange(len(data)) for _ in range(150))})
    calls = []
    for at in places:
        bad = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        with pytest.raises(FormatError):
            verify(bad, DID)
        calls.append(["verdict", save(tmp_path, f"{at}.car", bad), DID, DID])
    answers = node.run(*calls)
    accepted = [at for at, answer in zip(places, answers, strict=True) if answer["good"]]
    assert not accepted, [(at, data[at - 4 : at + 4].hex()) for at in accepted]


def test_a_missing_record_another_owner_and_another_key_are_refused_by_both(node: Node, tmp_path: Path) -> None:
    data, _ = export(records(20))
    archive = car.load(data)
    short = car.dump(archive.roots, list(archive.blocks.items())[:-1])
    stranger = didkey.encode(keys.generate().public)
    with pytest.raises(FormatError):
        verify(short, DID)
    with pytest.raises(FormatError):
        verify(data, stranger)
    path = save(tmp_path, "good.car", data)
    answers = node.run(
        ["verdict", save(tmp_path, "short.car", short), DID, DID],
        ["verdict", path, stranger, DID],
        ["verdict", path, DID, stranger],
    )
    assert [answer["good"] for answer in answers] == [False, False, False]


def test_the_high_twin_of_the_signature_is_refused_by_both(node: Node, tmp_path: Path) -> None:
    _, signed = export(records(3))
    s = int.from_bytes(signed.sig[32:], "big")
    twin, _ = export(records(3), sig=signed.sig[:32] + (signatures.P256_ORDER - s).to_bytes(32, "big"))
    with pytest.raises(FormatError):
        verify(twin, DID)
    (answer,) = node.run(["verdict", save(tmp_path, "twin.car", twin), DID, DID])
    assert not answer["good"]


def test_both_give_the_same_root_to_the_same_keys(node: Node) -> None:
    rng = random.Random(4)
    value = cids.of(b"value")
    sets = [[f"object/{rng.randrange(10**6)}" for _ in range(count)] for count in (0, 1, 2, 3, 10, 50, 300)]
    sets = [sorted(set(one), key=lambda _: rng.random()) for one in sets]
    answers = node.run(*(["root", one, str(value)] for one in sets))
    assert answers == [str(mst.build((key, value) for key in sorted(one)).root) for one in sets]


def test_we_verify_what_the_library_writes(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "theirs.car"
    (made,) = node.run(["write", str(path), 200])
    data = path.read_bytes()
    head, found = verify(data, made["did"])
    assert (head.did, head.rev) == (made["did"], made["rev"])
    assert set(found) == {f"com.example.note/note-{number}" for number in range(200)}
    assert str(car.load(data).roots[0]) == made["root"]
    assert mst.build(sorted(found.items())).root == head.data
    assert commits.encode(head) == car.load(data).blocks[car.load(data).roots[0]]
