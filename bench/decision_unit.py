"""A whole decision by the runtime's own operations, and the ceiling for exactly the statements it runs.

Nineteen statements and five leaves: a flow that is opened, started, given its context, a lock and an audit event, and
completed. Each change of state has a leaf of its own, where the `logged` unit of workload.py has one for the decision.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, cast

import apsw

from bench import workload as w
from bench.measurement import Contestant, Meter, progress
from bench.peers_sqlite import GROUP, open_apsw
from holdproof import sync
from holdproof.db import Migration, Query, Row, Tx, migrate
from holdproof.runtime import audit, contexts, flows, locks

CONTEXT, DETAIL = json.loads(w.INPUT), json.loads(w.PAYLOAD)
_TRIAL = 1_000

Unit = list[w.Step]


def decide(tx: Tx, number: int) -> None:
    """One decision from its beginning to its end."""
    flow_id = flows.start(tx, w.AGENT, flow_type="rebalance").flow_id
    flows.transition(tx, flow_id, "RUNNING")
    contexts.put(tx, flow_id, CONTEXT)
    locks.try_acquire(tx, flow_id, {f"resource-{number % w.RESOURCES}": 1})
    audit.record(tx, flow_id, "DECIDED", detail=DETAIL)
    flows.transition(tx, flow_id, "COMPLETED")


# --- the ceiling -------------------------------------------------------------------------------------------------


class Recorder:
    """Around a transaction: writes down what it is asked. The log's own statements come at the commit, past it."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.unit: Unit = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def execute(self, query: Query, /, *, expect: int | None = None, **params: Any) -> None:
        """See Tx."""
        self.unit.append((query.sqlite, query.bind(params)))
        self._tx.execute(query, expect=expect, **params)

    def fetch(self, query: Query, params: Mapping[str, Any], /) -> list[Row]:
        """See Tx."""
        self.unit.append((query.sqlite, query.bind(params)))
        return self._tx.fetch(query, params)

    one, all = Tx.one, Tx.all


def record(count: int) -> list[Unit]:
    """The statements of that many decisions, as a real store runs them."""
    units: list[Unit] = []

    def group(tx: Tx) -> None:
        for _ in range(GROUP):
            recorder = Recorder(tx)
            decide(cast(Tx, recorder), len(units))
            units.append(recorder.unit)

    with tempfile.TemporaryDirectory(prefix="bench-") as home, opened(home) as store:
        while len(units) < count:
            progress(f"recording decisions: {len(units):,} of {count:,}")
            store.write(group)
    return units


def ceiling(seconds: float) -> Contestant:
    """apsw and the recorded statements, 100 decisions per commit: as many as a sample can use up."""
    tape: list[Unit] = []

    def sample(meter: Meter) -> None:
        if not tape:
            tape.extend(record(_enough(seconds)))
        with _ready() as connection:
            meter.start()
            for first in range(0, len(tape), GROUP):
                _replay(connection, tape[first : first + GROUP])
                if not meter.done(GROUP):
                    return

    return Contestant("ceiling", 1, sample)


def _enough(seconds: float) -> int:
    """More decisions than can be replayed in a sample, by a trial."""
    trial = record(_TRIAL)
    with _ready() as connection:
        start = time.perf_counter()
        for first in range(0, _TRIAL, GROUP):
            _replay(connection, trial[first : first + GROUP])
        return round(2 * _TRIAL * seconds / (time.perf_counter() - start)) + _TRIAL


def _replay(connection: apsw.Connection, units: list[Unit]) -> None:
    execute = connection.cursor().execute
    execute("BEGIN IMMEDIATE")
    for unit in units:
        for text, parameters in unit:
            execute(text, parameters).fetchall()
    execute("COMMIT")


@contextmanager
def _ready() -> Iterator[apsw.Connection]:
    """The tables of a store that was just opened, without anything above them."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        with opened(home) as store:
            path = store.core.paths.kernel_db
        with closing(open_apsw(str(path))) as connection:
            yield connection


@contextmanager
def opened(home: str, url: str | None = None, *more: Migration) -> Iterator[sync.Holdproof]:
    """The store of that folder, with the agent who decides."""
    with sync.open(home, url, migrations=[*migrate.shipped("kernel"), *more]) as store:
        store.agents.register(w.AGENT, version="1")
        yield store
