"""What is new: transitions, questions and answers, followed from a place, on every backend."""

import threading

import pytest

from harness.filling import running
from holdproof import Tx, errors, sql, sync
from holdproof.model.change_feed import Change, Cursor
from holdproof.runtime import change_feed, flows
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


def follow(
    store: sync.Holdproof, place: Cursor, **about: str
) -> tuple[list[tuple[str, int | str]], Cursor, list[Change]]:
    found, further = store.read(lambda tx: change_feed.since(tx, place, **about))
    return [(each.kind, each.id) for each in found], further, list(found)


class Following(OnStore):
    def test_everything_that_happens_after_a_place_is_told_once_it_is_settled(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        running(store)
        clock.advance(change_feed.SETTLED_S)
        place = store.read(change_feed.now)
        assert follow(store, place)[0] == []
        flow_id = running(store)
        clock.advance(1)
        asked = store.escalations.request(flow_id, reason="?", impact="HIGH_IMPACT")
        clock.advance(1)
        store.escalations.resolve(asked.id, "approve", by="Ada")
        kinds, _, found = follow(store, place)
        assert [kind for kind, _ in kinds] == ["flow", "flow", "escalation", "flow", "flow", "resolution"]
        assert [(each.about["from_status"], each.about["to_status"]) for each in found if each.kind == "flow"] == [
            (None, "CREATED"),
            ("CREATED", "RUNNING"),
            ("RUNNING", "WAITING_ESCALATION"),
            ("WAITING_ESCALATION", "RUNNING"),
        ]
        assert (found[2].about["impact"], found[5].about["resolved_by"]) == ("HIGH_IMPACT", "Ada")
        clock.advance(10)
        again, further, _ = follow(store, place)
        assert sorted(again, key=str) == sorted(kinds, key=str)
        assert follow(store, further)[0] == []
        assert change_feed.parse(str(further)) == further

    def test_a_flow_that_only_began_is_told_once_however_many_begin_at_one_moment(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        first = store.flows.start("trader").flow_id
        place, old = store.read(change_feed.begin)
        # The clock stands still: all have the moment of the first.
        others = [store.flows.start("trader", flow_type="later").flow_id for _ in range(3)]
        _, further, changes = follow(store, place)
        fresh = [each for each in changes if (each.kind, each.id) not in old]
        assert {each.id for each in fresh} == {*others}
        assert ("flow", first) in old
        assert {each.about["flow_type"] for each in fresh} == {"later"}
        clock.advance(change_feed.SETTLED_S + 1)
        _, settled, _ = follow(store, further)
        assert follow(store, settled)[0] == []
        clock.advance(1)
        last = store.flows.start("trader").flow_id
        assert follow(store, settled)[0] == [("flow", last)]

    def test_a_clock_that_was_set_back_hides_nothing(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = running(store)
        asked = store.escalations.request(flow_id, reason="?").id
        store.escalations.resolve(asked, "approve", by="Ada")
        place = store.read(change_feed.now)
        clock.advance(10)
        running(store)
        _, place, _ = follow(store, place)
        clock.advance(change_feed.SETTLED_S + 1)
        _, place, _ = follow(store, place)
        clock.advance(-3_600)
        begun = store.flows.start("trader").flow_id
        later_asked = store.escalations.request(flow_id, reason="again?").id
        store.escalations.resolve(later_asked, "reject", by="Ada")
        fresh, place, _ = follow(store, place)
        assert ("flow", begun) in fresh
        assert ("resolution", later_asked) in fresh
        clock.advance(change_feed.SETTLED_S + 1)
        _, place, _ = follow(store, place)
        assert follow(store, place)[0] == []

    def test_a_place_never_passes_what_may_still_come_to_light(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        place = store.read(change_feed.now)
        asked = store.escalations.request(running(store), reason="?")
        store.escalations.resolve(asked.id, "reject", by="Ada")
        _, further, _ = follow(store, place)
        if store.database.dialect == "postgres":
            assert ("flow", 1) in follow(store, further)[0]
        clock.advance(change_feed.SETTLED_S + 1)
        _, settled, _ = follow(store, further)
        assert follow(store, settled)[0] == []

    def test_an_agent_or_a_namespace_hears_of_its_own_only(self, store: sync.Holdproof) -> None:
        place = store.read(change_feed.now)
        store.agents.register("other", version="1.0.0")
        store.agents.register("far", version="1.0.0", ns="far")
        mine, theirs = running(store), running(store, "other")
        away = store.flows.start("far", ns="far").flow_id
        store.flows.transition(away, "RUNNING", ns="far")
        store.escalations.request(theirs, reason="?")
        told = {each.about["flow_id"] for each in follow(store, place, agent_id="trader")[2]}
        assert told == {mine}
        assert {each.about["flow_id"] for each in follow(store, place, ns="far")[2]} == {away}
        assert {each.about["flow_id"] for each in follow(store, place)[2]} == {mine, theirs, away}

    def test_more_than_a_page_is_told_page_by_page_and_all_of_it(
        self, store: sync.Holdproof, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(change_feed, "_PAGE", 3)
        place = store.read(change_feed.now)
        begun = [running(store) for _ in range(8)]
        for flow_id in begun[:4]:
            asked = store.escalations.request(flow_id, reason="?")
            store.escalations.resolve(asked.id, "cancel", by="Ada")
        clock.advance(change_feed.SETTLED_S)
        told: list[tuple[str, int | str]] = []
        while (page := follow(store, place))[1] != place:
            place = page[1]
            # The beginnings are of one moment, as the clock stands still, and come together.
            assert len(page[0]) <= 9 + len(begun), "three of each kind"
            told += page[0]
        kinds = [kind for kind, _ in told]
        assert [kinds.count(kind) for kind in ("flow", "escalation", "resolution")] == [16 + len(begun), 4, 4]
        assert {id for kind, id in told if isinstance(id, str)} == {*begun}

    def test_whoever_hears_of_nothing_moves_on_all_the_same(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.agents.register("quiet", version="1.0.0")
        place, _ = store.read(change_feed.begin)
        for _ in range(3):
            asked = store.escalations.request(running(store), reason="?")
            store.escalations.resolve(asked.id, "approve", by="Ada")
        clock.advance(change_feed.SETTLED_S)
        told, further, _ = follow(store, place, agent_id="quiet")
        assert told == []
        assert further == follow(store, place)[1]
        assert further.transition == store.read(change_feed.now).transition > place.transition

    def test_what_was_there_before_is_no_news(self, store: sync.Holdproof) -> None:
        asked = store.escalations.request(running(store), reason="?")
        store.escalations.resolve(asked.id, "approve", by="Ada")
        place, old = store.read(change_feed.begin)
        assert {*follow(store, place)[0]} <= old
        flow_id = running(store)
        fresh = [each for each in follow(store, place)[2] if (each.kind, each.id) not in old]
        assert [each.about["flow_id"] for each in fresh] == [flow_id, flow_id]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "1",
            "1.2.3.4",
            "a.b.c.d.e",
            "-1.0.0.0.",
            "1.1.1.1.yesterday~",
            "1.1.1.1.~never",
            "1.1.1.1.",
            f"{1 << 70}.0.0.0.~",
        ],
    )
    def test_what_is_no_place_is_refused(self, store: sync.Holdproof, text: str) -> None:
        with pytest.raises(errors.InvalidInputError):
            change_feed.parse(text)


class TestSqlite(OnSqlite, Following):
    pass


class TestMemory(InMemory, Following):
    pass


class TestPostgres(OnPostgres, Following):
    def test_what_is_committed_after_a_following_began_is_told_whatever_came_before(
        self, store: sync.Holdproof
    ) -> None:
        late, early = store.flows.start("trader").flow_id, store.flows.start("trader").flow_id
        inside, status_after = threading.Event(), threading.Event()

        def slowly(tx: Tx) -> None:
            flows.transition(tx, late, "RUNNING")
            tx.all(sql("SELECT 1"))  # what is written is sent before the wait
            inside.set()
            status_after.wait(60)

        writing = threading.Thread(target=store.write, args=(slowly,))
        writing.start()
        assert inside.wait(60)
        store.flows.transition(early, "RUNNING")
        place, old = store.read(change_feed.begin)
        status_after.set()
        writing.join()
        fresh = [each for each in follow(store, place)[2] if (each.kind, each.id) not in old]
        assert [each.about["flow_id"] for each in fresh] == [late]
