"""`scitt-cose` accepts the COSE receipts of our entries (RFC 9942), and refuses every tampered copy."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.crypto import keys, vkey
from holdproof.evidence.receipts import Receipt
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite, sound

scitt = pytest.importorskip("scitt_cose", reason="not installed: pip install scitt-cose")
cbor2 = pytest.importorskip("cbor2", reason="not installed: pip install scitt-cose")


def _filled(store: sync.Holdproof) -> str:
    """Record a few evaluations, and return the handle of one of them."""
    for number in range(9):
        store.evaluations.submit({"n": number}, evaluation_id=f"e-{number}", score=0.5)
    settled(store)
    [handle] = {each.event.entry for each in store.log.list(kind="dbom").items if "evaluation e-4 " in each.event.what}
    return str(handle)


def _judge(receipt: bytes, entry: str, pem: bytes) -> Any:
    return scitt.verify_receipt(receipt, leaf_entry_hex=entry.encode().hex(), log_public_key_pem=pem)


def _pem(store: sync.Holdproof) -> bytes:
    (line,) = store.log.verifier_keys()
    return vkey.parse(line).public.to_pem()


class Receipts:
    open: Any

    def test_scitt_cose_accepts_the_receipt_of_an_entry(self) -> None:
        with self.open() as store:
            receipt = store.log.receipt(_filled(store))
            outcome = _judge(receipt.file, receipt.entry, _pem(store))
            assert outcome.ok, outcome.errors
            assert (outcome.leaf_index, outcome.tree_size) == (receipt.index, receipt.size)
            assert (outcome.issuer, outcome.subject) == (receipt.origin, store.log.get(str(receipt.index)).event.entry)
            assert store.log.receipt(outcome.subject).file == receipt.file, "one entry under one head has one receipt"
            with pytest.raises(errors.NotFoundError):
                store.log.receipt("of nothing")
            sound(store)


class TestReceiptsOnSqlite(Receipts, StoreOnSqlite):
    pass


class TestReceiptsInMemory(Receipts, StoreInMemory):
    pass


class TestReceiptsOnPostgres(Receipts, StoreOnPostgres):
    pass


def _parts(receipt: bytes) -> list[Any]:
    return list(cbor2.loads(receipt).value)


def _packed(parts: list[Any]) -> bytes:
    return bytes(cbor2.dumps(cbor2.CBORTag(18, parts)))


def _with_proof(change: Callable[[list[Any]], list[Any]]) -> Callable[[bytes], bytes]:
    """Return a tampering of the inclusion proof."""

    def tamper(receipt: bytes) -> bytes:
        parts = _parts(receipt)
        (proof,) = parts[1][396][-1]
        changed = cbor2.dumps(change(list(cbor2.loads(proof))))
        return _packed([parts[0], {396: {-1: [changed]}}, *parts[2:]])

    return tamper


def _with_header(label: int, value: object) -> Callable[[bytes], bytes]:
    """Return a tampering of one label of the protected header."""

    def tamper(receipt: bytes) -> bytes:
        parts = _parts(receipt)
        header = dict(cbor2.loads(parts[0]))
        return _packed([cbor2.dumps({**header, label: value}), *parts[1:]])

    return tamper


def _flipped(receipt: bytes) -> bytes:
    *start, signature = _parts(receipt)
    return _packed([*start, bytes([signature[0] ^ 1, *signature[1:]])])


TAMPERINGS: dict[str, Callable[[bytes], bytes]] = {
    "signature flipped": _flipped,
    "index moved": _with_proof(lambda proof: [proof[0], proof[1] ^ 1, proof[2]]),
    # The root is signed, the size is not: by one more leaf the same path may lead to the same root.
    "tree grown": _with_proof(lambda proof: [proof[0] << 8, *proof[1:]]),
    "path reversed": _with_proof(lambda proof: [*proof[:2], list(reversed(proof[2]))]),
    "path cut": _with_proof(lambda proof: [*proof[:2], list(proof[2])[:-1]]),
    "sibling edited": _with_proof(lambda proof: [*proof[:2], [bytes(32), *list(proof[2])[1:]]]),
    "another log": _with_header(15, {1: "elsewhere.example", 2: "x"}),
    "another key id": _with_header(4, bytes(32)),
    "another structure": _with_header(395, 2),
    "root attached": lambda receipt: _packed([*_parts(receipt)[:2], bytes(32), _parts(receipt)[3]]),
    "cut short": lambda receipt: receipt[:-1],
    "a byte more": lambda receipt: receipt + b"\x00",
}


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Receipt, bytes]:
    with sync.open(tmp_path_factory.mktemp("receipts")) as store:
        return store.log.receipt(_filled(store)), _pem(store)


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_scitt_cose_refuses_a_tampered_receipt(proven: tuple[Receipt, bytes], tampering: str) -> None:
    receipt, pem = proven
    tampered = TAMPERINGS[tampering](receipt.file)
    assert tampered != receipt.file
    assert not _judge(tampered, receipt.entry, pem).ok


def test_a_receipt_fits_no_other_entry_and_no_other_key(proven: tuple[Receipt, bytes]) -> None:
    receipt, pem = proven
    assert not _judge(receipt.file, receipt.entry.replace('"ver":1', '"ver":2'), pem).ok
    assert not _judge(receipt.file, receipt.entry, keys.generate("ed25519").public.to_pem()).ok
