"""kill -9 during submit: after reopening no row is without its DBOM file, no DBOM file without its row."""

import errno
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from harness.filling import settled
from holdproof import folders, sync
from holdproof.crypto import checkpoint
from holdproof.db import sql
from holdproof.errors import UnavailableError
from holdproof.evidence import dbom_files, evaluations
from holdproof.model.evaluations import Evaluation
from holdproof.model.verdicts import Verdict
from tests.faults.children import child, kill_after
from tests.faults.test_kill import PARTS

_HEAD = sql("SELECT head FROM log_state")
KILLS = int(os.environ.get("HOLDPROOF_KILLS", "15"))


def everything(store: sync.Holdproof) -> Iterator[Evaluation]:
    after = 0
    while page := store.read(partial(evaluations.walk, after=after, limit=500)):
        yield from page
        after = page[-1].id


def inspect(home: Path, url: str, acknowledged: set[int]) -> None:
    """Open as after a crash: rows and files agree one to one, and no kept head is beyond what is durable."""
    with sync.open(home, url or None) as store:
        rows = list(everything(store))
        assert acknowledged <= {row.id for row in rows}, "an acknowledged submit is lost"
        names = dict.fromkeys(row.evaluation_id for row in rows)
        due = store.read(lambda tx: {each.name: each.text for b in names for each in dbom_files.due(tx, "main", b)})
        assert len(due) == len(rows)
        assert not list((home / "dboms" / ".tmp").glob("*"))
        found = {path.name: path.read_text() for path in (home / "dboms").glob("*.json")}
        assert found == due
        settled(store)
        size = checkpoint.parse(store.read(lambda tx: tx.all(_HEAD))[0][0].encode()).checkpoint.size
        assert store.context.head_file is not None
        assert all(head.checkpoint.size <= size for head in store.context.head_file.kept())


def rounds(home: Path, url: str, times: int, seed: int) -> set[int]:
    chance, acknowledged = random.Random(seed), set[int]()
    for number in range(times):
        with child("submitter", str(home), url, f"w{number}") as process:
            acknowledged.update(map(int, kill_after(process, chance.uniform(0, 0.08))))
        inspect(home, url, acknowledged)
    return acknowledged


@pytest.mark.parametrize("seed", range(PARTS))
def test_kill_9_during_submit_leaves_no_row_without_file_and_no_file_without_row(tmp_path: Path, seed: int) -> None:
    times = KILLS // PARTS
    assert len(rounds(tmp_path, "", times, seed=seed)) > times
    with sync.open(tmp_path) as store:
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID


def test_kill_9_during_submit_on_a_server(tmp_path: Path, postgres_url: str) -> None:
    times = max(5, KILLS // 10)
    assert len(rounds(tmp_path, postgres_url, times, seed=4)) > times
    with sync.open(tmp_path, postgres_url) as store:
        settled(store)
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID


@pytest.mark.parametrize("before", ["fsync", "replace"])
def test_dying_at_any_step_of_a_file_is_repaired(tmp_path: Path, before: str) -> None:
    """The process ends inside the file step, right before a system call, at each of the first steps in turn."""
    script = f"""
import os, sys
from holdproof import folders, sync
from holdproof.evidence import dbom_files
store = sync.open(sys.argv[1])
store.evaluations.submit({{"n": 1}}, evaluation_id="b", score=1)
calls, real = 0, os.{before}
def dying(*words):
    global calls
    calls += 1
    if calls == int(sys.argv[2]):
        os._exit(9)
    return real(*words)
class Os:
    def __getattr__(self, name):
        return dying if name == "{before}" else getattr(os, name)
dbom_files.os = Os()
store.evaluations.submit({{"n": 2}}, evaluation_id="b", score=2)
os._exit(0)
"""
    for step in range(1, 6):
        home = tmp_path / f"{before}{step}"
        code = subprocess.run([sys.executable, "-c", script, str(home), str(step)], timeout=60).returncode
        inspect(home, "", {1, 2})
        if code == 0:
            assert step > 1
            return
    pytest.fail("there are more steps than looked at")


@pytest.mark.parametrize(("failing", "left"), [(1, 0), (2, 1)])
def test_a_file_whose_name_could_not_be_made_durable_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, left: int
) -> None:
    """A folder whose sync failed may have forgotten what came into it, whatever a later sync says."""
    syncs, real = count(1), folders.sync

    def sync_folder(folder: Path) -> None:
        if Path(folder).name == "dboms" and next(syncs) == failing:
            raise OSError(errno.EIO, "Input/output error")
        real(folder)

    with sync.open(tmp_path) as store:
        store.evaluations.submit({"n": 1}, evaluation_id="b", score=1)
        monkeypatch.setattr(folders, "sync", sync_folder)
        with suppress(UnavailableError):
            store.evaluations.submit({"n": 2}, evaluation_id="b", score=2)
        assert len([*(tmp_path / "dboms").glob("dbom_*.json")]) == left
        monkeypatch.undo()
    inspect(tmp_path, "", {1, 2})
