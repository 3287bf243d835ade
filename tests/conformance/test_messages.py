"""Messages, promises, published values and streams of flows, on every backend."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.client import Holdproof
from holdproof.db import sql
from holdproof.executors import SyncExecutor
from holdproof.model.verdicts import Verdict
from holdproof.runtime import calls, messages, promises, runs
from holdproof.runtime.flow_run import FlowRun
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]


@dataclass(frozen=True)
class Payment:
    """A value of a class of the program's own."""

    order: str
    cents: Decimal


PAID = Payment("o-17", Decimal("9.90"))


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another worker: the same store, with nothing registered."""
    return sync.Holdproof(store.core)


def registered(store: sync.Holdproof, body: Callable[..., Any], **options: Any) -> Any:
    """A flow of the agent `trader` with this body, as each worker registers it."""
    return store.flow(name="conversation", agent="trader", lease_s=10, **options)(body)


def begun(store: sync.Holdproof, body: Callable[..., Any], clock: FrozenClock, **options: Any) -> str:
    """A flow that its first worker left suspended where it waits: its id."""
    worker = other(store)
    registered(worker, body, **options)
    # Opened by a caller that died before its function began.
    run = store.run(runs.enter_call("trader", calls.call_of("conversation", "1.0", [], {}), lease_s=1, **options))
    assert isinstance(run, FlowRun)
    clock.advance(1)
    [rerun] = worker.flows.recover().reruns
    assert rerun.error is None, rerun.error
    return run.lease.flow_id


def recovered(store: sync.Holdproof, body: Callable[..., Any], **options: Any) -> Any:
    """The one flow that a further worker ran again."""
    worker = other(store)
    registered(worker, body, **options)
    [rerun] = worker.flows.recover().reruns
    return rerun


def wait_until_open(store: sync.Holdproof, flow_id: str) -> None:
    """Wait until a flow is there that another thread opens."""
    pause = threading.Event()
    while True:
        try:
            store.flows.get(flow_id)
        except errors.NotFoundError:
            pause.wait(0.01)
        else:
            return


class Messages(OnStore):
    # --- sending and receiving ------------------------------------------------------------------------------------

    def test_messages_are_received_once_each_and_in_order(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            for n in range(3):
                store.flows.signal(flow.flow_id, "numbers", n)
            store.flows.signal(flow.flow_id, "words")  # None is a message, too
            store.flows.signal(flow.flow_id, "words", "one")
            assert [flow.receive("numbers") for _ in range(3)] == [0, 1, 2]
            assert flow.receive("numbers", timeout_s=0) is None
            assert [flow.receive("words"), flow.receive("words")] == [None, "one"]
        assert all(each.received_at for each in store.flows.messages(flow.flow_id))
        names = [step.name for step in store.flows.steps(flow.flow_id)]
        assert names == ["flow.receive numbers"] * 4 + ["flow.receive words"] * 2

    def test_values_of_a_programs_own_classes_arrive_equal(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            message = store.flows.signal(flow.flow_id, "payment", PAID)
            assert (message.topic, message.value, message.received_at) == ("payment", PAID, None)
            assert flow.receive("payment") == PAID
            large = {"text": "x" * 10_000, "when": (1, 2)}
            store.flows.signal(flow.flow_id, "payment", large)
            assert flow.receive("payment") == large
            with pytest.raises(errors.UnrecordableError):
                store.flows.signal(flow.flow_id, "payment", object())

    def test_a_flow_sends_to_another_once_over_a_crash(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        target = store.flows.start("trader").flow_id
        crash = [True]

        def body(flow: Flow) -> str:
            flow.send(target, "news", PAID)
            if crash:
                raise CrashError
            return "sent"

        with pytest.raises(CrashError):
            registered(other(store), body)()
        clock.advance(11)
        crash.clear()
        assert recovered(store, body).flow.status == "COMPLETED"
        [message] = store.flows.messages(target)
        sender = store.flows.list(flow_type="conversation").items[0].flow_id
        assert (message.value, message.sent_by) == (PAID, f"flow:{sender}")
        [step] = store.flows.steps(sender)
        assert step.arguments["args"][:2] == [target, "news"]

    def test_a_flow_that_sends_another_message_when_it_is_run_again_stops(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        target = store.flows.start("trader").flow_id
        words = ["first"]

        def body(flow: Flow) -> None:
            flow.send(target, "news", words[-1])
            if len(words) == 1:
                raise CrashError

        with pytest.raises(CrashError):
            registered(other(store), body)()
        clock.advance(11)
        words.append("second")
        assert "NonDeterminismError" in recovered(store, body).error
        assert [message.value for message in store.flows.messages(target)] == ["first"]

    def test_a_message_that_was_received_before_a_crash_is_not_received_again(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        crash = [True]

        def body(flow: Flow) -> list[Any]:
            first = flow.receive("numbers")
            if crash:
                raise CrashError
            return [first, flow.receive("numbers")]

        flow_id = begun(store, body, clock)
        store.flows.signal(flow_id, "numbers", 1)
        store.flows.signal(flow_id, "numbers", 2)
        with pytest.raises(CrashError):
            recovered(store, body)
        clock.advance(11)
        crash.clear()
        assert recovered(store, body).flow.status == "COMPLETED"
        assert store.flows.result(flow_id) == [1, 2]

    def test_a_suspended_receiver_is_woken(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        def body(flow: Flow) -> Any:
            return flow.receive("payment")

        flow_id = begun(store, body, clock)
        assert store.flows.recover().orphans == ()
        store.flows.signal(flow_id, "other", 1)
        rerun = recovered(store, body)
        assert (rerun.flow.status, rerun.waits_for) == ("RUNNING", "a message of topic payment")
        store.flows.signal(flow_id, "payment", PAID)
        assert recovered(store, body).flow.status == "COMPLETED"
        assert store.flows.result(flow_id) == PAID

    def test_a_receive_ends_at_its_first_deadline_however_often_it_is_run(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        def body(flow: Flow) -> Any:
            return [flow.receive("payment", timeout_s=60), flow.receive("payment", timeout_s=60)]

        flow_id = begun(store, body, clock)
        clock.advance(30)
        store.flows.signal(flow_id, "other", "wakes it")
        assert recovered(store, body).waits_for is not None
        clock.advance(30)
        assert recovered(store, body).waits_for is not None
        store.flows.signal(flow_id, "payment", 7)
        assert recovered(store, body).flow.status == "COMPLETED"
        assert store.flows.result(flow_id) == [None, 7]

    def test_a_flow_that_was_called_waits_in_place(self, live: sync.Holdproof) -> None:
        flow_ids: list[str] = []
        entered = threading.Event()

        def body(flow: Flow) -> Any:
            flow_ids.append(flow.flow_id)
            entered.set()
            return flow.receive("payment", timeout_s=30)

        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(registered(live, body))
            entered.wait(30)
            live.flows.signal(flow_ids[0], "payment", PAID)
            assert answer.result(30) == PAID

    def test_a_message_to_an_ended_flow_is_refused(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as ended:
            first = store.flows.signal(ended.flow_id, "news", 1, idempotency_key="k")
        with pytest.raises(errors.FlowEndedError):
            store.flows.signal(ended.flow_id, "news", 1)
        # What was delivered before stays delivered.
        assert store.flows.signal(ended.flow_id, "news", 1, idempotency_key="k").message_id == first.message_id
        with store.flows.run("trader") as flow:
            with pytest.raises(errors.FlowEndedError):
                flow.send(ended.flow_id, "news", 1)
            with pytest.raises(errors.NotFoundError):
                flow.send("nobody", "news", 1)
        with pytest.raises(errors.NotFoundError):
            store.flows.signal("nobody", "news", 1)

    def test_a_signal_with_a_key_is_delivered_once(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            sent = [store.flows.signal(flow.flow_id, "pay", PAID, idempotency_key="o-17", by="ann") for _ in range(2)]
            assert sent[0] == sent[1]
            assert sent[0].sent_by == "ann"
            for topic, value in (("pay", 1), ("other", PAID)):
                with pytest.raises(errors.IdempotencyConflictError):
                    store.flows.signal(flow.flow_id, topic, value, idempotency_key="o-17")
            assert [flow.receive("pay"), flow.receive("pay", timeout_s=0)] == [PAID, None]

    def test_signals_are_part_of_the_callers_transaction(self, store: sync.Holdproof) -> None:
        flow_id = store.flows.start("trader").flow_id

        def fails(tx: Any) -> None:
            messages.signal(tx, flow_id, "news", 1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.write(fails)
        assert store.flows.messages(flow_id) == ()

    def test_what_would_be_replayed_wrongly_inside_a_step_is_refused(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            promise = flow.promise("p")
            for act in (
                lambda: flow.receive("news", timeout_s=0),
                lambda: flow.send(flow.flow_id, "news", 1),
                lambda: flow.promise("x"),
                lambda: promise.wait(timeout_s=0),
            ):
                with pytest.raises(errors.InvalidInputError, match="inside a step"):
                    flow.step("outer", act)

    def test_racing_senders_and_receivers_lose_and_repeat_nothing(self, live: sync.Holdproof) -> None:
        senders, each = 4, 6

        def body(flow: Flow) -> list[Any]:
            flow.publish("ready", True)
            return [flow.receive("work", timeout_s=60) for _ in range(senders * each)]

        handle = registered(live, body).with_id("hub")
        with ThreadPoolExecutor(senders + 1) as pool:
            answer = pool.submit(handle)
            wait_until_open(live, "hub")
            live.flows.published("hub", "ready", wait=True, timeout_s=30)

            def send(sender: int) -> None:
                for n in range(each):
                    live.flows.signal("hub", "work", [sender, n], idempotency_key=f"{sender}-{n}")

            for future in [pool.submit(send, sender) for sender in range(senders)]:
                future.result(60)
            received = answer.result(60)
        assert sorted(received) == [[sender, n] for sender in range(senders) for n in range(each)]
        for sender in range(senders):
            assert [n for who, n in received if who == sender] == [*range(each)]

    def test_two_flows_that_send_to_each_other_do_not_wait_for_each_other(self, live: sync.Holdproof) -> None:
        ids = [live.flows.start("trader").flow_id for _ in range(2)]

        def talk(own: str, peer: str) -> list[Any]:
            with live.flows.run(resume=own) as flow:
                answers = []
                for n in range(5):
                    flow.send(peer, "ping", n)
                    answers.append(flow.receive("ping", timeout_s=60))
                # Both wait for the other's last word, so that neither ends while it is being sent to.
                return answers

        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(talk, *pair) for pair in (ids, ids[::-1])]
            assert [each.result(60) for each in both] == [[*range(5)]] * 2

    def test_a_worker_that_lost_its_lease_takes_no_message(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        with store.flows.run("trader", lease_s=1) as first:
            store.flows.signal(first.flow_id, "news", 1)
            clock.advance(2)
            with store.flows.run(resume=first.flow_id) as second:
                with pytest.raises(errors.LeaseLostError):
                    first.receive("news")
                assert second.receive("news") == 1
                with pytest.raises(errors.LeaseLostError):
                    first.receive("news", timeout_s=0)

    # --- promises ------------------------------------------------------------------------------------------------

    def test_a_promise_is_resolved_once_by_who_has_its_token(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            promise = flow.promise("payment")
            assert promise.url == "/v1/promises/resolve"
            assert promise.token not in repr(promise)
            first = store.promises.resolve(promise.token, PAID)
            assert (first.state, first.value, first.name) == ("RESOLVED", PAID, "payment")
            assert store.promises.resolve(promise.token, PAID) == first
            with pytest.raises(errors.AlreadyResolvedError):
                store.promises.resolve(promise.token, 1)
            with pytest.raises(errors.AlreadyResolvedError):
                store.promises.reject(promise.token, "no")
            assert promise.wait() == flow.wait_for(promise) == PAID
        with pytest.raises(errors.UnauthenticatedError):
            store.promises.resolve("hpp_guess", 1)

    def test_a_rejected_promise_raises_also_when_it_is_replayed(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        tokens: list[str] = []
        reasons: list[str] = []

        def body(flow: Flow) -> None:
            promise = flow.promise("payment")
            tokens.append(promise.token)
            try:
                promise.wait()
            except errors.PromiseRejectedError as error:
                reasons.append(error.fields["reason"])
            if len(reasons) == 1:
                raise CrashError

        flow_id = begun(store, body, clock)
        store.promises.reject(tokens[0], "card declined")
        with pytest.raises(CrashError):
            recovered(store, body)
        clock.advance(11)
        assert recovered(store, body).flow.status == "COMPLETED"
        assert reasons == ["card declined"] * 2
        # The same token at every run: a step that it is passed to is replayed.
        assert len(set(tokens)) == 1
        [promise] = store.promises.list(flow_id)
        assert (promise.state, promise.value) == ("REJECTED", "card declined")

    def test_the_token_of_a_promise_is_stored_as_a_hash_only(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            token = flow.promise("payment").token
            rows = store.read(lambda tx: tx.all(sql("SELECT token_hash FROM flow_promises")))
            assert all(token not in str(row) for row in rows)
            assert token not in str(store.flows.steps(flow.flow_id))
            assert token not in str(store.promises.list(flow.flow_id))

    def test_a_wait_for_a_promise_ends_at_its_deadline_and_the_promise_stays_open(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        tokens: list[str] = []

        def body(flow: Flow) -> Any:
            promise = flow.promise("payment")
            tokens.append(promise.token)
            try:
                return promise.wait(timeout_s=60)
            except errors.TimeoutExpiredError:
                return ["late", flow.wait_for(promise)]

        flow_id = begun(store, body, clock)
        clock.advance(60)
        assert recovered(store, body).waits_for == "promise payment"
        store.promises.resolve(tokens[0], PAID)
        recovered(store, body)
        assert store.flows.result(flow_id) == ["late", PAID]

    def test_of_those_who_resolve_a_promise_at_once_one_succeeds(self, live: sync.Holdproof) -> None:
        with live.flows.run("trader") as flow:
            promise = flow.promise("payment")

            def resolve(value: int) -> bool:
                try:
                    live.promises.resolve(promise.token, value)
                except errors.AlreadyResolvedError:
                    return False
                return True

            with ThreadPoolExecutor(4) as pool:
                assert sum(pool.map(resolve, range(8))) == 1
            assert promise.wait() in range(8)

    def test_a_promise_of_an_ended_flow_is_refused(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            token = flow.promise("payment").token
        with pytest.raises(errors.FlowEndedError):
            store.promises.resolve(token, 1)

    def test_promises_of_one_name_are_told_apart(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            first, second = flow.promise("p"), flow.promise("p")
            store.promises.resolve(second.token, 2)
            store.promises.resolve(first.token, 1)
            assert (first.wait(), second.wait()) == (1, 2)
            with pytest.raises(errors.NotFoundError):
                flow.wait_for("no promise")

    # --- published values ----------------------------------------------------------------------------------------

    def test_published_values_are_read_from_outside_while_the_flow_runs(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            flow.publish("progress", 0.5)
            flow.publish("payment", PAID)
            flow.step("work", lambda: flow.publish("progress", 0.75))
            progress = store.flows.published(flow.flow_id, "progress")
            assert (progress.value, progress.version) == (0.75, 2)
            assert [(each.key, each.value) for each in store.flows.list_published(flow.flow_id)] == [
                ("payment", PAID),
                ("progress", 0.75),
            ]
            with pytest.raises(errors.NotFoundError):
                store.flows.published(flow.flow_id, "nothing")
            with pytest.raises(errors.TimeoutExpiredError):
                store.flows.published(flow.flow_id, "nothing", wait=True, timeout_s=0)
        assert store.flows.published(flow.flow_id, "payment").value == PAID
        with pytest.raises(errors.NotFoundError):
            store.flows.published(flow.flow_id, "nothing", wait=True)

    def test_a_flow_that_is_run_again_publishes_nothing_twice(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        def body(flow: Flow) -> Any:
            flow.publish("state", "waiting")
            flow.stream("tokens").write("a")
            return flow.receive("go")

        flow_id = begun(store, body, clock)
        store.flows.signal(flow_id, "go", 1)
        recovered(store, body)
        assert store.flows.published(flow_id, "state").version == 1
        assert [each.value for each in store.flows.stream(flow_id, "tokens")] == ["a"]

    # --- streams -------------------------------------------------------------------------------------------------

    def test_readers_of_a_stream_resume_at_an_offset_and_end_where_it_is_closed(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            tokens = flow.stream("tokens")
            tokens.write("a")
            flow.step("model", lambda: tokens.write(PAID))
            tokens.write("c")
            tokens.close()
            items = [*store.flows.stream(flow.flow_id, "tokens")]
            assert [(each.offset, each.value) for each in items] == [(0, "a"), (1, PAID), (2, "c")]
            assert [each.value for each in store.flows.stream(flow.flow_id, "tokens", offset=2)] == ["c"]
            assert [*store.flows.stream(flow.flow_id, "tokens", offset=9)] == []
            with pytest.raises(errors.ConflictError):
                tokens.write("d")
            with pytest.raises(errors.TimeoutExpiredError):
                next(iter(store.flows.stream(flow.flow_id, "empty", timeout_s=0)))
        assert [*store.flows.stream(flow.flow_id, "empty")] == []
        with pytest.raises(errors.NotFoundError):
            next(iter(store.flows.stream("nobody", "tokens")))

    def test_a_reader_of_a_stream_ends_with_the_flow(self, live: sync.Holdproof) -> None:
        with ThreadPoolExecutor(1) as pool:
            with live.flows.run("trader") as flow:
                reader = pool.submit(lambda: [each.value for each in live.flows.stream(flow.flow_id, "tokens")])
                for n in range(3):
                    flow.stream("tokens").write(n)
            assert reader.result(30) == [0, 1, 2]

    def test_a_step_that_writes_from_several_threads_leaves_no_gaps(self, live: sync.Holdproof) -> None:
        with live.flows.run("trader") as flow:
            tokens = flow.stream("tokens")

            def write_all() -> None:
                with ThreadPoolExecutor(4) as pool:
                    # Each in a copy of the step's context, by which what it calls is known to be inside the step.
                    writes = [pool.submit(copy_context().run, tokens.write, n) for n in range(12)]
                    for each in writes:
                        each.result()

            flow.step("model", write_all)
            tokens.close()
            items = [*live.flows.stream(flow.flow_id, "tokens")]
        assert [each.offset for each in items] == [*range(12)]
        assert sorted(each.value for each in items) == [*range(12)]

    def test_the_async_client_has_the_same(self, store: sync.Holdproof) -> None:
        async def talk() -> None:
            client = Holdproof(store.core)
            async with client.flows.run("trader") as flow:
                await client.flows.signal(flow.flow_id, "news", PAID)
                assert await flow.receive("news") == PAID
                await flow.send(flow.flow_id, "news", 1)
                assert await flow.receive("news", timeout_s=60) == 1
                promise = await flow.promise("payment")
                await client.promises.resolve(promise.token, 2)
                assert await promise.wait() == await flow.wait_for(promise) == 2
                await flow.publish("progress", 3)
                assert (await client.flows.published(flow.flow_id, "progress")).value == 3
                await flow.stream("tokens").write(4)
                await flow.stream("tokens").close()
                assert [each.value async for each in client.flows.stream(flow.flow_id, "tokens")] == [4]

        asyncio.run(talk())

    def test_what_one_transaction_writes_it_also_goes_by(self, store: sync.Holdproof) -> None:
        """Operations that share a commit meet rows whose entries are written at the end of it."""
        with store.flows.run("trader") as flow:
            token = flow.promise("p").token
            both = store.write(lambda tx: [promises.resolve(tx, token, 1) for _ in range(2)])
            assert both[0] == both[1]

    # --- whose they are, and what was edited -----------------------------------------------------------------------

    def test_what_belongs_to_a_person_is_sealed_and_goes_with_them(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader", subject="Ada") as flow:
            store.flows.signal(flow.flow_id, "news", "her secret", idempotency_key="k")
            store.flows.signal(flow.flow_id, "news", "her secret", idempotency_key="k")
            promise = flow.promise("p")
            store.promises.resolve(promise.token, "her secret")
            store.promises.resolve(promise.token, "her secret")
            flow.publish("key", "her secret")
            flow.stream("tokens").write("her secret")
            assert flow.receive("news") == promise.wait() == "her secret"
        for table in ("flow_messages", "flow_promises", "flow_values", "flow_stream_items", "flow_steps"):
            rows = store.read(lambda tx, table=table: tx.all(sql(f"SELECT * FROM {table}")))  # type: ignore[misc]
            assert rows
            assert "her secret" not in str(rows)
        assert store.flows.published(flow.flow_id, "key").value == "her secret"
        store.erase.subject("Ada")
        with pytest.raises(errors.ErasedError):
            _ = store.flows.published(flow.flow_id, "key").value
        assert store.verify.run(lock=False).verdict == Verdict.VALID

    @pytest.mark.parametrize("what", ["message", "promise", "published", "stream"])
    def test_nothing_goes_by_a_value_that_was_edited(self, store: sync.Holdproof, what: str) -> None:
        """Edited to "a yacht", it is refused where it would be used, and `verify` names its row."""
        table = {
            "message": "flow_messages",
            "promise": "flow_promises",
            "published": "flow_values",
            "stream": "flow_stream_items",
        }[what]
        edit = sql(f"UPDATE {table} SET value = '\"a yacht\"'")
        restore = sql(f"UPDATE {table} SET value = '\"tea\"'")
        with store.flows.run("trader") as flow:
            store.flows.signal(flow.flow_id, "order", "tea")
            promise = flow.promise("order")
            store.promises.resolve(promise.token, "tea")
            flow.publish("order", "tea")
            flow.stream("order").write("tea")
            store.write(lambda tx: tx.execute(edit))
            use: dict[str, Callable[[], Any]] = {
                "message": lambda: flow.receive("order"),
                "promise": promise.wait,
                "published": lambda: store.flows.published(flow.flow_id, "order"),
                "stream": lambda: next(iter(store.flows.stream(flow.flow_id, "order"))),
            }
            with pytest.raises(errors.TamperedError) as caught:
                use[what]()
            assert caught.value.fields["table"] == table
            report = store.verify.run(lock=False)
            assert report.verdict == Verdict.TAMPERED
            assert any(table in str(finding) for finding in report.findings)
            store.write(lambda tx: tx.execute(restore))

    def test_an_edited_message_stops_its_flow_and_nothing_is_run(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        bought: list[Any] = []

        def body(flow: Flow) -> None:
            flow.step("buy", bought.append, flow.receive("order"))

        flow_id = begun(store, body, clock)
        store.flows.signal(flow_id, "order", "tea")
        store.write(lambda tx: tx.execute(sql("UPDATE flow_messages SET value = '\"a yacht\"'")))
        rerun = recovered(store, body)
        assert "TamperedError" in rerun.error
        assert (rerun.flow.status, bought) == ("RUNNING", [])
        store.write(lambda tx: tx.execute(sql("UPDATE flow_messages SET value = '\"tea\"'")))

    def test_a_message_that_was_put_back_is_not_received_twice(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            store.flows.signal(flow.flow_id, "order", "tea")
            old = store.read(lambda tx: tx.one(sql("SELECT leaf_ver, leaf_salt FROM flow_messages")))
            assert old is not None
            flow.receive("order")
            new = store.read(lambda tx: tx.one(sql("SELECT leaf_ver, leaf_salt, received_at FROM flow_messages")))
            assert new is not None
            put = sql("UPDATE flow_messages SET leaf_ver = :ver, leaf_salt = :salt, received_at = :at")
            store.write(lambda tx: tx.execute(put, ver=old[0], salt=old[1], at=None))
            with pytest.raises(errors.TamperedError, match="put back"):
                flow.receive("order")
            store.write(lambda tx: tx.execute(put, ver=new[0], salt=new[1], at=new[2]))


class TestMemoryMessages(InMemory, Messages):
    pass


class TestSqliteMessages(OnSqlite, Messages):
    pass


class TestPostgresMessages(OnPostgres, Messages):
    pass
