"""Heads over time: those that somebody vouched for, of each kind the newest, whatever the length of the log."""

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


def _verify(store: sync.Holdproof) -> None:
    store.verify.run(lock=True)


class KnownHeads(OnStore):
    def test_a_verification_is_a_head_with_its_entry_and_the_log_s_own_is_the_newest(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        _verify(store)
        clock.advance(60)
        store.agents.register("buyer", version="1.0.0")
        settled(store)
        heads = store.log.heads()
        [verified] = [each for each in heads if each.kind == "verified"]
        assert (verified.verdict, bool(verified.by)) == ("VALID", True)
        assert store.log.get(verified.entry).kind == "verification"
        [signed] = [each for each in heads if each.kind == "signed"]
        assert signed == heads[-1]
        assert signed.size >= verified.size > 0

    def test_of_each_kind_only_the_newest_so_many_are_read(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        for _ in range(4):
            _verify(store)
            clock.advance(60)
        every = [each.at for each in store.log.heads() if each.kind == "verified"]
        assert [each.at for each in store.log.heads(limit=2) if each.kind == "verified"] == every[-2:]
        for limit in (0, 501):
            with pytest.raises(errors.InvalidInputError):
                store.log.heads(limit=limit)


class TestKnownHeadsOnSqlite(OnSqlite, KnownHeads):
    pass


class TestKnownHeadsInMemory(InMemory, KnownHeads):
    pass


class TestKnownHeadsOnPostgres(OnPostgres, KnownHeads):
    pass
