"""A server that is replaced by its standby while a process works on it: nothing is lost or forked in silence."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.filling import settled, submit
from harness.raw_access import Past
from harness.servers import Postgres, Standby
from holdproof import errors, sync
from holdproof.model.verdicts import Verdict

Pair = tuple[Postgres, Standby]
STATE = "SELECT size FROM kernel.log_state"


@pytest.fixture(scope="module")
def primary() -> Iterator[Postgres]:
    """A server that crashes in each test and is started again: quicker than making another."""
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def pair(primary: Postgres) -> Iterator[Pair]:
    """A primary with an empty database `store`, and a standby that streams from it."""
    primary.sql("CREATE DATABASE store")
    standby = Standby(primary)
    yield primary, standby
    standby.stop()
    primary.resume()
    primary.sql("ALTER SYSTEM RESET synchronous_standby_names")
    primary.sql("SELECT pg_reload_conf()")
    primary.sql("DROP DATABASE store WITH (FORCE)")


def fail_over(primary: Postgres, standby: Standby) -> None:
    primary.crash()
    standby.promote()


def wait_for_lockdown(home: Path) -> None:
    deadline = time.monotonic() + 30
    while not (home / "state" / "lockdown.json").exists():
        assert time.monotonic() < deadline, "the store was not locked"
        time.sleep(0.02)


def test_an_asynchronous_failover_that_lost_acknowledged_commits_is_refused_and_never_signed_over(
    pair: Pair, tmp_path: Path
) -> None:
    primary, standby = pair
    url = standby.either("store")
    with sync.open(tmp_path, url) as store:
        submit(store, "arrived", 0.5)
        settled(store)
        standby.catch_up()
        standby.cut_off()
        size = standby.value(STATE, "store")
        submit(store, "lost", 0.5)
        settled(store)
        fail_over(primary, standby)
        # The caller's own connection finds the loss, or the log's, which locks the store before the caller asks.
        with pytest.raises((errors.HistoryLostError, errors.LockedError)):
            submit(store, "after", 0.5)
        wait_for_lockdown(tmp_path)
        with pytest.raises((errors.HistoryLostError, errors.LockedError)):
            submit(store, "later", 0.5)
    assert standby.value(STATE, "store") == size, "nothing was signed after the failover"
    assert standby.value("SELECT count(*) FROM kernel.log_pending", "store") == 0
    assert sync.verify(tmp_path, url, lock=False).verdict is Verdict.ROLLED_BACK


def test_an_idle_workers_lost_commit_is_found_at_the_reconnect_of_another(pair: Pair, tmp_path: Path) -> None:
    """The commit that is lost is not under a head yet: no head could tell."""
    primary, standby = pair
    url = standby.either("store")
    with sync.open(tmp_path, url) as store:
        submit(store, "arrived", 0.5)
        settled(store)
        store.context.log.stop()  # entries stay pending
        standby.catch_up()
        standby.cut_off()
        submit(store, "lost", 0.5)
        fail_over(primary, standby)
        for number in range(8):  # whichever of the four workers takes it
            with pytest.raises((errors.HistoryLostError, errors.LockedError)):
                submit(store, f"after{number}", 0.5)
    assert standby.value("SELECT count(*) FROM kernel.battles", "store") == 1


def test_a_synchronous_failover_loses_nothing_and_goes_on(pair: Pair, tmp_path: Path) -> None:
    primary, standby = pair
    url = standby.either("store")
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.sql("SELECT pg_reload_conf()")
    acknowledged: list[str] = []
    promoted = threading.Event()

    def work(store: sync.Holdproof, caller: int) -> None:
        after = 0
        for number in range(10_000):
            name = f"{caller}-{number}"
            with suppress(errors.UnavailableError, errors.OutcomeUnknownError):
                submit(store, name, 0.5)
                acknowledged.append(name)
            after += promoted.is_set()
            if after > 3:
                return

    with sync.open(tmp_path, url) as store:
        threads = [threading.Thread(target=work, args=(store, caller)) for caller in range(4)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 40:
            time.sleep(0.01)
        fail_over(primary, standby)
        promoted.set()
        for thread in threads:
            thread.join(60)
        settled(store)
        stored = {name: len(store.evaluations.list(evaluation_id=name).items) for name in acknowledged}
    assert stored == dict.fromkeys(acknowledged, 1), "nothing is lost, and nothing is there twice"
    report = sync.verify(tmp_path, url, full=True)
    assert report.verdict is Verdict.VALID, report.to_dict()


def test_a_tail_that_is_cut_under_a_running_process_is_not_signed_over(tmp_path: Path) -> None:
    """The state before was signed too: only what this process remembers tells."""
    with sync.open(tmp_path) as store:
        submit(store, "first", 0.5)
        past = Past(tmp_path, None)
        [state] = past.ask("SELECT size, frontier, head FROM log_state")
        submit(store, "second", 0.5)
        past.ask("DELETE FROM battles WHERE battle_id = 'second'")
        past.ask("DELETE FROM log_leaves WHERE idx >= ?", state[0])
        past.ask("UPDATE log_state SET size = ?, frontier = ?, head = ?", *state)
        with pytest.raises(errors.HistoryLostError):
            submit(store, "third", 0.5)
        wait_for_lockdown(tmp_path)


def test_a_replica_is_read_and_verified_while_the_primary_writes(pair: Pair, tmp_path: Path) -> None:
    """With the home of the primary's store, and with an empty one, which a replica enrols nothing from."""
    primary, standby = pair
    with sync.open(tmp_path / "home", primary.url("store")) as store:
        for number in range(10):
            submit(store, f"number-{number}", 0.5)
        settled(store)
        standby.catch_up()
        keys = store.keys.list(limit=100).items
        submit(store, "later", 0.5)
        for home in (tmp_path / "home", tmp_path / "reader"):
            with sync.open(home, standby.url("store"), readonly=True) as replica:
                names = {each.evaluation_id for each in replica.evaluations.list(limit=100).items}
                assert {f"number-{number}" for number in range(10)} <= names
                with pytest.raises(errors.ReadOnlyError):
                    replica.agents.register("refused", version="1.0.0")
        settled(store)
        standby.catch_up()
        report = sync.verify(tmp_path / "home", standby.url("store"), full=True, readonly=True)
        # A replica can create neither the schema to compare with nor the tables of services; the rest is verified.
        assert {each.verdict for each in report.findings} == {Verdict.INCOMPLETE}, report.to_dict()
        assert report.checked["battles"] == 11
        assert store.keys.list(limit=100).items == keys
    primary.crash()  # as every test of the pair leaves it
