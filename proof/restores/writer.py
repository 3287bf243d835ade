"""A program that writes flows until it is killed, and keeps beside the store what was acknowledged, and every head."""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

from holdproof import sync
from holdproof.db.clock import system_clock

CALLERS: Final = 4
FLOWS: Final = "flows"
HEADS: Final = "heads"
_PAUSE_S: Final = 0.005


class Lines:
    """A file of lines that survives the kill of its writer: each is one write, with its time."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, text: str) -> None:
        """Write a line; one call, so that a kill leaves it whole or not at all."""
        os.write(self._file, f"{system_clock() / 1e6:.6f} {text}\n".encode())


def read(folder: Path, name: str) -> list[tuple[float, str]]:
    """Return the lines of a file, each with its time; a last one that was cut off is left out."""
    path = folder / name
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    pairs = (line.split(" ", 1) for line in whole.splitlines())
    return [(float(at), text) for at, text in pairs]


def main(folder: Path, home: str, url: str | None) -> None:
    """Write until killed."""
    flows, heads = Lines(folder / FLOWS), Lines(folder / HEADS)
    with sync.open(home, url) as store:
        # Called after the commit that made the head durable, and before anybody is told of it.
        store.context.log.listeners.append(lambda head: heads.add(head.encode().hex()))

        def work(caller: int) -> None:
            n = 0
            while True:
                flow_id = f"{os.getpid()}-{caller}-{n}"
                store.flows.start("trader", flow_id=flow_id)
                store.flows.transition(flow_id, "RUNNING")
                flows.add(flow_id)
                n += 1
                time.sleep(_PAUSE_S)

        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] or None)
