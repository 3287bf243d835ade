"""Group commit on a link made of lists: who is tried again, who is answered, whose notes count."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from holdfast.db.groups import GroupWriter, Hooks
from holdfast.db.pump import FUTURES, Job
from holdfast.db.sqlite.tx import SqliteTx
from holdfast.db.tx import Refused, Tx
from holdfast.errors import ConflictError, SerializationError, UnavailableError
from holdfast.testing import FrozenClock, SeededRandom


class _Connection:
    """Just enough for a transaction that runs no statement."""

    def cursor(self) -> "_Connection":
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class FakeLink:
    """A link that records what is asked of it and fails where told to."""

    def __init__(self) -> None:
        self.tx: Tx = SqliteTx(_Connection(), FrozenClock(), SeededRandom())  # type: ignore[arg-type]
        self.log: list[str] = []
        self.tainted = False
        self.begin_errors: list[Exception] = []
        self.settle_errors: list[Exception | None] = []

    def begin(self, *, serializable: bool, together: bool) -> None:
        self.log.append("begin")
        if self.begin_errors:
            raise self.begin_errors.pop(0)

    def settle(self) -> None:
        if self.settle_errors and (error := self.settle_errors.pop(0)) is not None:
            raise error

    def commit(self) -> None:
        self.log.append("commit")

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
    tickets: list[Future[Any]] = [Future() for _ in fns]
    assert writer.handle([Job(fn, FUTURES, ticket) for fn, ticket in zip(fns, tickets, strict=True)]) == []
    return tickets


def _make_careful(writer: GroupWriter, link: FakeLink) -> None:
    def wrong(_: Tx) -> None:
        link.tainted = True
        raise ZeroDivisionError

    _handle(writer, wrong, lambda _: None)
    link.tainted = False
    link.log.clear()


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
    link = FakeLink()
    writer = GroupWriter(link, Hooks())
    _make_careful(writer, link)
    _handle(writer, lambda _: 1, lambda _: 2)
    assert link.log == ["begin", "savepoint", "release", "savepoint", "release", "commit"]


def test_a_deadlock_is_tried_again_when_alone() -> None:
    flaky = _Flaky()
    [ticket] = _handle(GroupWriter(FakeLink(), Hooks()), flaky)
    assert (ticket.result(0), flaky.runs) == ("done", 2)


def test_a_deadlock_inside_a_careful_group_is_tried_again() -> None:
    link, flaky = FakeLink(), _Flaky()
    writer = GroupWriter(link, Hooks())
    _make_careful(writer, link)
    first, second = _handle(writer, lambda _: "fine", flaky)
    assert (first.result(0), second.result(0)) == ("fine", "done")


@pytest.mark.parametrize("company", [1, 3])
def test_a_connection_lost_at_begin_is_tried_again_for_a_group_as_for_one(company: int) -> None:
    link = FakeLink()
    link.begin_errors = [SerializationError("lost before anything was sent")]
    tickets = _handle(GroupWriter(link, Hooks()), *[lambda _: "done"] * company)
    assert [ticket.result(0) for ticket in tickets] == ["done"] * company


def test_a_begin_that_fails_answers_all_without_running_any() -> None:
    link, runs = FakeLink(), list[int]()
    link.begin_errors = [UnavailableError("no server")]
    tickets = _handle(GroupWriter(link, Hooks()), *[lambda _: runs.append(1)] * 3)
    assert all(isinstance(ticket.exception(0), UnavailableError) for ticket in tickets)
    assert (runs, link.log) == ([], ["begin"])


def test_notes_of_an_operation_that_fails_when_settled_do_not_reach_the_hooks() -> None:
    link, seen = FakeLink(), list[list[str]]()
    writer = GroupWriter(link, Hooks(before_commit=[lambda tx: seen.append(list(tx.notes.get("name", [])))]))
    _make_careful(writer, link)
    seen.clear()
    link.settle_errors = [None, ConflictError("a pipelined statement failed"), None]
    tickets = _handle(writer, *(lambda tx, n=n: tx.note("name", n) for n in ("a", "bad", "b")))
    assert [type(ticket.exception(0)) for ticket in tickets] == [type(None), ConflictError, type(None)]
    assert seen == [["a", "b"]]


def test_what_was_recorded_and_refused_is_committed_once_whatever_the_error() -> None:
    link = FakeLink()
    [ticket] = _handle(GroupWriter(link, Hooks()), lambda _: Refused(SerializationError("kept colliding")))
    assert isinstance(ticket.exception(0), SerializationError)
    assert link.log.count("commit") == 1
