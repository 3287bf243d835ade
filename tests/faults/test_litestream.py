"""A store that Litestream replicates: under load, after a kill, and at any moment before it."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from harness import litestream
from harness.litestream import Litestream
from holdproof import sync
from holdproof.evidence import evaluations, tree
from holdproof.model.verdicts import Verdict
from tests.faults.children import child, kill_after
from tests.store_locations import StoreLocation, everything, submit


@pytest.fixture
def place(tmp_path: Path) -> StoreLocation:
    location = StoreLocation(tmp_path / "home")
    with location.open() as store:
        submit(store, "first")
    return location


@pytest.fixture
def replicated(place: StoreLocation, tmp_path: Path) -> Iterator[Litestream]:
    process = Litestream(tmp_path / "replicas", place.home / "kernel.db")
    yield process
    process.stop()


def bring_back(place: StoreLocation, replica: Path, folder: Path, moment: str | None = None) -> StoreLocation:
    """Restore as the guide says, on a machine with the recovery code only; what is there verifies."""
    litestream.restore(replica, folder / "copy" / "kernel.db", moment=moment)
    machine = StoreLocation(folder / "machine")
    machine.restore(folder / "copy", root_recovery=place.recovery)
    report = sync.verify(machine.home, full=True)
    assert report.verdict is Verdict.VALID, report.to_dict()
    return machine


def brought_back(place: StoreLocation, replica: Path, folder: Path, moment: str | None = None) -> set[str]:
    """The names of what came back."""
    with bring_back(place, replica, folder, moment).open() as store:
        return {name for name, _ in everything(store)}


def rows(place: StoreLocation, replica: Path, folder: Path) -> set[int]:
    """The ids of the rows that came back."""
    with bring_back(place, replica, folder).open() as store:
        return {each.id for each in store.read(lambda tx: evaluations.walk(tx, limit=100_000))}


def wait_for_arrival(store: sync.Holdproof, replica: Path, folder: Path) -> None:
    """Wait until the replica has the newest head of the store."""
    size = store.read(tree.state).size
    deadline = time.monotonic() + 120
    for number in itertools.count():
        copy = folder / f"look-{number}" / "kernel.db"
        litestream.restore(replica, copy)
        with closing(apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            [(arrived,)] = connection.execute("SELECT size FROM log_state")
        if arrived == size:
            return
        assert time.monotonic() < deadline, "the replica does not catch up"
        time.sleep(0.2)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_a_store_is_replicated_under_load_and_comes_back_as_it_was_at_random_moments(
    place: StoreLocation, replicated: Litestream, tmp_path: Path
) -> None:
    replica = replicated.replicas / "kernel.db"
    written = ["first"]
    moments: list[str] = []

    def write(store: sync.Holdproof, caller: int) -> None:
        for number in range(30):
            submit(store, f"{caller}-{number}")
            written.append(f"{caller}-{number}")
            time.sleep(0.02)

    with place.open() as store:
        wait_for_arrival(store, replica, tmp_path / "first")
        threads = [threading.Thread(target=write, args=(store, caller)) for caller in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            moments.append(now())
            time.sleep(0.1)
        report = store.verify.run(full=True)
        assert report.verdict is Verdict.VALID, report.to_dict()
        assert any("Litestream" in each for each in report.not_checked)
        wait_for_arrival(store, replica, tmp_path / "last")
        # While the store is in use, and as it is now.
        assert brought_back(place, replica, tmp_path / "newest") == {*written}
    chosen = sorted(random.Random(22).sample(moments, min(4, len(moments))))
    states = [brought_back(place, replica, tmp_path / f"then-{at}", moment) for at, moment in enumerate(chosen)]
    assert all(earlier <= later for earlier, later in itertools.pairwise([*states, {*written}]))
    assert all("first" in state for state in states)
    assert len({len(state) for state in states}) > 1, "they are different moments"


def test_a_kill_of_writer_and_replica_loses_the_newest_only(
    place: StoreLocation, replicated: Litestream, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    replica = replicated.replicas / "kernel.db"
    with place.open() as store:
        wait_for_arrival(store, replica, tmp_path / "first")
    with child("submitter", str(place.home), "", "writer") as writer:
        acknowledged = [*map(int, kill_after(writer, 3.0))]
        replicated.kill()
    # What is on the machine is lost with it: only the replica is left.
    there = rows(place, replica, tmp_path / "after")
    newest = max(there)
    assert newest > 1, "nothing of the load has arrived"
    assert {each for each in acknowledged if each <= newest} <= there, "what is missing is not the newest"
    record_property("lost", sum(each > newest for each in acknowledged))
    record_property("acknowledged", len(acknowledged))
