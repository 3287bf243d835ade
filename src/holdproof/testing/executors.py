"""The conformance suite of executors: the async and the sync one give the same results on every database."""

import asyncio
import inspect
import threading
import time
from abc import ABC, abstractmethod
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import Any

import pytest

from holdproof import errors
from holdproof.db import Call, Database, Read, Refused, Tx, Wait, Work, Write, ask
from holdproof.executors import AsyncExecutor, Executor, Reads, Resource, Runs, SyncExecutor, Writes
from holdproof.model.times import later
from holdproof.testing.clocks import FrozenClock
from holdproof.testing.schema import COUNTERS, MIGRATIONS, add, enter, entries, take, value


def drain(name: str, *, patience_s: float = 30.0) -> Work[int]:
    """Take from a counter until it is empty; waits for it to appear first."""
    # The deadline is by the clock of the database, which tests can stop.
    until = yield from ask(Read(lambda tx: later(tx.now, patience_s)))
    while (yield from ask(Read(lambda tx: value(tx, name)))) is None:
        yield Wait(f"counter:{name}", until)
    count = 0
    while (yield from ask(Write(lambda tx: take(tx, name)))) is not None:
        count += 1
    return count


class Counters(Resource[Executor]):
    """A resource, for either executor."""

    add = Writes(add)
    value = Reads(value)
    drain = Runs(drain)


def announce(tx: Tx, name: str, amount: int) -> None:
    """A new counter, and those who wait for it are told."""
    add(tx, name, amount)
    tx.notify(f"counter:{name}")


class ExecutorSuite(ABC):
    """One claim a test, for the async and the sync client."""

    shared = True

    @abstractmethod
    def open(self, **options: Any) -> Database:
        """Open the test's database with these options."""

    def start(self, **options: Any) -> Database:
        """Open with the suite's tables."""
        return self.open(migrations=MIGRATIONS, **options)

    def test_a_method_has_the_signature_of_its_operation_without_the_transaction(self) -> None:
        with closing(self.start()) as db:
            # MCP tools, HTTP and the command line are generated from this signature.
            for resource in (Counters(AsyncExecutor(db)), Counters(SyncExecutor(db))):
                assert str(inspect.signature(resource.add)) == "(name: str, value: int = 0) -> str"
                assert str(inspect.signature(resource.drain)).startswith("(name: str, *, patience_s: float = 30.0)")
                assert resource.add.__name__ == "add"
                assert str(resource.add.__doc__).endswith("Add a counter.")

    def test_both_executors_give_the_same_answers(self) -> None:
        with closing(self.start()) as db:
            plain = Counters(SyncExecutor(db))
            asynchronous = Counters(AsyncExecutor(db))

            async def play() -> list[Any]:
                return [
                    await asynchronous.add("a", value=3),
                    await asynchronous.value("a"),
                    await asynchronous.drain("a"),
                ]

            assert asyncio.run(play()) == ["a", 3, 3]
            assert [plain.add("b", value=3), plain.value("b"), plain.drain("b")] == ["b", 3, 3]
            for error in (self._error(lambda: plain.add("a")), self._error(lambda: asyncio.run(_await(asynchronous)))):
                assert type(error) is errors.ConstraintError

    @staticmethod
    def _error(call: Any) -> BaseException | None:
        try:
            call()
        except errors.HoldproofError as error:
            return error
        return None

    def test_operations_compose_into_one_atomic_act(self) -> None:
        with closing(self.start()) as db:
            executor = SyncExecutor(db)
            assert executor.write(lambda tx: (add(tx, "a", 1), take(tx, "a")))[0] == "a"
            with pytest.raises(errors.ConstraintError):
                executor.write(lambda tx: (add(tx, "b"), add(tx, "a")))
            assert executor.read(lambda tx: value(tx, "b")) is None
            # `Refused` commits what was written and then raises; an exception would roll back.
            with pytest.raises(errors.ConflictError, match="recorded"):
                executor.write(lambda tx: (add(tx, "c"), Refused(errors.ConflictError("recorded")))[1])
            assert executor.read(lambda tx: value(tx, "c")) == 0

    def test_work_hears_the_errors_of_its_effects(self) -> None:
        def stubborn() -> Work[str]:
            yield from ask(Write(lambda tx: add(tx, "a")))
            try:
                yield from ask(Write(lambda tx: add(tx, "a")))
            except errors.ConstraintError:
                return (yield from ask(Call(lambda: "caught")))
            return "not raised"

        with closing(self.start()) as db:
            assert SyncExecutor(db).run(stubborn()) == "caught"
            with pytest.raises(errors.ConstraintError):
                asyncio.run(_run(db, stubborn()))

    def test_a_call_may_be_async_only_with_the_async_executor(self) -> None:
        async def asynchronous() -> str:
            await asyncio.sleep(0)
            return "asynchronous"

        def work(call: Any) -> Work[str]:
            return (yield from ask(Call(call)))

        with closing(self.start()) as db:
            assert asyncio.run(_run(db, work(asynchronous))) == "asynchronous"
            # functools.partial hides a coroutine function from naive checks.
            assert asyncio.run(_run(db, work(partial(asynchronous)))) == "asynchronous"
            assert asyncio.run(_run(db, work(lambda: "plain"))) == "plain"
            assert SyncExecutor(db).run(work(lambda: "plain")) == "plain"
            for wrong in (asynchronous, partial(asynchronous), lambda: asynchronous()):  # noqa: PLW0108 (a plain function)
                with pytest.raises(errors.WrongClientError):
                    SyncExecutor(db).run(work(wrong))

    def test_a_waiter_is_woken_by_the_commit_it_waits_for(self) -> None:
        with closing(self.start()) as db:
            executor = SyncExecutor(db)
            done: list[int] = []
            waiter = threading.Thread(target=lambda: done.append(executor.run(drain("late"))))
            # The waiter looks, finds nothing, and must be woken by the commit that follows.
            waiter.start()
            executor.write(lambda tx: announce(tx, "late", 4))
            waiter.join(30)

            async def both() -> int:
                asynchronous = AsyncExecutor(db)
                waiting = asyncio.create_task(asynchronous.run(drain("later")))
                # Let the waiter reach its wait before the counter appears.
                await asyncio.sleep(0.01)
                await asynchronous.write(lambda tx: announce(tx, "later", 5))
                return await waiting

            assert (done, asyncio.run(both())) == ([4], 5)

    def test_a_waiter_is_woken_by_another_opening_of_the_database(self) -> None:
        if not self.shared:
            pytest.skip("memory is not shared")
        with closing(self.start()) as one, closing(self.start()) as other:
            done: list[int] = []
            waiter = threading.Thread(target=lambda: done.append(SyncExecutor(one).run(drain("late"))))
            waiter.start()
            SyncExecutor(other).write(lambda tx: announce(tx, "late", 4))
            waiter.join(30)
            assert done == [4]

    def test_a_notification_between_look_and_wait_is_not_lost(self) -> None:
        with closing(self.start()) as db:
            executor = SyncExecutor(db)

            def work() -> Work[bool]:
                yield from ask(Read(lambda tx: value(tx, "c")))
                # The commit comes after the look and before the wait: the worst moment.
                yield from ask(Call(lambda: executor.write(lambda tx: announce(tx, "c", 1))))
                woken: bool = yield Wait("counter:c")
                return woken

            assert executor.run(work()) is True

    def test_a_wait_ends_at_its_deadline_by_the_database_clock(self) -> None:
        clock = FrozenClock()
        with closing(self.start(clock=clock)) as db:

            def work() -> Work[list[bool]]:
                until = yield from ask(Read(lambda tx: later(tx.now, 3600)))
                first = yield Wait("never", until)
                # Frozen time does not pass by waiting: only this ends the second wait.
                clock.advance(3600)
                return [first, (yield Wait("never", until))]

            assert SyncExecutor(db).run(work()) == [False, False]

    def test_an_operation_that_asks_its_own_store_is_refused_instead_of_hanging(self) -> None:
        with closing(self.start()) as db:
            executor = SyncExecutor(db)
            with pytest.raises(errors.NestedCallError):
                # The writer would wait for itself.
                executor.write(lambda tx: executor.write(lambda inner: add(inner, "a")))
            assert executor.write(lambda tx: add(tx, "a")) == "a"

    def test_the_sync_executor_works_inside_a_running_loop_beside_the_async_one(self) -> None:
        async def play(db: Database) -> list[Any]:
            plain = Counters(SyncExecutor(db))
            # Queued before and answered after the sync calls, which the loop waits for in between.
            queued = asyncio.ensure_future(Counters(AsyncExecutor(db)).add("b", value=2))
            answers: list[Any] = [plain.add("a", value=3), plain.value("a"), plain.drain("a")]
            return [*answers, await queued, plain.value("b")]

        with closing(self.start()) as db:
            assert asyncio.run(play(db)) == ["a", 3, 3, "b", 2]

    def test_a_stream_of_the_sync_executor_outlives_the_loop_in_which_it_was_begun(self) -> None:
        with closing(self.start()) as db:
            executor = SyncExecutor(db)
            executor.write(lambda tx: [add(tx, name) for name in ("a", "b", "c")])

            async def begin() -> tuple[Any, Any]:
                rows = executor.scan(COUNTERS, by=itemgetter(0), after="", page=1)
                return next(rows), rows

            (first, _), rest = asyncio.run(begin())
            assert [first, *(name for name, _ in rest)] == ["a", "b", "c"]

    def test_a_sync_wait_ends_when_the_task_that_waits_is_cancelled(self) -> None:
        """As by the first Ctrl-C under `asyncio.run`, whose handler cancels the task in the middle of its wait."""

        async def wait(db: Database) -> None:
            task = asyncio.current_task()
            assert task is not None
            threading.Timer(0.01, task.cancel).start()
            SyncExecutor(db).run(drain("never"))

        with closing(self.start()) as db, pytest.raises(asyncio.CancelledError):
            asyncio.run(wait(db))

    def test_cancelled_coroutines_never_hurt_the_writer(self) -> None:
        async def storm(db: Database) -> int:
            executor = AsyncExecutor(db)
            await executor.write(lambda tx: add(tx, "c"))
            tasks = [asyncio.ensure_future(executor.write(lambda tx: enter(tx, "c"))) for _ in range(300)]
            # A third is cancelled before the writer sees it, another third while it is queued or running.
            for task in tasks[::3]:
                task.cancel()
            await asyncio.sleep(0)
            for task in tasks[1::3]:
                task.cancel()
            succeeded = sum(isinstance(r, str) for r in await asyncio.gather(*tasks, return_exceptions=True))
            assert succeeded >= 100
            assert await executor.write(lambda tx: enter(tx, "c"))
            return succeeded

        with closing(self.start()) as db:
            succeeded = asyncio.run(storm(db))
            assert db.read(entries).result() > succeeded

    def test_a_loop_that_was_closed_does_not_hurt_the_writer(self) -> None:
        with closing(self.start()) as db:
            executor = AsyncExecutor(db)
            entered = threading.Event()
            go = threading.Event()

            def slow(tx: Tx) -> None:
                enter(tx, "c")
                entered.set()
                go.wait(30)

            db.write(lambda tx: add(tx, "c")).result()

            async def abandon() -> None:
                task = asyncio.ensure_future(executor.write(slow))
                while not entered.is_set():
                    await asyncio.sleep(0.001)
                task.cancel()

            asyncio.run(abandon())
            go.set()
            assert db.write(lambda tx: enter(tx, "c")).result(30)

    def test_one_executor_serves_many_loops(self) -> None:
        with closing(self.start()) as db:
            executor = AsyncExecutor(db)
            db.write(lambda tx: add(tx, "c")).result()

            async def some() -> None:
                await asyncio.gather(*(executor.write(lambda tx: enter(tx, "c")) for _ in range(25)))

            threads = [threading.Thread(target=lambda: asyncio.run(some())) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert db.read(entries).result() == 100

    def test_a_busy_event_loop_cannot_starve_the_writer(self) -> None:
        """A loop that never sleeps leaves the writer at least a tenth of what an idle one lets it do."""

        async def play(db: Database, *, saturated: bool) -> int:
            executor = AsyncExecutor(db)
            done = 0
            busy = True
            deadline = time.monotonic() + 1.0

            async def write() -> None:
                nonlocal done
                while busy:
                    await executor.write(lambda tx: [enter(tx, "c") for _ in range(8)])
                    done += 1

            tasks = [asyncio.create_task(write()) for _ in range(4)]
            # sleep(0) keeps the loop busy without ever idling, like a server under load.
            while time.monotonic() < deadline:
                await asyncio.sleep(0 if saturated else 0.01)
            busy = False
            await asyncio.gather(*tasks)
            return done

        with closing(self.start()) as db:
            db.write(lambda tx: add(tx, "c")).result()
            idle = asyncio.run(play(db, saturated=False))
            busy = asyncio.run(play(db, saturated=True))
            assert busy > idle / 10, (busy, idle)

    def test_a_scan_sees_every_row_in_order_page_by_page(self) -> None:
        with closing(self.start()) as db:
            executor = SyncExecutor(db)
            names = [f"c{n:03}" for n in range(25)]
            executor.write(lambda tx: [add(tx, name) for name in names])
            rows = executor.scan(COUNTERS, by=itemgetter(0), after="", page=10)
            # A row that is added between two pages is seen: a scan holds no snapshot.
            first_name, _ = next(rows)
            executor.write(lambda tx: add(tx, "c999"))
            assert [first_name, *(name for name, _ in rows)] == [*names, "c999"]

            async def gather() -> list[str]:
                pages = AsyncExecutor(db).scan(COUNTERS, by=itemgetter(0), after="", page=7)
                return [name async for name, _ in pages]

            assert asyncio.run(gather()) == [*names, "c999"]


async def _await(resource: Counters[AsyncExecutor]) -> None:
    await resource.add("a")


async def _run(db: Database, work: Work[Any]) -> Any:
    return await AsyncExecutor(db).run(work)
