"""Garbage of memory: what nothing leads to goes, what anything leads to stays, whoever writes meanwhile."""

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdproof import errors, sync
from holdproof.content import blocks
from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.db import Tx, sql
from holdproof.memory.objects import garbage, object_checks
from holdproof.model.verdicts import Verdict
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory, flaws

_COUNT = sql("SELECT count(*) FROM objects")


def count(store: sync.Holdproof) -> int:
    return int(store.read(lambda tx: tx.all(_COUNT))[0][0])


def size(store: sync.Holdproof) -> int:
    return sum(store.status().database["bytes"].values())


def fill(store: sync.Holdproof) -> None:
    for number in range(60):
        store.objects.put(f"o{number % 20}", type="t", content=number, meta={"seen": number})
        if number % 20 == 19:
            store.snapshots.create(str(number))
    store.objects.put("elsewhere", type="t", ns="other")
    store.values.put([{"n": number} for number in range(300)])
    store.values.put("x" * 300_000)
    store.objects.put("long", type="t", content="y" * 600_000)


def lacking(store: sync.Holdproof) -> list[CID]:
    """What any block needs and is not there."""

    def look(tx: Tx) -> list[CID]:
        every = blocks.page(tx, limit=1000).blocks
        return blocks.missing(tx, [link for raw, data in every for link in object_checks.needs(cids.parse(raw), data)])

    return store.read(look)


def everything(store: sync.Holdproof) -> Any:
    line = [each.cid for each in store.snapshots.list().items]
    return (
        store.objects.list(limit=1000).items,
        [store.objects.list(at=cid, limit=1000).items for cid in line],
        [store.objects.get(f"o{number}", version=n) for number in range(20) for n in (1, 2, 3)],
        store.objects.list(ns="other").items,
    )


class Garbage(OnMemory):
    def test_what_nothing_leads_to_goes_and_all_else_stays(self, store: sync.Holdproof) -> None:
        fill(store)
        before, held = everything(store), count(store)
        found = store.retention.gc(dry_run=True)
        assert (found.dry_run, count(store)) == (True, held)
        done = store.retention.gc()
        assert (done.blocks, done.bytes) == (found.blocks, found.bytes)
        assert done.blocks > 100
        assert count(store) == held - done.blocks
        assert everything(store) == before
        assert store.retention.gc().blocks == 0
        store.objects.put("o1", type="t", content="after")
        assert store.verify.run(lock=False).verdict in (Verdict.VALID, Verdict.PENDING)

    def test_what_was_garbage_can_come_to_life_again(self, store: sync.Holdproof) -> None:
        """The same tree as one that was removed is written again, whole."""
        store.objects.put("a", type="t", content=1, version=1)
        store.objects.put("a", type="t", content=2, version=2)
        store.retention.gc()
        store.objects.put("a", type="t", content=1, version=1)
        assert store.objects.get("a").content == 1

    def test_writers_and_readers_go_on_meanwhile(self, store: sync.Holdproof) -> None:
        fill(store)
        stop, failed = threading.Event(), list[BaseException]()

        def turn(work: Any) -> None:
            number = 0
            while not stop.is_set():
                try:
                    work(number)
                except errors.HoldproofError as error:
                    failed.append(error)
                    return
                number += 1

        def write(number: int) -> None:
            store.objects.put(f"o{number % 7}", type="t", content=number % 3, version=1, meta={"seen": number % 3})
            if number % 5 == 0:
                store.snapshots.create()

        threads = [
            threading.Thread(target=turn, args=(work,))
            for work in (write, lambda _: store.objects.list(limit=50).items, lambda _: self.proven(store))
        ]
        for thread in threads:
            thread.start()
        for _ in range(6):
            store.retention.gc()
        stop.set()
        for thread in threads:
            thread.join()
        assert failed == []

    def test_a_tree_that_came_back_and_went_between_two_looks_is_not_called_damaged(
        self, store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def put(seen: int) -> None:
            store.objects.put("o", type="t", content=1, version=1, meta={"seen": seen})

        def meanwhile(dead: Any) -> Any:
            for at, each in enumerate(ordered(dead)):
                yield each
                if at == 0:
                    put(0)
                    put(1)

        put(0)
        put(1)
        ordered = garbage._ordered
        monkeypatch.setattr(garbage, "_ordered", meanwhile)
        monkeypatch.setattr(garbage, "_BATCH", 1)
        assert store.retention.gc().blocks == 2
        assert len(lacking(store)) == 1, "the test made no such node"
        self.proven(store)
        assert store.verify.run(full=True).verdict is Verdict.VALID
        monkeypatch.undo()
        store.retention.gc()
        assert lacking(store) == []

    def proven(self, store: sync.Holdproof) -> None:
        assert flaws(store) == []

    def test_an_empty_memory_has_no_garbage(self, store: sync.Holdproof) -> None:
        assert store.retention.gc().blocks == 0
        store.snapshots.create()
        assert store.retention.gc().blocks == 0
        assert store.objects.list(at="head").items == []


class TestOnSqlite(OnSqlite, Garbage):
    def test_the_disk_gets_its_space_back(self, store: sync.Holdproof) -> None:
        store.objects.apply({f"o{number}": {"type": "t"} for number in range(500)})
        for number in range(300):
            store.objects.put(f"o{number}", type="t", content=number)
        before = size(store)
        store.retention.gc()
        assert size(store) < before * 0.8

    def test_what_was_pruned_is_found_in_one_pass_however_long_the_history(self, store: sync.Holdproof) -> None:
        # Rows of pruned versions stay for good: a search for each was the square of them, and past a few thousand
        # versions of an object longer than any read may be.
        asked = f"EXPLAIN QUERY PLAN {garbage._PRUNED.sqlite}"
        with closing(apsw.Connection(str(self.home / "kernel.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            plan = [row[3] for row in connection.execute(asked)]
        assert plan
        assert not [step for step in plan if "CORRELATED" in step]


class TestInMemory(InMemory, Garbage):
    pass


class TestOnPostgres(OnPostgres, Garbage):
    pass


def test_a_store_for_one_namespace_collects_nothing(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home", ns="tenant") as store, pytest.raises(errors.NamespaceError):
        store.retention.gc()
