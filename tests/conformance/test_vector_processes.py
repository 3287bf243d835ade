"""Several processes on the same vectors: each sees at once what the others were told is kept."""

from pathlib import Path

import pytest

from tests.conformance.clouds import opened
from tests.conformance.racing import race

_IMPORTS = """
import time
from holdproof.db import open_database, postgres
from holdproof.executors import SyncExecutor
from holdproof.storage.vectors import open_vectors
"""

# Each adds, waits until it finds what all the others added, deletes its own and waits until nothing of theirs is left.
_MEET = """
database = open_database(TARGET, space="membrane")
face = SyncExecutor(database)
store = face.run(open_vectors(face, dimensions=3))

def until(seen):
    deadline = time.monotonic() + 60
    while not seen({found.id for found in store.search([1.0, 1.0, 1.0], 100)}):
        assert time.monotonic() < deadline
        time.sleep(0.002)

everybody = {f"p{process}-{n}" for process in range(3) for n in range(5)}
for n in range(5):
    store.add(f"p{NUMBER}-{n}", [1.0, float(NUMBER), float(n)])
until(lambda found: everybody <= found)
store.upsert(f"met {NUMBER}", [1.0, 0.0, 0.0])
until(lambda found: {f"met {process}" for process in range(3)} <= found)
for n in range(5):
    assert store.delete(f"p{NUMBER}-{n}")
until(lambda found: not everybody & found)
store.close()
database.close()
answer("met")
"""


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_three_processes_see_what_the_others_add_and_delete(
    request: pytest.FixtureRequest, tmp_path: Path, backend: str
) -> None:
    target = tmp_path / "membrane.db" if backend == "sqlite" else request.getfixturevalue("postgres_url")
    with opened(target, dimensions=3) as store:
        assert race(_MEET, target, 3, imports=_IMPORTS) == ["met"] * 3
        assert [found.id for found in store.search([1.0, 1.0, 1.0], 100)] == ["met 0", "met 1", "met 2"]
