"""Migrations: each applied once, whole or not at all, whoever else starts at the same moment."""

import os
import threading
from abc import ABC, abstractmethod
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors
from holdproof.db import Database, Hooks, Migration, Notes, Tx, migrate, sql
from holdproof.db.sql import Dialect
from tests.conformance.backends import InMemory, OnPostgres, OnSqlite
from tests.conformance.racing import race
from tests.conformance.schema_dump import dump

FIRST = Migration("0001_things", "CREATE TABLE things (name TEXT PRIMARY KEY, size @int NOT NULL);")
SECOND = Migration(
    "0002_parts",
    "CREATE TABLE parts (id @serial, thing TEXT NOT NULL REFERENCES things (name));"
    "INSERT INTO things (name, size) VALUES ('by the second', 2);",
)
THIRD = Migration("0003_more", "CREATE TABLE more (x @int);")
STEPS = [FIRST, SECOND, THIRD]

FAILING = {
    "wrong SQL": "CREATE TABLE parts (x @int); INSERT INTO nowhere VALUES (1);",
    "a row refused": "CREATE TABLE parts (x @int); INSERT INTO things (name, size) VALUES ('kept', 1);",
    "data and schema": "UPDATE things SET size = 0; ALTER TABLE things ADD COLUMN extra TEXT;"
    "CREATE TABLE things (x @int);",
    "only at commit": "CREATE TABLE parts (thing TEXT REFERENCES things (name) DEFERRABLE INITIALLY DEFERRED);"
    "INSERT INTO parts (thing) VALUES ('nobody');",
}

_ADD = sql("INSERT INTO things (name, size) VALUES (:name, :size)")
_THINGS = sql("SELECT name, size FROM things ORDER BY name")
_LEDGER = sql("SELECT name, sha256, applied_at FROM schema_migrations ORDER BY name")
_OTHER = Migration("0009_from_the_future", "CREATE TABLE future (x @int);")


def _ledger(db: Database) -> list[Any]:
    return db.read(lambda tx: tx.all(_LEDGER)).result()


def _state(db: Database) -> tuple[str, list[Any], list[Any]]:
    """All that a refused migration must leave as it is."""
    return dump(db), _ledger(db), db.read(lambda tx: tx.all(_THINGS)).result()


class MigrationSuite(ABC):
    shared = True

    @abstractmethod
    def open(self, **options: Any) -> Database: ...

    def test_each_is_applied_once_and_recorded_with_its_sha256(self) -> None:
        with closing(self.open(migrations=STEPS)) as db:
            assert [(name, digest) for name, digest, _ in _ledger(db)] == [(s.name, s.sha256) for s in STEPS]
            assert all(at.endswith("Z") for _, _, at in _ledger(db))
            before = _state(db)
            assert migrate.migrate(db, STEPS) == []
            assert _state(db) == before

    def test_what_is_pending_is_applied_in_order_by_whoever_asks(self) -> None:
        with closing(self.open(migrations=[FIRST])) as db:
            assert migrate.pending(db, STEPS) == [SECOND, THIRD]
            assert migrate.migrate(db, STEPS) == [SECOND.name, THIRD.name]
            assert migrate.pending(db, STEPS) == []
            assert db.read(lambda tx: tx.all(_THINGS)).result() == [("by the second", 2)]

    def test_an_edited_applied_file_is_refused_and_nothing_changed(self) -> None:
        edited = Migration(FIRST.name, FIRST.text + " ")
        with closing(self.open(migrations=[FIRST])) as db:
            before = _state(db)
            with pytest.raises(errors.MigrationEditedError, match=FIRST.name) as caught:
                migrate.migrate(db, [edited, SECOND])
            assert caught.value.fields == {"migration": FIRST.name}
            assert _state(db) == before

    def test_an_applied_name_we_do_not_know_means_a_newer_holdproof(self) -> None:
        with closing(self.open(migrations=[FIRST, _OTHER])) as db:
            before = _state(db)
            with pytest.raises(errors.NewerStoreError, match=_OTHER.name):
                migrate.migrate(db, STEPS)
            assert _state(db) == before

    def test_a_store_that_is_edited_or_newer_is_not_opened(self) -> None:
        if not self.shared:
            pytest.skip("memory is not shared")
        with closing(self.open(migrations=[FIRST, _OTHER])) as db:
            before = _state(db)
            for steps, kind in (
                ([FIRST], errors.NewerStoreError),
                ([Migration(FIRST.name, "SELECT 1;"), _OTHER], errors.MigrationEditedError),
            ):
                for options in ({}, {"migrate": False}):
                    with pytest.raises(kind):
                        self.open(migrations=steps, **options)
            assert _state(db) == before

    @pytest.mark.parametrize("text", FAILING.values(), ids=FAILING)
    def test_a_failing_migration_is_rolled_back_whole_and_named(self, text: str) -> None:
        with closing(self.open(migrations=[FIRST])) as db:
            db.write(lambda tx: tx.execute(_ADD, name="kept", size=1)).result()
            before = _state(db)
            with pytest.raises(errors.MigrationError, match=SECOND.name) as caught:
                migrate.migrate(db, [FIRST, Migration(SECOND.name, text), THIRD])
            assert caught.value.fields == {"migration": SECOND.name}
            assert caught.value.__cause__ is not None
            assert _state(db) == before, "neither the second nor the third left a trace"
            assert migrate.migrate(db, STEPS) == [SECOND.name, THIRD.name], "the corrected one goes on"

    def test_the_note_of_a_migration_reaches_the_commit_hooks_in_its_transaction(self) -> None:
        def record(tx: Tx) -> None:
            for step in tx.notes.get(migrate.TOPIC, ()):
                tx.execute(_ADD, name=f"logged {step.name}", size=len(step.sha256), expect=1)

        with closing(self.open(migrations=[FIRST, THIRD], hooks=Hooks(before_commit=[record]))) as db:
            logged = [(f"logged {step.name}", 64) for step in (FIRST, THIRD)]
            assert db.read(lambda tx: tx.all(_THINGS)).result() == logged

    def test_a_commit_hook_that_refuses_a_migration_rolls_it_back(self) -> None:
        def refuse(tx: Tx) -> None:
            if any(step.name == SECOND.name for step in tx.notes.get(migrate.TOPIC, ())):
                raise errors.ConflictError("not that one")

        with closing(self.open(migrations=[FIRST], hooks=Hooks(before_commit=[refuse]))) as db:
            before = _state(db)
            with pytest.raises(errors.HoldproofError, match="not that one"):
                migrate.migrate(db, STEPS)
            assert _state(db) == before

    def test_migrations_pass_the_gate(self) -> None:
        def locked(_: Tx) -> None:
            raise errors.ConflictError("locked down")

        with closing(self.open(migrations=STEPS, hooks=Hooks(gate=[locked]))) as db:
            assert [row[0] for row in _ledger(db)] == [step.name for step in STEPS]

    def test_without_migrate_nothing_is_applied(self) -> None:
        with closing(self.open(migrations=STEPS, migrate=False)) as db:
            assert db.read(migrate.applied).result() == {}
            assert migrate.pending(db, STEPS) == STEPS
            assert "things" not in dump(db)

    def test_eight_threads_that_open_at_once_apply_each_once(self) -> None:
        if not self.shared:
            pytest.skip("memory is not shared")
        applied, barrier, failures = list[str](), threading.Barrier(8), list[BaseException]()

        def note(notes: Notes) -> None:
            applied.extend(step.name for step in notes.get(migrate.TOPIC, ()))

        def start() -> None:
            barrier.wait(30)
            try:
                self.open(migrations=STEPS, hooks=Hooks(after_commit=[note]), single=True).close()
            except errors.HoldproofError as error:
                failures.append(error)

        threads = [threading.Thread(target=start) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert applied == [step.name for step in STEPS]

    def test_four_processes_that_open_at_once_apply_each_once(self) -> None:
        if not self.shared:
            pytest.skip("memory is not shared")
        applied = race(_OPENER, self.target, 4, imports=_IMPORTS)  # type: ignore[attr-defined]
        assert sorted(chain.from_iterable(applied)) == [step.name for step in STEPS]
        with closing(self.open(migrations=STEPS)) as db:
            assert db.read(lambda tx: tx.all(_THINGS)).result() == [("by the second", 2)]
            assert db.backend.check() == []

    @pytest.mark.parametrize("space", ["kernel", "membrane", "telemetry"])
    def test_the_shipped_schema_is_the_golden_one(self, space: str) -> None:
        with closing(self.open(space=space)) as db:
            golden = Path(__file__).parent / "schema" / db.dialect / f"{space}.sql"
            found = dump(db)
        if os.environ.get("HOLDPROOF_UPDATE_GOLDEN"):
            golden.parent.mkdir(parents=True, exist_ok=True)
            golden.write_text(found, encoding="utf-8")
        assert found == golden.read_text(encoding="utf-8"), "run again with HOLDPROOF_UPDATE_GOLDEN=1 if this is meant"


_IMPORTS = f"""
from holdproof.db import Hooks, Migration, migrate, open_database
from holdproof.db import postgres
STEPS = {STEPS!r}
"""
_OPENER = """
applied = []
hooks = Hooks(after_commit=[lambda notes: applied.extend(step.name for step in notes.get(migrate.TOPIC, ()))])
open_database(TARGET, migrations=STEPS, hooks=hooks).close()
answer(applied)
"""


class TestSqlite(OnSqlite, MigrationSuite):
    pass


class TestMemory(InMemory, MigrationSuite):
    pass


class TestPostgres(OnPostgres, MigrationSuite):
    pass


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "columns"),
    [
        ("sqlite", "id INTEGER PRIMARY KEY AUTOINCREMENT, j TEXT, t TEXT, b BLOB, r REAL, i INTEGER"),
        (
            "postgres",
            "id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,"
            " j JSONB, t TIMESTAMPTZ, b BYTEA, r DOUBLE PRECISION, i BIGINT",
        ),
    ],
)
def test_type_tokens_stand_for_the_types_of_each_database(dialect: Dialect, columns: str) -> None:
    step = Migration("x", "CREATE TABLE t (id @serial, j @json, t @time, b @blob, r @real, i @int);")
    assert step.render(dialect) == f"CREATE TABLE t ({columns});"


@pytest.mark.parametrize("word", ["@integer", "@blobs", "@x", "@"])
def test_only_whole_tokens_are_replaced(word: str) -> None:
    assert Migration("x", f"SELECT {word};").render("sqlite") == f"SELECT {word};"


def test_a_line_for_one_database_is_a_comment_on_the_other() -> None:
    step = Migration("x", "--sqlite:SELECT 1;\n--postgres:SELECT 2;\n-- sqlite: a remark\nSELECT 3;")
    assert step.render("sqlite") == "SELECT 1;\n--postgres:SELECT 2;\n-- sqlite: a remark\nSELECT 3;"
    assert step.render("postgres") == "--sqlite:SELECT 1;\nSELECT 2;\n-- sqlite: a remark\nSELECT 3;"


def test_the_recorded_sha256_is_of_the_file_not_of_what_one_database_makes_of_it() -> None:
    step = Migration("x", "CREATE TABLE t (x @int);")
    assert step.sha256 == "bd0a14bdc200c5d00baa3d1992a59108b8d15db8f36ebeb55bdf7e93fdd2cc85"


def test_shipped_migrations_sort_by_name_and_are_numbered_without_gaps() -> None:
    names = [step.name for step in migrate.shipped("kernel")]
    assert names == sorted(names)
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
