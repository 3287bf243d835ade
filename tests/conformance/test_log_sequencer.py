"""The sequencer of a store on PostgreSQL."""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from harness.servers import Postgres
from holdproof import errors
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.db import Tx
from holdproof.db.sql import sql_postgres
from holdproof.evidence import sequencer
from holdproof.evidence.sequencer import Sequencer, sequence
from holdproof.evidence.tree import TreeWriter
from tests.conformance import logs
from tests.conformance.logs import check, put, settle, texts

_PENDING = sql_postgres("SELECT count(*) FROM log_pending")
_AGAIN = sql_postgres("INSERT INTO log_pending (id, ver, leaf) SELECT id, ver, leaf FROM log_leaves WHERE idx = 3")


def _rows_handled(node: dict[str, Any]) -> Iterator[float]:
    """Yield how many rows each node of a plan handled in all its loops, those that it dropped included."""
    dropped = sum(count for name, count in node.items() if name.startswith("Rows Removed"))
    yield (node["Actual Rows"] + dropped) * node["Actual Loops"]
    for child in node.get("Plans", ()):
        yield from _rows_handled(child)


class TestSequencer(logs.OnPostgres):
    def test_it_takes_every_committed_row_whatever_its_number(self) -> None:
        """A transaction that began first may commit last; its leaves have the smaller numbers."""
        entered, go = threading.Event(), threading.Event()

        def late(tx: Tx) -> str:
            handle = put(tx, "late")
            tx.all(_PENDING)  # the insert has reached the server and has its number
            entered.set()
            go.wait(30)
            return handle

        with self.open() as store:
            first = store.database.write(late)
            entered.wait(30)
            second = store.write(put)
            settle(store)
            index = store.log.get_entry(second)[0]
            go.set()
            settle(store)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not store.read(lambda tx: texts(tx))[index + 1 :]:
                time.sleep(0.01)
            assert store.log.get_entry(first.result())[0] == index + 1
            check(store)

    def test_it_moves_more_than_one_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sequencer, "_MOST", 64)
        with self.open() as store:
            store.write(lambda tx: [put(tx) for _ in range(1000)])
            check(store)

    def test_a_burst_is_taken_by_a_plan_made_while_nothing_was_pending(self) -> None:
        """Work is counted, not timed: every node of the plan handles each entry a few times, not each pair of them."""
        burst = 2000
        assert self.url is not None
        with self.open() as store:
            settle(store)
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in (
                "SET search_path = kernel",
                "SET plan_cache_mode = force_generic_plan",
                "ANALYZE log_pending",
                f"PREPARE take (bigint) AS {sequencer._TAKE.postgres}",
                "EXECUTE take (1000)",
                "INSERT INTO log_pending (id, ver, leaf)"
                f" SELECT 'p' || n, 1, 'leaf' FROM generate_series(1, {burst}) AS n",
            ):
                connection.execute(statement.encode())
            [plan] = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take (1000)").fetchone() or ()
            [left] = connection.execute(b"SELECT count(*) FROM log_pending").fetchone() or ()
        assert left == burst - 1000
        assert max(_rows_handled(plan[0]["Plan"])) <= 2 * burst

    def test_a_holder_that_is_heard_of_no_more_loses_the_log_within_seconds(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A frozen process, a machine that vanished: the server ends their transaction, and another one signs."""
        assert sequencer._MOST_IDLE == "5s"
        monkeypatch.setattr(sequencer, "_MOST_IDLE", "200ms")
        entered, thaw = threading.Event(), threading.Event()

        def freeze(tx: Tx) -> None:
            if entered.is_set():
                return  # it is run again, on a new connection
            sequence(tx, one.context.log, TreeWriter())
            entered.set()
            assert thaw.wait(60)

        with self.open() as one, self.open() as two:
            settle(one)
            frozen = one.database.write(freeze)
            assert entered.wait(30)
            two.write(put)
            settle(two)
            thaw.set()
            frozen.result(60)
            check(two)

    def test_one_at_a_time(self) -> None:
        """Whoever does not get the lock leaves the work to its holder."""
        entered, go = threading.Event(), threading.Event()

        def hold(tx: Tx) -> int | None:
            moved = None
            while moved is None:  # the store's own sequencer may have the lock at this moment
                moved = sequence(tx, one.context.log, TreeWriter())
            entered.set()
            go.wait(30)
            return moved

        with self.open() as one, self.open() as two:
            settle(one)
            holding = one.database.write(hold)
            assert entered.wait(30)
            assert two.write(lambda tx: sequence(tx, two.context.log, TreeWriter())) is None
            two.write(put)
            assert two.log.pending() == 1
            go.set()
            assert holding.result() is not None
            check(two)

    def test_a_clean_close_leaves_nothing_pending(self) -> None:
        with self.open() as store:
            settle(store)
            store.context.log.use(None)  # till then nobody takes anything
            time.sleep(0.1)
            futures = [store.database.write(put) for _ in range(200)]
            for future in futures[:100]:
                future.result()
            store.context.log.use(store.context.keys.load("log"))
        with self.open() as store:
            assert store.database.read(lambda tx: tx.all(_PENDING)).result() == [(0,)]
            check(store)

    def test_a_failure_is_logged_and_tried_again_and_never_harms_the_store(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caplog.set_level(logging.WARNING, "holdproof.evidence")
        with self.open() as store:
            settle(store)
            log, sign = store.context.log, store.context.log.sign

            def refuse(head: LogCheckpoint, at: str) -> str:
                raise errors.UnavailableError("the key is away")

            monkeypatch.setattr(log, "sign", refuse)
            for _ in range(5):
                store.write(put)
                time.sleep(0.02)
            assert store.log.pending() == 5
            assert "the key is away" in caplog.text
            with pytest.raises(errors.NotFoundError) as missing:
                store.log.prove(store.write(put))
            assert missing.value.fields["pending"] is True
            monkeypatch.setattr(log, "sign", sign)
            settle(store)
            check(store)

    def test_a_leaf_that_can_never_be_logged_blocks_nobody_and_is_named(self) -> None:
        with self.open() as store:
            settle(store)
            store.write(lambda tx: tx.execute(_AGAIN))
            handle = store.write(put)
            deadline = time.monotonic() + 60
            while store.log.pending() > 1:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert store.log.get_entry(handle)
            for full in (False, True):
                audited = store.log.audit(full=full)
                assert [flaw.index for flaw in audited.findings] == [3]

    def test_what_a_killed_process_left_is_taken_by_the_next(self) -> None:
        with self.open() as store:
            settle(store)
            store.context.log.use(None)
            time.sleep(0.1)
            store.write(lambda tx: [put(tx) for _ in range(10)])
            assert store.log.pending() == 10
            with self.open() as other:
                settle(other)
                check(other)

    def test_a_server_that_restarts_only_delays_it(self, postgres: Postgres) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            postgres.restart("immediate")
            store.write(put)
            settle(store, 60)
            check(store)

    def test_closing_twice_is_harmless(self) -> None:
        store = self.open()
        store.write(put)
        store.close()
        store.close()

    def test_a_sequencer_that_never_ran_closes_at_once(self) -> None:
        with self.open() as store:
            Sequencer(store.database, store.context.log).close()
