"""What a flow recorded, edited behind its back: nothing of it is run, whoever runs it; on every backend.

An order of tea becomes an order of a yacht in the database. A worker that recovers the flow must not order it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.db import sql
from holdproof.executors import SyncExecutor
from holdproof.model.verdicts import Verdict
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]
_LARGE = "tea, please. " * 1000
_YACHT = '{"args": ["a yacht", 90000000], "kwargs": {}}'
# Which cell is edited, for which row, and where `verify` finds it.
_EDITS = {
    "input": ("flow_calls", "arguments", "dfid = 'o-1'", _YACHT),
    "argument": ("flow_steps", "arguments", "name = 'plan'", _YACHT),
    "argument hash": ("flow_steps", "arguments_hash", "name = 'plan'", "00"),
    "result": ("flow_steps", "result", "name = 'plan'", '"a yacht"'),
    "function": ("flow_calls", "name", "dfid = 'o-1'", "buy_yacht"),
}
_READ = {case: sql(f"SELECT {edit[1]} FROM {edit[0]} WHERE {edit[2]}") for case, edit in _EDITS.items()}
_EDIT = {case: sql(f"UPDATE {edit[0]} SET {edit[1]} = :value WHERE {edit[2]}") for case, edit in _EDITS.items()}
_ENDING = "WHERE dfid = 'o-1' AND to_status = 'COMPLETED'"
_READ["transition result"] = sql(f"SELECT result FROM flow_transitions {_ENDING}")
_EDIT["transition result"] = sql(f"UPDATE flow_transitions SET result = :value {_ENDING}")
_READ["part"] = sql("SELECT data FROM objects ORDER BY length(data) DESC LIMIT 1")
_EDIT["part"] = sql(
    "UPDATE objects SET data = :value WHERE h = (SELECT h FROM objects ORDER BY length(data) DESC LIMIT 1)"
)


class Market:
    def __init__(self) -> None:
        self.ordered: list[Any] = []

    def plan(self, what: str, cents: int) -> str:
        self.ordered.append(("plan", what[:10], cents))
        return what

    def order(self, what: str) -> str:
        self.ordered.append(("order", what[:10]))
        return what


def buying(store: sync.Holdproof, market: Market, *, crash: bool = False) -> Any:
    for name in ("buy", "buy_yacht"):

        @store.flow(name=name, agent="trader", lease_s=10)
        def buy(flow: Flow, what: str, cents: int) -> str:
            plan = flow.step("plan", market.plan, what, cents)
            if crash:
                raise CrashError
            return flow.step("order", market.order, plan)

        if name == "buy":
            bought = buy
    return bought


class Yacht(OnStore):
    @contextmanager
    def edited(self, store: sync.Holdproof, case: str, value: Any) -> Iterator[None]:
        """Edit a cell, and put it back: the store's fixture proves every row at the end."""
        row = store.read(lambda tx: tx.one(_READ[case]))
        assert row is not None
        store.write(lambda tx: tx.execute(_EDIT[case], value=value, expect=1))
        try:
            yield
        finally:
            (before,) = row
            store.write(lambda tx: tx.execute(_EDIT[case], value=before, expect=1))

    def orphan(self, store: sync.Holdproof, clock: FrozenClock, what: str) -> Market:
        """A flow whose worker died after its first step."""
        market = Market()
        with pytest.raises(CrashError):
            buying(sync.Holdproof(store.core), market, crash=True).with_id("o-1")(what, 500)
        clock.advance(10)
        market.ordered.clear()
        return market

    @pytest.mark.parametrize("case", [*_EDITS, "part"])
    def test_an_edited_record_is_not_run_and_verify_names_it(
        self, store: sync.Holdproof, clock: FrozenClock, case: str
    ) -> None:
        market = self.orphan(store, clock, _LARGE if case == "part" else "tea")
        worker = sync.Holdproof(store.core)
        buying(worker, market)
        table, value = ("objects", b"a yacht" * 100) if case == "part" else (_EDITS[case][0], _EDITS[case][3])
        with self.edited(store, case, value):
            [again] = worker.flows.recover().reruns
            assert (again.error or "").startswith(f"TamperedError: {table}")
            assert market.ordered == []
            assert store.flows.get("o-1").status == "RUNNING"
            report = store.verify.run(full=True, lock=False)
            assert report.verdict.locks
            assert table in {finding.table for finding in report.findings}
            with pytest.raises(errors.TamperedError):
                worker.flows.replay("o-1")
            with pytest.raises(errors.TamperedError):
                worker.flows.fork("o-1", at="plan", effects="real")
        event = store.audit.list(flow_id="o-1").items[0]  # the newest; another worker took the flow before
        assert (event.event_type, event.severity) == ("FLOW_STOPPED", "CRITICAL")
        # Due never again by itself; once the record is restored a person wakes it.
        clock.advance(1000)
        assert worker.flows.recover().reruns == ()
        assert market.ordered == []

    def test_an_edited_result_of_a_flow_is_not_given_out_and_verify_names_it(self, store: sync.Holdproof) -> None:
        market = Market()
        buy = buying(store, market).with_id("o-1")
        assert buy("tea", 500) == "tea"
        with self.edited(store, "transition result", '"a yacht"'):
            for use in (lambda: store.flows.result("o-1"), lambda: buy("tea", 500), lambda: store.flows.replay("o-1")):
                with pytest.raises(errors.TamperedError, match="flow_transitions"):
                    use()
            report = store.verify.run(full=True, lock=False)
            assert (report.verdict, report.findings[0].table) == (Verdict.TAMPERED, "flow_transitions")
        assert buy("tea", 500) == "tea"
        assert len(market.ordered) == 2


class TestSqlite(OnSqlite, Yacht):
    pass


class TestMemory(InMemory, Yacht):
    pass


class TestPostgres(OnPostgres, Yacht):
    pass
