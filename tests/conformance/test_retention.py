"""Retention: what has had its time goes, whole trees only; the log and its proofs stay, and the space comes back."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.db import Tx, sql
from holdproof.db.sql import Query
from holdproof.db.sqlite.files import connect
from holdproof.evidence import prunings
from holdproof.model.verdicts import Verdict
from holdproof.runtime import audit, flows
from holdproof.testing import FrozenClock
from holdproof.upkeep import kernel_tables
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

DAY_S = 86_400
_TABLES = (
    *("decision_flows", "flow_transitions", "flow_context", "flow_steps", "escalation_requests"),
    *("decision_audit_events", "decision_ledger_entries", "decision_feedback_trajectory"),
    *("flow_calls", "flow_messages", "flow_promises", "flow_stream_items", "flow_values", "policy_decisions"),
    *("escalation_answers", "escalation_messages"),
)
_COUNTS = {table: sql(f"SELECT count(*) FROM {table}") for table in _TABLES}
_LOSE: dict[str, Query] = {
    "decision_audit_events": sql("DELETE FROM decision_audit_events WHERE dfid = :dfid"),
    "prunings": sql("UPDATE prunings SET handles = '{}'"),
}

_AUDIT = "decision_audit_events"
_COLUMNS = sql(
    "SELECT name FROM pragma_table_info('decision_audit_events')",
    postgres="SELECT column_name FROM information_schema.columns WHERE table_name = 'decision_audit_events'"
    " AND table_schema = current_schema()",
)


def _listed(columns: list[str]) -> Query:
    return sql(f"SELECT {', '.join(columns)} FROM {_AUDIT}")


def _put_back(columns: list[str]) -> Query:
    return sql(f"INSERT INTO {_AUDIT} ({', '.join(columns)}) VALUES ({', '.join(f':{each}' for each in columns)})")


_LEAVES = sql(
    "SELECT count(*) FROM log_leaves",
    postgres="SELECT (SELECT count(*) FROM log_leaves) + (SELECT count(*) FROM log_pending)",
)
_MEND = sql("UPDATE prunings SET handles = :handles")


def counted(store: sync.Holdproof) -> dict[str, int]:
    return store.read(lambda tx: {table: tx.all(query)[0][0] for table, query in _COUNTS.items()})


def verdict(store: sync.Holdproof) -> Verdict:
    return store.verify.run(full=True, lock=False).verdict


def logged(store: sync.Holdproof) -> int:
    return int(store.read(lambda tx: tx.all(_LEAVES))[0][0])


def ended(store: sync.Holdproof, **options: Any) -> str:
    """A flow that left something in every table, with a child, and has ended."""
    if not store.policies.list().items:
        store.policies.create("all", "permit(principal, action, resource);")
        store.policies.activate("all")
    with store.flows.run("trader", **options) as flow:
        store.contexts.put(flow.flow_id, {"price": 1})
        flow.step("quote", lambda: 7)
        with store.flows.run("trader", parent=flow.flow_id) as child:
            child.step("look", lambda: 1)
        store.flows.signal(flow.flow_id, "prices", 1)
        flow.promise("paid")
        flow.publish("progress", 1)
        flow.stream("words").write("so")
        # A client of its own: a function is registered once.
        sync.Holdproof(store.core).flow(name="buy", agent="trader", parent=flow.flow_id)(lambda _: None)()
        asked = store.escalations.request(flow.flow_id, reason="?")
        store.escalations.ask(asked.id, "why?", by="ann")
        store.escalations.resolve(asked.id, "approve", by="ann")
        store.audit.record(flow.flow_id, "LOOKED", detail={"text": "x" * 300})
        store.ledger.append(flow.flow_id, {"buy": 1}, context_ref="c", evidence_hash="h")
        store.feedback.record("trader", flow.flow_id, status="Accepted", score=1.0)
        return flow.flow_id


def _text(handles: Mapping[str, list[str]]) -> str:
    return json.dumps({table: handles[table] for table in sorted(handles)}, separators=(",", ":"))


@contextmanager
def unchanged(store: sync.Holdproof) -> Iterator[None]:
    before = counted(store)
    yield
    assert counted(store) == before


class Retention(OnStore):
    def test_ended_flows_go_with_all_that_hangs_on_them_and_verify_says_valid(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        old = [ended(store) for _ in range(2)]
        before = counted(store)
        clock.advance(31 * DAY_S)
        young = ended(store)
        leaves = logged(store)
        done = store.retention.prune("flows", older_than_days=30, who="ann")
        assert (done.count, done.records) == (2, dict(sorted(before.items())))
        assert [flow.parent_flow_id or flow.flow_id for flow in store.flows.list().items] == [young] * 3
        for flow_id in old:
            with pytest.raises(errors.NotFoundError):
                store.flows.get(flow_id)
        assert counted(store) == {table: number // 2 for table, number in before.items()}
        assert logged(store) == leaves + 1, "leaves stay, and one tells of the pruning"
        assert verdict(store).sound
        [told] = store.retention.list().items
        assert (told.what, told.who, told.count) == ("flows", "ann", 2)
        assert store.retention.prune("flows", older_than_days=30).count == 0

    def test_every_record_that_hangs_on_flows_is_named(self) -> None:
        assert {each.projection.table for each in kernel_tables.TABLES if "dfid" in each.projection.columns} == set(
            _TABLES
        )

    def test_a_dry_run_counts_and_changes_nothing(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        for _ in range(2):
            ended(store)
        clock.advance(1)
        for what in ("flows", "audit", "feedback"):
            with unchanged(store):
                said = store.retention.prune(what, older_than_days=0, dry_run=True)
            assert (said.dry_run, said.count, store.retention.list().items) == (True, 2, [])
        said = store.retention.prune("flows", older_than_days=0, dry_run=True)
        done = store.retention.prune("flows", older_than_days=0)
        assert (said.count, said.records) == (done.count, done.records)

    def test_the_newest_of_each_flow_type_are_kept(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        made = []
        for number in range(6):
            made.append(ended(store, flow_type="ab"[number % 2]))
            clock.advance(1)
        assert store.retention.prune("flows", keep=2).count == 2
        left = {flow.flow_id for flow in store.flows.list().items if flow.parent_flow_id is None}
        assert left == set(made[2:])
        assert store.retention.prune("flows", keep=0, flow_type="a").count == 2
        assert {flow.flow_type for flow in store.flows.list().items if flow.parent_flow_id is None} == {"b"}
        assert verdict(store).sound

    def test_what_goes_is_past_every_limit_that_is_given(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        made = [ended(store)]
        clock.advance(10 * DAY_S)
        made += [ended(store), ended(store)]
        clock.advance(1 * DAY_S)
        assert store.retention.prune("flows", older_than_days=5, keep=3).count == 0
        assert store.retention.prune("flows", older_than_days=5, keep=1).count == 1
        assert {flow.flow_id for flow in store.flows.list().items if flow.parent_flow_id is None} == set(made[1:])

    @pytest.mark.parametrize("why", ["running", "a running child", "dirty", "asked about", "a young child"])
    def test_a_tree_that_somebody_still_needs_stays(self, store: sync.Holdproof, clock: FrozenClock, why: str) -> None:
        flow_id = running(store)
        child = store.flows.start("trader", parent=flow_id).flow_id
        if why == "dirty":
            store.sagas.mark_dirty(flow_id, "pay")
        if why != "running":
            store.flows.transition(flow_id, "FAILED")
        if why == "asked about":
            store.sagas.mark_dirty(flow_id, "pay")
            store.sagas.compensate(flow_id, "ALERT_HUMAN")
            store.sagas.clear(flow_id, by="ann")
        clock.advance(DAY_S)
        if why != "a running child":
            store.flows.transition(child, "CANCELLED")
        with unchanged(store):
            assert store.retention.prune("flows", older_than_days=0.5).count == 0

    @pytest.mark.parametrize("what", ["audit", "feedback"])
    def test_records_of_one_kind_go_by_age_or_number_and_their_flow_stays(
        self, store: sync.Holdproof, clock: FrozenClock, what: str
    ) -> None:
        for flow_type in ("a", "b", "a"):
            ended(store, flow_type=flow_type)
            clock.advance(DAY_S)
        flows = store.flows.list().items
        assert store.retention.prune(what, older_than_days=2.5).count == 1
        assert store.retention.prune(what, keep=1).count == 0
        assert store.retention.prune(what, keep=0, flow_type="b").count == 1
        assert store.flows.list().items == flows
        assert verdict(store).sound

    def test_more_than_one_batch_goes_one_after_the_other(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = running(store)

        def fill(tx: Tx) -> None:
            for _ in range(1_030):
                audit.record(tx, flow_id, "TICK")

        store.write(fill)
        for _ in range(60):
            store.flows.transition(store.flows.start("trader").flow_id, "CANCELLED")
        clock.advance(1)
        assert store.retention.prune("audit", older_than_days=0).records == {"decision_audit_events": 1_030}
        assert store.retention.prune("flows", older_than_days=0).count == 60
        assert [told.count for told in store.retention.list().items] == [10, 50, 30, 1_000]
        assert verdict(store).sound

    def test_a_record_that_no_pruning_names_is_still_missed(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        gone = ended(store)
        clock.advance(1)
        kept = ended(store)
        store.retention.prune("flows", keep=1)
        assert verdict(store).sound

        def lose(tx: Tx) -> None:
            tx.execute(_LOSE["decision_audit_events"], dfid=kept)

        store.write(lose)
        assert verdict(store) is Verdict.TAMPERED
        assert gone != kept

    def test_a_row_that_was_pruned_and_put_back_is_named(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        ended(store)
        clock.advance(1)
        columns = [row[0] for row in store.read(lambda tx: tx.all(_COLUMNS))]
        rows = store.read(lambda tx: tx.all(_listed(columns)))
        store.retention.prune("audit", older_than_days=0)
        assert verdict(store).sound
        store.write(lambda tx: tx.execute(_put_back(columns), **dict(zip(columns, rows[0], strict=True))))
        report = store.verify.run(full=True, lock=False)
        [found] = report.findings
        assert (found.verdict, found.table, "put back" in found.what) == (Verdict.TAMPERED, _AUDIT, True)

    def test_a_pruning_that_was_edited_is_found(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        ended(store)
        clock.advance(1)
        store.retention.prune("flows", older_than_days=0)
        kept = store.read(lambda tx: prunings.pruned(tx)[0])
        store.write(lambda tx: tx.execute(_LOSE["prunings"]))
        report = store.verify.run(full=True, lock=False)
        assert report.verdict is Verdict.TAMPERED
        assert {finding.table for finding in report.findings} >= {"prunings", "decision_flows"}
        store.write(lambda tx: tx.execute(_MEND, handles=_text(kept)))
        assert verdict(store).sound

    def test_another_namespace_is_left_alone(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        ended(store)
        clock.advance(1)
        with unchanged(store):
            for what in ("flows", "audit", "feedback"):
                assert store.retention.prune(what, older_than_days=0, ns="other").count == 0
        store.retention.prune("flows", older_than_days=0)
        assert store.retention.list(ns="other").items == []

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"older_than_days": -1},
            {"older_than_days": float("nan")},
            {"keep": -1},
            {"keep": True},
            {"keep": 1, "who": ""},
        ],
    )
    def test_wrong_limits_are_refused(self, store: sync.Holdproof, wrong: dict[str, Any]) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.retention.prune("flows", **wrong)
        with pytest.raises(errors.InvalidInputError):
            store.retention.prune("battles", keep=1)

    def test_nothing_written_while_a_tree_goes_is_lost_unseen(self, live: sync.Holdproof) -> None:
        """Writers race with the pruning: each either finds its flow or does not, and verify holds either way."""
        made = [ended(live) for _ in range(6)]

        def tell(flow_id: str) -> int:
            told = 0
            for _ in range(10):
                try:
                    live.audit.record(flow_id, "LATE")
                    told += 1
                except (errors.NotFoundError, errors.ConflictError):
                    break
            return told

        with ThreadPoolExecutor(7) as pool:
            writers = [pool.submit(tell, flow_id) for flow_id in made]
            pruner = pool.submit(live.retention.prune, "flows", older_than_days=0)
            assert pruner.result().count == 6
            assert all(writer.result() <= 10 for writer in writers)
        assert live.flows.list().items == []
        assert verdict(live).sound

    def test_the_space_comes_back(self, live: sync.Holdproof) -> None:
        def fill(tx: Tx) -> None:
            flow_id = flows.start(tx, "trader").flow_id
            for _ in range(20):
                audit.record(tx, flow_id, "TICK", detail={"text": tx.random(2_500).hex()})
            flows.transition(tx, flow_id, "CANCELLED")

        for _ in range(60):
            live.write(fill)
        done = live.retention.prune("flows", older_than_days=0)
        if done.bytes_before is None or done.bytes_after is None:
            assert not self.shared, "only a store in memory has no size"
            return
        assert done.bytes_before - done.bytes_after > 60 * 20 * 5_000 * 0.5
        assert live.check().ok

    def test_writers_get_on_while_space_is_given_back(self, live: sync.Holdproof) -> None:
        flow_id = running(live)
        for _ in range(30):
            live.audit.record(flow_id, "TICK", detail={"text": "x" * 5_000})
        with ThreadPoolExecutor(2) as pool:
            pruner = pool.submit(live.retention.prune, "audit", older_than_days=0)
            writer = pool.submit(lambda: [live.audit.record(flow_id, "TOCK").id for _ in range(50)])
            assert len(set(writer.result())) == 50
            assert pruner.result().count >= 30
        live.retention.compact()
        assert verdict(live).sound


class TestSqlite(OnSqlite, Retention):
    def test_a_file_that_was_made_before_pages_could_be_cut_off_is_converted_once(self, live: sync.Holdproof) -> None:
        path = self.home / "kernel.db"
        with closing(connect(path, busy_s=10)) as older:
            older.pragma("auto_vacuum", 0)
            older.execute("VACUUM")
            assert older.pragma("auto_vacuum") == 0
        flow_id = running(live)
        live.audit.record(flow_id, "TICK", detail={"text": "x" * 500_000})
        done = live.retention.prune("audit", older_than_days=0)
        assert done.bytes_before is not None
        assert done.bytes_after is not None
        assert done.bytes_before - done.bytes_after > 500_000
        with closing(connect(path, busy_s=10)) as newer:
            assert newer.pragma("auto_vacuum") == 2
        assert verdict(live).sound


class TestMemory(InMemory, Retention):
    pass


class TestPostgres(OnPostgres, Retention):
    pass
