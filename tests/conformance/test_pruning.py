"""Snapshots and versions that have had their time: they go, their blocks go, and nothing that stays is less proven."""

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdproof import errors, sql, sync
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory, flaws

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]  # one law, on several backends
DAY_S = 86_400.0
_COUNT = sql("SELECT count(*) FROM objects")
_BLOCKS = sql("SELECT data FROM objects")


def count(store: sync.Holdproof) -> int:
    return int(store.read(lambda tx: tx.all(_COUNT))[0][0])


def blocks(store: sync.Holdproof) -> bytes:
    return b"\n".join(row[0] for row in store.read(lambda tx: tx.all(_BLOCKS)))


def fill(store: sync.Holdproof, clock: FrozenClock, days: int = 4, each: int = 3) -> list[str]:
    """A few days of work, some snapshots a day; their CIDs, the oldest first."""
    taken = []
    for day in range(days):
        for turn in range(each):
            store.objects.put("busy", type="t", content=f"day {day} turn {turn} " + "x" * 300_000, meta={"seen": turn})
            store.objects.put(f"o{day}{turn}", type="t", content=f"once {day} {turn}")
            taken.append(store.snapshots.create(f"{day}.{turn}").cid)
            clock.advance(60)
        clock.advance(DAY_S - 60 * each)
    return taken


def left(store: sync.Holdproof) -> list[str]:
    return [each.cid for each in reversed(store.snapshots.list().items)]


class Pruning(OnMemory):
    def test_the_newest_stay_and_the_others_go_with_their_blocks(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        taken = fill(store, clock)
        now, held = store.objects.list(limit=100).items, count(store)
        told = store.retention.prune("snapshots", keep=2, dry_run=True)
        assert (told.count, told.records, left(store)) == (10, {"snapshots": 10}, taken)
        done = store.retention.prune("snapshots", keep=2)
        assert (done.count, left(store)) == (10, taken[-2:])
        assert store.retention.prune("versions", keep=1).count == 11
        gone = store.retention.gc(dry_run=True)
        assert store.retention.gc().blocks == gone.blocks > 40
        assert count(store) == held - gone.blocks
        assert b"day 0 turn 0" not in blocks(store), "long content in pieces too"
        assert store.objects.list(limit=100).items == now
        assert store.objects.list(at=taken[-2], limit=100).items[0].content.startswith("day 3 turn 1")
        assert store.retention.gc().blocks == 0
        assert store.verify.run(lock=False).verdict.sound
        with pytest.raises(errors.NotFoundError):
            store.objects.list(at=taken[0])

    def test_history_says_what_was_pruned(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        fill(store, clock, days=1)
        clock.advance(DAY_S)
        assert store.retention.prune("versions", older_than_days=0.5, keep=2).count == 1
        newest, second, first = store.objects.history("busy").items
        assert (newest.pruned_at, second.pruned_at, first.version) == (None, None, 1)
        assert first.pruned_at is not None
        with pytest.raises(errors.PrunedError) as raised:
            store.objects.get("busy", version=1)
        assert raised.value.fields["pruned_at"] == first.pruned_at
        assert store.objects.get("busy", version=2).version == 2
        assert store.objects.list(at=left(store)[0]).items[0].version == 1, "a snapshot shows what it has"
        store.retention.gc()
        assert store.objects.list(at=left(store)[0]).items[0].version == 1, "and goes on to"
        assert store.objects.put("busy", type="t", content="next").version == 4

    def test_the_last_of_each_day_may_stay(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        taken = fill(store, clock)
        store.retention.prune("snapshots", keep_daily=3)
        assert left(store) == [taken[5], taken[8], taken[11]], "day 0 is too long ago, of the others the last stays"
        store.retention.gc()
        assert [store.objects.list(at=cid, limit=50).items != [] for cid in left(store)] == [True] * 3

    def test_what_is_past_every_limit_goes_and_nothing_else(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        taken = fill(store, clock)
        store.retention.prune("snapshots", older_than_days=2.5, keep=3, keep_daily=10)
        assert left(store) == taken[2:3] + taken[5:], "two days are older than two and a half"
        store.retention.prune("snapshots", older_than_days=0, keep=0)
        assert left(store) == taken[-1:], "the newest always stays"
        assert store.snapshots.get().cid == taken[-1]

    def test_a_pruning_is_told_and_proven(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        fill(store, clock, days=2)
        store.retention.prune("snapshots", keep=1, who="ops")
        store.retention.prune("versions", keep=1, who="ops")
        told = store.retention.list().items
        assert [(each.what, each.who, each.count) for each in told] == [("versions", "ops", 5), ("snapshots", "ops", 5)]
        assert store.verify.run(full=True, lock=False).verdict.sound

    @pytest.mark.parametrize(
        ("what", "limits"),
        [
            ("snapshots", {}),
            ("versions", {}),
            ("versions", {"keep_daily": 3}),
            ("flows", {"keep_daily": 3}),
            ("snapshots", {"keep": 1, "flow_type": "x"}),
            ("snapshots", {"keep": -1}),
            ("snapshots", {"keep": True}),
            ("snapshots", {"older_than_days": -1}),
            ("nothing", {"keep": 1}),
        ],
    )
    def test_what_is_no_rule_is_refused(self, store: sync.Holdproof, what: str, limits: dict[str, Any]) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.retention.prune(what, **limits)

    def test_an_image_and_an_archive_begin_where_the_line_does(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        taken = fill(store, clock, days=2)
        store.image.dump(tmp_path / "images")
        store.retention.prune("snapshots", keep=2)
        store.retention.prune("versions", keep=1)
        store.retention.gc()
        store.objects.put("after", type="t", content=1)
        clock.advance(1)
        made = store.image.dump(tmp_path / "images", keep=1)
        assert made.kind == "base", "deltas would go on carrying what was pruned"
        assert b"day 0" not in b"".join(path.read_bytes() for path in (tmp_path / "images").iterdir())
        store.objects.put("after", type="t", content=2)
        assert store.image.dump(tmp_path / "images").kind == "delta"
        store.archive.export_car(tmp_path / "line.car")
        did, line = store.snapshots.get().did, left(store)
        for way in ("image", "archive"):
            with sync.open(url=":memory:") as other:
                if way == "image":
                    other.image.load(tmp_path / "images", did=did)
                else:
                    other.archive.import_car(tmp_path / "line.car", did=did)
                assert left(other) == line
                assert (
                    other.objects.list(at=taken[-2], limit=50).items == store.objects.list(at=taken[-2], limit=50).items
                )
                assert flaws(other) == []
                other.objects.put("more", type="t")
                other.image.dump(tmp_path / way)
                with other.image.open(tmp_path / way, verify="full") as seen:
                    assert seen.get("more").version == 1

    def test_what_goes_on_from_an_older_image_brings_nothing_back(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        """The other store has the whole line; this one pruned it and takes over what came after."""
        fill(store, clock, days=1)
        did = store.snapshots.get().did
        store.archive.export_car(tmp_path / "a.car")
        with sync.open(url=":memory:", clock=clock) as other:
            other.archive.import_car(tmp_path / "a.car", did=did)
            other.objects.put("new", type="t", content="theirs")
            theirs = other.snapshots.create().did
            other.archive.export_car(tmp_path / "b.car")
        store.retention.prune("snapshots", keep=1)
        [kept] = left(store)
        written = len(store.objects.history("busy").items)
        store.archive.import_car(tmp_path / "b.car", did=theirs)
        assert left(store)[0] == kept
        assert len(left(store)) == 2
        assert len(store.objects.history("busy").items) == written
        assert store.objects.get("new").content == "theirs"

    def test_a_pruned_version_that_comes_again_stays(self, store: sync.Holdproof) -> None:
        """The same record has a new row: nothing of it goes, in whatever namespace it is."""
        long = "y" * 300_000
        for content in (long, "other", long, "other"):
            store.objects.put("a", type="t", content=content, version=1)
        store.objects.put("a", type="t", content=long, version=1, ns="elsewhere")
        store.objects.put("a", type="t", content="now", ns="elsewhere")
        store.retention.prune("versions", keep=1)
        store.retention.gc()
        assert store.objects.get("a", version=1, ns="elsewhere").content == long
        with pytest.raises(errors.PrunedError):
            store.objects.get("a", version=1)

    def test_writers_go_on_while_versions_go(self, store: sync.Holdproof) -> None:
        """Contents come and go in a ring, so what is being removed is often just being written again."""
        stop, failed = threading.Event(), list[BaseException]()
        texts = [letter * 300_000 for letter in "abc"]

        def write() -> None:
            number = 0
            while not stop.is_set():
                try:
                    store.objects.put("a", type="t", content=texts[number % 3], version=1)
                    store.objects.put("b", type="t", content=number % 2, version=1)
                    if number % 4 == 0:
                        store.snapshots.create()
                except errors.HoldproofError as error:
                    failed.append(error)
                    return
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        for _ in range(3):
            store.retention.prune("snapshots", keep=1)
            store.retention.prune("versions", keep=1)
            store.retention.gc()
        stop.set()
        thread.join()
        assert failed == []
        assert store.objects.get("a").content in texts

    @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=CHECKS)
    @given(
        st.lists(
            st.sampled_from(["put a", "put b", "delete a", "snapshot", "prune 1", "prune 2", "versions", "gc"]),
            min_size=3,
            max_size=14,
        )
    )
    def test_a_model_of_what_stays_is_never_wrong(self, store: sync.Holdproof, steps: list[str]) -> None:
        store.objects.apply({"a": None, "b": None})
        store.snapshots.create()
        store.retention.prune("snapshots", keep=1)
        kept: dict[str, Any] = {left(store)[0]: store.objects.list().items}
        for number, step in enumerate(steps):
            verb, _, what = step.partition(" ")
            if verb == "put":
                store.objects.put(what, type="t", content=number, meta={"at": number})
            elif verb == "delete":
                store.objects.apply({what: None})
            elif verb == "snapshot":
                kept[store.snapshots.create().cid] = store.objects.list().items
            elif verb == "prune":
                store.retention.prune("snapshots", keep=int(what))
                kept = dict([*kept.items()][-int(what) :])
            elif verb == "versions":
                store.retention.prune("versions", keep=1)
            else:
                store.retention.gc()
            assert {cid: store.objects.list(at=cid).items for cid in left(store)} == kept
        assert flaws(store) == []


class TestOnSqlite(OnSqlite, Pruning):
    def test_the_disk_gets_its_space_back(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        fill(store, clock)

        def size() -> int:
            return sum(store.status().database["bytes"].values())

        before = size()
        store.retention.prune("snapshots", keep=1)
        store.retention.prune("versions", keep=1)
        store.retention.gc()
        assert size() < before * 0.5

    def test_words_of_what_went_are_in_no_file(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="marzipan potatoes")
        store.objects.put("a", type="t", content="bread")
        store.retention.prune("versions", keep=1)
        store.retention.gc()
        store.close()
        home = Path(store.core.paths.data)
        assert [path.name for path in home.rglob("*") if path.is_file() and b"marzipan" in path.read_bytes()] == []

    @pytest.fixture
    def store(self, clock: Any) -> Any:  # closed by one of these tests
        with self.open(clock=clock) as store:
            yield store


class TestInMemory(InMemory, Pruning):
    pass


class TestOnPostgres(OnPostgres, Pruning):
    pass
