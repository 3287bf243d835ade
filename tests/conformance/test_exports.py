"""Flows and events for other programs: each once, each whole, a page at a time; on every backend."""

import pytest

from harness.filling import running
from holdproof import sync
from holdproof.runtime import exports
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


class Exports(OnStore):
    @pytest.fixture(autouse=True)
    def _small_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exports, "_PAGE", 2)

    def test_every_flow_comes_once_with_its_history(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader", flow_type="trade") as flow:
            flow.step("quote", lambda: 7)
        others = [running(store) for _ in range(4)]
        found = list(store.flows.export())
        assert [each.flow.flow_id for each in found] == sorted([flow.flow_id, *others])
        first = next(each for each in found if each.flow.flow_id == flow.flow_id)
        assert first.transitions == store.flows.transitions(flow.flow_id)
        assert [(step.name, step.result) for step in first.steps] == [("quote", 7)]
        assert list(store.flows.export(ns="other")) == []
        assert list(store.flows.export(since="2999-01-01T00:00:00Z")) == []

    def test_every_event_that_matches_comes_once_and_in_order(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        for number in range(5):
            store.audit.record(flow_id, "SAID", severity="ERROR" if number % 2 else "INFO", detail={"n": number})
        said = [each.detail["n"] for each in store.audit.export(event_type="SAID")]
        assert said == [0, 1, 2, 3, 4]
        assert [each.detail["n"] for each in store.audit.export(severity="ERROR")] == [1, 3]


class TestSqlite(OnSqlite, Exports):
    pass


class TestMemory(InMemory, Exports):
    pass


class TestPostgres(OnPostgres, Exports):
    pass
