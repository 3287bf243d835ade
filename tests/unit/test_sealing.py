"""Sealing: what belongs to a person opens with that person's key, and never again once it is destroyed."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof import errors, sql, sync
from holdproof.content import encryption
from holdproof.db import MEMORY, Database, open_database
from holdproof.testing.clocks import FrozenClock, SeededRandom

_FACTS = sql("SELECT value FROM store_facts")
_SUBJECTS = sql("SELECT * FROM subjects")


@pytest.fixture
def db() -> Iterator[Database]:
    with closing(open_database(MEMORY)) as database:
        yield database


def seal(db: Database, subject: str, plaintext: bytes) -> bytes:
    return db.write(lambda tx: encryption.seal(tx, subject, plaintext)).result()


def opened(db: Database, sealed: bytes) -> bytes:
    return db.read(lambda tx: encryption.open(tx, sealed)).result()


def test_what_was_sealed_opens_again_and_shows_nothing(db: Database) -> None:
    sealed = seal(db, "Ada", b"likes engines")
    assert opened(db, sealed) == b"likes engines"
    assert b"engines" not in sealed
    assert seal(db, "Ada", b"likes engines") != sealed, "two envelopes of the same content do not show that they are"
    assert sealed[: len(encryption.MAGIC)] == encryption.MAGIC
    assert len(sealed) == 4 + 16 + 12 + len(b"likes engines") + 16


@given(st.binary(max_size=200))
def test_any_bytes_come_back(plaintext: bytes) -> None:
    with closing(open_database(MEMORY)) as db:
        assert opened(db, seal(db, "Ada", plaintext)) == plaintext


def test_a_subject_has_one_handle_in_a_namespace_and_no_name_anywhere(db: Database) -> None:
    first, second = seal(db, "Ada Lovelace", b"1"), seal(db, "Ada Lovelace", b"2")
    assert encryption.subject_of(first) == encryption.subject_of(second)
    other = db.write(lambda tx: encryption.seal(tx, "Ada Lovelace", b"3", ns="other")).result()
    assert encryption.subject_of(other) != encryption.subject_of(first)
    everything = repr(db.read(lambda tx: (tx.all(_SUBJECTS), tx.all(_FACTS))).result())
    assert "Lovelace" not in everything
    assert "Lovelace" not in first.decode("latin-1")


def test_names_are_hashed_under_a_secret_of_the_store() -> None:
    """The same name in two stores has nothing in common: nobody can look it up in a table."""
    hashes = set()
    for seed in (1, 2):
        with closing(open_database(MEMORY, random=SeededRandom(seed))) as db:
            seal(db, "Ada", b"")
            hashes.add(db.read(lambda tx: tx.all(_SUBJECTS)).result()[0][2])
    assert len(hashes) == 2


@pytest.mark.parametrize("at", range(4 + 16 + 12 + 5 + 16))
def test_a_changed_byte_is_refused_wherever_it_is(db: Database, at: int) -> None:
    sealed = bytearray(seal(db, "Ada", b"hello"))
    sealed[at] ^= 1
    with pytest.raises((errors.FormatError, errors.NotFoundError)):
        opened(db, bytes(sealed))


def test_an_envelope_does_not_open_under_the_handle_of_another(db: Database) -> None:
    mine, yours = seal(db, "Ada", b"hello"), seal(db, "Bob", b"hello")
    swapped = yours[:20] + mine[20:]
    with pytest.raises(errors.FormatError):
        opened(db, swapped)


@pytest.mark.parametrize("data", [b"", b"HFS", b"HFS\x02" + bytes(60), b"HFS\x01" + bytes(20), b"plain text" * 9])
def test_what_is_no_envelope_is_refused(db: Database, data: bytes) -> None:
    with pytest.raises(errors.FormatError):
        opened(db, data)


def test_a_destroyed_key_answers_erased_for_good(db: Database) -> None:
    sealed, other = seal(db, "Ada", b"hello"), seal(db, "Bob", b"hi")
    handle = encryption.subject_of(sealed)
    assert db.write(lambda tx: encryption.destroy(tx, handle)).result()
    with pytest.raises(errors.ErasedError) as caught:
        opened(db, sealed)
    assert (caught.value.code, caught.value.status, caught.value.exit_code) == ("erased", 410, 3)
    assert opened(db, other) == b"hi"
    assert not db.write(lambda tx: encryption.destroy(tx, handle)).result(), "a key is destroyed once"
    row = next(row for row in db.read(lambda tx: tx.all(_SUBJECTS)).result() if row[0] == handle)
    assert (row[2], row[3]) == (None, None), "hash and key are gone"


def test_the_same_name_after_its_erasure_is_a_new_subject(db: Database) -> None:
    handle = encryption.subject_of(seal(db, "Ada", b"old"))
    db.write(lambda tx: encryption.destroy(tx, handle)).result()
    assert db.read(lambda tx: encryption.find(tx, "Ada")).result() is None
    again = seal(db, "Ada", b"new")
    assert encryption.subject_of(again) != handle
    assert opened(db, again) == b"new"


@pytest.mark.parametrize("name", ["", "   ", "x" * 1025])
def test_a_name_that_is_none_is_refused(db: Database, name: str) -> None:
    with pytest.raises(errors.InvalidInputError):
        seal(db, name, b"")


def test_forgotten_keys_come_back_only_from_the_store_they_are_of(db: Database) -> None:
    sealed = seal(db, "Ada", b"hello")
    living = db.read(encryption.keys).result()
    assert db.write(encryption.forget_keys).result() == 1
    with pytest.raises(errors.NotFoundError, match="left out of the backup"):
        opened(db, sealed)
    assert db.read(encryption.keyless).result() == 1
    db.write(lambda tx: encryption.take_over(tx, encryption.SubjectKeys("00" * 32, []))).result()
    db.write(lambda tx: encryption.take_over(tx, living)).result()
    assert db.read(encryption.keyless).result() == 1, "hashed under another secret"


def test_keys_are_taken_over_with_their_secret(db: Database) -> None:
    sealed = seal(db, "Ada", b"hello")
    living = db.read(encryption.keys).result()
    db.write(encryption.forget_keys).result()
    db.write(lambda tx: encryption.take_over(tx, living)).result()
    assert opened(db, sealed) == b"hello"
    assert db.read(lambda tx: encryption.find(tx, "Ada")).result() == encryption.subject_of(sealed)


def test_a_subject_is_logged_without_its_name_and_the_store_verifies() -> None:
    with sync.open(url=MEMORY, clock=FrozenClock()) as store:
        sealed = store.write(lambda tx: encryption.seal(tx, "Ada Lovelace", b"hello"))
        leaves = store.read(lambda tx: tx.all(sql("SELECT leaf FROM log_leaves")))
        mine = [leaf for (leaf,) in leaves if '"p":"subjects/1"' in leaf]
        assert len(mine) == 1
        assert encryption.subject_of(sealed) not in mine[0]
        assert store.verify.run(full=True).verdict.sound
