"""Watching a store: what is under way, who is asked, where the log stands; on every backend."""

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.model.watch import Frame
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


class Watching(OnStore):
    def test_a_look_shows_what_is_under_way_and_who_is_asked(self, store: sync.Holdproof) -> None:
        waiting, busy, done = running(store), running(store), running(store)
        asked = store.escalations.request(waiting, reason="over limit", impact="HIGH_IMPACT")
        store.flows.transition(done, "COMPLETED")
        seen = store.watch.look()
        assert seen.counts == {"RUNNING": 1, "WAITING_ESCALATION": 1}
        assert {flow.flow_id for flow in seen.flows} == {waiting, busy}
        assert [flow.flow_id for flow in seen.ended] == [done]
        assert seen.escalations == (asked,)
        assert (seen.locked, seen.origin) == (None, store.log.head().checkpoint.origin)

    def test_another_namespace_is_not_seen(self, store: sync.Holdproof) -> None:
        running(store)
        seen = store.watch.look(ns="other")
        assert (seen.counts, seen.flows, seen.ended) == ({}, (), ())

    def test_no_more_is_shown_than_was_asked_for(self, store: sync.Holdproof) -> None:
        for _ in range(3):
            running(store)
        seen = store.watch.look(limit=2)
        assert (len(seen.flows), seen.counts) == (2, {"RUNNING": 3})

    def test_a_lockdown_is_seen(self, store: sync.Holdproof) -> None:
        store.lockdown.lock(reason="an operator saw something")
        seen = store.watch.look()
        assert seen.locked is not None
        assert seen.locked.reason == "an operator saw something"

    def test_only_what_has_changed_is_told_and_a_question_wakes_the_watcher(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        frames = store.watch.follow(every_s=3600)  # by a clock that stands still
        assert next(frames).escalations == ()
        asked = store.escalations.request(flow_id, reason="may I?")
        told = next(frames)
        while not told.escalations:  # on a server the log may move on first
            told = next(frames)
        assert told.escalations == (asked,)
        frames.close()  # type: ignore[attr-defined]

    def test_frames_differ_by_more_than_their_time(self, store: sync.Holdproof) -> None:
        one = store.watch.look()
        assert one.same(Frame(**{**one.to_dict(), "at": "another", "degraded": one.degraded}))
        assert not one.same(None)

    def test_a_watcher_that_would_look_without_end_is_refused(self, store: sync.Holdproof) -> None:
        for every_s in (0.0, -1.0, 1e9):
            with pytest.raises(errors.InvalidInputError):
                next(store.watch.follow(every_s=every_s))


class TestSqlite(OnSqlite, Watching):
    pass


class TestMemory(InMemory, Watching):
    pass


class TestPostgres(OnPostgres, Watching):
    pass
