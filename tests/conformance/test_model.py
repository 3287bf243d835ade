"""A database against a dict: whatever fails, is refused or cancelled beside it, the rest is what was answered."""

import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from holdproof import errors
from holdproof.db import MEMORY, Database, Refused, Tx, open_database, sql
from holdproof.executors import SyncExecutor
from holdproof.testing.schema import COUNTERS, MIGRATIONS, value

_PUT = sql(
    "INSERT INTO counters (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_DROP = sql("DELETE FROM counters WHERE name = :name")
_CLEAR = sql("DELETE FROM counters")

NAMES = st.sampled_from("abcde")
VALUES = st.integers(0, 100)
HOW = st.sampled_from(["put", "put", "bump", "drop", "before", "after", "refused", "violated", "cancelled"])
ACTIONS = st.lists(st.tuples(HOW, NAMES, VALUES), min_size=1, max_size=8)

Action = tuple[str, str, int]
Model = dict[str, int]


def perform(tx: Tx, how: str, name: str, number: int) -> Any:
    """One operation, as a caller would write it; some fail, before or after they wrote."""
    if how == "before":
        raise LookupError(name)
    if how == "bump":
        number = min(100, (value(tx, name) or 0) + 1)
    if how == "drop":
        return tx.count(_DROP, name=name)
    tx.execute(_PUT, name=name, value=101 if how == "violated" else number, expect=1)
    if how == "after":
        raise LookupError(name)
    return Refused(errors.ConflictError(name)) if how == "refused" else number


def foresee(model: Model, how: str, name: str, number: int) -> Any:
    """The same on a dict: what the caller hears, and what is kept."""
    if how in {"before", "after"}:
        return LookupError
    if how == "violated":
        return errors.ConstraintError
    if how == "cancelled":
        return CancelledError
    if how == "drop":
        return int(model.pop(name, None) is not None)
    model[name] = min(100, model.get(name, 0) + 1) if how == "bump" else number
    return errors.ConflictError if how == "refused" else model[name]


def outcome(future: "Future[Any]") -> Any:
    """What a caller hears: the answer, or the class of the error."""
    if future.cancelled():
        return CancelledError
    error = future.exception(60)
    return future.result(0) if error is None else type(error)


def together(db: Database, actions: list[Action]) -> list[Any]:
    """Queue all actions behind one that holds the writer up, so that they form one group; what each caller hears."""
    entered, go = threading.Event(), threading.Event()

    def hold(_: Tx) -> None:
        entered.set()
        assert go.wait(60)

    held = db.write(hold)
    assert entered.wait(60)
    futures = [db.write(partial(perform, how=how, name=name, number=number)) for how, name, number in actions]
    for (how, _, _), future in zip(actions, futures, strict=True):
        if how == "cancelled":
            assert future.cancel()
    go.set()
    wait([held, *futures], 60)
    return [outcome(future) for future in futures]


def contents(tx: Tx) -> Model:
    return dict(tx.all(COUNTERS, after="", limit=100))


class Machine(RuleBasedStateMachine):
    """Groups, single writes, reads, closing and opening again, in any order."""

    start: Callable[[], tuple[Callable[[], Database], Callable[[], None]]]
    lasting = True

    def __init__(self) -> None:
        super().__init__()
        self.model: Model = {}

    @initialize()
    def begin(self) -> None:
        self.open, self.end = type(self).start()
        self.db = self.open()

    @rule(actions=ACTIONS)
    def group(self, actions: list[Action]) -> None:
        heard = together(self.db, actions)
        assert heard == [foresee(self.model, *action) for action in actions]

    @rule(how=HOW.filter(lambda how: how != "cancelled"), name=NAMES, number=VALUES)
    def write(self, how: str, name: str, number: int) -> None:
        future = self.db.write(partial(perform, how=how, name=name, number=number))
        assert outcome(future) == foresee(self.model, how, name, number)

    @rule(actions=ACTIONS)
    def one_transaction_of_many(self, actions: list[Action]) -> None:
        """All or nothing: one that fails takes the others with it."""
        kept = [action for action in actions if action[0] not in {"refused", "cancelled"}]
        trial = dict(self.model)
        foreseen = [foresee(trial, *action) for action in kept]
        failures = [one for one in foreseen if isinstance(one, type)]
        heard = outcome(self.db.write(lambda tx: [perform(tx, *action) for action in kept]))
        if failures:  # a pipelined one may be heard of only after the next
            assert heard in failures
        else:
            self.model = trial
            assert heard == foreseen

    @rule(name=NAMES)
    def read(self, name: str) -> None:
        assert self.db.read(lambda tx: value(tx, name)).result(60) == self.model.get(name)
        assert SyncExecutor(self.db).read(lambda tx: value(tx, name)) == self.model.get(name)

    @rule(finish=st.booleans(), name=NAMES, number=VALUES)
    def reopen(self, finish: bool, name: str, number: int) -> None:
        """Close, with or without work still queued, and open again."""
        last = self.db.write(partial(perform, how="put", name=name, number=number)) if finish else None
        self.db.close()
        if last is not None:
            assert last.result(0) == foresee(self.model, "put", name, number)
        if not self.lasting:
            self.model = {}
        self.db = self.open()

    @invariant()
    def all_is_as_it_was_answered(self) -> None:
        if hasattr(self, "db"):
            assert self.db.read(contents).result(60) == self.model

    def teardown(self) -> None:
        if hasattr(self, "db"):
            assert self.db.backend.check() == []
            self.db.close()
            self.end()


def _play(machine: type[Machine], *, examples: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=20,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(machine, settings=chosen)


def test_sqlite_is_a_dict_that_lasts() -> None:
    class OnFile(Machine):
        @staticmethod
        def start() -> tuple[Callable[[], Database], Callable[[], None]]:
            folder = Path(tempfile.mkdtemp(prefix="holdproof-model-"))
            return partial(open_database, folder / "kernel.db", migrations=MIGRATIONS), partial(shutil.rmtree, folder)

    _play(OnFile, examples=25)


def test_memory_is_a_dict_until_it_is_closed() -> None:
    class InMemory(Machine):
        lasting = False

        @staticmethod
        def start() -> tuple[Callable[[], Database], Callable[[], None]]:
            return partial(open_database, MEMORY, migrations=MIGRATIONS), lambda: None

    _play(InMemory, examples=40)


def test_postgres_is_a_dict_that_lasts(empty_postgres_url: str) -> None:
    class OnServer(Machine):
        @staticmethod
        def start() -> tuple[Callable[[], Database], Callable[[], None]]:
            opening = partial(open_database, empty_postgres_url, migrations=MIGRATIONS, workers=1, readers=1)
            db = opening()
            db.write(lambda tx: tx.execute(_CLEAR)).result()
            db.close()
            return opening, lambda: None

    _play(OnServer, examples=6)
