"""Blobs through kill -9: what was acknowledged is there and right, nothing half is seen, garbage is swept.

And large ones in bounded memory.
"""

import os
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdproof.db import open_database
from holdproof.executors import SyncExecutor
from holdproof.storage.blobs import Blobs, BlobStoreConfig, open_backend
from tests.faults.blob_writer import content, whole
from tests.faults.children import child, kill_after

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "15"))


def _inspect(target: str, folder: Path, acknowledged: dict[str, int]) -> None:
    with closing(open_database(target, space="membrane")) as database:
        blobs = Blobs(SyncExecutor(database), BlobStoreConfig(open_backend(folder)))
        for key, size in acknowledged.items():
            assert blobs.get(key) == content(key, size), key
        for key in blobs.list(limit=1_000):
            data = blobs.get(key)
            assert data is not None
            assert whole(data), f"half of {key} is seen"
        assert blobs.check() == []
        blobs.sweep(older_than_s=0)
        used = {Path(where) for key in blobs.list(limit=1_000) if (where := _path(blobs, key)) is not None}
        assert {path for path in folder.rglob("*") if path.is_file()} == used, "garbage is left"
        assert database.backend.check() == []


def _path(blobs: Blobs[SyncExecutor], key: str) -> str | None:
    blob = blobs.stat(key)
    assert blob is not None
    return None if blob.address is None else blobs.held.where(key, blob.place, blob.address)


def _rounds(target: str, folder: Path, rounds: int, seed: int) -> int:
    chance, count = random.Random(seed), 0
    for number in range(rounds):
        with child("blob_writer", target, str(folder), f"w{number}") as process:
            said = kill_after(process, chance.uniform(0, 0.3))
        acknowledged = {key: int(size) for key, size in (line.split() for line in said)}
        _inspect(target, folder, acknowledged)
        count += len(acknowledged)
    return count


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_blobs_survive_kill_9_on_sqlite(tmp_path: Path, seed: int) -> None:
    rounds = max(3, KILLS // 25)
    assert _rounds(str(tmp_path / "membrane.db"), tmp_path / "blobs", rounds, seed) > rounds


def test_acknowledged_blobs_survive_kill_9_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    rounds = max(3, KILLS // 50)
    assert _rounds(postgres_url, tmp_path / "blobs", rounds, seed=2) > rounds


def test_a_sweep_never_disturbs_other_processes(tmp_path: Path) -> None:
    """One process puts while another sweeps whatever no row speaks of, however young."""
    target, folder = str(tmp_path / "membrane.db"), tmp_path / "blobs"
    with (
        closing(open_database(target, space="membrane")) as database,
        child("blob_writer", target, str(folder), "w") as process,
    ):
        blobs = Blobs(SyncExecutor(database), BlobStoreConfig(open_backend(folder)))
        said = list[str]()

        def sweep() -> None:
            blobs.sweep(older_than_s=0)

        said += kill_after(process, 3, meanwhile=sweep)
    acknowledged = {key: int(size) for key, size in (line.split() for line in said)}
    assert len(acknowledged) > 20
    _inspect(target, folder, acknowledged)


@pytest.mark.slow
def test_a_gibibyte_goes_in_and_out_in_bounded_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.large_blob", str(tmp_path), "1024"],
        capture_output=True,
        text=True,
        check=True,
    )
    size, kib = map(int, done.stdout.split())
    assert size == 1 << 30
    assert kib < 64 << 10, f"{kib >> 10} MiB more than a small one"
