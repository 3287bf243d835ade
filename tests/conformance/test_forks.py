"""Forks and rewinds: flows that go on from a step of another one; on every backend."""

import json
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.db import Tx, sql
from holdproof.executors import SyncExecutor
from holdproof.model.verdicts import Verdict
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]
_BYTES = {
    table: sql(f"SELECT * FROM {table}")
    for table in ("decision_flows", "flow_calls", "flow_steps", "flow_transitions", "flow_leases", "objects")
}


class Shop:
    """The world outside."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.crash_at = ""

    def act(self, what: str) -> str:
        self.done.append(what)
        if what == self.crash_at:
            self.crash_at = ""
            raise CrashError
        return f"{what} ok"

    def undo(self, result: str) -> None:
        self.done.append(f"undo {result}")


def buying(store: sync.Holdproof, shop: Shop, **options: Any) -> Any:
    @store.flow(name="buy", agent="trader", lease_s=10, **options)
    def buy(flow: Flow, what: str) -> list[str]:
        plan = flow.step("plan", shop.act, f"plan {what}", compensate=shop.undo)
        paid = flow.step("pay", shop.act, f"pay after {plan}", compensate=shop.undo)
        flow.sleep(0)
        return [plan, paid, flow.step("ship", shop.act, f"ship after {paid}")]

    return buy


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another worker: the same store, with nothing registered."""
    return sync.Holdproof(store.core)


def stored_bytes(tx: Tx) -> int:
    return sum(len(str(row)) for query in _BYTES.values() for row in tx.all(query))


class Forks(OnStore):
    def bought(self, store: sync.Holdproof, shop: Shop) -> str:
        buying(other(store), shop).with_id("o-1")("tea")
        shop.done.clear()
        return "o-1"

    def run(self, store: sync.Holdproof, shop: Shop, **options: Any) -> Any:
        """Let a worker run the one fork that is due."""
        worker = other(store)
        buying(worker, shop, **options)
        [again] = worker.flows.recover().reruns
        return again

    def test_a_fork_shares_the_record_before_the_step_and_runs_from_there(self, store: sync.Holdproof) -> None:
        shop = Shop()
        origin = self.bought(store, shop)
        before = (store.flows.get(origin), store.flows.steps(origin), store.flows.transitions(origin))
        fork = store.flows.fork(origin, at="pay", effects="real")
        assert (fork.created_by_type, fork.created_by_id, fork.status) == ("fork", origin, "RUNNING")
        assert self.run(store, shop).error is None
        assert store.flows.result(fork.flow_id) == store.flows.result(origin)
        assert shop.done == ["pay after plan tea ok", "ship after pay after plan tea ok ok"]
        assert [step.name for step in store.flows.steps(fork.flow_id)] == ["pay", "flow.sleep", "ship"]
        assert (store.flows.get(origin), store.flows.steps(origin), store.flows.transitions(origin)) == before
        call = store.flows.inputs(fork.flow_id)
        assert (call.forked_from, call.forked_at, call.effects, call.answers) == (origin, 2, "real", None)

    def test_a_fork_of_a_fork_shares_both(self, store: sync.Holdproof) -> None:
        shop = Shop()
        first = store.flows.fork(self.bought(store, shop), at="pay", effects="real", answers={"pay": "cash"})
        self.run(store, shop)
        second = store.flows.fork(first.flow_id, at="ship", effects="real")
        self.run(store, shop)
        assert store.flows.result(second.flow_id) == ["plan tea ok", "cash", "ship after cash ok"]
        assert shop.done == ["ship after cash", "ship after cash"]
        worker = other(store)
        buying(worker, shop)
        assert [replay.differences for replay in worker.flows.replay_all()] == [(), (), ()]

    def test_denied_effects_stop_the_fork_at_the_first_new_step(self, store: sync.Holdproof) -> None:
        shop = Shop()
        fork = store.flows.fork(self.bought(store, shop), at="pay")
        again = self.run(store, shop)
        assert "EffectDeniedError: fork" in (again.error or "")
        assert "step pay 1" in (again.error or "")
        assert (again.flow.status, shop.done, store.flows.steps(fork.flow_id)) == ("FAILED", [], ())

    def test_simulated_effects_give_what_the_origin_recorded_or_the_answers(self, store: sync.Holdproof) -> None:
        shop = Shop()
        origin = self.bought(store, shop)
        same = store.flows.fork(origin, effects="simulate")
        self.run(store, shop)
        answers = {"pay": "cash", "ship 1": "by boat"}
        other_way = store.flows.fork(origin, at="pay", effects="simulate", answers=answers)
        self.run(store, shop)
        assert store.flows.result(same.flow_id) == store.flows.result(origin)
        assert store.flows.result(other_way.flow_id) == ["plan tea ok", "cash", "by boat"]
        assert store.flows.inputs(other_way.flow_id).answers == answers
        assert shop.done == []

    def test_a_fork_that_fails_undoes_nothing_that_was_only_simulated(self, store: sync.Holdproof) -> None:
        shop = Shop()
        origin = self.bought(store, shop)
        answers = {"plan": "another plan"}
        # With another plan the code pays another amount: a step that the origin never ran so.
        forks = [
            store.flows.fork(origin, effects="simulate", version="2"),
            store.flows.fork(origin, effects="real", answers=answers, version="2"),
        ]
        worker = other(store)

        @worker.flow(name="buy", agent="trader", version="2")
        def buy(flow: Flow, what: str) -> None:
            flow.step("plan", shop.act, f"plan {what}", compensate=shop.undo)
            raise ValueError("on second thought")

        assert {again.flow.status for again in worker.flows.recover().reruns} == {"FAILED"}
        assert [store.sagas.list().items, shop.done] == [[], []]
        assert [len(store.flows.steps(fork.flow_id)) for fork in forks] == [1, 1]

    def test_a_fork_without_effects_leaves_an_open_child_to_its_origin(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        shop = Shop()
        shop.crash_at = "ship"

        def families(program: sync.Holdproof) -> Any:
            @program.flow(agent="trader", lease_s=10)
            def child(flow: Flow) -> str:
                return flow.step("ship", shop.act, "ship", on_unknown="retry")

            @program.flow(agent="trader", lease_s=10)
            def family(flow: Flow) -> str:
                flow.step("plan", shop.act, "plan")
                return f"{flow.run(child)} and {flow.step('tell', shop.act, 'tell')}"

            return family

        with pytest.raises(CrashError):
            families(other(store)).with_id("o-1")()
        [child] = store.flows.list(flow_type="child").items
        fork = store.flows.fork("o-1", effects="simulate")
        worker = other(store)
        families(worker)
        [again] = worker.flows.recover().reruns
        assert (again.flow.flow_id, again.waits_for) == (fork.flow_id, f"flow {child.flow_id}")
        assert shop.done == ["plan", "ship"]
        clock.advance(10)
        worker.flows.recover()
        assert (store.flows.result("o-1"), shop.done) == ("ship ok and tell ok", ["plan", "ship", "ship", "tell"])

    def test_simulation_refuses_what_the_origin_never_did(self, store: sync.Holdproof) -> None:
        shop = Shop()
        fork = store.flows.fork(self.bought(store, shop), effects="simulate", version="2")
        worker = other(store)

        @worker.flow(name="buy", agent="trader", version="2")
        def buy(flow: Flow, what: str) -> None:
            flow.step("advertise", shop.act, what)

        [again] = worker.flows.recover().reruns
        assert "reached step advertise 1, and its effects are simulate" in (again.error or "")
        assert (store.flows.get(fork.flow_id).status, shop.done) == ("FAILED", [])

    def test_a_fork_may_have_other_inputs(self, store: sync.Holdproof) -> None:
        shop = Shop()
        origin = self.bought(store, shop)
        fork = store.flows.fork(origin, inputs={"args": ["coffee"]}, effects="real")
        self.run(store, shop)
        assert store.flows.result(fork.flow_id)[0] == "plan coffee ok"
        stopped = store.flows.fork(origin, at="pay", inputs={"kwargs": {"what": "coffee"}}, effects="real")
        assert "step plan 1 was recorded with other arguments" in self.run(store, shop).error
        assert store.flows.get(stopped.flow_id).status == "RUNNING"

    def test_a_fork_that_fails_undoes_its_own_steps_only(self, store: sync.Holdproof) -> None:
        shop = Shop()
        fork = store.flows.fork(self.bought(store, shop), at="pay", effects="real", version="2")
        worker = other(store)

        @worker.flow(name="buy", agent="trader", version="2")
        def buy(flow: Flow, what: str) -> None:
            plan = flow.step("plan", shop.act, f"plan {what}", compensate=shop.undo)
            flow.step("pay", shop.act, f"pay after {plan}", compensate=shop.undo)
            raise ValueError

        worker.flows.recover()
        assert store.flows.get(fork.flow_id).status == "COMPENSATED"
        assert shop.done == ["pay after plan tea ok", "undo pay after plan tea ok ok"]

    def test_a_fork_survives_its_worker_and_a_simulated_step_is_never_in_doubt(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        shop = Shop()
        fork = store.flows.fork(self.bought(store, shop), at="pay", effects="real", answers={"ship": "by boat"})
        worker = other(store)

        @worker.flow(name="buy", agent="trader", lease_s=10)
        def buy(flow: Flow, what: str) -> None:
            flow.step("plan", shop.act, f"plan {what}", compensate=shop.undo)
            flow.step("pay", shop.act, "pay after plan tea ok", compensate=shop.undo)
            raise CrashError

        with pytest.raises(CrashError):
            worker.flows.recover()
        clock.advance(10)
        assert self.run(store, shop).error is None
        assert store.flows.result(fork.flow_id)[2] == "by boat"
        assert shop.done == ["pay after plan tea ok"]

    def test_what_cannot_be_forked_is_refused(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        shop = Shop()
        origin = self.bought(store, shop)
        refused: list[tuple[type[Exception], dict[str, Any]]] = [
            (errors.NotFoundError, {"at": "unknown"}),
            (errors.NotFoundError, {"at": "pay 2"}),
            (errors.InvalidInputError, {"effects": "some"}),
            (errors.InvalidInputError, {"inputs": {"what": "tea"}}),
            (errors.UnrecordableError, {"answers": {"pay": object()}}),
        ]
        for error, options in refused:
            with pytest.raises(error):
                store.flows.fork(origin, **options)
        with store.flows.run("trader", flow_id="block"):
            pass
        with pytest.raises(errors.NotFoundError, match="no registered function"):
            store.flows.fork("block")
        shop.crash_at = "pay after plan tea ok"
        with pytest.raises(CrashError):
            buying(other(store), shop).with_id("o-2")("tea")
        store.flows.fork("o-2", at="pay", effects="real")
        store.agents.set_status("trader", "SUSPENDED", reason="under review")
        with pytest.raises(errors.AgentInactiveError):
            store.flows.fork(origin)
        store.agents.set_status("trader", "ACTIVE")
        assert len(store.flows.list().items) == 4

    def test_approvals_before_the_fork_are_shared_and_later_ones_are_its_own(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        shop = Shop()

        def asking(face: sync.Holdproof, crash: bool = False) -> Any:
            @face.flow(name="ask", agent="trader", lease_s=10)
            def ask(flow: Flow) -> list[str | None]:
                if crash:
                    raise CrashError
                first = flow.approve("first?").resolved_by
                flow.step("pay", shop.act, "pay")
                return [first, flow.approve("second?").resolved_by]

            return ask

        with pytest.raises(CrashError):
            asking(other(store), crash=True).with_id("o-1")()
        clock.advance(10)
        worker = other(store)
        asking(worker)
        for number in (1, 2):
            worker.flows.recover()
            store.escalations.resolve(number, "approve", by="ann")
        worker.flows.recover()
        assert store.flows.result("o-1") == ["ann", "ann"]
        fork = store.flows.fork("o-1", at="pay", effects="real")
        assert worker.flows.recover().reruns[0].waits_for == "escalation 3"
        store.escalations.resolve(3, "approve", by="bob")
        worker.flows.recover()
        simulated = store.flows.fork("o-1", effects="simulate")
        worker.flows.recover()
        assert store.flows.result(fork.flow_id) == ["ann", "bob"]
        assert store.flows.result(simulated.flow_id) == ["ann", "ann"]
        assert [each.flow_id for each in store.escalations.list().items] == [fork.flow_id, "o-1", "o-1"]

    def test_a_fork_sends_and_receives_nothing_unless_its_effects_are_real(self, store: sync.Holdproof) -> None:
        def telling(face: sync.Holdproof) -> Any:
            @face.flow(name="tell", agent="trader")
            def tell(flow: Flow) -> Any:
                flow.send("listener", "news", "hello")
                return flow.receive("reply", timeout_s=0)

            return tell

        store.flows.start("trader", flow_id="listener")
        with_reply = telling(other(store)).with_id("o-1")
        with_reply()
        worker = other(store)
        telling(worker)
        assert worker.flows.replay("o-1").differences == ()
        messages = sql("SELECT count(*) FROM flow_messages")
        sent = store.read(lambda tx: tx.one(messages))
        for effects, ending in (("deny", "FAILED"), ("simulate", "COMPLETED")):
            store.flows.fork("o-1", effects=effects)  # type: ignore[arg-type]
            [again] = worker.flows.recover().reruns
            assert again.flow.status == ending, again.error
        assert store.read(lambda tx: tx.one(messages)) == sent

    def test_a_fork_costs_less_than_two_percent_of_a_flow_with_large_values(self, store: sync.Holdproof) -> None:
        text = [json.dumps([n * k for k in range(3000)]) for n in range(10)]

        def reading(face: sync.Holdproof) -> Any:
            @face.flow(name="read", agent="trader")
            def read(flow: Flow, pages: list[str]) -> int:
                for page in pages:
                    flow.step("summarise", lambda page: page.upper() + page, page)
                return flow.step("count", len, pages)

            return read

        empty = store.read(stored_bytes)
        reading(other(store)).with_id("o-1")(text)
        whole = store.read(stored_bytes) - empty
        fork = store.flows.fork("o-1", at="count", effects="real")
        worker = other(store)
        reading(worker)
        worker.flows.recover()
        assert store.flows.result(fork.flow_id) == 10
        assert (store.read(stored_bytes) - empty - whole) / whole < 0.02

    def test_a_rewind_cancels_the_open_flow_and_goes_on_from_the_step(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        shop = Shop()
        shop.crash_at = "ship after pay after plan tea ok ok"
        with pytest.raises(CrashError):
            buying(other(store), shop).with_id("o-1")("tea")
        store.locks.try_acquire("o-1", {"till": 1})
        shop.done.clear()
        clock.advance(10)
        successor = store.flows.rewind("o-1", at="pay")
        assert store.flows.get("o-1").status == "CANCELLED"
        assert store.locks.list(flow_id="o-1").items == []
        assert store.flows.transitions("o-1")[-1].reason == f"rewound as flow {successor.flow_id}"
        assert self.run(store, shop).flow.flow_id == successor.flow_id
        assert shop.done == ["pay after plan tea ok", "ship after pay after plan tea ok ok"]
        again = store.flows.rewind(successor.flow_id, at="ship")
        assert store.flows.get(successor.flow_id).status == "COMPLETED"
        self.run(store, shop)
        assert store.flows.result(again.flow_id) == store.flows.result(successor.flow_id)

    def test_a_fork_of_a_persons_flow_is_that_persons(self, store: sync.Holdproof) -> None:
        shop = Shop()
        buying(other(store), shop).opening(flow_id="o-1", subject="ann")("tea")
        fork = store.flows.fork("o-1", at="ship", effects="real", answers={"ship": "secret"})
        self.run(store, shop)
        assert fork.subject == store.flows.get("o-1").subject
        assert store.flows.result(fork.flow_id)[2] == "secret"
        rows = store.read(lambda tx: tx.all(_BYTES["flow_calls"]) + tx.all(_BYTES["flow_steps"]))
        assert "secret" not in str(rows)

    def test_a_flow_is_not_pruned_while_a_fork_needs_its_record(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        shop = Shop()
        origin = self.bought(store, shop)
        fork = store.flows.fork(origin, at="ship", effects="real")
        clock.advance(10 * 86_400)
        store.retention.prune("flows", older_than_days=5)
        assert store.flows.get(origin).status == "COMPLETED"
        self.run(store, shop)
        clock.advance(10 * 86_400)
        assert store.flows.get(fork.flow_id).status == "COMPLETED"
        assert [store.retention.prune("flows", older_than_days=5).count for _ in range(3)] == [1, 1, 0]
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID


class TestSqlite(OnSqlite, Forks):
    pass


class TestMemory(InMemory, Forks):
    pass


class TestPostgres(OnPostgres, Forks):
    pass
