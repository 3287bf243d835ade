"""kill -9 while vectors are added and the sidecar is written: what was acknowledged is found, what was deleted not."""

import os
import random
from contextlib import closing
from pathlib import Path

from holdproof.db import open_database
from holdproof.executors import SyncExecutor
from holdproof.storage.vectors import open_vectors
from tests.faults.children import child, kill_after
from tests.faults.vector_writer import SIZE, vector

ROUNDS = max(6, int(os.environ.get("HOLDPROOF_KILLS", "40")) // 10)


def _said(lines: list[str]) -> tuple[set[str], set[str]]:
    """Which ids must be there, and which must not; of a deletion under way nothing is known."""
    doubtful = {line[1:] for line in lines if line.startswith("?")}
    gone = {line[1:] for line in lines if line.startswith("-")}
    return {line[1:] for line in lines if line.startswith("+")} - doubtful, gone


def _inspect(target: Path, cache: Path, there: set[str], gone: set[str], chance: random.Random) -> None:
    with closing(open_database(target, space="membrane")) as database:
        face = SyncExecutor(database)
        store = face.run(open_vectors(face, dimensions=SIZE, cache=cache))
        everything = {found.id for found in store.search([1.0] * SIZE, 10_000)}
        assert len(everything) == min(store.count(), 10_000), "the matrix has what the rows have"
        assert not gone & everything
        if store.count() <= 10_000:
            assert there <= everything, f"{len(there - everything)} acknowledged vectors are lost"
        for id in chance.sample(sorted(there), 20):
            found = store.search(vector(id), 50)
            assert found[0].distance == 0
            assert id in {each.id for each in found}
        assert database.backend.check() == []
        store.close()


def test_every_acknowledged_vector_survives_kill_9_and_is_found(tmp_path: Path) -> None:
    target, cache, chance = tmp_path / "membrane.db", tmp_path / "cache", random.Random(1)
    there, gone = set[str](), set[str]()
    for number in range(ROUNDS):
        with child("vector_writer", str(target), str(cache), f"w{number}") as process:
            more, less = _said(kill_after(process, chance.uniform(0, 0.4)))
        there, gone = there | more, gone | less
        if len(there) >= 20:
            _inspect(target, cache, there, gone, chance)
    assert len(there) > ROUNDS
