"""Real witnesses on ports of their own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.filling import settled
from holdproof import sync
from holdproof.crypto import keys
from holdproof.crypto.vkey import COSIGNATURE_V1, VerifierKey
from holdproof.db.clock import system_clock
from holdproof.evidence import log
from holdproof.evidence.witness_server import Cosigner, WitnessServer, WitnessState
from holdproof.model.witnesses import CosignedHead

NAME = "witness.example"


@contextmanager
def serving(served: Cosigner) -> Iterator[str]:
    """A witness on a port of its own."""
    with WitnessServer(("127.0.0.1", 0), served) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def made(store: sync.Holdproof, path: Path, name: str = NAME, *, alg: keys.Alg = "ed25519") -> Cosigner:
    """A witness that knows the log of this store."""
    known = [key.encode() for key in store.read(log.verifiers)]
    return Cosigner(name, keys.generate(alg), known, WitnessState(path), system_clock)


def cosign(store: sync.Holdproof, url: str, *, key: str | None = None, timeout_s: float = 10.0) -> CosignedHead:
    """Have the newest head cosigned by one witness, which is added first where a key is given."""
    if key is not None:
        store.witness.add(url, key=key)
        settled(store)
    [cosigned] = store.witness.ask(url, timeout_s=timeout_s)
    return cosigned


def verifier_key(name: str = NAME) -> VerifierKey:
    """The key of a witness that nobody runs."""
    return VerifierKey(name, COSIGNATURE_V1, keys.generate("ed25519").public)
