"""A process that writes checkpoints of one long list, and prunes, as fast as it can; made to be killed.

python -m tests.faults.thread_writer HOME NAME
"""

import os
import sys
import threading
from hashlib import sha256

from holdproof import sync
from holdproof.model.threads import EncodedList


def element(name: str, number: int) -> bytes:
    """What the list of a thread has at this place."""
    return f"{name} {number} ".encode() + b"x" * 300


def _write(home: str, name: str) -> None:
    with sync.open(home) as store:

        def puts() -> None:
            digests: tuple[bytes, ...] = ()
            parent, number = None, 0
            while True:
                data = element(name, number)
                digests += (sha256(data).digest(),)
                kept = store.threads.put_checkpoint(
                    name, {"list": EncodedList("m", digests, {digests[-1]: data})}, parent_id=parent
                )
                parent, number = kept.checkpoint_id, number + 1
                os.write(1, f"put {number} {parent}\n".encode())  # said only after it is durable, and said at once

        def prunes() -> None:
            while True:
                store.threads.prune(keep=3)

        workers = [threading.Thread(target=work, daemon=True) for work in (puts, prunes)]
        for worker in workers:
            worker.start()
        workers[0].join()


if __name__ == "__main__":
    _write(*sys.argv[1:3])
