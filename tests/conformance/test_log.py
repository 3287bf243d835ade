"""The log on every backend: what stands in it, who signs it, what can be proven out of it."""

import asyncio
import threading
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdproof
from harness import tiles as log_tiles
from holdproof import errors, sync
from holdproof.crypto import canonical, checkpoint, keys, merkle, tiles, tlog_proof
from holdproof.crypto.frontier import EMPTY, append
from holdproof.crypto.keys import Alg, PublicKey, Signer
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import Migration, Tx
from holdproof.evidence import leaves, log, tree
from holdproof.evidence.key_files import MemoryKeys
from holdproof.model.keys import Role
from holdproof.model.verdicts import Verdict
from tests.conformance import logs
from tests.conformance.logs import check, put, put_many, settle, texts, things


class CountingSigner:
    """A key that says how often it signed."""

    def __init__(self) -> None:
        self._key, self.count = keys.generate("ed25519"), 0

    @property
    def alg(self) -> Alg:
        return self._key.alg

    @property
    def keyid(self) -> str:
        return self._key.keyid

    @property
    def public(self) -> PublicKey:
        return self._key.public

    def sign(self, message: bytes) -> bytes:
        self.count += 1
        return self._key.sign(message)


class CountingKeys(MemoryKeys):
    """Keys whose log key counts."""

    def __init__(self) -> None:
        super().__init__()
        self.signer = CountingSigner()

    def ensure(self, role: Role) -> Signer:
        return self.signer if role == "log" else super().ensure(role)


def held(store: sync.Holdproof, *jobs: Any) -> list[Any]:
    """Run jobs as one group: they queue up behind one that waits."""
    entered, go = threading.Event(), threading.Event()

    def hold(_: Tx) -> None:
        entered.set()
        go.wait(30)

    first = store.database.write(hold)
    entered.wait(30)
    futures = [store.database.write(job) for job in jobs]
    go.set()
    wait([first, *futures], 60)
    return [future.exception(0) or future.result(0) for future in futures]


class LogSuite(logs.OnSqlite):
    """One claim a test; each ends with a log that audits clean."""

    # --- appending ------------------------------------------------------------------------------------------------

    def test_a_row_and_its_leaf_are_committed_together(self) -> None:
        with self.open() as store:
            before = store.log.head().checkpoint.size if self.url is None else 0
            handles = [store.write(put) for _ in range(3)]
            settle(store)
            assert store.read(things) == 3
            assert store.log.head().checkpoint.size >= before + 3
            assert [store.log.get_entry(handle)[0] for handle in handles] == sorted(
                store.log.get_entry(handle)[0] for handle in handles
            )
            check(store)

    def test_a_failing_operation_leaves_no_leaf(self) -> None:
        def fails(tx: Tx) -> None:
            put(tx)
            raise errors.ConflictError("after the stamp")

        with self.open() as store:
            settle(store)
            size = store.log.head().checkpoint.size
            with pytest.raises(errors.ConflictError):
                store.write(fails)
            settle(store)
            assert store.log.head().checkpoint.size == size
            outcomes = held(store, put, fails, put)
            assert [isinstance(each, str) for each in outcomes] == [True, False, True]
            settle(store)
            assert store.log.head().checkpoint.size == size + 2
            check(store)

    def test_a_new_store_begins_with_its_key_and_its_schema(self) -> None:
        with self.open() as store:
            settle(store)
            kinds = [text.decode().split('"t":"')[1].split('"')[0] for text in store.read(texts)]
            assert kinds == ["key", "key", *["schema"] * len(logs.MIGRATIONS)]  # of the log and of root
            check(store)

    def test_a_group_signs_one_head(self) -> None:
        counting = CountingKeys()
        options: dict[str, Any] = {"workers": 1} if str(self.url).startswith("postgres") else {}
        with self.open(keys=counting, **options) as store:
            settle(store)
            before = counting.signer.count
            held(store, *[put] * 50)
            settle(store)
            assert counting.signer.count - before <= (1 if store.database.dialect == "sqlite" else 3)
            assert store.read(things) == 50
            check(store)

    def test_a_version_that_stands_in_the_log_cannot_stand_there_twice(self) -> None:
        def again(tx: Tx) -> None:
            leaves.append(tx, (handle, 1, f'{{"h":"{"0" * 64}","id":"{handle}","ver":1}}'))

        with self.open() as store:
            handle = store.write(put)
            settle(store)
            with pytest.raises(errors.ConflictError):
                store.write(again)
            assert store.log.get_entry(handle) == store.log.get_entry(handle, version=1)
            check(store)

    def test_later_versions_of_a_record_stand_under_its_handle(self) -> None:
        def revise(tx: Tx) -> None:
            row = {"id": "t", "body": "second", "amount": None}
            leaves.stamp(tx, "state", logs.THINGS, row, leaf_id=handle, leaf_ver=2)

        with self.open() as store:
            handle = store.write(put)
            store.write(revise)
            settle(store)
            assert store.log.get_entry(handle) == store.log.get_entry(handle, version=2)
            assert store.log.get_entry(handle, version=1)[0] < store.log.get_entry(handle)[0]
            check(store)

    def test_a_leaf_is_canonical_json_of_at_most_a_kibibyte(self) -> None:
        with self.open() as store:
            row = {"id": "1", "body": "ü", "amount": None}
            store.write(lambda tx: leaves.stamp(tx, "state", logs.THINGS, row, ns="Größe"))
            settle(store)
            for text in store.read(texts):
                assert canonical.dumps(canonical.loads(text)) == text
            with pytest.raises(errors.InvalidInputError):
                store.write(lambda tx: leaves.stamp(tx, "state", logs.THINGS, row, ns="ü" * 600))
            with pytest.raises(errors.InvalidInputError):
                store.write(lambda tx: leaves.stamp(tx, "nonsense", logs.THINGS, row))
            check(store)

    # --- heads ----------------------------------------------------------------------------------------------------

    def test_a_head_is_shown_only_once_it_is_durable(self) -> None:
        shown: list[tuple[int, int]] = []
        with self.open() as store:

            def look(head: str) -> None:
                said = checkpoint.parse(head.encode()).checkpoint
                shown.append((said.size, store.database.read(lambda tx: tree.state(tx).size).result()))

            if self.url == ":memory:":
                pytest.skip("one thread does it all: a look from inside the commit would wait for itself")
            store.context.log.listeners = [look]
            for _ in range(20):
                store.write(put)
            settle(store)
        assert shown
        assert all(size <= durable for size, durable in shown)

    def test_a_head_that_fails_to_commit_is_never_shown(self) -> None:
        shown: list[str] = []
        with self.open() as store:
            settle(store)
            store.context.log.listeners = [shown.append]
            before = store.log.head()

            def refuse(tx: Tx) -> None:
                raise errors.UnavailableError("the disk is gone")

            store.database.hooks.before_commit.append(refuse)
            with pytest.raises(errors.UnavailableError):
                store.write(put)
            store.database.hooks.before_commit.remove(refuse)
            assert (shown, store.log.head()) == ([], before)
            store.write(put)
            check(store)

    def test_heads_are_signed_by_the_key_of_the_keyring(self) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            head, known = store.log.head(), store.read(log.verifiers)
            checkpoint.verify(head, origin=head.checkpoint.origin, log_keys=known)
            stranger = VerifierKey(head.checkpoint.origin, 1, keys.generate("ed25519").public)
            with pytest.raises(errors.ProofError):
                checkpoint.verify(head, origin=head.checkpoint.origin, log_keys=[stranger])

    def test_a_home_without_the_log_key_signs_nothing(self, tmp_path: Path) -> None:
        if not self.shared:
            pytest.skip("memory is not shared")
        with self.open() as store:
            store.write(put)
            settle(store)
            home = tmp_path / "other"
            if self.url is None:
                home.mkdir()
                for part in ("kernel.db", "kernel.db-wal"):
                    if (self.home / part).exists():
                        (home / part).write_bytes((self.home / part).read_bytes())
            with self.open(home) as other:
                assert not other.context.log.signs
                if self.url is None:
                    with pytest.raises(errors.BadKeyError):
                        other.write(put)
                else:
                    other.write(put)
                    settle(other)  # the process that holds the key was nudged
                assert other.log.audit(full=True).ok

    def test_a_home_without_the_log_key_logs_no_migration(self, tmp_path: Path) -> None:
        if self.url is not None:
            pytest.skip("on PostgreSQL its leaf waits for a process that can sign")
        with self.open():
            pass
        more = [*logs.MIGRATIONS, Migration("9001_more", "CREATE TABLE more (id TEXT PRIMARY KEY)")]
        (self.home / "config" / "keys" / "log.pem").rename(tmp_path / "log.pem")
        with pytest.raises(errors.BadKeyError):
            self.open(migrations=more)
        (tmp_path / "log.pem").rename(self.home / "config" / "keys" / "log.pem")
        with self.open(migrations=more) as store:
            check(store)

    def test_a_client_remembers_the_largest_head_it_saw(self, tmp_path: Path) -> None:
        if self.url is None or not self.shared:
            pytest.skip("only a server is shared by homes")
        with self.open() as store:
            store.write(put)
            settle(store)
            seen = store.log.head().checkpoint
            with self.open(tmp_path / "other") as other:
                marks = other.context.head_file
                assert marks is not None
                assert marks.largest()[seen.origin].checkpoint.size >= seen.size
                store.write(put)
                settle(store)
                seen = store.log.head().checkpoint
            assert marks.largest()[seen.origin].checkpoint.size >= seen.size

    # --- proofs ---------------------------------------------------------------------------------------------------

    def test_every_leaf_is_proven_by_its_handle(self) -> None:
        with self.open() as store:
            handles = [store.write(lambda tx: [put(tx) for _ in range(60)]) for _ in range(9)]
            settle(store)
            known = store.read(log.verifiers)
            origin = store.log.head().checkpoint.origin
            for handle in (each for batch in handles for each in batch):
                proof = store.log.prove(handle)
                tlog_proof.verify(
                    tlog_proof.parse(tlog_proof.encode(proof)),
                    merkle.leaf_hash(proof.extra),
                    origin=origin,
                    log_keys=known,
                )
                assert f'"id":"{handle}"' in proof.extra.decode()
            check(store)

    def test_no_proof_leads_to_a_leaf_that_is_not_there(self) -> None:
        with self.open() as store:
            settle(store)
            with pytest.raises(errors.NotFoundError):
                store.log.prove("0198a7c2-0000-7000-8000-000000000000")
            handle = store.write(put)
            settle(store)
            with pytest.raises(errors.NotFoundError):
                store.log.prove(handle, version=2)
            size = store.log.head().checkpoint.size
            for old, new in ((0, size), (size, size - 1), (1, size + 1)):
                with pytest.raises(errors.InvalidInputError):
                    store.log.prove_consistency(old, new)

    def test_every_size_is_consistent_with_every_later_one(self) -> None:
        with self.open() as store:
            store.write(lambda tx: [put(tx) for _ in range(600)])
            settle(store)
            hashes = merkle.leaf_hashes(store.read(texts))
            size = len(hashes)
            for old in (1, 2, 255, 256, 257, 511, 512, 513, size - 1, size):
                roots = merkle.root(hashes[:old]), merkle.root(hashes)
                merkle.verify_consistency(old, size, *roots, store.log.prove_consistency(old))
                assert store.read(partial(tree.root_at, size=old)) == roots[0]

    def test_every_tile_served_is_the_one_that_follows_from_the_entries(self) -> None:
        with self.open() as store:
            for amount in (3, 250, 1, 256, 700, 0, 513):
                store.write(partial(put_many, count=amount))
            settle(store)
            found = store.read(texts)
            assert store.read(logs.entries) == found
            reference = _reference(found)
            for tile in log_tiles.tiles_of(len(found)):
                assert store.log.tile(tile.path) == reference[tile.level][tile.index * 256 :][: tile.width], tile.path
            for bundle in log_tiles.bundles_of(len(found)):
                expected = found[bundle.index * 256 :][: bundle.width]
                assert store.log.tile(bundle.path) == tiles.encode_bundle(expected)
                assert store.log.tile(tiles.EntryBundle(bundle.index, 1).path) == tiles.encode_bundle(expected[:1])
            for path in ("tile/0/x001/000", "tile/entries/x001/000", "tile/3/000.p/1"):
                with pytest.raises(errors.NotFoundError):
                    store.log.tile(path)
            with pytest.raises(errors.FormatError):
                store.log.tile("tile/0/1")
            check(store)

    def test_the_tree_does_not_depend_on_how_leaves_were_batched(self) -> None:
        @settings(max_examples=12, deadline=None)
        @given(batches=st.lists(st.integers(0, 300), max_size=6))
        def play(batches: list[int]) -> None:
            with self.open() as store:
                for amount in batches:
                    store.write(partial(put_many, count=amount))
                check(store)

        play()

    # --- the faces ------------------------------------------------------------------------------------------------

    def test_both_faces_give_the_same_answers(self) -> None:
        with self.open() as store:
            handle = store.write(put)
            settle(store)

            async def ask() -> list[Any]:
                face = holdproof.Holdproof(store.core)
                return [
                    await face.log.head(),
                    await face.log.get_entry(handle),
                    await face.log.prove(handle),
                    await face.log.prove_consistency(2),
                    await face.log.tile("tile/0/000.p/3"),
                    await face.log.pending(),
                    await face.log.audit(full=True),
                    await face.log.level(),
                ]

            assert asyncio.run(ask()) == [
                store.log.head(),
                store.log.get_entry(handle),
                store.log.prove(handle),
                store.log.prove_consistency(2),
                store.log.tile("tile/0/000.p/3"),
                store.log.pending(),
                store.log.audit(full=True),
                store.log.level(),
            ]

    def test_the_level_says_who_keeps_the_heads(self) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            assert store.log.level().text == ("LOCAL" if self.url == ":memory:" else "KEPT")

    def test_a_reopened_store_continues_its_log(self) -> None:
        if not self.shared:
            pytest.skip("memory does not outlive its store")
        with self.open() as store:
            store.write(lambda tx: [put(tx) for _ in range(300)])
        with self.open() as store:
            assert store.context.log.continuity is Verdict.VALID
            assert store.log.pending() == 0
            store.write(put)
            check(store)


def _reference(found: list[bytes]) -> list["_Hashes"]:
    """The nodes at levels 0, 8, 16 of the tree over these leaves, by the plain definition."""
    levels, row = [], merkle.leaf_hashes(found)
    while row:
        levels.append(_Hashes(row))
        row = [merkle.root(row[at : at + 256]) for at in range(0, len(row) // 256 * 256, 256)]
    return levels


class _Hashes:
    def __init__(self, row: list[bytes]) -> None:
        self._row = row

    def __getitem__(self, where: slice) -> "_Hashes | bytes":
        part = self._row[where]
        return _Hashes(part) if where.stop is None else b"".join(part)


class TestSqlite(LogSuite):
    pass


class TestMemory(logs.InMemory, LogSuite):
    pass


class TestPostgres(logs.OnPostgres, LogSuite):
    pass


def test_a_grower_forgets_what_a_rollback_undid() -> None:
    """What is remembered of the open tile counts only under the frontier the database holds."""
    with sync.open(url=":memory:", migrations=logs.MIGRATIONS) as store:

        def fails(tx: Tx) -> None:
            raise errors.UnavailableError("no commit")

        for round_ in range(40):
            store.write(lambda tx: [put(tx) for _ in range(13)])
            if round_ % 3 == 0:
                store.database.hooks.before_commit.append(fails)
                with pytest.raises(errors.UnavailableError):
                    store.write(lambda tx: [put(tx) for _ in range(13)])
                store.database.hooks.before_commit.remove(fails)
        check(store)
        assert append(EMPTY, merkle.leaf_hashes(store.read(texts))).frontier.size == 40 * 13 + 2 + len(logs.MIGRATIONS)
