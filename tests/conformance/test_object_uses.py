"""Who wrote an object, in which flow, and which flows used it, on every backend."""

import pytest

from holdproof import sync
from holdproof.upkeep import object_uses
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


class UsesOfObjects(OnStore):
    def flow_that_writes(self, store: sync.Holdproof, content: str) -> str:
        with store.flows.run("trader", flow_type="research") as flow:
            flow.step("write", lambda: store.objects.put("rule", type="rule", content=content).version)
            return str(flow.flow_id)

    def flow_that_reads(self, store: sync.Holdproof, id: str = "rule") -> str:
        with store.flows.run("trader", flow_type="trade") as flow:
            flow.step("look", lambda: store.objects.get(id).version)
            return str(flow.flow_id)

    def test_each_write_names_the_flow_whose_step_wrote_it_and_others_name_none(self, store: sync.Holdproof) -> None:
        store.objects.put("rule", type="rule", content="by hand")
        first = self.flow_that_writes(store, "buy low")
        second = self.flow_that_writes(store, "sell high")
        with store.flows.run("trader") as flow:
            flow.step("drop", lambda: store.objects.delete("rule"))
        written = store.objects.history("rule").items
        assert [each.flow_id for each in written] == [flow.flow_id, second, first, None]
        assert [each.agent_id for each in written] == ["trader", "trader", "trader", None]
        assert written[0].cid is None
        assert store.objects.history("other").items == []

    def test_writes_of_one_moment_name_each_its_own_flow(self, store: sync.Holdproof) -> None:
        # The clock stands still: all of them have the same moment.
        ids = {content: self.flow_that_writes(store, content) for content in ("a", "b", "c")}
        told = {
            store.objects.get("rule", version=each.n).content: each.flow_id for each in store.objects.history("rule")
        }
        assert told == ids

    def test_uses_name_flow_version_and_time_the_newest_first(self, store: sync.Holdproof) -> None:
        store.objects.put("rule", type="rule", content="buy low")
        store.objects.put("rules", type="rule", content="another, whose id begins alike")
        first = self.flow_that_reads(store)
        self.flow_that_reads(store, "rules")
        store.objects.put("rule", type="rule", content="sell high")
        second = self.flow_that_reads(store)
        store.objects.get("rule")  # outside of a step
        uses = store.objects.uses("rule").items
        assert [(each.flow_id, each.version, each.flow_type) for each in uses] == [
            (second, 2, "trade"),
            (first, 1, "trade"),
        ]
        assert uses[0].cid == store.objects.get("rule").cid
        assert store.objects.uses("none").items == []
        assert store.verify.run().verdict.sound

    def test_uses_come_page_by_page_and_a_page_looks_at_so_many_notes(
        self, store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(object_uses, "_MOST_NOTES", 3)
        for id in ("rule", "other"):
            store.objects.put(id, type="rule", content=id)
        flows = [self.flow_that_reads(store, "other" if number % 3 else "rule") for number in range(9)]
        cursor, pages = None, []
        while True:
            page = store.objects.uses("rule", cursor=cursor, limit=1)
            pages.append([each.flow_id for each in page.items])
            if (cursor := page.next_cursor) is None:
                break
        assert [flow for page in pages for flow in page] == [flows[6], flows[3], flows[0]]
        assert [] in pages, "a page that had nothing did not end the listing"

    def test_a_persons_flow_is_named_until_the_person_is_erased(self, store: sync.Holdproof) -> None:
        store.objects.put("rule", type="rule", content="buy low")
        with store.flows.run("trader", subject="Ada") as flow:
            flow.step("look", lambda: store.objects.get("rule").version)
        assert [each.flow_id for each in store.objects.uses("rule")] == [flow.flow_id]
        store.erase.subject("Ada")
        assert store.objects.uses("rule").items == []

    def test_what_a_caller_recorded_as_a_note_is_none(self, store: sync.Holdproof) -> None:
        store.objects.put("rule", type="rule", content="buy low")
        flow_id = store.flows.start("trader").flow_id
        fact = {"id": "rule", "version": 1, "cid": "x"}
        for detail in (
            {"objects": [fact], "ns": "main", "recorded_by": "agent:x"},
            {"objects": "rule", "ns": "main"},
            [1],
        ):
            store.audit.record(flow_id, "memory.read", detail=detail)
        assert store.objects.uses("rule").items == []

    def test_another_namespace_is_not_told(self, store: sync.Holdproof) -> None:
        store.agents.register("far", version="1.0.0", ns="far")
        store.objects.put("rule", type="rule", content="theirs", ns="far")
        with store.flows.run("far", ns="far") as flow:
            flow.step("look", lambda: store.objects.get("rule", ns="far").version)
        assert [each.flow_id for each in store.objects.uses("rule", ns="far")] == [flow.flow_id]
        assert store.objects.uses("rule").items == []


class TestSqlite(OnSqlite, UsesOfObjects):
    pass


class TestMemory(InMemory, UsesOfObjects):
    pass


class TestPostgres(OnPostgres, UsesOfObjects):
    pass
