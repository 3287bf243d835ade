"""Group commit on a connection made of lists: who is tried again, who is answered, whose notes count."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from holdproof.db import group_commit
from holdproof.db.group_commit import GroupWriter, Hooks
from holdproof.db.sqlite.tx import SqliteTx
from holdproof.db.tx import Refused, Tx
from holdproof.db.worker_pool import FUTURES, Job
from holdproof.errors import ConflictError, OutcomeUnknownError, SerializationError, UnavailableError
from holdproof.testing import FrozenClock, SeededRandom


class _Connection:
    """Just enough for a transaction that runs no statement."""

    def cursor(self) -> "_Connection":
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class Disk:
    """A disk and the clock it is timed with: each sync takes what it is told to."""

    def __init__(self, sync_s: float) -> None:
        self.sync_s, self.now_s = sync_s, 0.0

    def sync(self) -> None:
        self.now_s += self.sync_s

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class FakeConnection:
    """A connection that records what is asked of it and fails where told to."""

    def __init__(self) -> None:
        self.tx: Tx = SqliteTx(_Connection(), FrozenClock(), SeededRandom())  # type: ignore[arg-type]
        self.log: list[str] = []
        self.tainted = False
        self.begin_errors: list[Exception] = []
        self.settle_errors: list[Exception | None] = []
        self.commit_errors: list[Exception] = []
        self.disk: Disk | None = None

    def begin(self, *, serializable: bool, together: bool) -> None:
        self.log.append("begin")
        if self.begin_errors:
            raise self.begin_errors.pop(0)

    def settle(self) -> None:
        if self.settle_errors and (error := self.settle_errors.pop(0)) is not None:
            raise error

    def commit(self) -> None:
        self.log.append("commit")
        if self.disk is not None:
            self.disk.sync()
        if self.commit_errors:
            raise self.commit_errors.pop(0)

    def rollback(self) -> None:
        self.log.append("rollback")

    def savepoint(self) -> None:
        self.log.append("savepoint")

    def release(self) -> None:
        self.log.append("release")

    def restore(self) -> bool:
        self.log.append("restore")
        return True

    def mark(self) -> int:
        return 0

    def wrote(self, mark: int) -> bool:
        return self.tainted

    def retryable(self, error: BaseException, *, together: bool) -> bool:
        return isinstance(error, SerializationError)

    def tidy(self) -> None:
        return

    def close(self) -> None:
        return


def _handle(writer: GroupWriter, *fns: Callable[[Tx], Any]) -> list["Future[Any]"]:
    futures: list[Future[Any]] = [Future() for _ in fns]
    assert writer.handle([Job(fn, FUTURES, future) for fn, future in zip(fns, futures, strict=True)]) == []
    return futures


def _make_careful(writer: GroupWriter, connection: FakeConnection) -> None:
    def wrong(_: Tx) -> None:
        connection.tainted = True
        raise ZeroDivisionError

    _handle(writer, wrong, lambda _: None)
    connection.tainted = False
    connection.log.clear()


class _Flaky:
    """Fails the first time for a reason that is not its own, as in a deadlock."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, _: Tx) -> str:
        self.runs += 1
        if self.runs == 1:
            raise SerializationError("deadlock detected")
        return "done"


def test_a_failure_after_a_write_makes_later_groups_careful() -> None:
    connection = FakeConnection()
    writer = GroupWriter(connection, Hooks())
    _make_careful(writer, connection)
    _handle(writer, lambda _: 1, lambda _: 2)
    assert connection.log == ["begin", "savepoint", "release", "savepoint", "release", "commit"]


def test_a_deadlock_is_tried_again_when_alone() -> None:
    flaky = _Flaky()
    [future] = _handle(GroupWriter(FakeConnection(), Hooks()), flaky)
    assert (future.result(0), flaky.runs) == ("done", 2)


def test_a_deadlock_inside_a_careful_group_is_tried_again() -> None:
    connection, flaky = FakeConnection(), _Flaky()
    writer = GroupWriter(connection, Hooks())
    _make_careful(writer, connection)
    first, second = _handle(writer, lambda _: "fine", flaky)
    assert (first.result(0), second.result(0)) == ("fine", "done")


@pytest.mark.parametrize("company", [1, 3])
def test_a_connection_lost_at_begin_is_tried_again_for_a_group_as_for_one(company: int) -> None:
    connection = FakeConnection()
    connection.begin_errors = [SerializationError("lost before anything was sent")]
    futures = _handle(GroupWriter(connection, Hooks()), *[lambda _: "done"] * company)
    assert [future.result(0) for future in futures] == ["done"] * company


def test_a_begin_that_fails_answers_all_without_running_any() -> None:
    connection, runs = FakeConnection(), list[int]()
    connection.begin_errors = [UnavailableError("no server")]
    futures = _handle(GroupWriter(connection, Hooks()), *[lambda _: runs.append(1)] * 3)
    assert all(isinstance(future.exception(0), UnavailableError) for future in futures)
    assert (runs, connection.log) == ([], ["begin"])


def test_notes_of_an_operation_that_fails_when_settled_do_not_reach_the_hooks() -> None:
    connection, seen = FakeConnection(), list[list[str]]()
    writer = GroupWriter(connection, Hooks(before_commit=[lambda tx: seen.append(list(tx.notes.get("name", [])))]))
    _make_careful(writer, connection)
    seen.clear()
    connection.settle_errors = [None, ConflictError("a pipelined statement failed"), None]
    futures = _handle(writer, *(lambda tx, n=n: tx.note("name", n) for n in ("a", "bad", "b")))
    assert [type(future.exception(0)) for future in futures] == [type(None), ConflictError, type(None)]
    assert seen == [["a", "b"]]


def test_what_was_recorded_and_refused_is_committed_once_whatever_the_error() -> None:
    connection = FakeConnection()
    [future] = _handle(GroupWriter(connection, Hooks()), lambda _: Refused(SerializationError("kept colliding")))
    assert isinstance(future.exception(0), SerializationError)
    assert connection.log.count("commit") == 1


# --- waiting for company -------------------------------------------------------------------------------------------

SLOW_S, FAST_S = 0.004, 0.0001


def _practised(monkeypatch: pytest.MonkeyPatch, *, sync_s: float, company: int, groups_run: int = 40) -> GroupWriter:
    """A writer that has seen that many groups of that size, on a disk of that speed."""
    connection = FakeConnection()
    connection.disk = Disk(sync_s)
    monkeypatch.setattr(group_commit, "time", connection.disk)
    writer = GroupWriter(connection, Hooks())
    for _ in range(groups_run):
        _handle(writer, *[lambda _: None] * company)
    return writer


def test_a_fast_disk_never_makes_anybody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = _practised(monkeypatch, sync_s=FAST_S, company=32)
    assert [writer.pause_s(waiting) for waiting in (1, 2, 31, 32, 500)] == [0.0] * 5


def test_a_slow_disk_makes_the_first_wait_for_the_usual_usual_group(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = _practised(monkeypatch, sync_s=SLOW_S, company=32)
    assert 0 < writer.pause_s(1) <= SLOW_S / 8
    assert writer.pause_s(16) > 0


def test_a_pause_is_a_fraction_of_the_sync_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _practised(monkeypatch, sync_s=0.0008, company=32).pause_s(1) == pytest.approx(0.0001)
    assert _practised(monkeypatch, sync_s=2.0, company=32).pause_s(1) == 0.0005


def test_nobody_waits_once_the_usual_company_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = _practised(monkeypatch, sync_s=SLOW_S, company=32)
    assert [writer.pause_s(waiting) for waiting in (30, 32, 100)] == [0.0] * 3


def test_a_lone_caller_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _practised(monkeypatch, sync_s=SLOW_S, company=1).pause_s(1) == 0.0


def test_a_caller_who_is_alone_again_soon_stops_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = _practised(monkeypatch, sync_s=SLOW_S, company=32)
    for _ in range(60):
        _handle(writer, lambda _: None)
    assert writer.pause_s(1) == 0.0


def test_a_new_writer_does_not_wait_before_it_knows_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _practised(monkeypatch, sync_s=SLOW_S, company=32, groups_run=15).pause_s(1) == 0.0


def test_one_fast_sync_is_enough_to_stop_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow one may be a neighbour's fault; a fast one proves that the disk can."""
    writer = _practised(monkeypatch, sync_s=SLOW_S, company=32)
    connection = writer.connection
    assert isinstance(connection, FakeConnection)
    assert connection.disk is not None
    connection.disk.sync_s = FAST_S
    _handle(writer, *[lambda _: None] * 32)
    assert writer.pause_s(1) == 0.0


# --- a commit whose fate is unknown --------------------------------------------------------------------------------


@pytest.mark.parametrize("company", [1, 3])
def test_an_unknown_outcome_fails_all_of_a_group_and_nothing_is_run_again(company: int) -> None:
    connection, runs = FakeConnection(), list[int]()
    connection.commit_errors = [OutcomeUnknownError("the connection broke during commit")]
    futures = _handle(GroupWriter(connection, Hooks()), *[lambda _: runs.append(1)] * company)
    assert [type(future.exception(0)) for future in futures] == [OutcomeUnknownError] * company
    assert (len(runs), connection.log.count("commit")) == (company, 1)


def test_a_writer_goes_on_after_an_unknown_outcome() -> None:
    connection = FakeConnection()
    connection.commit_errors = [OutcomeUnknownError("the connection broke during commit")]
    writer = GroupWriter(connection, Hooks())
    _handle(writer, lambda _: 1, lambda _: 2)
    assert [future.result(0) for future in _handle(writer, lambda _: 3, lambda _: 4)] == [3, 4]


def test_after_commit_hooks_hear_nothing_of_an_unknown_outcome() -> None:
    connection, heard = FakeConnection(), list[Any]()
    connection.commit_errors = [OutcomeUnknownError("the connection broke during commit")]
    _handle(GroupWriter(connection, Hooks(after_commit=[heard.append])), lambda tx: tx.note("name", "a"))
    assert heard == []


# --- crowds that collide -------------------------------------------------------------------------------------------


class Tally:
    """Numbered operations: which were part of a commit how often, and what their callers heard."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self.kept: list[int] = []
        writer.hooks.after_commit.append(lambda notes: self.kept.extend(notes.get("number", [])))

    def run(self, count: int, *collide: int) -> list[Any]:
        """That many operations in one batch, some of which collide in company and succeed alone; the answers."""
        return [
            future.result(0) for future in _handle(self._writer, *(self._job(n, n in collide) for n in range(count)))
        ]

    def _job(self, number: int, collide: bool) -> Callable[[Tx], int]:
        flaky = _Flaky() if collide else None

        def job(tx: Tx) -> int:
            if flaky is not None:
                flaky(tx)
            tx.note("number", number)
            return number

        return job


def _begins(connection: FakeConnection, run: Callable[[], Any]) -> int:
    """How many transactions a run takes."""
    before = connection.log.count("begin")
    run()
    return connection.log.count("begin") - before


def test_a_group_that_collides_is_carried_out_one_by_one() -> None:
    connection = FakeConnection()
    tally = Tally(GroupWriter(connection, Hooks()))
    assert tally.run(20, 7) == list(range(20))
    assert tally.kept == list(range(20))
    assert connection.log.count("commit") == 20


def test_crowds_shrink_while_groups_collide() -> None:
    connection = FakeConnection()
    tally = Tally(GroupWriter(connection, Hooks()))
    assert _begins(connection, lambda: tally.run(512)) == 1
    tally.run(2, 0)
    tally.run(2, 0)
    assert 4 < _begins(connection, lambda: tally.run(512)) <= 512 // 8


def test_every_operation_runs_though_the_crowd_shrinks_in_the_middle_of_a_batch() -> None:
    tally = Tally(GroupWriter(FakeConnection(), Hooks()))
    tally.run(2, 0)
    tally.run(2, 0)
    tally.kept.clear()
    assert tally.run(128, 3) == list(range(128)), "answered without having been carried out"
    assert sorted(tally.kept) == list(range(128))


def test_no_operation_runs_twice_though_the_crowd_grows_in_the_middle_of_a_batch() -> None:
    tally = Tally(GroupWriter(FakeConnection(), Hooks()))
    tally.run(2, 0)
    tally.run(2, 0)
    tally.kept.clear()
    assert tally.run(128) == list(range(128))
    assert sorted(tally.kept) == list(range(128)), "committed twice"


@pytest.mark.parametrize(
    "collisions",
    [
        1,
        3,
        pytest.param(
            8,
        ),
    ],
)
def test_crowds_grow_back_after_collisions(collisions: int) -> None:
    connection = FakeConnection()
    tally = Tally(GroupWriter(connection, Hooks()))
    for _ in range(collisions):
        tally.run(2, 0)
    for _ in range(600):
        tally.run(2)
    assert _begins(connection, lambda: tally.run(512)) == 1
