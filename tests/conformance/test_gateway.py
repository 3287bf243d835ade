"""Restoring through a trustless gateway: everything is verified here, so whoever serves it need not be trusted."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from harness.ipfs_gateway import Bend, Gateway, send
from holdproof import errors, sync
from holdproof.crypto import car
from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from tests.conformance.memories import flaws


class Archive:
    """What a store exported: its blocks, the root, and whose key signed."""

    def __init__(self, folder: Path) -> None:
        with sync.open(url=":memory:") as store:
            for turn in range(3):
                store.objects.apply(
                    {f"o{n}": {"type": "t", "content": [turn, n], "meta": {"vector": [0.5, n]}} for n in range(40)}
                )
                store.snapshots.create(str(turn))
            store.objects.put("long", type="t", content="x" * 700_000)
            self.did = store.snapshots.create("long").did
            self.cid = store.archive.export_car(folder / "all.car").cid
            self.objects, self.line = store.objects.list(limit=100).items, store.snapshots.list().items
        found = car.load((folder / "all.car").read_bytes())
        self.root, self.blocks = found.roots[0], dict(found.blocks)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return Archive(tmp_path_factory.mktemp("archive"))


@pytest.fixture
def store() -> Iterator[sync.Holdproof]:
    with sync.open(url=":memory:") as store:
        yield store
        assert flaws(store) == []


def restore(store: sync.Holdproof, archive: Archive, *, bend: Bend | None = None, **options: float) -> Gateway:
    gateway = Gateway(archive.blocks, bend)
    try:
        store.archive.restore(archive.cid, gateway=gateway.url, did=archive.did, **options)  # type: ignore[arg-type]
    finally:
        gateway.close()
    return gateway


def test_a_memory_comes_back_bit_by_bit(store: sync.Holdproof, archive: Archive) -> None:
    gateway = restore(store, archive)
    assert (store.objects.list(limit=100).items, store.snapshots.list().items) == (archive.objects, archive.line)
    [(path, accepts)] = gateway.asked
    assert path == f"/ipfs/{archive.cid}?format=car&dag-scope=all"
    assert accepts == "application/vnd.ipld.car"


def shuffled(body: bytes) -> bytes:
    """The same blocks from the last to the first: no order is promised."""
    found = car.load(body)
    return car.dump(found.roots, reversed([*found.blocks.items()]))


def doubled(body: bytes) -> bytes:
    """Every block twice: gateways may send what links lead to as often as they do."""
    found = car.load(body)
    return car.dump(found.roots, [pair for pair in found.blocks.items() for _ in range(2)])


def beside(body: bytes) -> bytes:
    """One block more than was asked for."""
    found = car.load(body)
    return car.dump(found.roots, [*found.blocks.items(), (cids.of_raw(b"more"), b"more")])


@pytest.mark.parametrize("way", [shuffled, doubled, beside])
def test_what_is_another_way_to_say_the_same_is_taken(store: sync.Holdproof, archive: Archive, way: object) -> None:
    assert callable(way)
    restore(store, archive, bend=lambda handler, body: send(handler, way(body)))
    assert store.objects.list(limit=100).items == archive.objects


def without(body: bytes) -> bytes:
    found = car.load(body)
    lacking: dict[CID, bytes] = dict(found.blocks)
    del lacking[[*lacking][len(lacking) // 2]]
    return car.dump(found.roots, lacking.items())


def flipped(body: bytes) -> bytes:
    at = len(body) // 2
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def another_root(body: bytes) -> bytes:
    found = car.load(body)
    return car.dump([[*found.blocks][-1]], found.blocks.items())


LIES = {
    "a block is missing": without,
    "a bit is flipped": flipped,
    "it is cut between two blocks": lambda body: car.dump(
        car.load(body).roots, [*car.load(body).blocks.items()][: len(car.load(body).blocks) // 2]
    ),
    "it is cut anywhere": lambda body: body[: len(body) * 2 // 3],
    "it is another CAR": another_root,
    "it is a page": lambda _: b"<html>please log in</html>",
    "it is nothing": lambda _: b"",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_gateway_that_lies_is_found_out_and_nothing_is_touched(
    store: sync.Holdproof, archive: Archive, lie: object
) -> None:
    assert callable(lie)
    store.objects.put("mine", type="t", content="here")
    before = store.snapshots.create()
    with pytest.raises((errors.FormatError, errors.ProofError)):
        restore(store, archive, bend=lambda handler, body: send(handler, lie(body)))
    assert store.snapshots.get() == before
    assert [each.id for each in store.objects.list().items] == ["mine"]


def cut(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    send(handler, body[: len(body) // 2], length=len(body))


def drip(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Slowly, for ever: never idle, never done."""
    send(handler, b"", length=len(body))
    for at in range(0, len(body), 100):
        try:
            handler.wfile.write(body[at : at + 100])
            handler.wfile.flush()
        except OSError:
            return
        time.sleep(0.01)


TROUBLES: dict[str, Bend] = {
    "the connection breaks": cut,
    "it drips": drip,
    "it has no time": lambda handler, _: handler.send_error(503),
    "it is too much": lambda handler, _: handler.send_error(429),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_a_gateway_in_trouble_is_unreachable_in_bounded_time(
    store: sync.Holdproof, archive: Archive, trouble: Bend
) -> None:
    with pytest.raises(errors.UnreachableError):
        restore(store, archive, bend=trouble, budget_s=0.3)
    assert store.objects.list().items == []


def test_what_a_gateway_does_not_have_is_not_found(store: sync.Holdproof, archive: Archive) -> None:
    gateway = Gateway({})
    with pytest.raises(errors.NotFoundError):
        store.archive.restore(archive.cid, gateway=gateway.url, did=archive.did)
    gateway.close()


def test_the_gateway_of_these_tests_keeps_to_the_book(archive: Archive) -> None:
    """Raw blocks, and a scope of one block."""
    gateway = Gateway(archive.blocks)
    raw = httpx.get(f"{gateway.url}/ipfs/{archive.cid}?format=raw").content
    assert raw == archive.blocks[archive.root]
    one = httpx.get(f"{gateway.url}/ipfs/{archive.cid}?format=car&dag-scope=block").content
    assert dict(car.load(one).blocks) == {archive.root: raw}
    assert httpx.get(f"{gateway.url}/ipfs/{archive.cid}").status_code == 400
    gateway.close()
