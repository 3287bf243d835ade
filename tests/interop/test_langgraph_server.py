"""LangGraph's Agent Server with our checkpointer in its `langgraph.json`: its threads outlive it in our store."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync

pytest.importorskip("langgraph_api", reason="not installed: pip install 'langgraph-cli[inmem]'")
sdk: Any = pytest.importorskip("langgraph_sdk")
httpx: Any = pytest.importorskip("httpx")
adapter: Any = pytest.importorskip("holdproof.adapters.langgraph")

START_S = 120.0
GRAPH = """
import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def answer(state: State) -> dict[str, list[str]]:
    return {"said": [f"heard {len(state['said'])}"]}


builder = StateGraph(State)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile()
"""
CHECKPOINTS = """
from holdproof.adapters.langgraph import HoldproofSaver


def checkpointer() -> HoldproofSaver:
    return HoldproofSaver("./store")
"""
SETTINGS = {
    "dependencies": ["."],
    "graphs": {"chat": "./graph.py:graph"},
    "checkpointer": {"path": "./checkpoints.py:checkpointer"},
}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """An Agent Server with its in-memory runtime; killed at the end, so that nothing is written on its way out."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--port", str(port)]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, "LANGSMITH_TRACING": "false"},
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(server, url, folder)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait(server: "subprocess.Popen[bytes]", url: str, folder: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert server.poll() is None, (folder / "server.log").read_text()[-3000:]
        try:
            if httpx.get(f"{url}/ok").status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise AssertionError((folder / "server.log").read_text()[-3000:])


async def talk(url: str) -> tuple[str, str, str]:
    """Two turns, a copy, and a thread that is deleted."""
    async with sdk.get_client(url=url) as client:
        thread, gone = [(await client.threads.create())["thread_id"] for _ in range(2)]
        for text in ("hello", "again"):
            result = await client.runs.wait(thread, "chat", input={"said": [text]})
        assert result["said"] == ["hello", "heard 1", "again", "heard 3"]
        assert len(await client.threads.get_history(thread, limit=50)) == 6
        copy = (await client.threads.copy(thread))["thread_id"]
        await client.runs.wait(copy, "chat", input={"said": ["apart"]})
        assert (await client.threads.get_state(thread))["values"] == result
        await client.runs.wait(gone, "chat", input={"said": ["forget me"]})
        await client.threads.delete(gone)
    return thread, copy, gone


@pytest.mark.slow
def test_the_threads_of_an_agent_server_are_in_the_store_and_outlive_it(tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text(GRAPH)
    (tmp_path / "checkpoints.py").write_text(CHECKPOINTS)
    (tmp_path / "langgraph.json").write_text(json.dumps(SETTINGS))
    with served(tmp_path) as url:
        thread, copy, gone = asyncio.run(talk(url))
    with sync.open(tmp_path / "store") as store:
        saver = adapter.HoldproofSaver(store)

        def said(name: str) -> Any:
            stored = saver.get_tuple({"configurable": {"thread_id": name, "checkpoint_ns": ""}})
            return stored and stored.checkpoint["channel_values"]["said"]

        assert said(thread) == ["hello", "heard 1", "again", "heard 3"]
        assert said(copy) == ["hello", "heard 1", "again", "heard 3", "apart", "heard 5"]
        assert said(gone) is None
        assert store.verify.run().verdict.sound
