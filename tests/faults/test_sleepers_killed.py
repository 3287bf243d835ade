"""Sleeping flows whose workers are killed while they wake them: none is lost."""

import os
from pathlib import Path

import pytest

from bench import sleepers
from bench.workload import AGENT
from harness.filling import settled
from holdproof import sync
from holdproof.api import OpenFlow
from holdproof.executors import SyncExecutor

KILLS = max(2, int(os.environ.get("HOLDPROOF_KILLS", "20")) // 10)
_FLOWS_A_KILL = 200


@pytest.mark.timeout(3600)
def test_no_sleeping_flow_is_lost_by_kills_of_workers_that_wake_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    left, kills = sleepers.lost(str(home), KILLS, KILLS * _FLOWS_A_KILL)
    assert left == 0
    assert kills > 0
    with sync.open(home) as store:
        settled(store)
        assert store.verify.run(full=True, lock=False).findings == []


def test_flows_put_to_sleep_by_the_benchmark_have_the_record_of_flows_that_slept(sqlite_home: Path) -> None:
    sleepers.fill(str(sqlite_home), 3, seconds=0)
    with sync.open(sqlite_home) as store:

        @store.flow(agent=AGENT)
        def nap(flow: OpenFlow[SyncExecutor], until: str) -> None:
            flow.sleep_until(until)

        with store.worker():
            flows = store.flows.list(flow_type="nap").items
            assert [store.flows.result(flow.flow_id, timeout_s=60) for flow in flows] == [None] * 3
        assert [replay.differences for replay in store.flows.replay_all()] == [()] * 3
        assert store.verify.run(full=True, lock=False).findings == []
