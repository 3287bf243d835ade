"""Audits find what was done to a log behind its back, on every backend."""

import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdproof import sync
from holdproof.crypto import checkpoint, keys
from holdproof.db import Tx, sql
from holdproof.errors import NotFoundError
from holdproof.evidence import audit, tree, walk
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.tree import LogState
from holdproof.model.verdicts import Verdict
from tests.conformance import logs
from tests.conformance.logs import check, put, put_many, settle, texts

_EDIT = sql("UPDATE log_leaves SET leaf = replace(leaf, '\"v\":1', '\"v\":2') WHERE idx = 300")
_LINE = sql("UPDATE log_leaves SET leaf = replace(leaf, '\"ns\"', '\n\"ns\"') WHERE idx = 300")
_SWAP = [
    sql("UPDATE log_leaves SET idx = -5 WHERE idx = 10"),
    sql("UPDATE log_leaves SET idx = 10 WHERE idx = 20"),
    sql("UPDATE log_leaves SET idx = 20 WHERE idx = -5"),
]
_DELETE = sql("DELETE FROM log_leaves WHERE idx = 300")
_DELETE_LAST = sql("DELETE FROM log_leaves WHERE idx = (SELECT max(idx) FROM log_leaves)")
_ADD = sql("INSERT INTO log_leaves (idx, id, ver, leaf) SELECT max(idx) + 1, 'x', 1, '{}' FROM log_leaves")
_BEFORE = sql("INSERT INTO log_leaves (idx, id, ver, leaf) VALUES (-1, 'x', 1, '{}')")
_TILE = sql("UPDATE log_tiles SET hashes = (SELECT t.hashes FROM log_tiles t WHERE t.idx = 0) WHERE idx = 1")
_NO_TILE = sql("DELETE FROM log_tiles WHERE idx = 1")
_MORE_TILES = sql("INSERT INTO log_tiles (level, idx, hashes) SELECT 1, 0, hashes FROM log_tiles WHERE idx = 0")
_STEM = sql("UPDATE log_stems SET hash = (SELECT s.hash FROM log_stems s WHERE s.idx = 0) WHERE idx = 1")
_NO_STEM = sql("DELETE FROM log_stems WHERE idx = 1")
_MORE_STEMS = sql("INSERT INTO log_stems (level, idx, hash) SELECT 1, 7, hash FROM log_stems WHERE idx = 0")
_SIZE = sql("UPDATE log_state SET size = size - 1")
_ORIGIN = sql("UPDATE log_state SET origin = 'holdproof/other'")
_HEAD = sql("UPDATE log_state SET head = :head")
_FRONTIER = sql("UPDATE log_state SET frontier = :frontier")
_REFILE = sql("UPDATE log_leaves SET id = 'somebody else' WHERE idx = 300")

TAMPERING = {
    "an edited leaf": ([_EDIT], 300),
    "a leaf with a line of its own": ([_LINE], 300),
    "two leaves swapped": (_SWAP, 10),
    "a deleted leaf": ([_DELETE], 300),
    "the last leaf deleted": ([_DELETE_LAST], 599),
    "an added leaf": ([_ADD], 600),
    "a leaf before the first": ([_BEFORE], -1),
    "an edited tile": ([_TILE], 256),
    "a deleted tile": ([_NO_TILE], 256),
    "an added tile": ([_MORE_TILES], None),
    "an edited stem": ([_STEM], 256),
    "a deleted stem": ([_NO_STEM], 256),
    "an added stem": ([_MORE_STEMS], 7 * 256),
    "another size": ([_SIZE], 599),
    "another origin": ([_ORIGIN], None),
}


class AuditSuite(logs.OnSqlite):
    """What was changed is named; nothing raises."""

    def grown(self) -> sync.Holdproof:
        """A store whose log has 600 leaves."""
        store = self.open()
        settle(store)
        size = store.log.head().checkpoint.size
        store.write(lambda tx: [put(tx) for _ in range(600 - size)])
        check(store)
        return store

    @pytest.mark.parametrize("name", TAMPERING)
    def test_tampering_is_found_and_named(self, name: str) -> None:
        statements, index = TAMPERING[name]
        with self.grown() as store:
            store.write(lambda tx: [tx.execute(each) for each in statements])
            audited = store.log.audit(full=True)
            assert audited.verdict.locks
            assert index in [flaw.index for flaw in audited.findings], audited.findings
            assert audited.to_dict()["findings"]

    def test_a_head_signed_with_another_key_is_found(self) -> None:
        def resign(tx: Tx) -> None:
            said = checkpoint.parse(tree.state(tx).head.encode()).checkpoint
            tx.execute(_HEAD, head=checkpoint.sign(said, keys.generate("ed25519")).encode().decode())

        with self.grown() as store:
            store.write(resign)
            for full in (False, True):
                audited = store.log.audit(full=full)
                assert (audited.verdict, len(audited.findings)) == (Verdict.TAMPERED, 1)

    @pytest.mark.parametrize("head", ["", "nonsense"])
    def test_a_head_that_cannot_be_read_is_found(self, head: str) -> None:
        with self.grown() as store:
            store.write(lambda tx: tx.execute(_HEAD, head=head))
            for full in (False, True):
                assert store.log.audit(full=full).verdict is Verdict.TAMPERED

    @pytest.mark.parametrize("edge", [b"", b"\0" * 8, b"\1" * 40])
    def test_another_frontier_is_found(self, edge: bytes) -> None:
        with self.grown() as store:
            store.write(lambda tx: tx.execute(_FRONTIER, frontier=edge))
            for full in (False, True):
                assert store.log.audit(full=full).verdict is Verdict.TAMPERED

    def test_without_any_head_nothing_has_been_logged(self) -> None:
        with self.open() as store:
            settle(store)
            store.write(lambda tx: tx.execute(_HEAD, head=""))
            with pytest.raises(NotFoundError, match="nothing has been logged"):
                store.log.head()

    def test_a_leaf_filed_under_another_record_is_named(self) -> None:
        with self.grown() as store:
            store.write(lambda tx: tx.execute(_REFILE))
            found = [(flaw.index, flaw.what) for flaw in store.log.audit(full=True).findings]
            assert found == [(300, "the leaf is filed under another record or version than its own")]

    def test_findings_are_bounded(self) -> None:
        with self.grown() as store:
            store.write(lambda tx: tx.execute(sql("DELETE FROM log_leaves WHERE idx < 500")))
            audited = store.log.audit(full=True)
            assert len(audited.findings) == 100
            assert audited.left_off >= 400

    def test_a_full_audit_keeps_up_with_writers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(walk, "PAGE", 256)
        with self.grown() as store:
            done = threading.Event()

            def write() -> None:
                while not done.is_set():
                    store.database.write(lambda tx: [put(tx) for _ in range(20)]).result()

            writer = threading.Thread(target=write)
            writer.start()
            try:
                for _ in range(5):
                    audited = store.log.audit(full=True)
                    assert audited.findings == []
            finally:
                done.set()
                writer.join()
            check(store)

    def test_progress_goes_up_to_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(walk, "PAGE", 256)
        with self.grown() as store:
            heard: list[tuple[int, int]] = []
            store.log.audit(full=True, progress=lambda done, total: heard.append((done, total)))
            assert heard == [(256, 600), (512, 600), (600, 600)]

    def test_helpers_and_none_give_the_same_audit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(walk, "PAGE", 256)
        with self.grown() as store:
            alone = store.log.audit(full=True)
            monkeypatch.setattr(walk, "_WORTH_HELPERS", 0)
            assert store.log.audit(full=True) == alone
            store.write(lambda tx: tx.execute(_EDIT))
            assert 300 in [flaw.index for flaw in store.log.audit(full=True).findings]

    # --- heads kept elsewhere -------------------------------------------------------------------------------------

    def test_a_log_that_lost_its_tail_is_rolled_back(self) -> None:
        """From the database alone a cut tail cannot be seen; with a head kept elsewhere it must be."""
        with self.grown() as store:
            kept = [store.log.head()]
            before = store.read(_everything)
            store.write(lambda tx: [put(tx) for _ in range(10)])
            settle(store)
            kept += [store.log.head()]
            store.write(lambda tx: _put_back(tx, before))
            assert audit.walk(store.database, []).ok
            for audited in (audit.walk(store.database, kept), audit.glance(store.database, kept)):
                assert audited.verdict is Verdict.ROLLED_BACK

    def test_a_log_with_another_past_is_forked(self) -> None:
        with self.grown() as store:
            before = store.read(_everything)
            store.write(lambda tx: [put(tx) for _ in range(10)])
            settle(store)
            kept = [store.log.head()]
            store.write(lambda tx: _put_back(tx, before))
            vars(store.context.log)["_seen"] = ""  # as a process that was not there before; this one would refuse
            store.write(lambda tx: [put(tx) for _ in range(20)])
            settle(store)
            assert audit.walk(store.database, []).ok
            for audited in (audit.walk(store.database, kept), audit.glance(store.database, kept)):
                assert audited.verdict is Verdict.FORKED

    def test_every_kept_head_is_compared(self) -> None:
        with self.open() as store:
            kept = []
            for amount in (1, 254, 1, 3, 300, 513):
                store.write(partial(put_many, count=amount))
                settle(store)
                kept.append(store.log.head())
            assert audit.walk(store.database, kept).ok
            assert audit.walk(store.database, kept).heads == len(kept)
            for number, head in enumerate(kept):
                other = checkpoint.LogCheckpoint(head.checkpoint.origin, head.checkpoint.size, b"\7" * 32)
                false = checkpoint.sign(other, keys.generate("ed25519"))
                forged = [*kept[:number], false, *kept[number + 1 :]]
                assert audit.walk(store.database, forged).verdict is Verdict.FORKED
                assert audit.glance(store.database, forged).verdict is Verdict.FORKED

    def test_a_head_of_another_log_says_nothing(self) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            stranger = checkpoint.sign(
                checkpoint.LogCheckpoint("holdproof/other", 10**6, b"\7" * 32), keys.generate("ed25519")
            )
            assert audit.walk(store.database, [stranger]).ok
            assert audit.glance(store.database, [stranger]).ok

    def test_a_head_after_a_restore_that_this_log_knows_nothing_of_says_rolled_back(self) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            said = store.log.head().checkpoint
            later = checkpoint.LogCheckpoint(f"{said.origin}/1", said.size, said.root)
            restored = checkpoint.sign(later, keys.generate("ed25519"))
            for look in (audit.walk, audit.glance):
                assert look(store.database, [restored]).verdict is Verdict.ROLLED_BACK


_ALL = {
    "log_leaves": (sql("SELECT idx, id, ver, leaf FROM log_leaves"), "idx, id, ver, leaf"),
    "log_tiles": (sql("SELECT level, idx, hashes FROM log_tiles"), "level, idx, hashes"),
    "log_stems": (sql("SELECT level, idx, hash FROM log_stems"), "level, idx, hash"),
}
_CLEAR = {table: sql(f"DELETE FROM {table}") for table in _ALL}
_THINGS = sql("DELETE FROM things WHERE leaf_id NOT IN (SELECT id FROM log_leaves)")
_RESET = sql("UPDATE log_state SET size = :size, frontier = :frontier, head = :head")
_INSERT = {
    table: sql(f"INSERT INTO {table} ({columns}) VALUES ({', '.join(f':c{n}' for n in range(columns.count(',') + 1))})")
    for table, (_, columns) in _ALL.items()
}

Everything = tuple[LogState, dict[str, list[tuple[object, ...]]]]


def _everything(tx: Tx) -> Everything:
    """The whole log, as a thief of the database could have kept it."""
    return tree.state(tx), {table: tx.all(query) for table, (query, _) in _ALL.items()}


def _put_back(tx: Tx, everything: Everything) -> None:
    """Yesterday's log in today's place."""
    state, tables = everything
    for table, rows in tables.items():
        tx.execute(_CLEAR[table])
        tx.many(_INSERT[table], [{f"c{n}": value for n, value in enumerate(row)} for row in rows])
    tx.execute(_THINGS)
    tx.execute(_RESET, size=state.size, frontier=state.frontier, head=state.head)


class TestSqlite(AuditSuite):
    pass


class TestMemory(logs.InMemory, AuditSuite):
    pass


class TestPostgres(logs.OnPostgres, AuditSuite):
    pass


class TestYesterdaysFile(logs.OnSqlite):
    """The database file of a closed store, replaced by an older copy of itself."""

    def aside(self, name: str) -> Path:
        return self.home.parent / name

    def keep(self, name: str) -> None:
        shutil.copytree(self.home, self.aside(name))

    def put_back(self, name: str, *parts: str) -> None:
        for part in parts:
            (self.home / part).unlink(missing_ok=True)
            if (self.aside(name) / part).exists():
                shutil.copy(self.aside(name) / part, self.home / part)

    def write(self, count: int = 3) -> None:
        with self.open() as store:
            store.write(lambda tx: [put(tx) for _ in range(count)])
            assert store.context.log.continuity is Verdict.VALID

    def verdict(self, look: Callable[[sync.Holdproof], Verdict]) -> Verdict:
        with self.open() as store:
            return look(store)

    def test_yesterdays_file_put_back_is_seen_on_open(self) -> None:
        self.write()
        self.keep("yesterday")
        self.write()
        self.put_back("yesterday", "kernel.db", "kernel.db-wal", "kernel.db-shm")
        assert self.verdict(lambda store: store.context.log.continuity) is Verdict.ROLLED_BACK
        assert self.verdict(lambda store: store.log.audit().verdict) is Verdict.ROLLED_BACK
        assert self.verdict(lambda store: store.log.audit(full=True).verdict) is Verdict.ROLLED_BACK

    def test_another_history_is_seen_on_open(self) -> None:
        self.write()
        self.keep("yesterday")
        self.write()
        self.keep("today")
        files = ("kernel.db", "kernel.db-wal", "kernel.db-shm")
        self.put_back("yesterday", *files, "state/heads.jsonl")
        self.write(10)
        self.put_back("today", "state/heads.jsonl")
        assert self.verdict(lambda store: store.context.log.continuity) is Verdict.FORKED
        assert self.verdict(lambda store: store.log.audit(full=True).verdict) is Verdict.FORKED

    def test_what_was_kept_is_still_known_after_the_rolled_back_log_went_on(self) -> None:
        self.write(20)
        self.keep("yesterday")
        self.write(20)
        self.put_back("yesterday", "kernel.db", "kernel.db-wal", "kernel.db-shm")
        with self.open() as store:
            store.context.log.publish({"head": [store.log.head().encode().decode()]})
        assert self.verdict(lambda store: store.context.log.continuity) is Verdict.ROLLED_BACK

    def test_a_new_store_begins_its_log_beside_the_heads_of_another(self) -> None:
        other = checkpoint.sign(checkpoint.LogCheckpoint("holdproof/other", 5, b"\7" * 32), keys.generate("ed25519"))
        marks = HeadFile(self.home / "state" / "heads.jsonl")
        marks.publish(other.encode().decode())
        self.write()
        assert [head.checkpoint.origin for head in marks.kept()][:1] == ["holdproof/other"]
        assert self.verdict(lambda store: store.log.audit(full=True).verdict) is Verdict.VALID

    def test_the_leaves_are_all_there(self) -> None:
        self.write(700)
        with self.open() as store:
            assert len(store.read(texts)) == store.log.audit(full=True).size
