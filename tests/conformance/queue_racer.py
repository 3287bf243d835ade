"""A worker process that is killed or stopped (test_queue_races.py); its flows note when they begin and end."""

import os
import sys
import time
from pathlib import Path

from holdproof import sync
from holdproof.api import FlowFunction, OpenFlow
from holdproof.executors import SyncExecutor


def register(store: sync.Holdproof, folder: Path) -> FlowFunction[[int], int]:
    @store.flow(name="pay", agent="trader", lease_s=1.0)
    def pay(flow: OpenFlow[SyncExecutor], n: int) -> int:
        _note(folder, f"{n} begins")
        time.sleep(0.05)
        flow.step("pay", lambda: _note(folder, f"{n} pays"), on_unknown="retry")
        _note(folder, f"{n} ends")
        return n

    return pay


def _note(folder: Path, what: str) -> None:
    """Append a line with the process and the time; one write of a short line is not torn."""
    with (folder / "log").open("a") as log:
        log.write(f"{time.monotonic():.6f} {os.getpid()} {what}\n")


def main(url: str, home: str, folder: str) -> None:
    with sync.open(url=url or None, home=home) as store:
        register(store, Path(folder))
        worker = store.worker(concurrency=4).start()
        print("ready", flush=True)
        sys.stdin.readline()
        worker.stop(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
