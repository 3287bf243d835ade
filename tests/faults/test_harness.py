"""The fault harness itself (`make faults`), thinned out: a few faults of each kind, and proof that it would notice."""

import random
from argparse import Namespace
from pathlib import Path

from holdproof import sync
from proof import faults
from proof.faults.fake_disk import SECTOR, FakeDisk, File
from proof.oracle import Fact, Oracle
from proof.report import Proof

EACH = 1
"""About so many of each kind; `make faults` tries every one."""


def _run(*, only: list[str] | None, most: int, lying: bool = False) -> Proof:
    given = Namespace(seed=1, only=only, at=None, stride=1, most=most, lying=lying, jobs=2)
    return faults.run(given, lambda _: None)


def test_whatever_fails_nothing_acknowledged_is_lost_and_nothing_is_half_there() -> None:
    found = _run(only=None, most=EACH)
    assert found.broken == []
    assert {row["kind"] for row in found.rows if row["injected"]} == set(faults.WHAT)


def test_a_disk_that_lies_about_its_syncs_is_seen_to_lose_what_was_acknowledged() -> None:
    found = _run(only=["cut"], most=12, lying=True)
    assert found.counts["lost"] > 0


def test_the_oracle_tells_lost_from_half_from_whole(tmp_path: Path) -> None:
    oracle = Oracle()
    with sync.open(tmp_path) as store:
        store.objects.put("kept", type="t", content=1)
        store.objects.put("half", type="t", content=1)
        for name, fact in (("a", Fact("object", "kept", 1)), ("b", Fact("object", "gone", 1))):
            oracle.begun(name, [fact])
            oracle.done(name)
        oracle.begun("c", [Fact("object", "half", 1), Fact("object", "other half", 1)])
        oracle.begun("d", [Fact("object", "never", 1)])
        oracle.cut()
        found = oracle.check(store)
    assert [line.split(":")[0] for line in found.lost] == ["object gone"]
    assert found.partial == ("c: 1 of 2 parts",)


def test_the_oracle_lets_an_operation_under_way_be_done_or_not(tmp_path: Path) -> None:
    oracle = Oracle()
    oracle.begun("first", [Fact("object", "a", 1)])
    oracle.done("first")
    oracle.begun("second", [Fact("object", "a", 2)])
    oracle.cut()
    with sync.open(tmp_path) as store:
        for content, whole in ((1, True), (2, True), (3, False)):
            store.objects.put("a", type="t", content=content)
            assert oracle.check(store).whole is whole


def test_what_was_synced_survives_and_what_was_not_is_torn_by_sectors() -> None:
    file = File()
    file.coming.append((0, b"a" * 4 * SECTOR))
    file.sync()
    file.coming.append((SECTOR, b"b" * 2 * SECTOR))
    seen = {file.left(random.Random(seed)) for seed in range(200)}
    sectors = [{left[at : at + SECTOR] for left in seen} for at in range(0, 4 * SECTOR, SECTOR)]
    a, b = b"a" * SECTOR, b"b" * SECTOR
    assert sectors == [{a}, {a, b}, {a, b}, {a}]


def test_what_a_failed_sync_lost_no_later_sync_brings_back() -> None:
    outcomes = set()
    for seed in range(50):
        file = File()
        file.coming.append((0, b"a" * SECTOR))
        file.unsynced(random.Random(seed))
        file.sync()
        outcomes.add(file.left(random.Random(seed)).strip(b"\0"))
    assert outcomes == {b"", b"a" * SECTOR}


def test_a_new_name_survives_only_if_its_folder_was_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    platter = FakeDisk(root, random.Random(1))
    platter.hear(("open", 1, f"{root}/new", True, False))
    platter.hear(("write", 1, 0, b"data"))
    platter.hear(("sync", 1))
    left = set()
    for seed in range(20):
        platter.cut(tmp_path / str(seed), random.Random(seed))
        left.add((tmp_path / str(seed) / "new").exists())
    assert left == {True, False}
    platter.hear(("syncdir", str(root)))
    for seed in range(20, 40):
        platter.cut(tmp_path / str(seed), random.Random(seed))
        assert (tmp_path / str(seed) / "new").read_bytes() == b"data"


def test_a_name_that_moves_between_folders_is_never_in_none_and_in_the_new_one_once_either_is_synced(
    tmp_path: Path,
) -> None:
    for synced in (None, "from", "to"):
        root = tmp_path / f"disk {synced}"
        (root / "from").mkdir(parents=True)
        (root / "to").mkdir()
        (root / "from" / "name").write_bytes(b"data")
        platter = FakeDisk(root, random.Random(1))
        platter.hear(("rename", f"{root}/from/name", f"{root}/to/name"))
        if synced is not None:
            platter.hear(("syncdir", f"{root}/{synced}"))
        for seed in range(20):
            left = tmp_path / f"{synced} {seed}"
            platter.cut(left, random.Random(seed))
            assert (left / "to" / "name").exists() or (synced is None and (left / "from" / "name").exists())
