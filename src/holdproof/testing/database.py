"""The conformance suite of databases: a backend passes it with a five-line fixture.

Subclass `DatabaseSuite` in a test module and define `open`; it is called with keyword options of `open_database`, any
number of times for one test, always for the same database, empty at the start of each test.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any, TypeVar

import pytest

from holdproof import errors
from holdproof.db import Database, Hooks, Notes, Refused, Tx
from holdproof.testing.clocks import FrozenClock, SeededRandom
from holdproof.testing.schema import (
    ADD_COUNTER,
    ADD_ENTRY,
    BROKEN,
    GET_ENTRY,
    MIGRATIONS,
    SET_COUNTER,
    TAKE,
    add,
    enter,
    entries,
    take,
    value,
)

T = TypeVar("T")


class DatabaseSuite(ABC):
    """One claim a test; each ends with a database that is still sound."""

    shared = True
    """Whether two openings see the same data (not so in memory)."""

    @abstractmethod
    def open(self, **options: Any) -> Database:
        """Open the test's database with these options."""

    def start(self, *, single: bool = True, **options: Any) -> Database:
        """Open with the suite's tables; `single` keeps one writing connection, so that groups are predictable."""
        return self.open(migrations=MIGRATIONS, single=single, **options)

    # --- statements -----------------------------------------------------------------------------------------------

    def test_every_type_comes_back_as_it_went_in(self) -> None:
        with closing(self.start(clock=FrozenClock())) as db:

            def put(tx: Tx) -> None:
                add(tx, "c")
                tx.execute(
                    ADD_ENTRY,
                    id="e",
                    counter="c",
                    amount=5.0,
                    body=b"\x00\xff",
                    data='{"a": "\u00e9\u4e2d"}',
                    at=tx.now,
                )

            db.write(put).result()
            # Each type must come back as it was written, whatever the driver makes of it.
            row = db.read(lambda tx: tx.one(GET_ENTRY, id="e")).result()
            assert row == ("e", "c", 5.0, b"\x00\xff", '{"a": "\u00e9\u4e2d"}', "2026-01-01T00:00:00.000000Z")
            # RETURNING of SQLite may give 5 for a REAL column.
            _, _, amount, *_ = row
            assert type(amount) is float

    def test_null_is_none_and_a_missing_row_is_none(self) -> None:
        with closing(self.start()) as db:

            def put(tx: Tx) -> None:
                add(tx, "c")
                tx.execute(ADD_ENTRY, id="e", counter="c", amount=None, body=None, data=None, at=tx.now)

            db.write(put).result()
            row = db.read(lambda tx: tx.one(GET_ENTRY, id="e")).result()
            assert row is not None
            assert row[2:5] == (None, None, None)
            assert db.read(lambda tx: tx.one(GET_ENTRY, id="none")).result() is None

    def test_count_many_and_returning_agree(self) -> None:
        with closing(self.start()) as db:

            def fill(tx: Tx) -> tuple[int, Any, int]:
                tx.many(ADD_COUNTER, ({"name": f"c{n:04}", "value": 7} for n in range(2_500)))
                touched = tx.count(SET_COUNTER, name="c0001", value=9)
                return touched, tx.one(TAKE, name="c0001"), tx.count(SET_COUNTER, name="nobody", value=1)

            assert db.write(fill).result() == (1, (8,), 0)

    def test_an_expectation_that_fails_rolls_back(self) -> None:
        with closing(self.start()) as db:

            def wrong(tx: Tx) -> None:
                add(tx, "c")
                tx.execute(SET_COUNTER, name="nobody", value=1, expect=1)

            with pytest.raises(errors.ExpectationError):
                db.write(wrong).result()
            assert db.read(lambda tx: value(tx, "c")).result() is None

    def test_constraints_are_typed_errors(self) -> None:
        with closing(self.start()) as db:
            db.write(lambda tx: add(tx, "c")).result()
            for bad in (
                lambda tx: add(tx, "c"),
                lambda tx: add(tx, "d", value=-1),
                lambda tx: enter(tx, "nobody"),
            ):
                with pytest.raises(errors.ConstraintError):
                    db.write(bad).result()

    def test_a_wrong_statement_is_a_query_error(self) -> None:
        with closing(self.start()) as db:
            with pytest.raises(errors.QueryError):
                db.read(lambda tx: tx.all(BROKEN)).result()
            with pytest.raises(errors.QueryError):
                db.write(lambda tx: tx.all(BROKEN)).result()
            assert db.read(entries).result() == 0

    def test_an_operation_that_swallows_a_database_error_still_fails(self) -> None:
        with closing(self.start()) as db:
            db.write(lambda tx: add(tx, "c")).result()

            def careless(tx: Tx) -> str:
                try:
                    add(tx, "c")
                    value(tx, "c")
                except errors.ConstraintError:
                    return "never mind"
                return "no error"

            with pytest.raises(errors.ConstraintError):
                db.write(careless).result()

    # --- time and ids ---------------------------------------------------------------------------------------------

    def test_one_transaction_has_one_moment_and_growing_ids(self) -> None:
        clock = FrozenClock()
        with closing(self.start(clock=clock, random=SeededRandom(7))) as db:

            def look(tx: Tx) -> tuple[str, str, str, str]:
                before = tx.now
                first = tx.new_id()
                # The clock moves on inside the transaction, and `tx.now` must not.
                clock.advance(5)
                return before, tx.now, first, tx.new_id()

            before, after, first, second = db.write(look).result()
            assert before == after == "2026-01-01T00:00:00.000000Z"
            assert first < second
            # Clocks are set back in practice; ids must still sort after all earlier ones.
            clock.advance(-3600)
            later = db.write(lambda tx: (tx.now, tx.new_id())).result()
            assert later[0] == "2025-12-31T23:00:05.000000Z"
            assert later[1] > second, "ids grow even when the clock is put back"

    # --- groups ---------------------------------------------------------------------------------------------------

    def test_ids_made_one_after_the_other_sort_so_though_the_clock_stands_still(self) -> None:
        with closing(self.start()) as db:
            ids = [db.write(lambda tx: tx.new_id()).result() for _ in range(40)]
            assert ids == sorted(ids)
            assert len(set(ids)) == 40

    def test_a_caller_hears_back_only_after_the_commit(self) -> None:
        done: list[str] = []
        # The hook runs after the commit and before callers get their results.
        hooks = Hooks(after_commit=[lambda _: done.append("committed")])
        with closing(self.start(hooks=hooks)) as db:
            done.clear()
            future = db.write(lambda tx: add(tx, "c"))
            future.add_done_callback(lambda _: done.append("heard"))
            future.result()
            assert done == ["committed", "heard"]

    def test_waiting_operations_share_one_commit(self) -> None:
        commits: list[Notes] = []
        with closing(self.start(hooks=Hooks(after_commit=[commits.append]))) as db:
            commits.clear()
            futures = _as_a_group(db, [_adding(f"c{n}") for n in range(20)])
            assert [future.result() for future in futures] == [f"c{n}" for n in range(20)]
            assert len(commits) == 2, "the one that was held up, and all the others"

    def test_a_failing_job_does_not_harm_its_group(self) -> None:
        with closing(self.start()) as db:

            def wrong(tx: Tx) -> None:
                add(tx, "wrong")
                raise ZeroDivisionError

            jobs: list[Callable[[Tx], Any]] = [_adding(f"c{n}") for n in range(10)]
            jobs[5:5] = [wrong, lambda tx: add(tx, "c0")]
            futures = _as_a_group(db, jobs)
            outcomes = [type(future.exception()) for future in futures]
            assert outcomes == [type(None)] * 5 + [ZeroDivisionError, errors.ConstraintError] + [type(None)] * 5
            assert db.read(lambda tx: [value(tx, f"c{n}") for n in range(10)]).result() == [0] * 10
            assert db.read(lambda tx: value(tx, "wrong")).result() is None

    def test_a_refusal_before_any_write_costs_its_neighbours_nothing(self) -> None:
        with closing(self.start()) as db:
            runs: list[int] = []

            def good(number: int) -> Callable[[Tx], None]:
                def run(tx: Tx) -> None:
                    runs.append(number)
                    add(tx, f"c{number}")

                return run

            def refuse(tx: Tx) -> None:
                assert tx.one(TAKE, name="nobody") is None
                raise errors.NotFoundError("nobody")

            jobs: list[Callable[[Tx], Any]] = [good(n) for n in range(6)]
            jobs.insert(3, refuse)
            futures = _as_a_group(db, jobs)
            assert isinstance(futures[3].exception(), errors.NotFoundError)
            assert sorted(runs) == list(range(6)), "each ran exactly once"

    def test_refused_is_recorded_and_raised(self) -> None:
        with closing(self.start()) as db:

            def spend(tx: Tx) -> Refused:
                add(tx, "spent")
                return Refused(errors.ConflictError("the budget is spent"))

            with pytest.raises(errors.ConflictError, match="spent"):
                db.write(spend).result()
            assert db.read(lambda tx: value(tx, "spent")).result() == 0

    # --- hooks ----------------------------------------------------------------------------------------------------

    def test_commit_hooks_see_the_notes_of_those_who_succeeded_once(self) -> None:
        recorded: list[list[str]] = []

        def record(tx: Tx) -> None:
            if names := tx.notes.get("name"):
                recorded.append(names)

        with closing(self.start(hooks=Hooks(before_commit=[record]))) as db:
            wait(_as_a_group(db, [_noting(f"c{n}", fail=n == 2) for n in range(5)]))
            assert recorded[-1] == ["c0", "c1", "c3", "c4"]

    def test_a_commit_hook_that_raises_stops_only_what_it_objects_to(self) -> None:
        def object_to(tx: Tx) -> None:
            if "bad" in tx.notes.get("name", []):
                raise errors.ConflictError("not that one")

        with closing(self.start(hooks=Hooks(before_commit=[object_to]))) as db:
            futures = _as_a_group(db, [_noting(name) for name in ("a", "bad", "b")])
            assert [type(future.exception()) for future in futures] == [type(None), errors.ConflictError, type(None)]
            assert db.read(lambda tx: [value(tx, n) for n in ("a", "bad", "b")]).result() == [0, None, 0]

    def test_the_gate_refuses_and_ungated_work_passes(self) -> None:
        locked = threading.Event()

        def gate(_: Tx) -> None:
            if locked.is_set():
                raise errors.ConflictError("locked")

        with closing(self.start(hooks=Hooks(gate=[gate]))) as db:
            locked.set()
            with pytest.raises(errors.ConflictError):
                db.write(lambda tx: add(tx, "c")).result()
            db.write(lambda tx: add(tx, "own record"), ungated=True).result()
            locked.clear()
            db.write(lambda tx: add(tx, "c")).result()

    def test_an_after_commit_hook_that_raises_changes_nothing(self) -> None:
        def wrong(_: Notes) -> None:
            raise ZeroDivisionError

        with closing(self.start(hooks=Hooks(after_commit=[wrong]))) as db:
            assert db.write(lambda tx: add(tx, "c")).result() == "c"
            assert db.read(lambda tx: value(tx, "c")).result() == 0

    # --- reads ----------------------------------------------------------------------------------------------------

    def test_a_read_sees_every_acknowledged_write(self) -> None:
        with closing(self.start(single=False)) as db:
            db.write(lambda tx: add(tx, "c")).result()
            for number in range(50):
                db.write(lambda tx: tx.execute(SET_COUNTER, name="c", value=number)).result()  # noqa: B023
                assert db.read(lambda tx: value(tx, "c")).result() == number

    def test_a_read_cannot_write(self) -> None:
        with closing(self.start()) as db:
            with pytest.raises(errors.DatabaseError):
                db.read(lambda tx: tx.count(ADD_COUNTER, name="c", value=0)).result()
            assert db.write(lambda tx: add(tx, "c")).result() == "c"

    def test_a_failing_read_does_not_harm_the_reads_beside_it(self) -> None:
        with closing(self.start()) as db:
            db.write(lambda tx: add(tx, "c")).result()
            futures: list[Future[Any]] = []
            for _ in range(20):
                futures.append(db.read(lambda tx: value(tx, "c")))
                futures.append(db.read(lambda tx: tx.all(BROKEN)))
            for good, bad in zip(futures[::2], futures[1::2], strict=True):
                assert good.result() == 0
                assert isinstance(bad.exception(), errors.QueryError)

    def test_reads_do_not_wait_for_a_writer_nor_see_its_unfinished_work(self) -> None:
        if not self.shared:
            pytest.skip("one connection serves all in memory")
        with closing(self.start()) as db:
            entered = threading.Event()
            go = threading.Event()

            def slow(tx: Tx) -> None:
                add(tx, "c")
                entered.set()
                assert go.wait(30)

            future = db.write(slow)
            assert entered.wait(30)
            assert db.read(lambda tx: value(tx, "c")).result(30) is None
            go.set()
            future.result()
            assert db.read(lambda tx: value(tx, "c")).result() == 0

    def test_two_statements_of_one_read_see_one_snapshot(self) -> None:
        if not self.shared:
            pytest.skip("one connection serves all in memory")
        with closing(self.start()) as db:
            db.write(lambda tx: add(tx, "c", value=1)).result()

            def look(tx: Tx) -> tuple[Any, Any]:
                before = value(tx, "c")
                db.write(lambda w: w.execute(SET_COUNTER, name="c", value=2)).result(30)
                return before, value(tx, "c")

            assert db.read(look).result() == (1, 1)

    # --- races ----------------------------------------------------------------------------------------------------

    def test_sixty_racing_callers_never_take_more_than_there_is(self) -> None:
        with closing(self.start(single=False)) as db:
            db.write(lambda tx: add(tx, "c", value=25)).result()
            entries_made: list[str | None] = []

            def race() -> None:
                entries_made.append(db.write(lambda tx: take(tx, "c")).result())

            # More threads than connections and more than there is to take.
            threads = [threading.Thread(target=race) for _ in range(60)]
            _run(threads)
            assert len([one for one in entries_made if one]) == 25
            assert db.read(lambda tx: (value(tx, "c"), entries(tx))).result() == (0, 25)

    def test_serializable_work_is_counted_exactly(self) -> None:
        with closing(self.start(single=False)) as db:
            db.write(lambda tx: add(tx, "c")).result()

            def read_then_write(tx: Tx) -> None:
                current = value(tx, "c")
                assert current is not None
                tx.execute(SET_COUNTER, name="c", value=current + 1)

            # Conflicts may be raised to the caller, but no acknowledged write may be lost.
            futures = [db.write(read_then_write, serializable=True) for _ in range(12)]
            done = sum(future.exception() is None for future in futures)
            assert db.read(lambda tx: value(tx, "c")).result() == done
            assert done > 0
            assert all(isinstance(f.exception(), errors.SerializationError | None) for f in futures)

    def test_a_storm_of_cancellations_never_hurts_the_writer(self) -> None:
        with closing(self.start(single=False)) as db:
            db.write(lambda tx: add(tx, "c", value=0)).result()
            futures = [db.write(lambda tx: enter(tx, "c")) for _ in range(500)]
            cancelled = [future.cancel() for future in futures[::2]]
            wait(futures)
            assert db.read(entries).result() == 500 - sum(cancelled)
            assert db.write(lambda tx: enter(tx, "c")).result()

    # --- the end --------------------------------------------------------------------------------------------------

    def test_closing_finishes_what_is_queued_and_refuses_the_rest(self) -> None:
        db = self.start()
        db.write(lambda tx: add(tx, "c")).result()
        futures = [db.write(lambda tx: enter(tx, "c")) for _ in range(100)]
        db.close()
        db.close()
        assert all(future.exception() is None for future in futures)
        for call in (db.write, db.read):
            with pytest.raises(errors.ClosedError):
                call(entries)
        if self.shared:
            with closing(self.start()) as again:
                assert again.read(entries).result() == 100

    def test_what_cannot_be_finished_in_time_is_failed_not_lost(self) -> None:
        db = self.start()
        entered = threading.Event()
        go = threading.Event()

        def stuck(_: Tx) -> None:
            entered.set()
            go.wait(30)

        first = db.write(stuck)
        assert entered.wait(30)
        second = db.write(lambda tx: add(tx, "c"))
        db.close(timeout_s=0.05)
        assert isinstance(second.exception(30), errors.ClosedError)
        go.set()
        assert first.exception(30) is None

    def test_a_dead_writer_fails_every_pending_and_later_call_with_the_cause(self) -> None:
        db = self.start()
        [worker] = db.backend.writer.workers

        def die(*_: Any) -> Any:
            raise MemoryError("out of luck")

        pending = _as_a_group(db, [lambda tx: add(tx, "c")] * 3, before=lambda: setattr(worker, "handle", die))
        for future in pending:
            error = future.exception(30)
            assert isinstance(error, errors.WriterDeadError)
            assert isinstance(error.__cause__, MemoryError)
        with pytest.raises(errors.WriterDeadError, match="out of luck"):
            db.write(lambda tx: add(tx, "c"))
        db.close()


def _adding(name: str) -> Callable[[Tx], str]:
    return lambda tx: add(tx, name)


def _noting(name: str, *, fail: bool = False) -> Callable[[Tx], None]:
    def run(tx: Tx) -> None:
        add(tx, name)
        tx.note("name", name)
        if fail:
            raise ZeroDivisionError

    return run


def _as_a_group(
    db: Database, jobs: Sequence[Callable[[Tx], T]], before: Callable[[], None] | None = None
) -> list["Future[T]"]:
    """Queue all jobs behind one that holds the writer up, so that they form one group; waits until all are done."""
    entered = threading.Event()
    go = threading.Event()

    def hold(_: Tx) -> None:
        entered.set()
        assert go.wait(30)

    blocker = db.write(hold)
    assert entered.wait(30)
    # They queue up while the writer is blocked, so that one group takes them all.
    futures = [db.write(job) for job in jobs]
    if before is not None:
        before()
    go.set()
    blocker.result(30)
    wait(futures, 30)
    return futures


def _run(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
