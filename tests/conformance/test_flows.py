"""Decision flows: legal edges only, each a row and a leaf; leases, and recovering from dead workers."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.db import Tx, sql
from holdproof.model.flows import EDGES, STATUSES, TERMINAL, Recovery, is_legal
from holdproof.model.times import later
from holdproof.runtime import checks, flows, leases
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

_PATHS = {
    "CREATED": [],
    "RUNNING": ["RUNNING"],
    "WAITING_ESCALATION": ["RUNNING", "WAITING_ESCALATION"],
    "COMPLETED": ["RUNNING", "COMPLETED"],
    "FAILED": ["RUNNING", "FAILED"],
    "CANCELLED": ["CANCELLED"],
    "COMPENSATING": ["RUNNING", "COMPENSATING"],
    "COMPENSATED": ["RUNNING", "COMPENSATING", "COMPENSATED"],
}
_FORGE = sql("UPDATE decision_flows SET status = 'COMPLETED' WHERE dfid = :dfid")


class Flows(OnStore):
    def test_a_root_flow_is_its_own_root_and_a_child_has_its_parents(self, store: sync.Holdproof) -> None:
        root = store.flows.start("trader", flow_type="rebalance", priority=3, created_by=("user", "ann"))
        child = store.flows.start("trader", parent=root.flow_id)
        grandchild = store.flows.start("trader", parent=child.flow_id)
        second = store.flows.start("trader", parent=root.flow_id)
        assert (root.root_flow_id, root.parent_flow_id) == (root.flow_id, None)
        assert {child.root_flow_id, grandchild.root_flow_id} == {root.flow_id}
        tree = store.flows.tree(root.flow_id)
        assert [node.flow.flow_id for node in tree.children] == [child.flow_id, second.flow_id]
        assert tree.children[0].children[0].flow == grandchild
        assert (root.created_by_type, root.created_by_id, root.priority) == ("user", "ann", 3)
        with pytest.raises(errors.NotFoundError):
            store.flows.tree(child.flow_id)

    def test_only_legal_edges_are_taken_and_an_illegal_one_leaves_no_row(self, store: sync.Holdproof) -> None:
        for before, after in product(sorted(STATUSES), sorted(STATUSES)):
            flow_id = store.flows.start("trader").flow_id
            for step in _PATHS[before]:
                store.flows.transition(flow_id, step)
            rows = len(store.flows.transitions(flow_id))
            if is_legal(before, after):
                assert store.flows.transition(flow_id, after).status == after
                rows += 1
            else:
                with pytest.raises(errors.IllegalTransitionError):
                    store.flows.transition(flow_id, after)
            assert len(store.flows.transitions(flow_id)) == rows
            assert store.flows.get(flow_id).status == (after if is_legal(before, after) else before)

    def test_a_transition_that_expects_a_status_is_taken_from_there_only(self, store: sync.Holdproof) -> None:
        flow_id = store.flows.start("trader").flow_id
        assert store.flows.transition(flow_id, "RUNNING", expected_status="CREATED").status == "RUNNING"
        asked = store.escalations.request(flow_id, reason="?")
        for expected in ("CREATED", "RUNNING"):
            with pytest.raises(errors.IllegalTransitionError, match="it is WAITING_ESCALATION"):
                store.flows.transition(flow_id, "RUNNING", expected_status=expected)
        with pytest.raises(errors.InvalidInputError):
            store.flows.transition(flow_id, "RUNNING", expected_status="NOWHERE")
        assert store.escalations.get(asked.id).status == "PENDING"

    def test_the_times_of_a_flow_are_those_of_its_transitions(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow = store.flows.start("trader")
        moments = [flow.created_at]
        for status in ("RUNNING", "WAITING_ESCALATION", "RUNNING", "FAILED", "COMPENSATING", "COMPENSATED"):
            clock.advance(1)
            flow = store.flows.transition(flow.flow_id, status, correlation_id="c", causation_id=status)
            moments.append(later(moments[-1], 1))
            assert flow == store.flows.get(flow.flow_id)
            assert flow.updated_at == moments[-1]
            assert flow.completed_at == (moments[-1] if status in TERMINAL else None)
        assert (flow.created_at, flow.started_at, flow.completed_at) == (moments[0], moments[1], moments[-1])
        history = store.flows.transitions(flow.flow_id)
        assert [(one.correlation_id, one.causation_id) for one in history] == [("c", one.to_status) for one in history]

    def test_a_status_changed_behind_the_kernels_back_is_found(self, live: sync.Holdproof) -> None:
        flow_id = running(live)
        live.write(lambda tx: tx.execute(_FORGE, dfid=flow_id))
        findings, _ = live.read(lambda tx: checks.flows(tx))
        assert len(findings) == 1
        live.write(lambda tx: tx.execute(_UNFORGE, dfid=flow_id))

    def test_the_database_itself_refuses_a_tree_without_its_root(self, store: sync.Holdproof) -> None:
        def wrong(tx: Tx) -> None:
            tx.execute(_ROOTLESS, now=tx.now)

        with pytest.raises(errors.ConstraintError):
            store.write(wrong)

    def test_lists_are_filtered_and_go_on_where_the_page_before_ended(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.agents.register("other", version="1.0.0")
        made = []
        for number in range(5):
            clock.advance(1)
            made.append(store.flows.start("trader", flow_type="a" if number % 2 else "b"))
        store.flows.start("other")
        store.flows.transition(made[0].flow_id, "CANCELLED")
        page = store.flows.list(agent_id="trader", limit=2)
        rest = store.flows.list(agent_id="trader", limit=10, cursor=page.next_cursor)
        assert [flow.flow_id for flow in (*page.items, *rest.items)] == [flow.flow_id for flow in made[::-1]]
        assert [flow.flow_id for flow in store.flows.list(status="CANCELLED").items] == [made[0].flow_id]
        assert len(store.flows.list(flow_type="a").items) == 2
        assert len(store.flows.list(since=made[3].created_at).items) == 3
        for limit in (0, 1001):
            with pytest.raises(errors.InvalidInputError):
                store.flows.list(limit=limit)

    def test_a_flow_of_another_namespace_is_not_seen(self, store: sync.Holdproof) -> None:
        store.agents.register("b", version="1.0.0", ns="other")
        flow_id = store.flows.start("b", ns="other").flow_id
        with pytest.raises(errors.NotFoundError):
            store.flows.get(flow_id)
        with pytest.raises(errors.NotFoundError):
            store.flows.transition(flow_id, "RUNNING")
        with pytest.raises(errors.NotFoundError):
            store.flows.start("trader", parent=flow_id)
        assert store.flows.list().items == []
        assert store.flows.get(flow_id, ns="other").ns == "other"

    def test_of_many_that_open_a_flow_of_one_name_all_but_one_are_told_that_it_is_there(
        self, live: sync.Holdproof
    ) -> None:
        def start(number: int) -> str:
            try:
                return live.flows.start("trader", flow_id=f"flow {number // 8}").flow_id
            except errors.AlreadyExistsError:
                return "there"

        with ThreadPoolExecutor(8) as pool:
            found = [*pool.map(start, range(80))]
        assert (found.count("there"), len({*found})) == (70, 11)

    def test_what_is_wrong_is_a_typed_error(self, store: sync.Holdproof) -> None:
        flow_id = store.flows.start("trader", flow_id="mine").flow_id
        for error, call in (
            (errors.NotFoundError, lambda: store.flows.start("nobody")),
            (errors.NotFoundError, lambda: store.flows.start("trader", parent="none")),
            (errors.NotFoundError, lambda: store.flows.get("none")),
            (errors.AlreadyExistsError, lambda: store.flows.start("trader", flow_id="mine")),
            (errors.InvalidInputError, lambda: store.flows.transition(flow_id, "HAPPY")),
            (errors.InvalidInputError, lambda: store.flows.list(since="yesterday")),
            (errors.InvalidInputError, lambda: store.flows.list(status="BOGUS")),
        ):
            with pytest.raises(error):
                call()

    # --- leases ---------------------------------------------------------------------------------------------------

    def test_one_worker_has_a_flow_until_its_lease_runs_out(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = running(store)
        first = store.flows.lease(flow_id, "w1", lease_s=10)
        with pytest.raises(errors.ConflictError):
            store.flows.lease(flow_id, "w2")
        clock.advance(9)
        store.flows.heartbeat(flow_id, first.token, lease_s=10)
        clock.advance(9)
        with pytest.raises(errors.ConflictError):
            store.flows.lease(flow_id, "w2")
        clock.advance(2)
        second = store.flows.lease(flow_id, "w2")
        assert second.token > first.token
        with pytest.raises(errors.LeaseLostError):
            store.flows.heartbeat(flow_id, first.token)
        assert not store.flows.release(flow_id, first.token)
        assert store.flows.release(flow_id, second.token)

    def test_recover_names_the_orphans_that_nobody_here_can_run(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        orphans = [running(store) for _ in range(3)]
        for flow_id in orphans:
            store.flows.lease(flow_id, "dead", lease_s=5)
        alive, waiting, _unleased = running(store), running(store), running(store)
        store.flows.lease(waiting, "dead", lease_s=5)
        store.flows.transition(waiting, "WAITING_ESCALATION")
        assert store.flows.recover() == Recovery((), ())
        clock.advance(5)
        store.flows.lease(alive, "w0")
        assert [flow.flow_id for flow in store.flows.recover().orphans] == orphans
        assert [flow.flow_id for flow in store.flows.recover(limit=2).orphans] == orphans[:2]
        assert store.flows.lease(orphans[0], "w1").worker == "w1"
        assert [flow.flow_id for flow in store.flows.recover("w2").orphans] == orphans[1:]

    def test_the_end_of_a_flow_ends_its_lease(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = running(store)
        lease = store.flows.lease(flow_id, "w1")
        store.flows.transition(flow_id, "FAILED")
        with pytest.raises(errors.LeaseLostError):
            store.flows.heartbeat(flow_id, lease.token)
        with pytest.raises(errors.FlowEndedError):
            store.flows.lease(flow_id, "w1")
        store.flows.transition(flow_id, "COMPENSATING")
        assert store.flows.lease(flow_id, "w2").token > lease.token

    def test_what_a_flow_does_extends_a_lease_once_a_tenth_of_it_is_over(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        flow_id = running(store)
        lease = store.flows.lease(flow_id, "w1", lease_s=10)

        def beat(lease_s: float = 10, *, waits_for: str | None = None) -> tuple[str, str, str | None]:
            def keep(tx: Tx) -> tuple[str, str, str | None]:
                flows.lock(tx, flow_id)
                leases.keep(tx, flow_id, lease.token, lease_s=lease_s, waits_for=waits_for, ns="main")
                [(expires_at, heartbeat_at, waits)] = tx.all(_LEASE, dfid=flow_id)
                return expires_at, heartbeat_at, waits

            return store.write(keep)

        clock.advance(0.5)
        assert beat() == (lease.expires_at, lease.heartbeat_at, None), "nearly all of it is left"
        clock.advance(1)
        now = later(lease.heartbeat_at, 1.5)
        assert beat() == (later(now, 10), now, None)
        assert beat(waits_for="a signal") == (later(now, 10), now, "a signal"), "what it waits for is always said"
        assert beat() == (later(now, 10), now, None)
        assert beat(3) == (later(now, 3), now, None), "a lease that is to be shorter is"

    def test_a_lease_with_time_left_that_another_took_over_is_lost_to_what_the_flow_does(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        flow_id = running(store)
        lease = store.flows.lease(flow_id, "w1", lease_s=10)
        store.flows.release(flow_id, lease.token)
        store.flows.lease(flow_id, "w2", lease_s=10)
        with pytest.raises(errors.LeaseLostError):
            store.write(lambda tx: leases.keep(tx, flow_id, lease.token, lease_s=10, ns="main"))
        with pytest.raises(errors.LeaseLostError):
            store.write(lambda tx: leases.keep(tx, flow_id, lease.token, lease_s=10, ns="other"))


_LEASE = sql("SELECT expires_at, heartbeat_at, waits_for FROM flow_leases WHERE dfid = :dfid")
_UNFORGE = sql("UPDATE decision_flows SET status = 'RUNNING' WHERE dfid = :dfid")
_ROOTLESS = sql(
    "INSERT INTO decision_flows (dfid, root_dfid, agent_id, created_at, updated_at, leaf_id, leaf_ver)"
    " VALUES ('x', 'y', 'trader', :now, :now, 'l', 1)"
)


class TestSqlite(OnSqlite, Flows):
    pass


class TestMemory(InMemory, Flows):
    pass


class TestPostgres(OnPostgres, Flows):
    pass


def test_every_status_is_reached_by_legal_edges() -> None:
    for status, path in _PATHS.items():
        assert all(is_legal(before, after) for before, after in zip(["CREATED", *path], path, strict=False)), status
    assert set(_PATHS) == STATUSES == set(EDGES)
