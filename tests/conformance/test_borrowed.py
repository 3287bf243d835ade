"""Enqueueing, signalling and recording inside a transaction that the caller owns: there with it, gone with it."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from harness.filling import settled
from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.client import Holdproof
from holdproof.executors import SyncExecutor
from holdproof.runtime import audit, calls, functions, leases, messages, runs
from holdproof.testing import FrozenClock

Flow = OpenFlow[SyncExecutor]
_KILLED = """
import sys, psycopg
from holdproof import sync
url, home, when = sys.argv[1:]
store = sync.open(url=url, home=home)
pay = store.flow(agent="trader", name="pay")(lambda flow, what: what)
connection = psycopg.connect(url)
connection.execute("INSERT INTO public.orders VALUES (%s)", (when,))
store.write_in(connection, lambda tx: pay.enqueue_in(tx, when, queue="q"))
if when == "after":
    connection.commit()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(postgres_store: tuple[str, Path]) -> Iterator[sync.Holdproof]:
    url, home = postgres_store
    with sync.open(url=url, home=home) as store:
        store.agents.register("trader", version="1.0.0")
        yield store
        settled(store)
        report = store.verify.run(full=True, lock=False)
        assert report.findings == [], report.to_dict()


@pytest.fixture
def connection(store: sync.Holdproof, postgres_store: tuple[str, Path]) -> Iterator["psycopg.Connection[Any]"]:
    with psycopg.connect(postgres_store[0]) as connection:
        connection.execute("CREATE TABLE public.orders (what TEXT)")
        connection.commit()
        yield connection
        connection.rollback()
        connection.execute("DROP TABLE public.orders")


def paying(store: sync.Holdproof) -> Any:
    @store.flow(agent="trader")
    def pay(flow: Flow, what: str) -> Any:
        return [what, flow.receive("approved", timeout_s=30)]

    return pay


def test_what_is_enqueued_is_there_with_the_commit_and_gone_with_the_rollback(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]"
) -> None:
    pay = paying(store)
    with store.worker():
        for _ in range(2):
            connection.execute("INSERT INTO public.orders VALUES ('tea')")
            flow = store.write_in(connection, lambda tx: pay.enqueue_in(tx, "tea", queue="q"))
            assert store.flows.list().items == []
            connection.rollback()
        assert connection.execute("SELECT count(*) FROM public.orders").fetchone() == (0,)
        with connection.transaction():
            flow = store.write_in(connection, lambda tx: pay.enqueue_in(tx, "tea", queue="q"))
            store.write_in(connection, lambda tx: messages.signal(tx, flow.flow_id, "approved", "yes"))
            store.write_in(connection, lambda tx: audit.record(tx, flow.flow_id, "ORDERED"))
        connection.commit()
        # Notified by the commit: a worker that would look by itself only after seconds runs it.
        assert store.flows.result(flow.flow_id, timeout_s=30) == ["tea", "yes"]
    assert "ORDERED" in {event.event_type for event in store.audit.list().items}


def test_a_refused_operation_leaves_the_callers_transaction_and_its_settings_as_they_were(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]"
) -> None:
    connection.execute("SET search_path TO public")
    connection.execute("SET TimeZone TO 'Asia/Tokyo'")
    connection.commit()
    connection.execute("INSERT INTO orders VALUES ('tea')")
    with pytest.raises(errors.NotFoundError):
        store.write_in(connection, lambda tx: messages.signal(tx, "none", "approved"))
    store.write_in(connection, lambda tx: paying(store).enqueue_in(tx, "tea"))
    connection.execute("INSERT INTO orders VALUES ('milk')")
    assert connection.execute("SHOW search_path").fetchone() == ("public",)
    connection.commit()
    assert connection.execute("SHOW TimeZone").fetchone() == ("Asia/Tokyo",)
    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (2,)
    assert len(store.flows.list().items) == 1


def test_a_refusal_by_policy_stays_recorded_though_the_caller_rolls_back(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]"
) -> None:
    store.policies.create("stop", "forbid(principal, action, resource);", by="ada")
    store.policies.activate("stop", by="ada")
    with pytest.raises(errors.PolicyDeniedError):
        store.write_in(connection, lambda tx: paying(store).enqueue_in(tx, "tea"))
    connection.rollback()
    assert store.flows.list().items == []
    [denial] = store.policies.decisions().items
    assert (denial.action, denial.decision) == ("flow.start", "deny")


def test_connections_and_sessions_of_sqlalchemy(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]", postgres_store: tuple[str, Path]
) -> None:
    del connection
    pay = paying(store)
    url = postgres_store[0].replace("postgresql://", "postgresql+psycopg://", 1)
    engine = sqlalchemy.create_engine(url)
    order = sqlalchemy.text("INSERT INTO public.orders VALUES ('tea')")
    with engine.connect() as own:
        first = store.write_in(own, lambda tx: pay.enqueue_in(tx, "first"))
        own.execute(order)
        own.commit()
        store.write_in(own, lambda tx: pay.enqueue_in(tx, "gone"))
        own.rollback()
    with Session(engine) as session, session.begin():
        second = store.write_in(session, lambda tx: pay.enqueue_in(tx, "second"))
        session.execute(order)
    engine.dispose()
    assert {flow.flow_id for flow in store.flows.list().items} == {first.flow_id, second.flow_id}


def test_the_async_client_takes_an_async_connection(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]", postgres_store: tuple[str, Path]
) -> None:
    async def main() -> None:
        far = Holdproof(store.core)
        async with await psycopg.AsyncConnection.connect(postgres_store[0]) as own:
            flow = await far.write_in(own, lambda tx: paying(store).enqueue_in(tx, "tea"))
            await own.execute("INSERT INTO public.orders VALUES ('tea')")
            await own.commit()
            assert (await far.flows.get(flow.flow_id)).status == "CREATED"
            with pytest.raises(errors.WrongClientError):
                store.write_in(own, lambda tx: None)
        await far.write_in(connection, lambda tx: audit.record(tx, flow.flow_id, "ORDERED"))
        connection.commit()

    asyncio.run(main())


def test_a_cancelled_call_gives_the_connection_back_and_leaves_nothing_in_its_transaction(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]", postgres_store: tuple[str, Path]
) -> None:
    """A thread may be using the connection: the caller goes on only when it no longer does."""
    flow_id = store.flows.start("trader").flow_id

    async def cancelled(far: Holdproof, own: Any) -> None:
        entered = threading.Event()
        goes_on = threading.Event()

        def slow(tx: Any) -> None:
            audit.record(tx, flow_id, "CANCELLED")
            entered.set()
            assert goes_on.wait(30)

        task = asyncio.ensure_future(far.write_in(own, slow))
        assert await asyncio.to_thread(entered.wait, 30)
        for _ in range(2):  # whoever is impatient cancels twice
            task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
        was_done = task.done()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not was_done, "the thread still used the connection"

    async def main() -> None:
        far = Holdproof(store.core)
        async with await psycopg.AsyncConnection.connect(postgres_store[0]) as own:
            await own.execute("INSERT INTO public.orders VALUES ('tea')")
            await cancelled(far, own)
            await far.write_in(own, lambda tx: audit.record(tx, flow_id, "ORDERED"))
            await own.commit()
        connection.execute("INSERT INTO public.orders VALUES ('milk')")
        await cancelled(far, connection)
        connection.commit()

    asyncio.run(main())
    assert connection.execute("SELECT count(*) FROM public.orders").fetchone() == (2,)
    kinds = {event.event_type for event in store.audit.list().items}
    assert "ORDERED" in kinds
    assert "CANCELLED" not in kinds


def test_another_database_and_other_transactions_are_refused(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]", empty_postgres_url: str, tmp_path: Path
) -> None:
    def nothing(tx: Any) -> None:
        del tx

    with psycopg.connect(empty_postgres_url) as other:
        with pytest.raises(errors.ForeignTransactionError, match="another database"):
            store.write_in(other, nothing)
        # Another store is another database too, even if it has the tables.
        sync.open(url=empty_postgres_url, home=tmp_path / "other").close()
        with pytest.raises(errors.ForeignTransactionError, match="another database"):
            store.write_in(other, nothing)
    connection.autocommit = True
    with pytest.raises(errors.ForeignTransactionError, match="autocommit"):
        store.write_in(connection, nothing)
    connection.autocommit = False
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    with pytest.raises(errors.ForeignTransactionError, match="READ COMMITTED"):
        store.write_in(connection, nothing)
    connection.execute("SELECT 1")
    with pytest.raises(errors.ForeignTransactionError, match="SERIALIZABLE"):
        store.write_in(connection, nothing)
    connection.rollback()
    connection.isolation_level = None
    with pytest.raises(psycopg.errors.SyntaxError):
        connection.execute("nonsense")
    with pytest.raises(errors.ForeignTransactionError, match="failed"):
        store.write_in(connection, nothing)
    with pytest.raises(errors.ForeignTransactionError, match="psycopg 3"):
        store.write_in(object(), nothing)
    with (
        sync.open(tmp_path / "file", clock=FrozenClock()) as file,
        pytest.raises(errors.ForeignTransactionError, match=r"store\.write"),
    ):
        file.write_in(connection, nothing)


def test_locks_are_held_until_the_caller_commits_and_groups_go_on(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]"
) -> None:
    """A flow that the caller has locked is waited for; the writers beside it, and the sequencer, are not held up."""
    pay = paying(store)
    flow = pay.enqueue("tea", queue="q")
    store.write_in(connection, lambda tx: messages.signal(tx, flow.flow_id, "approved", 1))
    waiting = threading.Thread(target=lambda: store.flows.signal(flow.flow_id, "approved", 2))
    waiting.start()
    for n in range(20):
        pay.enqueue(f"beside {n}", queue="q")
    settled(store)
    assert waiting.is_alive()
    connection.commit()
    waiting.join(30)
    assert not waiting.is_alive()


def test_racing_callers_with_one_key_open_one_flow(store: sync.Holdproof, postgres_store: tuple[str, Path]) -> None:
    pay = paying(store)
    ids: list[str] = []

    def enqueue() -> None:
        with psycopg.connect(postgres_store[0]) as own:
            flow = store.write_in(own, lambda tx: pay.enqueue_in(tx, "tea", queue="q", deduplicate="o-1"))
            ids.append(flow.flow_id)

    threads = [threading.Thread(target=enqueue) for _ in range(4)]
    for thread in threads:
        thread.start()
    ids += [pay.enqueue("tea", queue="q", deduplicate="o-1").flow_id for _ in range(4)]
    for thread in threads:
        thread.join()
    assert (len(ids), len(set(ids)), len(store.flows.list().items)) == (8, 1, 1)


def test_a_caller_that_is_late_for_a_flow_whose_worker_is_gone_waits_for_it(
    store: sync.Holdproof, connection: "psycopg.Connection[Any]"
) -> None:
    """It saw the flow left, and another caller leased it before it could: it waits, and finishes the flow itself."""

    @store.flow(agent="trader", lease_s=0.5)
    def work(flow: Flow) -> str:
        return "done"

    store.run(runs.enter_call("trader", calls.call_of("work", "1.0", [], {}), flow_id="f", lease_s=0.001))
    store.write_in(connection, lambda tx: leases.lease(tx, "f", "another caller", lease_s=0.3))
    results: list[Any] = []

    def join() -> None:
        try:
            results.append(store.run(functions._join(store._registry["work"], store.flows.get("f"))))
        except errors.HoldproofError as error:
            results.append(error)

    late = threading.Thread(target=join)
    late.start()
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
    while connection.execute(waiting).fetchone() == (0,):
        assert late.is_alive(), results
    connection.commit()
    late.join(30)
    assert results == ["done"]


@pytest.mark.parametrize(("when", "survives"), [("before", False), ("after", True)])
def test_killed_before_or_after_the_commit(
    store: sync.Holdproof,
    connection: "psycopg.Connection[Any]",
    postgres_store: tuple[str, Path],
    when: str,
    survives: bool,
) -> None:
    url, home = postgres_store
    command = [sys.executable, "-c", _KILLED, url, str(home), when]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    assert connection.execute("SELECT count(*) FROM public.orders").fetchone() == (int(survives),)
    assert len(store.flows.list().items) == int(survives)
