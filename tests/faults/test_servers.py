"""A thin sample of `python -m proof servers`: the same code, few rounds; and each fault it found that was ours."""

import os
import random
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.http_proxy import Fault, Proxy
from harness.servers import IpfsNode, Postgres, Seaweed
from holdproof import errors
from proof.servers import full, ipfs, s3
from proof.servers import postgres as attacks
from proof.servers.full_disk import can_mount
from proof.servers.tally import HARMS, Tally


def _holds(tally: Tally, least: int) -> None:
    counts = tally.counts()
    assert tally.broken == []
    assert not any(counts[harm] for harm in HARMS)
    assert counts["injected"] >= least, counts


@pytest.mark.parametrize(("room", "acts"), [("size", ("lisp", "blob")), ("volume", ("image", "bundle"))])
def test_a_full_disk_leaves_nothing_half_written_and_the_next_try_works(
    tmp_path: Path, room: str, acts: tuple[str, ...]
) -> None:
    if room == "volume" and not can_mount(tmp_path / "probe"):
        pytest.skip("only root may mount a volume")
    tally = Tally()
    full.walk_aside(tally, tmp_path, room, acts, 1, 2)
    _holds(tally, 4)


def test_a_network_that_fails_loses_nothing_and_answers_everybody(postgres: Postgres, tmp_path: Path) -> None:
    tally = Tally()
    kinds = ("cut up", "cut down", "half down", "swallow", "mute", "withhold", "late", "stall down")
    attacks.run(tally, postgres, tmp_path, 1, 1, kinds, titles=("guards", "evidence"))
    _holds(tally, 2)


def test_a_bucket_that_fails_half_way_loses_nothing(seaweed: Seaweed, tmp_path: Path) -> None:
    tally = Tally()
    s3.run(tally, seaweed, tmp_path, 1, 4, 2)
    _holds(tally, 4)


def test_a_gateway_that_fails_half_way_gives_all_or_nothing(tmp_path: Path) -> None:
    tally = Tally()
    ipfs.run(tally, None, tmp_path, 1, 3, 4)
    _holds(tally, 3)


def test_a_node_that_fails_half_way_gives_all_or_nothing(ipfs_node: IpfsNode, tmp_path: Path) -> None:
    tally = Tally()
    ipfs.run(tally, ipfs_node, tmp_path, 1, 1, 1)
    _holds(tally, 3)


@pytest.fixture
def bucket(seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[s3.Bucket, Proxy]:
    """A bucket that variables name, by way of a proxy."""
    proxy = Proxy(int(urlsplit(seaweed.endpoint).port or 0))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    made = s3.Bucket(seaweed, proxy, tmp_path / "home")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made, proxy


def test_an_erasure_waits_for_a_bucket_that_is_away(bucket: tuple[s3.Bucket, Proxy]) -> None:
    """It was told as done, with a remark; now the label stays, and the next opening ends it."""
    place, proxy = bucket
    secret = random.Random(1).randbytes(90_000)
    try:
        with s3.hurried():
            with place.open() as store:
                store.blobs.put("hers", secret, subject="Ada")
                store.sessions.start_session("script", "hers", subject="Ada")
                proxy.arm(Fault("500", after=2, times=1000))  # it is looked for first, twice, and then removed
                with pytest.raises(errors.UnreachableError):
                    store.erase.subject("Ada")
                assert (store.blobs.list().items, store.sessions.list_sessions().items) == ([], [])
                assert len(place.lying()) == 1
            place.open().close()  # a store opens, whatever its bucket does
            assert len(place.lying()) == 1
            proxy.heal()
            with place.open() as store:
                store.blobs.list()  # the first use waits for erasures that the opening found unfinished
                assert place.lying() == set()
                with pytest.raises(errors.NotFoundError):
                    store.erase.subject("Ada")
                assert store.verify.run(full=True).verdict.sound
    finally:
        proxy.close()


def test_what_is_counted_is_told_by_place_and_fault() -> None:
    tally = Tally()
    tally.count("s3", "500", injected=2, acknowledged=1)
    tally.blame("s3", "500", "lost", "a key", "--place s3")
    other = Tally()
    other.take(tally.given())
    [row] = other.rows()
    assert (row["place"], row["injected"], row["lost"]) == ("s3", 2, 1)
    assert other.broken == ["s3, 500: lost: a key (python -m proof servers --place s3)"]
