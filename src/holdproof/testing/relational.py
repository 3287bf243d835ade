"""The conformance suite of relational stores: a backend passes it with a five-line fixture.

Subclass `RelationalSuite` in a test module and define `open`: a store with the application tables, empty at the
start of each test.
"""

import asyncio
from abc import abstractmethod
from typing import Any

import pytest

from holdproof import errors
from holdproof.storage.stores import RelationalStore
from holdproof.testing.stores import StoreSuite

_ADD = "INSERT INTO agent_state (agent_id, genus, state) VALUES (:id, :genus, :state)"
_IDS = "SELECT agent_id FROM agent_state ORDER BY agent_id"
_COUNT = "SELECT count(*) AS n FROM agent_state"

FORBIDDEN = {
    "another database": "ATTACH DATABASE 'x.db' AS x",
    "letting one go": "DETACH DATABASE x",
    "foreign keys off": "PRAGMA foreign_keys = OFF",
    "a writable schema": "PRAGMA writable_schema = 1",
    "an extension": "SELECT load_extension('x')",
    "the ledger": "DELETE FROM schema_migrations",
    "the ledger, renamed": "ALTER TABLE schema_migrations RENAME TO mine",
    "the ledger, gone": "DROP TABLE schema_migrations",
    "an entry of the ledger": "UPDATE schema_migrations SET sha256 = ''",
    "a table of ours, gone": "DROP TABLE vectors",
    "a table of ours, renamed": "ALTER TABLE blobs RENAME TO mine",
    "a table of ours, altered": "ALTER TABLE cli_sessions DROP COLUMN metadata",
    "begin": "BEGIN",
    "commit": "COMMIT",
    "commit behind a comment": "/* /* */ */ COMMIT",
    "commit after a statement": "SELECT 1; COMMIT",
    "rollback": "ROLLBACK",
    "a savepoint": "SAVEPOINT op",
    "a setting": "SET search_path TO kernel",
    "a role": "SET ROLE postgres",
    "a role by a function": "SELECT set_config('role', 'postgres', false)",
    "the session": "SET SESSION AUTHORIZATION DEFAULT",
    "the kernel": "SELECT * FROM kernel.store_facts",
    "the password": "SELECT * FROM membrane_login",
    "a file": "COPY agent_state TO '/tmp/x'",
    "a program": "DO $$ BEGIN PERFORM 1; END $$",
    "a temporary table": "CREATE TEMP TABLE agent_state (agent_id TEXT)",
}


class RelationalSuite(StoreSuite):
    """One claim a test."""

    @abstractmethod
    async def open(self) -> RelationalStore:
        """Open the test's store; any number of times, always the same."""

    # --- statements ---------------------------------------------------------------------------------------------------

    def test_it_is_a_relational_store(self) -> None:
        async def test(store: RelationalStore) -> None:
            assert isinstance(store, RelationalStore)

        self.use(test)

    def test_rows_come_back_by_name(self) -> None:
        async def test(store: RelationalStore) -> None:
            assert await store.execute(_ADD, {"id": "soul", "genus": "k-gent", "state": "{}"}) == 1
            [row] = await store.fetch_all("SELECT agent_id, genus, state AS s FROM agent_state")
            assert row == {"agent_id": "soul", "genus": "k-gent", "s": "{}"}
            assert await store.fetch_one(_IDS) == {"agent_id": "soul"}

        self.use(test)

    def test_no_row_is_none_and_no_rows_are_an_empty_list(self) -> None:
        async def test(store: RelationalStore) -> None:
            assert await store.fetch_one(_IDS) is None
            assert await store.fetch_all(_IDS) == []

        self.use(test)

    def test_a_parameter_that_is_not_given_is_null(self) -> None:
        async def test(store: RelationalStore) -> None:
            await store.execute(_ADD, {"id": "soul"})
            assert await store.fetch_one("SELECT genus, state FROM agent_state") == {"genus": None, "state": None}

        self.use(test)

    def test_a_colon_in_a_string_a_comment_or_a_cast_is_no_parameter(self) -> None:
        async def test(store: RelationalStore) -> None:
            await store.execute(
                "INSERT INTO agent_state (agent_id, genus) /* :c */ VALUES (:id, 'a:genus ''b'':id') -- :d\n",
                {"id": "x"},
            )
            assert await store.fetch_one("SELECT genus FROM agent_state") == {"genus": "a:genus 'b':id"}

        self.use(test)

    def test_rows_touched_are_counted(self) -> None:
        async def test(store: RelationalStore) -> None:
            rows = [{"id": str(number), "genus": "g"} for number in range(5)]
            assert await store.executemany(_ADD, rows) == 5
            assert await store.execute("UPDATE agent_state SET genus = 'h' WHERE agent_id < '3'") == 3
            assert await store.execute("DELETE FROM agent_state WHERE agent_id = 'nobody'") == 0
            assert await store.execute("SELECT * FROM agent_state") == 0
            assert await store.executemany(_ADD, []) == 0

        self.use(test)

    def test_a_script_is_one_transaction(self) -> None:
        async def test(store: RelationalStore) -> None:
            script = f"{_ADD}; UPDATE agent_state SET genus = 'x; y' WHERE agent_id = :id;"
            assert await store.execute(script, {"id": "a"}) == 2
            with pytest.raises(errors.QueryError):
                await store.execute(f"{_ADD}; INSERT INTO nowhere VALUES (1)", {"id": "b"})
            assert await store.fetch_all(_IDS) == [{"agent_id": "a"}]

        self.use(test)

    def test_many_sets_of_parameters_count_together_or_not_at_all(self) -> None:
        async def test(store: RelationalStore) -> None:
            with pytest.raises(errors.ConstraintError):
                await store.executemany(_ADD, [{"id": "a"}, {"id": "b"}, {"id": "a"}])
            assert await store.fetch_all(_IDS) == []

        self.use(test)

    def test_services_make_tables_of_their_own(self) -> None:
        async def test(store: RelationalStore) -> None:
            await store.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT); CREATE INDEX nb ON notes (body)")
            await store.execute("INSERT INTO notes VALUES (:id, :body)", {"id": "1", "body": "é中\n"})
            assert await store.fetch_one("SELECT body FROM notes") == {"body": "é中\n"}
            await store.execute("DROP TABLE notes")

        self.use(test)

    def test_a_statement_that_writes_can_answer(self) -> None:
        async def test(store: RelationalStore) -> None:
            row = await store.fetch_one(f"{_ADD} RETURNING agent_id", {"id": "a"})
            assert row == {"agent_id": "a"}
            assert await store.fetch_one(_COUNT) == {"n": 1}

        self.use(test)

    def test_ten_thousand_parameters_give_the_right_answer(self) -> None:
        async def test(store: RelationalStore) -> None:
            await store.executemany(_ADD, [{"id": "p7"}, {"id": "p9999"}, {"id": "other"}])
            names = [f"p{number}" for number in range(10_000)]
            query = f"{_COUNT} WHERE agent_id IN ({', '.join(f':{name}' for name in names)})"
            assert await store.fetch_one(query, {name: name for name in names}) == {"n": 2}

        self.use(test)

    def test_too_many_parameters_are_a_typed_error(self) -> None:
        async def test(store: RelationalStore) -> None:
            names = [f"p{number}" for number in range(70_000)]
            query = f"{_COUNT} WHERE agent_id IN ({', '.join(f':{name}' for name in names)})"
            with pytest.raises(errors.HoldproofError):
                await store.fetch_one(query, dict.fromkeys(names, "x"))
            assert await store.fetch_one(_COUNT) == {"n": 0}

        self.use(test)

    def test_foreign_keys_are_enforced(self) -> None:
        async def test(store: RelationalStore) -> None:
            orphan = "INSERT INTO cli_session_events (id, session_id) VALUES ('e', 'nobody')"
            with pytest.raises(errors.ConstraintError):
                await store.execute(orphan)
            await store.execute("INSERT INTO cli_sessions (id, name, started_at) VALUES ('s', 'n', 'now')")
            await store.execute("INSERT INTO cli_session_events (id, session_id) VALUES ('e', 's')")
            assert await store.execute("DELETE FROM cli_sessions") == 1
            assert await store.fetch_all("SELECT id FROM cli_session_events") == []

        self.use(test)

    @pytest.mark.parametrize(
        "value", [object(), {"a": 1}, [1], 2**70, "\ud800"], ids=["object", "dict", "list", "large", "surrogate"]
    )
    def test_a_value_that_no_column_holds_is_a_typed_error(self, value: Any) -> None:
        async def test(store: RelationalStore) -> None:
            row = "INSERT INTO cli_sessions (id, name, started_at, tokens_used) VALUES ('s', 'n', 'now', :value)"
            with pytest.raises(errors.HoldproofError):
                await store.execute(row, {"value": value})

        self.use(test)

    def test_parameters_are_given_by_name(self) -> None:
        async def test(store: RelationalStore) -> None:
            with pytest.raises(errors.InvalidInputError):
                await store.execute(_ADD, ["soul"])  # type: ignore[arg-type]

        self.use(test)

    # --- what SQL of services may not do ---------------------------------------------------------------------------

    @pytest.mark.parametrize("statement", FORBIDDEN.values(), ids=FORBIDDEN)
    def test_what_is_not_its_business_is_refused(self, statement: str) -> None:
        async def test(store: RelationalStore) -> None:
            await store.execute(_ADD, {"id": "kept"})
            ledger = await store.fetch_all("SELECT name, sha256 FROM schema_migrations ORDER BY name")
            for call in (store.execute, store.fetch_all):
                with pytest.raises(errors.QueryError):
                    await call(statement)
            assert await store.fetch_all("SELECT name, sha256 FROM schema_migrations ORDER BY name") == ledger
            assert await store.fetch_all(_IDS) == [{"agent_id": "kept"}]

        self.use(test)

    def test_what_is_refused_harms_nobody_who_writes_at_the_same_time(self) -> None:
        async def test(store: RelationalStore) -> None:
            calls = [store.execute(_ADD, {"id": f"{number:02}"}) for number in range(20)]
            calls += [store.execute(f"{_ADD}; COMMIT", {"id": f"bad{number}"}) for number in range(5)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert [answer for answer in answers if not isinstance(answer, Exception)] == [1] * 20
            assert all(isinstance(answer, errors.ForbiddenSqlError) for answer in answers[20:])
            assert len(await store.fetch_all(_IDS)) == 20

        self.use(test)

    # --- blocks ----------------------------------------------------------------------------------------------------

    def test_a_block_sees_what_it_wrote_and_is_kept_at_its_end(self) -> None:
        async def test(store: RelationalStore) -> None:
            async with store.transaction() as tx:
                assert await tx.execute(_ADD, {"id": "a"}) == 1
                assert await tx.executemany(_ADD, [{"id": "b"}]) == 1
                assert await tx.fetch_one(_COUNT) == {"n": 2}
                assert await tx.fetch_all(_IDS) == [{"agent_id": "a"}, {"agent_id": "b"}]
            assert await store.fetch_one(_COUNT) == {"n": 2}

        self.use(test)

    def test_an_exception_rolls_a_block_back(self) -> None:
        async def test(store: RelationalStore) -> None:
            await store.execute(_ADD, {"id": "a"})
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with store.transaction() as tx:
                    await tx.execute("DELETE FROM agent_state")
                    raise ZeroDivisionError
            assert await store.fetch_one(_COUNT) == {"n": 1}

        self.use(test)

    def test_a_cancelled_block_is_rolled_back(self) -> None:
        async def test(store: RelationalStore) -> None:
            inside = asyncio.Event()

            async def block() -> None:
                async with store.transaction() as tx:
                    await tx.execute(_ADD, {"id": "a"})
                    inside.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(block())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await store.fetch_one(_COUNT) == {"n": 0}

        self.use(test)

    def test_a_block_whose_statement_failed_has_failed(self) -> None:
        async def test(store: RelationalStore) -> None:
            for wrong, kind in (("INSERT INTO nowhere VALUES (1)", errors.QueryError), ("COMMIT", errors.QueryError)):
                with pytest.raises(kind):  # noqa: PT012
                    async with store.transaction() as tx:
                        await tx.execute(_ADD, {"id": "a"})
                        with pytest.raises(kind):
                            await tx.execute(wrong)
                        with pytest.raises(kind):
                            await tx.fetch_all(_IDS)
            assert await store.fetch_one(_COUNT) == {"n": 0}

        self.use(test)

    def test_blocks_that_race_lose_no_update(self) -> None:
        async def test(store: RelationalStore) -> None:
            await store.execute(_ADD, {"id": "counter", "state": "0"})

            async def count() -> bool:
                try:
                    async with store.transaction() as tx:
                        row = await tx.fetch_one("SELECT state FROM agent_state")
                        assert row is not None
                        await tx.execute("UPDATE agent_state SET state = :n", {"n": str(int(row["state"]) + 1)})
                except errors.SerializationError:
                    return False
                return True

            done = await asyncio.gather(*(count() for _ in range(12)))
            assert await store.fetch_one("SELECT state FROM agent_state") == {"state": str(sum(done))}
            assert any(done)

        self.use(test)

    def test_a_forgotten_block_is_rolled_back_and_holds_up_nobody(self) -> None:
        async def test(store: Any) -> None:
            with pytest.raises(errors.IdleTransactionError):  # noqa: PT012
                async with store.transaction(idle_s=0.2) as tx:
                    await tx.execute(_ADD, {"id": "a"})
                    await asyncio.wait_for(store.execute(_ADD, {"id": "b"}), 30)
                    await asyncio.sleep(0.4)
                    await tx.execute(_ADD, {"id": "c"})
            assert await store.fetch_all(_IDS) == [{"agent_id": "b"}]

        self.use(test)

    def test_no_block_holds_up_the_others_for_as_long_as_it_likes(self) -> None:
        async def test(store: Any) -> None:
            for idle_s in (None, 0, -1, 301, float("inf"), float("nan"), "x", True):
                with pytest.raises(errors.InvalidInputError):
                    async with store.transaction(idle_s=idle_s):
                        pass
            assert await store.execute(_ADD, {"id": "a"}) == 1

        self.use(test)

    def test_a_block_has_none_inside_and_is_not_closed(self) -> None:
        async def test(store: RelationalStore) -> None:
            async with store.transaction() as tx:
                with pytest.raises(errors.InvalidInputError):
                    tx.transaction()
                with pytest.raises(errors.InvalidInputError):
                    await tx.close()

        self.use(test)

    def test_after_the_end_of_a_block_nothing_more_is_taken(self) -> None:
        async def test(store: RelationalStore) -> None:
            async with store.transaction() as tx:
                await tx.execute(_ADD, {"id": "a"})
            with pytest.raises(errors.ClosedError):
                await tx.execute(_ADD, {"id": "b"})

        self.use(test)

    def test_closing_twice_is_harmless_and_a_closed_store_says_so(self) -> None:
        async def test(store: RelationalStore) -> None:
            await store.close()
            await store.close()
            with pytest.raises(errors.ClosedError):
                await store.execute(_ADD, {"id": "a"})

        self.use(test)
