"""Tampering that is dressed up as what a store may do: a restore, an erasure, another name for its log."""

import threading
import time

import pytest

from harness.attacks import as_erased, as_restored
from harness.filling import settled, submit
from harness.raw_access import Past
from holdproof import sync
from holdproof.crypto import checkpoint
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Report
from tests.conformance.store_backends import StoreOnPostgres, StoreOnSqlite


def refused_after(caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the sequencer has met the entry, and refused to sign it."""
    deadline = time.monotonic() + 60
    while "the log has another name than its newest head" not in caplog.text:
        assert time.monotonic() < deadline, "the sequencer has not looked at it"
        time.sleep(0.02)


class DressedSuite(StoreOnSqlite):
    """One costume a test; the attacker has the database, and no key."""

    def past(self) -> Past:
        return Past(self.home, self.url)

    def verify(self) -> Report:
        """The worse of a plain and a full run."""
        found = [sync.verify(self.home, self.url, full=full, lock=False) for full in (False, True)]
        return max(found, key=lambda report: report.verdict.exit_code)

    def cut_back(self, store: sync.Holdproof) -> None:
        """Put the log back to the state before the last battle, which a kept head has seen."""
        submit(store, "b", 0.5)
        settled(store)
        [state] = self.past().ask("SELECT size, frontier, head FROM log_state")
        submit(store, "later", 0.9)
        settled(store)
        assert store.context.head_file is not None
        store.context.head_file.flush()
        self.past().ask("DELETE FROM battles WHERE battle_id = 'later'")
        self.past().ask("DELETE FROM log_leaves WHERE idx >= ?", state[0])
        self.past().ask("UPDATE log_state SET size = ?, frontier = ?, head = ?", *state)
        (self.home / "dboms" / "dbom_later.json").unlink()

    def test_a_log_that_was_put_back_does_not_pass_for_a_restored_one(self) -> None:
        with self.open() as store:
            self.cut_back(store)
        as_restored(self.past())
        assert self.verify().verdict.locks

    def test_a_log_keeps_the_name_of_its_newest_head(self) -> None:
        with self.open() as store:
            submit(store, "b", 0.5)
            settled(store)
        self.past().ask("UPDATE log_state SET origin = origin || '/1'")
        report = self.verify()
        # The head under its own name was kept here, and no restore of this home has given it up.
        assert {Verdict.TAMPERED, Verdict.ROLLED_BACK} <= {each.verdict for each in report.findings}
        [(head,)] = self.past().ask("SELECT head FROM log_state")
        assert not checkpoint.parse(head.encode()).checkpoint.origin.endswith("/1")


class TestOnSqlite(DressedSuite):
    pass


class TestOnPostgres(StoreOnPostgres, DressedSuite):
    def test_nor_in_a_store_that_was_open_all_the_while(self) -> None:
        with self.open() as store:
            lost = threading.Event()
            store.context.log.on_lost = lambda error: lost.set()
            self.cut_back(store)
            as_restored(self.past())
            assert lost.wait(60), "the sequencer has not looked at it"
            [(origin, head)] = self.past().ask("SELECT origin, head FROM log_state")
            assert checkpoint.parse(head.encode()).checkpoint.origin != origin
        assert self.verify().verdict.locks

    def test_a_store_that_only_changed_its_name_meanwhile_signs_nothing_under_the_new_one(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with self.open() as store:
            submit(store, "b", 0.5)
            settled(store)
            as_restored(self.past())
            refused_after(caplog)
            [(origin, head)] = self.past().ask("SELECT origin, head FROM log_state")
            assert checkpoint.parse(head.encode()).checkpoint.origin != origin
        # The name and the restore that is to explain it; every head that was kept is still one of this log.
        assert self.verify().verdict is Verdict.TAMPERED

    def test_a_deleted_record_needs_more_than_a_tombstone_to_pass_for_an_erased_one(self) -> None:
        with self.open() as store:
            submit(store, "b", 0.5)
            submit(store, "hidden", 0.1)
            settled(store)
            as_erased(self.past(), "hidden")
            settled(store)
        (self.home / "dboms" / "dbom_hidden.json").unlink()
        report = self.verify()
        assert report.verdict is Verdict.TAMPERED
        assert [each.table for each in report.findings] == ["battles"]
        assert "put into the log for it" in report.findings[0].what
