"""Real witnesses on ports of their own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdproof import sync
from holdproof.crypto import keys
from holdproof.db.clock import system_clock
from holdproof.evidence import log
from holdproof.evidence.witness_server import Witness, WitnessServer, WitnessState

NAME = "witness.example"


@contextmanager
def serving(served: Witness) -> Iterator[str]:
    """A witness on a port of its own."""
    with WitnessServer(("127.0.0.1", 0), served) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def made(store: sync.Holdproof, path: Path, name: str = NAME) -> Witness:
    """A witness that knows the log of this store."""
    known = [key.encode() for key in store.read(log.verifiers)]
    return Witness(name, keys.generate("ed25519"), known, WitnessState(path), system_clock)
