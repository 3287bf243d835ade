"""The sync client on a thread that runs an event loop (a notebook, `async def`): it works, and that loop waits."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdproof import client, errors, sync
from holdproof.remote import connect_sync
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.served import Stage, staged


async def asynchronous(*_: Any) -> int:
    """A function that only the async client can call."""
    return 1


@contextmanager
def answering(store: sync.Holdproof) -> Iterator[None]:
    """Another thread, which approves the first escalation."""

    def approve() -> None:
        while not (pending := store.escalations.list(status="PENDING").items):
            pass
        store.escalations.resolve(pending[0].id, "approve", by="ann")

    person = threading.Thread(target=approve)
    person.start()
    yield
    person.join()


class RunningLoop(OnStore):
    def test_a_store_is_opened_used_and_closed_inside_async_def(self) -> None:
        async def cell() -> tuple[Any, str]:
            with self.open() as store:
                store.agents.register("trader", version="1.0.0")

                @store.flow(agent="trader")
                def order(flow: Any, symbol: str) -> Any:
                    flow.lock({"usd": 1})
                    with answering(store):
                        flow.approve("large")
                    return flow.step("buy", str.upper, symbol, compensate=print)

                bought = order("acme")
                [record] = store.flows.export()
                return bought, record.flow.status

        assert asyncio.run(cell()) == ("ACME", "COMPLETED")

    def test_both_clients_of_one_store_work_in_one_loop(self, live: sync.Holdproof) -> None:
        soft = client.Holdproof(live.core)

        async def step() -> int:
            # On the loop's own thread, in the middle of a flow of the async client.
            with live.flows.run("trader") as inner:
                return int(inner.step("inner", lambda: 2))

        async def play() -> list[Any]:
            async with soft.flows.run("trader") as flow:
                blocking = flow.step("b", lambda: len(live.flows.list().items))
                inner, open_flows, _ = await asyncio.gather(flow.step("a", step), blocking, soft.flows.pace())
            return [inner, open_flows > 0]

        assert asyncio.run(play()) == [2, True]
        assert {flow.status for flow in live.flows.list().items} == {"COMPLETED"}

    def test_an_async_function_is_refused_before_anything_of_it_is_recorded(self, live: sync.Holdproof) -> None:
        refuse_all(live)
        [flow] = live.flows.list().items
        assert (flow.status, live.flows.steps(flow.flow_id)) == ("COMPLETED", ())


async def write_beside_a_transaction(store: sync.Holdproof) -> None:
    """Write on the loop's thread, while a task of the same loop has a transaction open."""
    store.relational.execute("CREATE TABLE t (a INTEGER)")
    async with client.Holdproof(store.core).relational.transaction(idle_s=0.2) as tables:
        await tables.execute("INSERT INTO t (a) VALUES (1)")
        store.relational.execute("INSERT INTO t (a) VALUES (2)")
        await tables.execute("INSERT INTO t (a) VALUES (3)")


def refuse_all(store: Any) -> None:
    """Pass `async def` wherever a store takes a function: the sync client could not await it."""
    with store.flows.run("trader") as flow:
        with pytest.raises(errors.WrongClientError, match="asynchronous is async"):
            flow.step("body", asynchronous)
        # Else a failing flow would find out when it has to be undone.
        with pytest.raises(errors.WrongClientError):
            flow.step("compensation", int, compensate=asynchronous)
    with pytest.raises(errors.WrongClientError):
        store.idempotency.once("key", {}, asynchronous)
    with pytest.raises(errors.WrongClientError):
        store.flow(name="soft", agent="trader")(asynchronous)


class TestSqlite(OnSqlite, RunningLoop):
    def test_a_write_beside_an_open_transaction_waits_for_its_idle_limit_only(self, live: sync.Holdproof) -> None:
        # The one writer waits for the transaction's next statement, and the thread that would send it for the writer.
        with pytest.raises(errors.IdleTransactionError):
            asyncio.run(write_beside_a_transaction(live))
        assert live.relational.fetch_all("SELECT a FROM t") == [{"a": 2}]


class TestMemory(InMemory, RunningLoop):
    pass


class TestPostgres(OnPostgres, RunningLoop):
    def test_a_write_beside_an_open_transaction_does_not_wait(self, live: sync.Holdproof) -> None:
        asyncio.run(write_beside_a_transaction(live))
        assert live.relational.fetch_all("SELECT a FROM t ORDER BY a") == [{"a": 1}, {"a": 2}, {"a": 3}]


# --- over the wire -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as running:
        yield running


@pytest.fixture
def serving(stage: Stage, sqlite_home: Path) -> Iterator[str]:
    """The token under which a store is served."""
    with sync.open(home=sqlite_home) as store, stage.showing(store.core) as token:
        store.agents.register("trader", version="1.0.0")
        yield token


@pytest.fixture
def remote(stage: Stage, serving: str) -> Iterator[Any]:
    with connect_sync(stage.url, serving) as connected:
        yield connected


def test_a_remote_store_works_inside_async_def(remote: Any) -> None:
    async def cell() -> list[Any]:
        with remote.flows.run("trader") as flow:
            flow.lock({"usd": 1}, ttl_s=None)
            answers = [flow.step("buy", str.upper, "acme")]
        with remote.relational.transaction() as tables:
            tables.execute("CREATE TABLE t (a INTEGER)")
            tables.executemany("INSERT INTO t (a) VALUES (:a)", [{"a": 1}, {"a": 2}])
            answers.append(tables.fetch_one("SELECT sum(a) AS sum FROM t"))
        return [*answers, *(record.flow.status for record in remote.flows.export())]

    assert asyncio.run(cell()) == ["ACME", {"sum": 3}, "COMPLETED"]


def test_a_remote_store_refuses_an_async_function_before_anything_of_it_is_recorded(remote: Any) -> None:
    refuse_all(remote)
    [flow] = remote.flows.list().items
    assert (flow.status, remote.flows.steps(flow.flow_id)) == ("COMPLETED", ())


# --- Ctrl-C ------------------------------------------------------------------------------------------------------

_WAITS = """
import asyncio, signal, sys
import holdproof

# A background job of a shell ignores SIGINT, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
where, under, token = sys.argv[1:]

async def main():
    opened = holdproof.sync.connect(where, token) if token else holdproof.sync.open(home=where)
    with opened as store, store.flows.run("trader") as flow:
        print("waiting", flush=True)
        flow.approve("may I?")

if under == "loop":
    asyncio.run(main())
else:
    main().send(None)
"""


def interrupted(where: str, under: str, token: str = "", *, presses: int = 1) -> str:
    """Press Ctrl-C while a process waits for an approval; what it wrote about its end."""
    command = [sys.executable, "-c", _WAITS, where, under, token]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        for _ in range(presses - 1):
            os.kill(process.pid, signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)
        os.kill(process.pid, signal.SIGINT)
        try:
            _, trace = process.communicate(timeout=60)
        finally:
            process.kill()  # or leaving the block would wait for it
    return trace


@pytest.mark.parametrize("under", ["loop", "thread"])
def test_ctrl_c_ends_a_call_that_waits_and_leaves_the_flow_to_be_resumed(under: str, sqlite_home: Path) -> None:
    with sync.open(home=sqlite_home) as store:
        store.agents.register("trader", version="1.0.0")
    assert "KeyboardInterrupt" in interrupted(str(sqlite_home), under)
    with sync.open(home=sqlite_home) as store:
        [flow] = store.flows.list().items
        assert not flow.ended


# asyncio.run takes the first one as a cancellation, which the socket that a remote call reads from does not hear of.
@pytest.mark.parametrize(("under", "presses"), [("loop", 2), ("thread", 1)])
def test_ctrl_c_ends_a_remote_call_that_waits(
    under: str, presses: int, stage: Stage, remote: Any, serving: str
) -> None:
    assert "KeyboardInterrupt" in interrupted(stage.url, under, serving, presses=presses)
    [flow] = remote.flows.list().items
    assert not flow.ended
