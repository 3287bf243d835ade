"""Timelines: one story out of many tables, whole, in order, a page at a time; and flows that have lost their worker."""

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.model.timelines import Timeline, TimelineEvent
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


def _told(timeline: Timeline) -> list[tuple[str, str, str | None]]:
    return [(each.kind, each.what, each.note) for each in timeline.events]


def _eventful(store: sync.Holdproof, clock: FrozenClock) -> tuple[str, str]:
    """A flow with a child, a step, a lock, a question with its answer, an audit event."""
    with store.flows.run("trader", flow_type="trade") as flow:
        clock.advance(1)
        flow.step("quote", lambda: 7)
        clock.advance(1)
        flow.lock({"usd": 5}, capacity=10)
        child = store.flows.start("trader", parent=flow.flow_id, flow_type="check")
        clock.advance(1)
        asked = store.escalations.request(flow.flow_id, reason="over limit", proposal={"buy": 1})
        clock.advance(1)
        store.escalations.resolve(asked.id, "approve", by="ann", comment="go")
        store.audit.record(child.flow_id, "LOOKED", severity="WARNING")
        parent = flow.flow_id
        assert _told(store.flows.timeline(parent)) == [
            ("opened", "trade 1.0", "by trader"),
            ("transition", "RUNNING", None),
            ("step begun", "quote", None),
            ("step ended", "quote DONE", None),
            ("opened", "check 1.0", "by trader"),
            ("lock", "usd", "fence 1"),
            ("asked", "over limit", "LOW_IMPACT"),
            ("transition", "WAITING_ESCALATION", "over limit"),
            ("answered", "APPROVED by ann", "go"),
            ("transition", "RUNNING", "APPROVED by ann"),
            ("audit", "LOOKED", "WARNING"),
        ]
        clock.advance(1)
    return parent, child.flow_id


class Timelines(OnStore):
    def test_a_timeline_tells_of_a_flow_and_all_below_it_in_order(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        parent, child = _eventful(store, clock)
        running(store)
        told = store.flows.timeline(parent)
        assert (told.tree.flow, told.tree.children[0].flow) == (store.flows.get(parent), store.flows.get(child))
        assert told.steps == store.flows.steps(parent)
        assert (told.events[-1].kind, told.events[-1].what) == ("transition", "COMPLETED")
        assert {each.flow_id for each in told.events} == {parent, child}
        assert "lock" not in {each.kind for each in told.events}
        moments = [each.at for each in told.events]
        assert moments == sorted(moments)

    def test_a_timeline_begins_at_any_flow_of_a_tree(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        _, child = _eventful(store, clock)
        told = store.flows.timeline(child)
        assert (told.tree.flow.flow_id, told.tree.children, told.steps) == (child, (), ())
        assert [each.kind for each in told.events] == ["opened", "audit"]

    def test_pages_go_on_where_the_page_before_ended(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        parent, _ = _eventful(store, clock)
        whole = store.flows.timeline(parent)
        cursor: str | None = None
        pages: list[TimelineEvent] = []
        while True:
            page = store.flows.timeline(parent, cursor=cursor, limit=1)
            pages += page.events
            if page.next_cursor is None:
                break
            cursor = page.next_cursor
        assert tuple(pages) == whole.events

    @pytest.mark.parametrize("after", ["x", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z a b c", "1 2 3 4"])
    def test_a_cursor_that_is_none_is_refused(self, store: sync.Holdproof, after: str) -> None:
        flow_id = running(store)
        with pytest.raises(errors.InvalidInputError):
            store.flows.timeline(flow_id, cursor=after)
        with pytest.raises(errors.NotFoundError):
            store.flows.timeline("nowhere")

    def test_orphans_are_seen_without_being_taken_in_hand(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        first, second, ended = running(store), running(store), running(store)
        for flow_id in (second, first, ended):
            store.flows.lease(flow_id, f"worker of {flow_id}", lease_s=5)
            clock.advance(1)
        assert store.flows.orphans() == ()
        store.flows.transition(ended, "COMPLETED")
        clock.advance(5)
        found = store.flows.orphans()
        assert [(each.flow_id, each.worker) for each in found] == [(one, f"worker of {one}") for one in (first, second)]
        assert store.flows.orphans(limit=1) == found[:1]
        assert store.flows.orphans() == found
        for flow_id in (first, second):
            store.flows.lease(flow_id, "next")
        assert store.flows.orphans() == ()

    def test_one_event_is_got_by_its_id(self, store: sync.Holdproof) -> None:
        made = store.audit.record(running(store), "LOOKED", detail={"at": [1]})
        assert store.audit.get(made.id) == made
        with pytest.raises(errors.NotFoundError):
            store.audit.get(made.id + 1)


class TestSqlite(OnSqlite, Timelines):
    pass


class TestMemory(InMemory, Timelines):
    pass


class TestPostgres(OnPostgres, Timelines):
    pass
