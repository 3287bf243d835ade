"""Limits of queues over several worker processes, of which some are killed."""

import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from holdproof import sync
from tests.conformance import queue_racer
from tests.conformance.decisions import OnPostgres, OnSqlite, OnStore

_FLOWS = 40
_LIMIT = 3


def _started(stack: ExitStack, target: dict[str, Any], folder: Path) -> "subprocess.Popen[str]":
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, queue_racer.__file__, target.get("url", ""), str(target["home"]), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    stack.callback(process.kill)
    return process


def _most_at_once(lines: list[str], dead: dict[str, float]) -> int:
    """How many ran at once; what a killed process had begun counts until it was killed."""
    events: list[tuple[float, int]] = []
    open_flows: dict[tuple[str, str], float] = {}
    for line in lines:
        at, pid, n, what = line.split(" ")
        if what == "begins":
            open_flows[pid, n] = float(at)
            events.append((float(at), 1))
        elif what == "ends":
            del open_flows[pid, n]
            events.append((float(at), -1))
    events += [(max(dead[pid], at), -1) for (pid, _), at in open_flows.items()]
    most = count = 0
    for _, change in sorted(events):
        count += change
        most = max(most, count)
    return most


class QueueRaces(OnStore):
    def test_limits_hold_over_processes_and_kills_and_every_flow_ends_once(
        self, live: sync.Holdproof, tmp_path: Path
    ) -> None:
        pay = queue_racer.register(live, tmp_path)
        live.queues.create("q", concurrency=_LIMIT)
        handles = [pay.enqueue(n, queue="q") for n in range(_FLOWS)]
        dead: dict[str, float] = {}
        with ExitStack() as stack:
            workers = [_started(stack, self.target(), tmp_path) for _ in range(3)]
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "ready\n"
            for victim in workers[:2]:
                time.sleep(0.4)
                victim.kill()
                victim.wait()
                dead[str(victim.pid)] = time.monotonic()
            assert [handle.result(timeout_s=60) for handle in handles] == [*range(_FLOWS)]
            workers[2].communicate("\n", timeout=30)
        lines = (tmp_path / "log").read_text().splitlines()
        assert _most_at_once(lines, dead) <= _LIMIT
        ends = Counter(line.split(" ")[2] for line in lines if line.endswith("ends"))
        assert len(ends) == _FLOWS
        assert live.flows.orphans() == ()


class TestQueueRacesSqlite(QueueRaces, OnSqlite): ...


class TestQueueRacesPostgres(QueueRaces, OnPostgres): ...
