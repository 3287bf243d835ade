"""An upgrade while the version before works on the store: nothing is lost, and who starts too old is told so."""

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.db import Migration, migrate, open_database
from holdproof.model.verdicts import Verdict
from tests.store_locations import StoreLocation, everything, submit

_NEXT = Migration(
    "9999_next",
    "CREATE TABLE of_the_next_version (id TEXT PRIMARY KEY, at @time NOT NULL);"
    "ALTER TABLE agent_registry ADD COLUMN of_the_next_version TEXT;",
)
"""A migration as the next version would bring it: it adds, and removes nothing that the version before uses."""
_shipped = migrate.shipped


def shipped_next(space: str) -> list[Migration]:
    return [*_shipped(space), *([_NEXT] if space == "kernel" else [])]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return StoreLocation(tmp_path / "home", url)


def test_the_version_before_goes_on_while_the_next_migrates_and_cannot_start_again(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    failures: list[BaseException] = []
    upgraded = threading.Event()

    def write(store: sync.Holdproof, caller: int) -> None:
        after = 0
        for number in range(10_000):
            after += upgraded.is_set()
            if after > 5:
                return
            try:
                submit(store, f"{caller}-{number}")
                store.evaluations.list(limit=5)
            except errors.HoldproofError as error:
                failures.append(error)
                return
            written.append(f"{caller}-{number}")

    with place.open() as store:
        store.agents.register("trader", version="1.0.0")
        threads = [threading.Thread(target=write, args=(store, caller)) for caller in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while len(written) < 20 and not failures:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with closing(open_database(place.url or place.home / "kernel.db", migrate=False)) as next_version:
            assert migrate.migrate(next_version, shipped_next("kernel")) == [_NEXT.name]
        upgraded.set()
        for thread in threads:
            thread.join(120)
        assert failures == []
        settled(store)
    for readonly in (False, True):
        with pytest.raises(errors.NewerStoreError, match=_NEXT.name) as caught:
            place.open(readonly=readonly)
        assert "upgrade" in caught.value.remedy.lower()
    monkeypatch.setattr(migrate, "shipped", shipped_next)
    with place.open() as store:
        settled(store)
        assert {name for name, _ in everything(store)} == {*written}
    report = sync.verify(place.home, place.url, full=True)
    assert report.verdict is Verdict.VALID, report.to_dict()
