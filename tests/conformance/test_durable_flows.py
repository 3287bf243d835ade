"""Flows as functions: retries, time limits, several steps at once, sleep, one run an id, and what is recorded."""

# ruff: noqa: PT012 (the block is what is tested)

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from holdproof import errors, sync
from holdproof.client import Holdproof
from holdproof.db import Query, Tx, sql
from holdproof.runtime import calls, functions, runs
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

_EDIT_CALL = sql("UPDATE flow_calls SET arguments = :text WHERE dfid = :dfid AND ns = 'main'")
_EDIT_STEP = sql("UPDATE flow_steps SET result = :text WHERE dfid = :dfid AND ns = 'main'")
_PUT_BACK = sql(
    "UPDATE flow_steps SET state = 'STARTED', result = NULL, leaf_ver = 1 WHERE dfid = :dfid AND ns = 'main'"
)


@dataclass(frozen=True)
class Receipt:
    order: str
    at: datetime


class Invoice(BaseModel):
    order: str
    total: Decimal
    lines: list[Receipt]


AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


class World:
    """What steps do to it; it fails as often as it is told to."""

    def __init__(self, failures: int = 0, error: BaseException | None = None) -> None:
        self.done: list[Any] = []
        self.failures = failures
        self.error = error or OSError("no line")

    def pay(self, order: str) -> Receipt:
        self.done.append(order)
        if self.failures:
            self.failures -= 1
            raise self.error
        return Receipt(order, AT)


class Durable(OnStore):
    # --- what is recorded -----------------------------------------------------------------------------------------

    def test_inputs_arguments_and_results_are_recorded_with_their_types(self, store: sync.Holdproof) -> None:
        world = World()

        @store.flow(agent="trader", version="0.3.1 beta")
        def refund(flow: Any, order: str, *, tags: set[str]) -> tuple[Receipt, set[str]]:
            return flow.step(world.pay, order), tags

        assert refund("o-1", tags={"a", "b"}) == (Receipt("o-1", AT), {"a", "b"})
        [flow] = store.flows.list().items
        [step] = store.flows.steps(flow.flow_id)
        assert (step.name, step.arguments, step.attempts) == ("pay", {"args": ["o-1"], "kwargs": {}}, 1)
        assert store.flows.inputs(flow.flow_id).arguments["kwargs"] == {"tags": {"$set": ["a", "b"]}}
        assert store.flows.result(flow.flow_id) == (Receipt("o-1", AT), {"a", "b"})
        assert store.flows.outcome(flow.flow_id).result["$tuple"][1] == {"$set": ["a", "b"]}

    def test_a_pydantic_model_is_an_argument_and_a_result_here_and_in_another_program(
        self, store: sync.Holdproof
    ) -> None:
        def register(program: sync.Holdproof) -> Any:
            @program.flow(agent="trader", version="0.3.1")
            def bill(flow: Any, invoice: Invoice) -> Invoice:
                billed: Invoice = flow.step(due, invoice)
                return billed

            return bill

        def due(invoice: Invoice) -> Invoice:
            return invoice.model_copy(update={"total": Decimal("9.90")})

        asked = Invoice(order="o-1", total=Decimal(0), lines=[Receipt("o-1", AT)])
        billed = Invoice(order="o-1", total=Decimal("9.90"), lines=[Receipt("o-1", AT)])
        assert register(store).with_id("o-1")(asked) == billed
        other = sync.Holdproof(store.core)
        again = register(other)
        assert again.with_id("o-1")(asked) == billed
        assert other.flows.result("o-1") == billed
        assert other.flows.replay("o-1").differences == ()

    def test_a_fourth_approval_in_an_hour_is_asked_for_like_the_first(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader")
        def refund(flow: Any) -> int:
            for n in range(4):
                flow.approve(f"refund {n}", proposal={"cents": n})
            return 4

        handle = refund.enqueue()
        with live.worker():
            for n in range(4):
                while not (pending := live.escalations.list(status="PENDING").items):
                    time.sleep(0.01)
                assert [asked.reason for asked in pending] == [f"refund {n}"]
                live.escalations.resolve(pending[0].id, "approve", by="ann")
            assert handle.result(timeout_s=60) == 4

    def test_arguments_that_nobody_may_see_are_only_hashed(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        world = World()
        with pytest.raises(CrashError), store.flows.run("trader", lease_s=10) as flow:
            flow.step("pay", world.pay, "secret", record_args=False)
            raise CrashError
        [step] = store.flows.steps(flow.flow_id)
        assert (step.arguments, len(step.arguments_hash or "")) == (None, 64)
        clock.advance(10)
        with pytest.raises(errors.NonDeterminismError), store.flows.run(resume=flow.flow_id) as again:
            again.step("pay", world.pay, "another", record_args=False)

    def test_a_large_value_is_stored_once_however_often_it_is_passed(self, store: sync.Holdproof) -> None:
        conversation = [{"role": "user", "text": f"{n} " * 2_000} for n in range(20)]

        @store.flow(agent="trader")
        def agent(flow: Any, messages: list[Any]) -> int:
            for _ in range(10):
                flow.step("ask", len, messages)
            return len(messages)

        assert agent(conversation) == 20
        [flow] = store.flows.list().items
        assert [step.arguments["args"] for step in store.flows.steps(flow.flow_id)] == [[conversation]] * 10
        whole = len(str(conversation))
        stored = store.read(lambda tx: tx.all(sql("SELECT sum(length(data)) FROM objects")))[0][0]
        assert stored < 1.5 * whole

    # --- retries and time limits ----------------------------------------------------------------------------------

    def test_a_step_that_fails_is_tried_again_after_a_delay(self, live: sync.Holdproof) -> None:
        world = World(failures=2)
        with live.flows.run("trader") as flow:
            flow.step(world.pay, "o", retries=2, backoff_s=0.01)
        [step] = live.flows.steps(flow.flow_id)
        assert (world.done, step.attempts, step.state) == (["o"] * 3, 3, "DONE")

    def test_the_last_try_that_fails_fails_the_step(self, live: sync.Holdproof) -> None:
        world = World(failures=9)
        with pytest.raises(OSError, match="no line"), live.flows.run("trader") as flow:
            flow.step(world.pay, "o", retries=1, backoff_s=0.01)
        with pytest.raises(OSError, match="no line"), live.flows.run("trader") as other:
            other.step(world.pay, "o", retries=5, backoff_s=0.01, retry_on=KeyError)
        [step] = live.flows.steps(flow.flow_id)
        assert (step.state, step.attempts, len(world.done)) == ("FAILED", 2, 3)

    def test_a_step_between_two_tries_is_not_in_doubt(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        world = World(failures=1)

        @store.flow(agent="trader", lease_s=10)
        def refund(flow: Any) -> str:
            return str(flow.step(world.pay, "o", retries=1, backoff_s=60).order)

        # Opened by a caller that died before its function began.
        store.run(runs.enter_call("trader", calls.call_of("refund", "1.0", [], {}), flow_id="f", lease_s=1))
        clock.advance(2)
        [waiting] = store.flows.recover().reruns
        assert (waiting.waits_for, store.flows.steps("f")[0].state) == ("the next try of pay", "RETRYING")
        assert store.flows.recover().reruns == ()
        clock.advance(60)
        [done] = store.flows.recover().reruns
        assert (done.flow.status, store.flows.result("f"), world.done) == ("COMPLETED", "o", ["o", "o"])

    def test_a_step_over_its_time_limit_is_in_doubt_and_leaves_the_flow_dirty(self, live: sync.Holdproof) -> None:
        stuck = threading.Event()
        with pytest.raises(errors.UnknownOutcomeError), live.flows.run("trader") as flow:
            flow.step("hang", stuck.wait, timeout_s=0.05, on_unknown="fail")
        stuck.set()
        assert [dirty.flow_id for dirty in live.sagas.list()] == [flow.flow_id]

        async def hang() -> None:
            async with Holdproof(live.core).flows.run("trader") as soft:
                await soft.step("hang", asyncio.sleep, 60, timeout_s=0.05, on_unknown="fail")

        with pytest.raises(errors.UnknownOutcomeError):
            asyncio.run(hang())

    # --- several at once ------------------------------------------------------------------------------------------

    def test_steps_at_once_give_their_results_in_order_and_are_replayed_so(self, live: sync.Holdproof) -> None:
        started: list[int] = []
        meet = threading.Barrier(3, timeout=60)

        def work(n: int) -> int:
            started.append(n)
            meet.wait()
            return n * 10

        with pytest.raises(CrashError), live.flows.run("trader", lease_s=0.2) as flow:
            assert flow.map(work, [1, 2, 3]) == [10, 20, 30]
            raise CrashError
        threading.Event().wait(0.3)
        with live.flows.run(resume=flow.flow_id) as again:
            assert again.map(work, [1, 2, 3]) == [10, 20, 30]
            assert again.gather(again.call("x", lambda: "x"), again.call("y", str.upper, "y")) == ["x", "Y"]
        assert sorted(started) == [1, 2, 3]

    def test_the_first_failure_of_steps_at_once_is_raised(self, live: sync.Holdproof) -> None:
        world = World(failures=1)

        async def gather() -> None:
            async with Holdproof(live.core).flows.run("trader") as flow:
                await flow.gather(flow.call(world.pay, "a"), flow.call("b", str.upper, "b"), concurrency=1)

        with pytest.raises(OSError, match="no line"):
            asyncio.run(gather())
        [flow] = live.flows.list().items
        assert [(step.name, step.state) for step in live.flows.steps(flow.flow_id)] == [
            ("pay", "FAILED"),
            ("b", "DONE"),
        ]
        with pytest.raises(errors.InvalidInputError, match=r"flow\.call"), live.flows.run("trader") as other:
            other.gather(world.pay)  # type: ignore[arg-type]

    # --- time -----------------------------------------------------------------------------------------------------

    def test_a_sleeping_flow_has_no_worker_and_goes_on_at_its_time(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        world = World()

        @store.flow(agent="trader", lease_s=10)
        def refund(flow: Any) -> str:
            flow.step("first", world.pay, "a")
            if not crashed:
                crashed.append(1)
                raise CrashError
            flow.sleep(hours=24)
            flow.sleep_until("2020-01-01T00:00:00Z")
            return str(flow.step("second", world.pay, "b").order)

        crashed: list[int] = []
        with pytest.raises(CrashError):
            refund.with_id("f")()
        clock.advance(10)
        [waiting] = store.flows.recover().reruns
        assert (waiting.flow.status, waiting.error) == ("RUNNING", None)
        assert waiting.waits_for is not None
        clock.advance(86_399)
        assert store.flows.recover().reruns == ()
        clock.advance(1)
        [done] = store.flows.recover().reruns
        assert (done.flow.status, world.done) == ("COMPLETED", ["a", "b"])

    # --- one run an id --------------------------------------------------------------------------------------------

    def test_a_second_call_with_an_id_has_the_result_of_the_first(self, live: sync.Holdproof) -> None:
        world = World()
        begun = threading.Event()

        @live.flow(agent="newcomer")
        def refund(flow: Any, order: str) -> Receipt:
            begun.set()
            flow.sleep(0.2)
            receipt: Receipt = flow.step(world.pay, order)
            return receipt

        first: list[Receipt] = []
        caller = threading.Thread(target=lambda: first.append(refund.with_id("o-1")("o-1")))
        caller.start()
        begun.wait(60)
        assert refund.with_id("o-1")("o-1") == Receipt("o-1", AT)
        caller.join()
        assert (first, world.done) == ([Receipt("o-1", AT)], ["o-1"])
        with pytest.raises(errors.IdempotencyConflictError):
            refund.with_id("o-1")("o-2")
        assert live.agents.get("newcomer").status == "ACTIVE"

    def test_a_call_with_the_id_of_a_lost_worker_says_whom_it_waits_for_and_goes_on_when_its_lease_is_over(
        self, live: sync.Holdproof, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(functions, "_SILENT_S", 0.05)
        world = World()
        entered: list[str] = []

        @live.flow(agent="newcomer", lease_s=1.0)
        def refund(flow: Any, order: str) -> Receipt:
            entered.append(order)
            receipt: Receipt = flow.step(world.pay, order)
            if len(entered) == 1:
                raise CrashError
            return receipt

        with pytest.raises(CrashError):
            refund.with_id("o-1")("o-1")
        assert refund.with_id("o-1")("o-1") == Receipt("o-1", AT)
        assert (world.done, entered) == (["o-1"], ["o-1", "o-1"])
        warnings = [each.getMessage() for each in caplog.records if "belongs to worker" in each.getMessage()]
        assert len(warnings) == 1, "said once, however often it looks again"
        assert warnings[0].startswith("flow o-1 belongs to worker ")

    def test_a_call_with_the_id_of_a_failed_flow_fails_as_it_did(self, store: sync.Holdproof) -> None:
        world = World(failures=1)

        @store.flow(agent="trader")
        def refund(flow: Any) -> None:
            flow.step(world.pay, "o")

        with pytest.raises(OSError, match="no line"):
            refund.with_id("f")()
        with pytest.raises(errors.FlowFailedError, match="no line"):
            refund.with_id("f")()

    def test_a_handle_tells_waits_and_cancels(self, store: sync.Holdproof) -> None:
        @store.flow(agent="trader")
        def refund(flow: Any, order: str) -> str:
            return order

        handle = refund.enqueue("o-1", queue="payments", delay_s=60, priority=2, deduplicate="o-1")
        assert handle.status() == "CREATED"
        assert refund.enqueue("o-1", queue="payments", deduplicate="o-1").flow_id == handle.flow_id
        call = store.flows.inputs(handle.flow_id)
        assert (call.queue, call.deduplicate, call.arguments["args"]) == ("payments", "o-1", ["o-1"])
        with pytest.raises(errors.TimeoutExpiredError):
            handle.result(timeout_s=0)
        handle.cancel()
        with pytest.raises(errors.FlowEndedError):
            handle.result()
        assert refund.enqueue("o-1", queue="payments", deduplicate="o-1").flow_id != handle.flow_id

    # --- records that were edited ---------------------------------------------------------------------------------

    def test_an_edited_record_stops_its_flow_and_nothing_runs(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        edits: dict[str, tuple[Query, str | None]] = {
            "call": (_EDIT_CALL, '{"args":["a yacht"],"kwargs":{}}'),
            "result": (_EDIT_STEP, '"a yacht"'),
            "put back": (_PUT_BACK, None),
        }
        crashed: list[int] = []
        bought: list[str] = []

        @store.flow(agent="trader", lease_s=10)
        def order(flow: Any, what: str) -> str:
            flow.step("look", str, what)
            if len(crashed) < len(edits):
                crashed.append(1)
                raise CrashError
            return str(flow.step("buy", bought.append, what))

        def edit(tx: Tx, query: Query, name: str, text: str | None) -> None:
            if text is None:
                tx.execute(query, dfid=name)
            else:
                tx.execute(query, dfid=name, text=text)

        for name, (query, text) in edits.items():
            with pytest.raises(CrashError):
                order.with_id(name)("tea")
            store.core.database.write(partial(edit, query=query, name=name, text=text)).result()
        clock.advance(10)
        reruns = {rerun.flow.flow_id: rerun for rerun in store.flows.recover().reruns}
        assert reruns.keys() == edits.keys()
        assert all("TamperedError" in (rerun.error or "") for rerun in reruns.values())
        assert bought == []
        clock.advance(1_000)
        assert store.flows.recover().reruns == ()
        # As it was, for the check at the end.
        store.core.database.write(self._mend).result()

    def _mend(self, tx: Any) -> None:
        tx.execute(_EDIT_CALL, dfid="call", text='{"args":["tea"],"kwargs":{}}')
        tx.execute(_EDIT_STEP, dfid="result", text='"tea"')
        tx.execute(
            sql(
                "UPDATE flow_steps SET state = 'DONE', result = :text, leaf_ver = 2 WHERE dfid = :dfid AND ns = 'main'"
            ),
            dfid="put back",
            text='"tea"',
        )


class TestSqlite(Durable, OnSqlite): ...


class TestMemory(Durable, InMemory): ...


class TestPostgres(Durable, OnPostgres): ...
