"""Checkpoints under the log: each that was put to be provable has an entry, goes with it, and is proven by a bundle."""

from typing import Any

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.db import Tx, sql
from holdproof.memory.threads import thread_states
from holdproof.model.verdicts import Verdict
from holdproof.upkeep.verification import offline
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory

_ENTRIES = sql(
    "SELECT checkpoint_ns, checkpoint_id, h, leaf_ver FROM thread_entries ORDER BY checkpoint_ns, checkpoint_id"
)
_STATE = sql("SELECT state FROM thread_checkpoints WHERE checkpoint_id = '2'")
_EXCHANGE = sql("UPDATE thread_checkpoints SET metadata = :metadata, h = :h WHERE checkpoint_id = '2'")
_LOSE = sql("DELETE FROM thread_checkpoints WHERE checkpoint_id = '2'")
_FORGET = sql("DELETE FROM thread_entries WHERE checkpoint_id = '2'")
_RENAME = sql("UPDATE threads SET thread_id = 'another'")


def put(store: sync.Holdproof, id: str, parent: str | None = None, **options: Any) -> str:
    options = {"provable": True, **options}
    return store.threads.put_checkpoint("t", {"c": id}, checkpoint_id=id, parent_id=parent, **options).h


def entries(store: sync.Holdproof) -> list[tuple[Any, ...]]:
    return [*store.read(lambda tx: tx.all(_ENTRIES))]


class Entries(OnMemory):
    def test_a_checkpoint_is_logged_with_the_hash_of_all_that_led_to_it(self, store: sync.Holdproof) -> None:
        first = put(store, "1")
        second = put(store, "2", "1")
        assert entries(store) == [("", "1", first, 1), ("", "2", second, 1)]
        settled(store)
        assert store.verify.run(lock=False).verdict is Verdict.VALID

    def test_without_provable_nothing_is_logged(self, store: sync.Holdproof) -> None:
        settled(store)
        before = store.log.head().checkpoint.size
        put(store, "1", provable=False)
        settled(store)
        assert (entries(store), store.log.head().checkpoint.size) == ([], before)

    def test_a_checkpoint_that_is_put_again_has_a_new_version_of_its_entry(self, store: sync.Holdproof) -> None:
        put(store, "1")
        again = put(store, "1", metadata={"step": 2}, provable=False)
        assert entries(store) == [("", "1", again, 2)]
        settled(store)
        assert store.verify.run(lock=False).verdict is Verdict.VALID

    def test_what_is_pruned_or_deleted_is_accounted_for(self, store: sync.Holdproof) -> None:
        put(store, "1", run_id="r")
        put(store, "2", "1")
        put(store, "3", "2", run_id="s")
        store.threads.prune(keep=2)
        assert [row[1] for row in entries(store)] == ["2", "3"]
        store.threads.delete_runs(["s"])
        assert [row[1] for row in entries(store)] == ["2"]
        store.threads.delete("t")
        assert entries(store) == []
        put(store, "4")
        settled(store)
        assert store.verify.run(lock=False).verdict is Verdict.VALID

    def test_a_checkpoint_that_was_exchanged_hash_and_all_is_found(self, store: sync.Holdproof) -> None:
        put(store, "1")
        put(store, "2", "1")
        settled(store)

        def exchange(tx: Tx) -> None:
            [(state,)] = tx.all(_STATE)
            forged = '{"step":7}'
            tx.execute(_EXCHANGE, metadata=forged, h=thread_states.row_hash("", ("2", "1", None), forged, state))

        store.write(exchange)
        report = store.verify.run(lock=False)
        assert report.verdict is Verdict.TAMPERED
        assert "exchanged" in str(report.findings)

    @pytest.mark.parametrize("query", [_LOSE, _FORGET, _RENAME], ids=["lost", "forgotten", "renamed"])
    def test_a_logged_checkpoint_that_is_gone_is_found(self, store: sync.Holdproof, query: Any) -> None:
        put(store, "1")
        put(store, "2", "1")
        settled(store)
        store.write(lambda tx: tx.execute(query))
        assert store.verify.run(lock=False).verdict is Verdict.TAMPERED

    def test_a_bundle_proves_a_checkpoint_offline(self, store: sync.Holdproof) -> None:
        put(store, "1")
        put(store, "2", "1", provable=False)
        settled(store)
        packed = store.bundle.export("t/1", kind="checkpoint")
        report = offline.check(packed)
        assert (report.verdict, report.subject) == (Verdict.VALID, "t/1")
        for name in ("t/2", "t/3", "other/1", "1"):
            with pytest.raises(errors.NotFoundError, match="THREAD/CHECKPOINT"):
                store.bundle.export(name, kind="checkpoint")


class TestSqlite(OnSqlite, Entries):
    pass


class TestMemory(InMemory, Entries):
    pass


class TestPostgres(OnPostgres, Entries):
    pass
