"""The shipped suite for relational stores, on every backend of ours; and what only one of them can show."""

import asyncio
from contextlib import closing

import apsw
import psycopg
import pytest

from holdproof import errors
from holdproof.db import Database, open_database
from holdproof.db.tx import MIGRATED_TABLES
from holdproof.executors import SyncExecutor
from holdproof.storage.executors import AsyncStorageExecutor, OperationTracker
from holdproof.storage.relational import Relational
from holdproof.storage.stores import RelationalStore
from holdproof.testing import RelationalSuite
from tests.conformance.membranes import InMemory, OnPostgres, OnSqlite, Place


class _Opens(Place):
    async def open(self) -> RelationalStore:
        return Relational(AsyncStorageExecutor(await asyncio.to_thread(self.database, "membrane"), OperationTracker()))


class _Bounded(RelationalSuite):
    """What SQL of services may give and see, in whatever words."""

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT secret FROM subject_facts",
            'SELECT * FROM "subject_facts"',
            "SELECT count(*) FROM Subject_Facts",
            "UPDATE subject_facts SET secret = 'mine'",
            "DELETE FROM subject_facts",
            "INSERT INTO agent_state (agent_id, state) SELECT 'a', secret FROM subject_facts",
            "CREATE VIEW seen AS SELECT secret FROM subject_facts; SELECT * FROM seen",
        ],
    )
    def test_the_secret_of_the_labels_is_not_for_sql_of_services(self, text: str) -> None:
        async def test(store: RelationalStore) -> None:
            with pytest.raises(errors.ForbiddenSqlError):
                await store.fetch_all(text)

        self.use(test)

    def test_an_answer_without_end_is_refused_and_the_store_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("holdproof.db.tx.MOST_RESULT_BYTES", 10_000)

        async def test(store: RelationalStore) -> None:
            counted = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < :n)"
            text, word = f"{counted} SELECT :word AS w FROM c", "w" * 1_000
            with pytest.raises(errors.ReadLimitError):
                await store.fetch_all(text, {"n": 5_000, "word": word})
            assert await store.fetch_all(text, {"n": 3, "word": word}) == [{"w": word}] * 3

        self.use(test)


class TestMemory(_Opens, InMemory, _Bounded):
    pass


class TestSqlite(_Opens, OnSqlite, _Bounded):
    @pytest.mark.parametrize("made", ["zeroblob(900000000)", "hex(zeroblob(9000000))", "randomblob(100000000)"])
    def test_no_value_is_made_that_is_too_long_to_send(self, made: str) -> None:
        async def test(store: RelationalStore) -> None:
            with pytest.raises(errors.InvalidInputError):
                await store.fetch_one(f"SELECT {made} AS x")
            assert await store.fetch_one("SELECT length(zeroblob(1000000)) AS x") == {"x": 1_000_000}

        self.use(test)

    def test_no_trigger_tells_the_secret_of_the_labels(self) -> None:
        async def test(store: RelationalStore) -> None:
            trap = "CREATE TRIGGER t AFTER INSERT ON instances BEGIN UPDATE agent_state SET state = (SELECT secret"
            with pytest.raises(errors.ForbiddenSqlError):
                await store.execute(f"{trap} FROM subject_facts); END")

        self.use(test)

    def test_the_statement_of_the_seed_runs_as_printed(self) -> None:
        async def test(store: RelationalStore) -> None:
            for state in ("{}", '{"mood": "calm"}'):
                await store.execute(
                    "INSERT OR REPLACE INTO agent_state (agent_id, genus, state) VALUES (:id, :genus, :state)",
                    {"id": "soul", "genus": "k-gent", "state": state},
                )
            assert await store.fetch_one("SELECT state FROM agent_state") == {"state": '{"mood": "calm"}'}

        self.use(test)

    def test_a_trigger_keeps_its_semicolons(self) -> None:
        async def test(store: RelationalStore) -> None:
            await store.execute(
                "CREATE TABLE seen (id TEXT); CREATE TABLE own (id TEXT);"
                "CREATE TRIGGER look AFTER INSERT ON own BEGIN INSERT INTO seen VALUES (new.id);"
                " INSERT INTO seen VALUES ('too'); END; INSERT INTO own (id) VALUES ('a')"
            )
            assert await store.fetch_all("SELECT id FROM seen") == [{"id": "a"}, {"id": "too"}]

        self.use(test)

    @pytest.mark.parametrize("name", ["schema_migrations", '"Schema_Migrations"', "[schema_migrations]"])
    def test_no_trigger_reaches_by_our_statements_what_sql_of_services_may_not(self, name: str) -> None:
        async def test(store: RelationalStore) -> None:
            trap = f"CREATE TRIGGER trap AFTER INSERT ON instances BEGIN DELETE FROM {name}; END"
            for text in (trap, f"CREATE TABLE a (b); {trap}", f"/* */ {trap.lower()}"):
                with pytest.raises(errors.ForbiddenSqlError):
                    await store.execute(text)

        self.use(test)

    @pytest.mark.parametrize("table", sorted(MIGRATED_TABLES))
    def test_nothing_of_applications_depends_on_a_table_of_holdproof(self, table: str) -> None:
        dependents = (
            f"CREATE TRIGGER t BEFORE DELETE ON {table} BEGIN SELECT RAISE(IGNORE); END",
            f"CREATE INDEX i ON {table.upper()} (1)",
            f'CREATE TABLE mine (x REFERENCES "{table.upper()}" ON DELETE RESTRICT)',
            f"CREATE TABLE mine (x); ALTER TABLE mine ADD COLUMN y REFERENCES [{table}]",
            f"CREATE VIEW v AS SELECT * FROM {table}",
            f"CREATE VIEW v AS SELECT 1 WHERE EXISTS (SELECT 1 FROM (SELECT * FROM {table}))",
            f"CREATE VIEW v AS SELECT * FROM w; CREATE VIEW w AS SELECT * FROM {table}",
        )

        async def test(store: RelationalStore) -> None:
            for text in dependents:
                with pytest.raises(errors.ForbiddenSqlError):
                    await store.execute(text)
            names = await store.fetch_all("SELECT name FROM sqlite_schema WHERE name IN ('t', 'i', 'v', 'w', 'mine')")
            assert names == []

        self.use(test)

    def test_one_function_call_ends_however_long_its_texts_are(self) -> None:
        async def test(store: RelationalStore) -> None:
            long = {"text": "a" * 8_000_000, "part": "a" * 4_000_000 + "b", "set": "é" * 2_000_000 + "a"}
            calls = "instr(:text, :part) AS found, length(replace(:text, :part, '')) AS rest, trim(:text, :set) AS bare"
            assert await store.fetch_one(f"SELECT {calls}", long) == {"found": 0, "rest": 8_000_000, "bare": ""}
            digits = {"text": "z" * 4_000_000, "set": "y" * 4_000_000 + "z"}
            assert await store.fetch_one("SELECT unhex(:text, :set) AS x", digits) == {"x": b""}
            with pytest.raises(errors.HoldproofError):
                await store.fetch_one("SELECT :text LIKE :part", {"text": "a" * 8_000_000, "part": "%a" * 10_000 + "b"})

        self.use(test)

    def test_a_patch_that_compares_every_pair_of_names_is_refused(self) -> None:
        async def test(store: RelationalStore) -> None:
            for name in ("json_patch", "jsonb_patch", "JSON_Patch"):
                with pytest.raises(errors.ForbiddenSqlError, match="json_patch"):
                    await store.fetch_one(f"SELECT {name}('{{}}', '{{}}') AS x")

        self.use(test)

    def test_text_functions_answer_as_sqlite_does(self) -> None:
        values = [None, "", "a", "aé中", "  x ", 7, 1.5, 1e30, -0.0, b"", b"a", "7", "5"]
        values += ["aB0f", "aB 0f", "a B", " aB", "-", "- ", "aB-0F ", "ab\n0f", "é", "\uff10\uff10", "g"]
        calls = ["instr({}, {})", "replace({}, {}, 'z')", "trim({}, {})", "ltrim({}, {})", "rtrim({}, {})"]
        calls += ["unhex({}, {})"]
        alone = "trim(:a), ltrim(:a), rtrim(:a), unhex(:a)"
        select = f"SELECT {', '.join(each.format(':a', ':b') for each in calls)}, {alone}"

        async def test(store: RelationalStore) -> None:
            with closing(apsw.Connection(":memory:")) as plain:
                for a in values:
                    for b in values:
                        row = await store.fetch_one(select, {"a": a, "b": b})
                        assert row is not None
                        [expected] = plain.execute(select, {"a": a, "b": b}).fetchall()
                        assert tuple(row.values()) == expected, (a, b)

        self.use(test)

    def test_every_table_that_migrations_made_is_safe_from_sql_of_services(self) -> None:
        async def test(store: RelationalStore) -> None:
            tables = await store.fetch_all("SELECT name FROM sqlite_schema WHERE type = 'table'")
            assert {each["name"] for each in tables if not each["name"].startswith("sqlite_")} == MIGRATED_TABLES

        self.use(test)

    def test_a_block_that_cannot_begin_says_why_and_waits_for_nobody(self) -> None:
        async def run() -> None:
            store = Relational(
                AsyncStorageExecutor(
                    await asyncio.to_thread(self.database, "membrane", busy_s=0.05), OperationTracker()
                )
            )
            with closing(apsw.Connection(str(self.target))) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(errors.BusyError):
                    async with store.transaction() as tx:
                        await asyncio.wait_for(tx.execute("DELETE FROM agent_state"), 20)
                with pytest.raises(errors.BusyError):
                    async with store.transaction():
                        pass
                other.execute("ROLLBACK")
            async with store.transaction() as tx:
                await tx.execute("DELETE FROM agent_state")
            await store.close()

        asyncio.run(run())

    def test_a_setting_may_be_asked_for(self) -> None:
        async def test(store: RelationalStore) -> None:
            assert await store.fetch_one("PRAGMA foreign_keys") == {"foreign_keys": 1}
            columns = await store.fetch_all("SELECT name FROM pragma_table_info('agent_state')")
            assert [column["name"] for column in columns] == ["agent_id", "genus", "state", "updated_at"]

        self.use(test)

    def test_a_statement_without_end_is_stopped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("holdproof.db.sqlite.tx._SQL_LIMIT_S", 0.2)
        endless = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"

        async def test(store: RelationalStore) -> None:
            with pytest.raises(errors.ReadLimitError):
                await store.execute(f"INSERT INTO agent_state (agent_id) {endless}")
            await store.execute("INSERT INTO agent_state (agent_id) VALUES ('after')")

        self.use(test)


class TestPostgres(_Opens, OnPostgres, _Bounded):
    def test_a_cast_is_left_alone(self) -> None:
        async def test(store: RelationalStore) -> None:
            assert await store.fetch_one("SELECT '7'::int + :n::int AS n", {"n": 1}) == {"n": 8}

        self.use(test)

    def test_a_setting_changed_by_a_function_does_not_outlive_its_statement(self) -> None:
        async def test(store: RelationalStore) -> None:
            for name, value in (("search_path", "public"), ("statement_timeout", "0"), ("TimeZone", "Asia/Tokyo")):
                await store.fetch_all("SELECT set_config(:name, :value, false)", {"name": name, "value": value})
                async with store.transaction() as tx:
                    await tx.fetch_all("SELECT set_config(:name, :value, false)", {"name": name, "value": value})
                    now = await tx.fetch_one("SELECT current_setting(:name) AS now", {"name": name})
                    assert now is not None
                    assert now["now"] != value
            await store.execute("INSERT INTO agent_state (agent_id) VALUES ('found')")

        self.use(test)

    def test_its_login_cannot_do_more_even_by_hand(self) -> None:
        with closing(self.database("membrane")):
            with psycopg.connect(str(self.target), autocommit=True) as owner:
                row = owner.execute("SELECT name, password FROM membrane.membrane_login").fetchone()
            assert row is not None
            with psycopg.connect(str(self.target), user=row[0], password=row[1], autocommit=True) as login:
                for statement in (
                    "SELECT * FROM kernel.store_facts",
                    "CREATE TABLE kernel.mine (x INT)",
                    "SET ROLE postgres",
                    "RESET SESSION AUTHORIZATION; SET ROLE NONE; SELECT * FROM kernel.store_facts",
                    "DELETE FROM membrane.schema_migrations",
                    "SELECT * FROM membrane.membrane_login",
                    "CREATE ROLE mine",
                    "COPY (SELECT 1) TO '/tmp/mine'",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        login.execute(statement.encode())

    def test_two_that_open_at_once_use_one_login(self, empty_postgres_url: str) -> None:
        self.target = empty_postgres_url

        async def open_two() -> list[Database]:
            return await asyncio.gather(*(asyncio.to_thread(self.database, "membrane") for _ in range(3)))

        for database in asyncio.run(open_two()):
            database.close()
        with psycopg.connect(str(self.target)) as owner:
            assert len(owner.execute("SELECT name FROM membrane.membrane_login").fetchall()) == 1

    def test_a_login_that_reaches_the_kernel_and_cannot_make_another_is_refused(self, empty_postgres_url: str) -> None:
        self.target = empty_postgres_url  # the usual one has a login of its own already
        open_database(self.target, workers=1).close()
        with psycopg.connect(str(self.target), autocommit=True) as owner:
            owner.execute("DROP ROLE IF EXISTS shared_login")
            owner.execute("CREATE ROLE shared_login LOGIN")
            owner.execute(f"GRANT CREATE ON DATABASE {owner.info.dbname} TO shared_login".encode())
            owner.execute("GRANT USAGE ON SCHEMA kernel TO shared_login")
        url = str(self.target).replace("postgres@", "shared_login@")
        try:
            with pytest.raises(errors.ConfigError, match="separate login"):
                open_database(url, space="membrane")
        finally:
            with psycopg.connect(str(self.target), autocommit=True) as owner:
                owner.execute("DROP OWNED BY shared_login CASCADE")
                owner.execute("DROP ROLE shared_login")


def test_the_sync_face_shows_the_same_store() -> None:
    store = Relational(SyncExecutor(open_database(":memory:", space="membrane")))
    with store.transaction() as tx:
        tx.execute("INSERT INTO agent_state (agent_id) VALUES (:id)", {"id": "a"})
        assert tx.fetch_one("SELECT count(*) AS n FROM agent_state") == {"n": 1}
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:  # noqa: PT012
        tx.execute("DELETE FROM agent_state")
        raise ZeroDivisionError
    assert store.fetch_all("SELECT agent_id FROM agent_state") == [{"agent_id": "a"}]
    store.close()
