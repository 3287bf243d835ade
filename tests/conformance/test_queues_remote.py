"""Enqueueing from elsewhere: the remote client, agents, and the worker command."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.client import Holdproof
from holdproof.executors import SyncExecutor
from holdproof.remote import connect_sync
from holdproof.server import create_app, serve
from tests.served import staged

Flow = OpenFlow[SyncExecutor]

_APP = """
import time

def register(store):
    @store.flow(agent="trader")
    def pay(flow, what):
        print("pays", what, flush=True)
        return what

    @store.flow(agent="trader")
    def hang(flow):
        print("hangs", flush=True)
        time.sleep(600)
"""
_ASYNC_APP = """
def register(store):
    @store.flow(agent="trader")
    async def pay(flow, what):
        print("pays", what, flush=True)
        return what
"""


@pytest.fixture
def near(sqlite_home: Path) -> Iterator[sync.Holdproof]:
    with sync.open(sqlite_home) as store:
        store.agents.register("trader", version="1.0.0")
        store.agents.register("rival", version="1.0.0")
        yield store


def test_a_remote_client_enqueues_and_waits_for_the_result(near: sync.Holdproof) -> None:
    def pay(flow: Flow, what: str, price: Decimal) -> Decimal:
        return price * 2

    near.flow(agent="trader")(pay)
    with staged() as stage, stage.showing(near.core) as token, connect_sync(stage.url, token) as far:
        remote = far.flow(agent="trader")(pay)
        with near.worker():
            handle = remote.enqueue("tea", Decimal("1.50"), queue="q", priority=2)
            assert handle.result(timeout_s=30) == Decimal("3.00")
            assert handle.status() == "COMPLETED"
        waits = remote.enqueue("tea", Decimal(1), delay_s=3600)
        assert waits.cancel().status == "CANCELLED"
        with pytest.raises(errors.WrongClientError):
            remote.enqueue_in(None, "tea", Decimal(1))  # type: ignore[arg-type]


def test_an_agent_enqueues_for_itself_only_and_is_recorded_as_the_caller(near: sync.Holdproof) -> None:
    secret = near.tokens.create("a", role="agent", agent_id="trader").secret
    operator = near.tokens.create("ops").secret

    async def main() -> str:
        app = create_app(Holdproof(near.core), parts=serve.parts(console=True))
        headers = {"Authorization": f"Bearer {secret}"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            call = {"agent_id": "trader", "name": "pay", "args": ["tea"], "queue": "q", "called_by": "rival"}
            flow = await client.post("/v1/flows/enqueue", json=call)
            refused = await client.post("/v1/flows/enqueue", json={**call, "agent_id": "rival"})
            metrics = await client.get("/metrics", headers={"Authorization": f"Bearer {operator}"})
            page = await client.get("/workers", headers={"Authorization": f"Bearer {operator}"})
        assert (flow.status_code, refused.status_code) == (200, 403), flow.text
        assert 'holdproof_queue_due{queue="q"} 1' in metrics.text
        assert (page.status_code, "<strong>q</strong>" in page.text) == (200, True), page.text
        return str(flow.json()["flow_id"])

    flow_id = asyncio.run(main())
    assert near.flows.inputs(flow_id).agent_id == "trader"


@pytest.mark.parametrize("app", [_APP, _ASYNC_APP], ids=["sync", "async"])
def test_the_worker_command_runs_flows_and_drains_at_sigterm(near: sync.Holdproof, tmp_path: Path, app: str) -> None:
    (tmp_path / "shop.py").write_text(app)
    near.flows.enqueue("trader", "pay", args=["tea"], queue="q")
    with _worker(near, tmp_path, "shop", "--queue", "q", "--name", "box") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "pays tea\n"
        [listed] = near.workers.list()
        assert (listed.name, listed.pid) == ("box", worker.pid)
        assert near.status().workers == {"RUNNING": 1}
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=30)
    assert worker.returncode == 0, err
    assert json.loads(out) == {"worker": "box", "drained": True}
    assert near.workers.list() == ()


def test_a_second_signal_ends_the_worker_command_at_once(near: sync.Holdproof, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_APP)
    near.flows.enqueue("trader", "hang")
    with _worker(near, tmp_path, "shop:register") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "hangs\n"
        worker.send_signal(signal.SIGINT)
        while near.workers.list()[0].state != "STOPPING":
            pass
        worker.send_signal(signal.SIGINT)
        assert worker.wait(timeout=30) == 130


def _worker(store: sync.Holdproof, folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    home = str(store.core.paths.data)
    return subprocess.Popen(
        [sys.executable, "-m", "holdproof", "worker", *arguments, "--home", home, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
