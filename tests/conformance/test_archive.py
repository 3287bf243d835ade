"""Archives: what comes back is what went out, to the bit; what is not whole never enters; no node is believed."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from harness.servers import IpfsNode
from holdproof import errors, sync
from holdproof.crypto import car, sealed
from holdproof.crypto import cid as cids
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory, flaws
from tests.receiver import Receiver

CID = "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm"
PATIENCE_S = 0.5


def fill(store: sync.Holdproof, rounds: int = 2) -> None:
    for turn in range(rounds):
        store.objects.apply(
            {
                f"o{number}": {"type": "t", "content": f"{turn} {number}", "meta": {"vector": [0.5, number + 0.25]}}
                for number in range(turn, 40, turn + 1)
            }
        )
        store.objects.put("long", type="t", content=str(turn) * 300_000)
        store.snapshots.create(f"turn {turn}", author="ada")


def everything(store: sync.Holdproof) -> Any:
    snapshots = [(each.cid, each.message, each.author) for each in store.snapshots.list().items]
    return store.objects.list(limit=1000).items, snapshots


class Archives(OnMemory):
    def test_what_is_imported_is_what_was_exported(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store)
        path = tmp_path / "deep" / "memory.car"
        made = store.archive.export_car(path)
        assert (made.mode, made.bytes, made.encrypted) == ("car", path.stat().st_size, False)
        did = store.snapshots.get().did
        with pytest.raises(errors.UnknownKeyError):
            other.archive.import_car(path)
        done = other.archive.import_car(path, did=did)
        assert (done.how, done.snapshots) == ("forward", 2)
        assert everything(other) == everything(store)
        assert other.archive.import_car(path, did=did).how == "same"
        other.archive.export_car(tmp_path / "again.car")
        assert (tmp_path / "again.car").read_bytes() == path.read_bytes()

    def test_an_older_state_is_refused_unless_forced(self, store: sync.Holdproof, tmp_path: Path) -> None:
        fill(store)
        then = everything(store)[0]
        store.archive.export_car(tmp_path / "a.car")
        store.objects.delete("o1")
        store.snapshots.create()
        with pytest.raises(errors.OlderStateError):
            store.archive.import_car(tmp_path / "a.car")
        assert store.archive.import_car(tmp_path / "a.car", force=True).how == "forced"
        assert everything(store)[0] == then

    def test_a_single_state_can_be_carried_alone(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store)
        store.archive.export_car(tmp_path / "alone.car", history=False)
        archive = car.load((tmp_path / "alone.car").read_bytes())
        assert str(archive.roots[0]) == store.snapshots.get().cid
        other.archive.import_car(tmp_path / "alone.car", did=store.snapshots.get().did)
        assert everything(other)[0] == everything(store)[0]
        assert len(other.snapshots.list().items) == 1

    def test_what_is_sealed_says_nothing_and_opens_only_with_its_passphrase(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store)
        path = tmp_path / "sealed"
        assert store.archive.export_car(path, encrypt="correct horse").encrypted
        assert sealed.is_sealed(path.read_bytes())
        assert b"object/" not in path.read_bytes()
        did = store.snapshots.get().did
        with pytest.raises(errors.InvalidInputError):
            other.archive.import_car(path, did=did)
        with pytest.raises(errors.ProofError):
            other.archive.import_car(path, did=did, passphrase="wrong")
        other.archive.import_car(path, did=did, passphrase="correct horse")
        assert everything(other) == everything(store)

    def test_a_flipped_byte_or_a_missing_block_lets_nothing_in(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store, 1)
        path = tmp_path / "a.car"
        store.archive.export_car(path)
        data, did = path.read_bytes(), store.snapshots.get().did
        whole = car.load(data)
        blocks = [*whole.blocks.items()]
        broken = [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in range(0, len(data), len(data) // 20)]
        broken += [data[: len(data) // 2], b"", data + b"\x00"]
        broken += [
            car.dump(whole.roots, blocks[:at] + blocks[at + 1 :]) for at in range(0, len(blocks), len(blocks) // 15)
        ]
        for wrong in broken:
            path.write_bytes(wrong)
            with pytest.raises(errors.FormatError):
                other.archive.import_car(path, did=did)
        assert everything(other) == ([], [])

    def test_what_came_along_uninvited_does_not_enter(
        self, store: sync.Holdproof, other: sync.Holdproof, tmp_path: Path
    ) -> None:
        fill(store, 1)
        path = tmp_path / "a.car"
        made = store.archive.export_car(path)
        whole = car.load(path.read_bytes())
        path.write_bytes(car.dump(whole.roots, [*whole.blocks.items(), (cids.of(b"\xa0"), b"\xa0")]))
        done = other.archive.import_car(path, did=store.snapshots.get().did)
        assert done.blocks < made.blocks

    def test_what_is_not_there_is_not_found(self, store: sync.Holdproof, tmp_path: Path) -> None:
        with pytest.raises(errors.NotFoundError):
            store.archive.export_car(tmp_path / "a.car")
        with pytest.raises(errors.NotFoundError):
            store.archive.import_car(tmp_path / "none.car")
        with pytest.raises(errors.InvalidInputError):
            store.archive.restore("no cid")


class TestOnSqlite(OnSqlite, Archives):
    pass


class TestInMemory(InMemory, Archives):
    pass


class TestOnPostgres(OnPostgres, Archives):
    def test_an_imported_snapshot_whose_entry_still_waits_for_the_sequencer_is_no_tampering(
        self, store: sync.Holdproof, tmp_path: Path
    ) -> None:
        with sync.open(url=":memory:") as other:
            other.objects.put("a", type="t", content="theirs")
            did = other.snapshots.create().did
            other.archive.export_car(tmp_path / "a.car")
        store.context.log.stop()  # a sequencer that is far behind
        store.archive.import_car(tmp_path / "a.car", did=did)
        assert store.log.pending() > 0
        assert flaws(store) == []
        assert [each for each in store.verify.run(lock=False).findings if each.verdict.locks] == []


# --- a real node -------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sync.Holdproof]:
    with sync.open(tmp_path / "home") as store:
        fill(store)
        yield store
        assert flaws(store) == []


@pytest.mark.parametrize(("mode", "encrypt"), [("dag", None), ("file", None), ("file", "correct horse")])
def test_what_a_node_gives_back_is_what_it_was_given(
    store: sync.Holdproof, other: sync.Holdproof, ipfs_node: IpfsNode, mode: Any, encrypt: str | None
) -> None:
    made = store.archive.push(mode=mode, encrypt=encrypt, node=ipfs_node.url)
    other.archive.restore(made.cid, did=store.snapshots.get().did, node=ipfs_node.url, passphrase=encrypt)
    assert everything(other) == everything(store)


def test_the_tools_of_a_model_answer_with_sentences(store: sync.Holdproof, ipfs_node: IpfsNode) -> None:
    said = store.memory.checkpoint_memory(node=ipfs_node.url)
    assert said.startswith("Local dump complete. IPFS CID: bafyrei")
    assert store.memory.restore_memory("ipfs", said.rpartition(" ")[2], node=ipfs_node.url) == "Restored from network."


# --- nodes that misbehave ----------------------------------------------------------------------------------------


def answering(body: bytes, status: int = 200, *, wait_s: float = 0.0) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(body) + (100 if wait_s else 0)))
        handler.end_headers()
        handler.wfile.write(body)
        handler.wfile.flush()
        time.sleep(wait_s)

    return answer


def root(cid: str, **more: str) -> bytes:
    return json.dumps({"Root": {"Cid": {"/": cid}, "PinErrorMsg": "", **more}}).encode()


NODES: dict[str, Any] = {
    "lies about the root": answering(root(CID)),
    "hides that it could not pin": answering(root(CID, PinErrorMsg="disk on fire")),
    "answers nothing of what was asked": answering(b"{}"),
    "answers garbage": answering(b"<html>"),
    "refuses": answering(b'{"Message": "no"}', 500),
    "hangs in the middle": answering(b'{"Root"', wait_s=PATIENCE_S * 3),
}


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for ever."""
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.02)


def test_a_node_that_never_ends_costs_no_more_than_the_budget(
    store: sync.Holdproof, serve: Callable[..., Receiver]
) -> None:
    node = serve(dripping).url
    for run in (
        partial(store.archive.restore, CID, node=node),
        partial(store.archive.restore, CID, gateway=node),
        partial(store.archive.push, node=node),
    ):
        with pytest.raises(errors.UnreachableError, match="longer"):
            run(idle_s=PATIENCE_S, budget_s=0.2)


def exported_root(store: sync.Holdproof, folder: Path) -> str:
    return store.archive.export_car(folder / "for-its-root.car").cid


@pytest.mark.parametrize("pins", [b"{}", b'{"Pins": null}', b'{"Pins": []}', json.dumps({"Pins": [CID]}).encode()])
def test_a_node_that_does_not_say_that_it_pinned_is_not_believed(
    store: sync.Holdproof, serve: Callable[..., Receiver], tmp_path: Path, pins: bytes
) -> None:
    node = serve(answering(root(exported_root(store, tmp_path))), answering(pins))
    with pytest.raises(errors.UnreachableError, match="did not pin"):
        store.archive.push(node=node.url)
    assert store.memory.checkpoint_memory(node=serve(answering(b"{}")).url) == "Local dump complete. IPFS CID: FAILED"


def test_a_node_that_lost_what_it_took_is_a_typed_error(
    store: sync.Holdproof, serve: Callable[..., Receiver], tmp_path: Path
) -> None:
    missing = answering(b'{"Message": "ipld: could not find bafyreia"}', 500)
    with pytest.raises(errors.UnreachableError, match="could not find"):
        store.archive.push(node=serve(answering(root(exported_root(store, tmp_path))), missing).url)
    with pytest.raises(errors.UnreachableError, match="could not find"):
        store.archive.push(mode="file", node=serve(answering(b'{"Hash": "bafkreiabc"}'), missing).url)


@pytest.mark.parametrize("url", ["http://[::1", "http://a b", "nonsense"])
def test_an_address_that_is_none_is_a_typed_error(store: sync.Holdproof, url: str) -> None:
    for run in (
        partial(store.archive.restore, CID, node=url),
        partial(store.archive.restore, CID, gateway=url),
        partial(store.archive.push, node=url),
    ):
        with pytest.raises(errors.UnreachableError):
            run()


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("mode", ["dag", "file"])
def test_a_node_that_misbehaves_is_a_typed_error_in_time(
    store: sync.Holdproof, serve: Callable[..., Receiver], name: str, mode: Any
) -> None:
    before, begun = everything(store), time.monotonic()
    with pytest.raises(errors.UnreachableError):
        store.archive.push(mode=mode, node=serve(NODES[name]).url, idle_s=PATIENCE_S)
    assert time.monotonic() - begun < 30
    assert everything(store) == before


@pytest.mark.parametrize("call", ["push", "restore"])
def test_a_daemon_that_is_down_is_a_typed_error(store: sync.Holdproof, call: str) -> None:
    nobody = "http://127.0.0.1:9"
    run = partial(store.archive.restore, CID) if call == "restore" else store.archive.push
    with pytest.raises(errors.UnreachableError):
        run(node=nobody)
    assert store.memory.checkpoint_memory(node=nobody) == "Local dump complete. IPFS CID: FAILED"
    assert store.memory.restore_memory("ipfs", CID, node=nobody) == "IPFS restore failed."
    assert store.memory.restore_memory("local") == "Restored from disk."


def test_a_file_that_comes_back_otherwise_is_noticed(store: sync.Holdproof, serve: Callable[..., Receiver]) -> None:
    node = serve(answering(b'{"Hash": "bafkreiabc"}'), answering(b"something else"))
    with pytest.raises(errors.UnreachableError, match="something else"):
        store.archive.push(mode="file", node=node.url)


def test_a_tampered_or_cut_archive_from_a_node_lets_nothing_in(
    store: sync.Holdproof, other: sync.Holdproof, serve: Callable[..., Receiver], tmp_path: Path
) -> None:
    made = store.archive.export_car(tmp_path / "a.car")
    data, did = (tmp_path / "a.car").read_bytes(), store.snapshots.get().did
    for wrong in (data[:-1], data[: len(data) // 2], data[:500] + b"\x00" + data[501:], b"", b"<html>"):
        with pytest.raises(errors.FormatError):
            other.archive.restore(made.cid, did=did, node=serve(answering(wrong)).url, idle_s=PATIENCE_S)
    with pytest.raises(errors.FormatError):
        other.archive.restore(CID, did=did, node=serve(answering(data)).url)
    assert everything(other) == ([], [])
    assert other.archive.restore(made.cid, did=did, node=serve(answering(data)).url).how == "forward"


def test_a_link_to_elsewhere_goes_only_as_a_file(store: sync.Holdproof) -> None:
    store.objects.put("linked", type="t", attributes={"see": cids.parse_text(CID), "raw": cids.of_raw(b"far away")})
    store.snapshots.create()
    with pytest.raises(errors.InvalidInputError, match="links to what is not in this store"):
        store.archive.push()
    with pytest.raises(errors.InvalidInputError):
        store.archive.push(mode="dag", encrypt="x")
    with pytest.raises(errors.InvalidInputError):
        store.archive.push(mode="else")  # type: ignore[arg-type]
