"""Flows as a user runs them: `holdproof up --app` and `holdproof worker` as processes, enqueued from outside."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdproof import sync
from tests.e2e.test_up import HOLDPROOF, environment

_SHOP = """
import time
from pathlib import Path

BOOK = Path("book.txt")
OPEN = Path("open")


def write(line: str) -> str:
    with BOOK.open("a") as book:
        book.write(f"{line}\\n")
    return line


def wait_for_the_bank(order: str) -> str:
    write(f"{order} waits")
    while not OPEN.exists():
        time.sleep(0.01)
    return write(f"{order} paid")


def register(store):
    @store.flow(agent="buyer", version="0.3.1")
    def refund(flow, order: str, cents: int = 0) -> dict:
        return {"order": flow.step("refund", write, f"{order} {cents}")}

    @store.flow(agent="buyer", version="0.3.1")
    def slow(flow, order: str) -> str:
        return flow.step(wait_for_the_bank, order)
"""

_OWN = """
import holdproof

store = holdproof.sync.open("./store")


@store.flow(agent="buyer")
def refund(flow, order: str) -> str:
    return flow.step("refund", order.upper)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a program of flows in it, as its author has it."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(_SHOP)
    with sync.open(tmp_path / "home") as store:
        store.agents.register("buyer", version="0.3.1")
        store.queues.create("payments", concurrency=1)
    return folder


def home_of(folder: Path) -> Path:
    return folder.parent / "home"


def holdproof(folder: Path, *words: str) -> Any:
    """What a command prints, as JSON."""
    command = [*HOLDPROOF, *words, "--json"]
    done = subprocess.run(
        command, env=environment(home_of(folder)), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def process(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that runs until it is stopped; gone when the block is left."""
    child = subprocess.Popen(
        [*HOLDPROOF, *words],
        env=environment(home_of(folder)),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def wait_for(line: str, folder: Path) -> None:
    """Wait until a flow has written a line to the book."""
    book = folder / "book.txt"
    end = time.monotonic() + 60
    while not book.exists() or line not in book.read_text().splitlines():
        assert time.monotonic() < end, f"nobody wrote {line}"
        time.sleep(0.02)


def stopped(child: "subprocess.Popen[str]", folder: Path) -> str:
    """Press Ctrl-C while a step is under way; the step ends, then the process. Returns what it said to its user."""
    child.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)  # it waits for what runs
    (folder / "open").touch()
    _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said
    assert "Traceback" not in said
    return said


def judge(folder: Path, flow_id: str) -> None:
    with sync.open(home_of(folder)) as store:
        assert store.flows.get(flow_id).status == "COMPLETED"
        assert store.flows.result(flow_id) == "o-19 paid"
        assert store.workers.list() == ()
        assert store.verify.run(full=True, lock=False).findings == []


def test_a_server_with_an_app_runs_what_is_enqueued_and_drains_on_ctrl_c(shop: Path) -> None:
    with sync.open(home_of(shop)) as store:
        token = store.tokens.create("ci").secret
    with process(shop, "up", "--port", "0", "--json", "--app", "shop") as server:
        assert server.stdout is not None
        text = ""
        for line in server.stdout:
            text += line
            if line.startswith("}"):
                break
        told = json.loads(text)
        words = ("--version", "0.3.1", "--queue", "payments")
        by_command = holdproof(shop, "flows", "enqueue", "buyer", "refund", "--args", '["o-17", 900]', *words)
        result = holdproof(shop, "flows", "result", by_command["flow_id"], "--timeout-s", "60")
        assert result == {"order": "o-17 900"}
        authorized = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=told["address"], headers=authorized) as client:
            body = {"agent_id": "buyer", "name": "refund", "version": "0.3.1", "args": ["o-18"], "queue": "payments"}
            by_http = client.post("/v1/flows/enqueue", json=body)
            assert by_http.status_code == 200, by_http.text
        wait_for("o-18 0", shop)
        slow = holdproof(shop, "flows", "enqueue", "buyer", "slow", "--args", '["o-19"]', *words)
        wait_for("o-19 waits", shop)
        stopped(server, shop)
    judge(shop, slow["flow_id"])


def test_a_worker_drains_on_ctrl_c_and_a_second_one_ends_it_at_once(shop: Path) -> None:
    words = ("--version", "0.3.1", "--queue", "payments")
    slow = holdproof(shop, "flows", "enqueue", "buyer", "slow", "--args", '["o-19"]', *words)
    with process(shop, "worker", "shop") as worker:
        wait_for("o-19 waits", shop)
        stopped(worker, shop)
    judge(shop, slow["flow_id"])
    (shop / "open").unlink()
    slow = holdproof(shop, "flows", "enqueue", "buyer", "slow", "--args", '["o-20"]', *words)
    with process(shop, "worker", "shop") as worker:
        wait_for("o-20 waits", shop)
        worker.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(0.3)
        worker.send_signal(signal.SIGINT)
        _, said = worker.communicate(timeout=60)
        assert "Traceback" not in said, said
    with sync.open(home_of(shop)) as store:
        assert not store.flows.get(slow["flow_id"]).ended


def test_a_program_that_opens_its_own_store_is_run_on_that_store(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "own.py").write_text(_OWN)
    enqueue = "import own; print(own.refund.enqueue('o-17').flow_id)"
    command = [sys.executable, "-c", enqueue]
    flow_id = subprocess.check_output(command, env=environment(home_of(folder)), cwd=folder, text=True).strip()
    with process(folder, "worker", "own") as worker:
        assert worker.stderr is not None
        assert "runs refund" in worker.stderr.readline()
        with sync.open(folder / "store") as store:
            assert store.flows.result(flow_id, timeout_s=60) == "O-17"
        worker.send_signal(signal.SIGINT)
        assert worker.wait(60) == 0
    [replay] = holdproof(folder, "flows", "replay", "own:store", flow_id)
    assert replay["differences"] == []
    assert not home_of(folder).exists(), "no second store was made"
