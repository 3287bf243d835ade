"""Snapshots: signed, in the log, comparable, never lost; merges that obey their laws; on every backend."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdproof import errors, sync
from holdproof.content import blocks
from holdproof.crypto import commit as formats
from holdproof.crypto import didkey
from holdproof.db import sql
from holdproof.memory.objects import commits, tree_transaction
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory
from tests.conformance.racing import together

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]  # one law, on several backends
_LEAVES = sql(
    'SELECT count(*) FROM log_leaves WHERE leaf LIKE \'%"t":"snapshot"%\'',
    postgres='SELECT (SELECT count(*) FROM log_leaves WHERE leaf LIKE \'%"t":"snapshot"%\') +'
    ' (SELECT count(*) FROM log_pending WHERE leaf LIKE \'%"t":"snapshot"%\')',
)


def contents(store: sync.Holdproof, **options: Any) -> dict[str, Any]:
    return {each.id: each.content for each in store.objects.list(limit=1000, **options).items}


def put(store: sync.Holdproof, **objects: Any) -> None:
    store.objects.apply(
        {id: None if content is None else {"type": "t", "content": content} for id, content in objects.items()}
    )


class Snapshots(OnMemory):
    def test_a_snapshot_is_a_signed_commit_and_a_leaf(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t")
        made = store.snapshots.create("first", author="ada", reason="try")
        [key] = store.keys.list(role="memory").items
        commit = store.read(lambda tx: commits.read(tx, commits.parse(made.cid)))
        formats.verify(commit, didkey.parse(made.did))
        assert didkey.parse(made.did).keyid == key.keyid
        assert (made.prev, made.author, made.message, made.reason) == (None, "ada", "first", "try")
        assert made == store.snapshots.get("head") == store.snapshots.get(made.rev) == store.snapshots.get(made.cid)
        assert store.read(lambda tx: tx.all(_LEAVES)) == [(1,)]

    def test_the_chain_leads_back_to_the_first(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        made = []
        for number in range(5):
            clock.advance(-1)  # a clock that goes back
            put(store, a=number)
            made.append(store.snapshots.create(str(number)))
        assert [each.prev for each in made] == [None, *(each.cid for each in made[:-1])]
        assert [each.rev for each in made] == sorted({each.rev for each in made})
        assert [each.message for each in store.snapshots.list().items] == ["4", "3", "2", "1", "0"]
        page = store.snapshots.list(limit=2)
        assert [each.message for each in store.snapshots.list(cursor=page.next_cursor, limit=2).items] == ["2", "1"]
        for number, each in enumerate(made):
            assert store.objects.get("a", at=each.cid).content == number
            assert store.objects.list(at=each.cid).items[0].content == number

    def test_who_took_it_does_not_change_the_root(self, store: sync.Holdproof) -> None:
        put(store, a=1)
        one, two = store.snapshots.create("x", author="ada"), store.snapshots.create("y", author="bob")
        assert one.root == two.root
        assert one.cid != two.cid

    def test_nothing_at_all_can_be_a_snapshot(self, store: sync.Holdproof) -> None:
        empty = store.snapshots.create()
        put(store, a=1)
        store.snapshots.rollback(empty.cid)
        assert contents(store) == {}
        assert store.objects.list(at=empty.cid).items == []

    def test_a_snapshot_that_is_not_there_is_not_found(self, store: sync.Holdproof) -> None:
        for wrong in ("head", "x", "3lbh5f7kqxc22"):
            with pytest.raises(errors.NotFoundError):
                store.snapshots.get(wrong)
        made = store.snapshots.create()
        with pytest.raises(errors.NotFoundError):
            store.snapshots.get(made.cid, ns="other")

    def test_a_revoked_key_signs_no_snapshot(self, store: sync.Holdproof) -> None:
        old = store.snapshots.create()
        store.keys.export_root()
        [key] = store.keys.list(role="memory").items
        store.keys.revoke(key.keyid)
        with pytest.raises(errors.RevokedKeyError):
            store.snapshots.create()
        store.keys.rotate("memory")
        new = store.snapshots.create()
        assert (new.prev, new.did != old.did) == (old.cid, True)

    def test_what_follows_another_snapshot_than_expected_is_refused(self, store: sync.Holdproof) -> None:
        first = store.snapshots.create()
        second = store.snapshots.create(expected=first.cid)
        with pytest.raises(errors.StaleVersionError) as stale:
            store.snapshots.create(expected=first.cid)
        assert stale.value.fields["head"] == second.cid

    def test_racing_snapshots_form_one_chain(self, store: sync.Holdproof) -> None:
        store.snapshots.create()
        together(8, lambda number: store.snapshots.create(str(number)).ns)
        chain = store.snapshots.list().items
        assert len(chain) == 9
        assert [each.prev for each in chain[:-1]] == [each.cid for each in chain[1:]]

    # --- comparing ------------------------------------------------------------------------------------------------

    def test_a_diff_says_what_differs(self, store: sync.Holdproof) -> None:
        store.objects.apply({id: {"type": "t", "content": id, "attributes": {"n": 1}} for id in ("a", "b", "c", "d")})
        old = store.snapshots.create()
        store.objects.put("a", type="t", content="new", attributes={"n": 1})
        store.objects.delete("b")
        store.objects.annotate("c", {"seen": 1})
        store.objects.put("ä", type="t")
        found = store.snapshots.diff()
        assert (found.old, found.new, found.next_cursor) == (old.cid, "work", None)
        assert {each.id: each.change for each in found.differences} == {
            "a": "changed",
            "b": "removed",
            "c": "meta",
            "ä": "added",
        }
        assert found.differences[0].fields == {"content": ("a", "new"), "version": (1, 2)}
        assert store.snapshots.diff("work", "head").differences[1].change == "added"
        assert store.snapshots.diff("head", old.rev).differences == ()
        first = store.snapshots.diff(limit=3)
        assert [each.id for each in first.differences] == ["a", "b", "c"]
        assert [each.id for each in store.snapshots.diff(cursor=first.next_cursor, limit=3).differences] == ["ä"]

    # --- going back -----------------------------------------------------------------------------------------------

    def test_a_rollback_brings_everything_back_and_loses_nothing(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content=1, meta={"vector": [0.5, 0.25]})
        put(store, b=1)
        then = store.snapshots.create("then")
        before = store.objects.list().items
        put(store, a=2, b=None, c=3)
        back = store.snapshots.rollback(then.cid, author="ada", reason="wrong")
        assert store.objects.list().items == before
        assert (back.root, back.author, back.reason) == (then.root, "ada", "wrong")
        _, between, _ = store.snapshots.list().items
        assert contents(store, ns="main") == {"a": 1, "b": 1}
        assert {each.id for each in store.objects.list(at=between.cid).items} == {"a", "c"}
        assert [each.version for each in store.objects.history("a").items] == [1, 2, 1]
        assert store.objects.put("a", type="t", content=4).version == 4
        with pytest.raises(errors.NotFoundError):
            store.snapshots.rollback("3lbh5f7kqxc22")

    # --- merging --------------------------------------------------------------------------------------------------

    def lines(self, store: sync.Holdproof, base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> Any:
        """Two lines that were one: theirs is a snapshot, ours is there now."""
        put(store, **base)
        start = store.snapshots.create("base")
        put(store, **theirs)
        other = store.snapshots.create("theirs")
        store.snapshots.rollback(start.cid)
        put(store, **ours)
        return start, other

    def test_what_only_one_side_changed_is_taken(self, store: sync.Holdproof) -> None:
        start, other = self.lines(
            store, {"a": 1, "b": 1, "c": 1}, {"a": 2, "new": 1, "same": 7}, {"b": 2, "c": None, "d": 1, "same": 7}
        )
        merged = store.snapshots.merge(other.cid, base=start.cid, message="both")
        assert contents(store) == {"a": 2, "b": 2, "d": 1, "new": 1, "same": 7}
        assert (merged.merged, merged.message) == (other.cid, "both")

    def test_what_both_changed_is_a_conflict_and_nothing_is_written(self, store: sync.Holdproof) -> None:
        start, other = self.lines(
            store, {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": None, "c": 5}, {"a": 3, "b": 2, "x": 1}
        )
        before = contents(store), len(store.snapshots.list().items)
        with pytest.raises(errors.MergeConflictError) as conflict:
            store.snapshots.merge(other.cid, base=start.cid)
        assert conflict.value.fields["ids"] == ["a", "b"]
        assert (contents(store), len(store.snapshots.list().items)) == before

        def sum_up(id: str, base: Any, ours: Any, theirs: Any) -> dict[str, Any] | None:
            assert base.content == 1
            return {"type": "t", "content": ours.content + theirs.content} if ours else None

        store.snapshots.merge(other.cid, base=start.cid, resolve=sum_up)
        assert contents(store) == {"a": 5, "c": 5, "x": 1}

    def test_volatile_fields_are_never_a_conflict(self, store: sync.Holdproof) -> None:
        put(store, a=1, b=1)
        start = store.snapshots.create()
        store.objects.annotate("a", {"seen": "theirs"})
        put(store, b=None)
        other = store.snapshots.create()
        store.snapshots.rollback(start.cid)
        store.objects.annotate("a", {"seen": "ours"})
        store.objects.annotate("b", {"seen": "ours"})
        store.snapshots.merge(other.cid, base=start.cid)
        assert store.objects.get("a").meta == {"seen": "ours"}
        assert contents(store) == {"a": 1}

    def test_the_common_ancestor_is_found(self, store: sync.Holdproof) -> None:
        """Without a base: a line that comes from ours brings nothing, and one that ours comes from neither."""
        put(store, a=1)
        first = store.snapshots.create()
        put(store, a=2)
        store.snapshots.create()
        merged = store.snapshots.merge(first.cid)
        assert contents(store) == {"a": 2}
        assert store.snapshots.merge("head").root == merged.root

    CHANGES = st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 3), max_size=5)

    @given(base=CHANGES, ours=CHANGES, theirs=CHANGES)
    @settings(max_examples=15, deadline=None, suppress_health_check=CHECKS)
    def test_a_merge_is_what_a_merge_of_dicts_is(
        self, store: sync.Holdproof, base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]
    ) -> None:
        start, other = self.lines(store, {**dict.fromkeys("abcdefgh"), **base}, ours, theirs)
        old = {id: value for id, value in base.items() if value is not None}
        left = {id: value for id, value in {**old, **ours}.items() if value is not None}
        right = {id: value for id, value in {**old, **theirs}.items() if value is not None}
        clash = {
            id for id in "abcdefgh" if left.get(id) != old.get(id) and right.get(id) not in (old.get(id), left.get(id))
        }
        mine = store.snapshots.create("ours")
        if clash:
            with pytest.raises(errors.MergeConflictError) as conflict:
                store.snapshots.merge(other.cid, base=start.cid)
            assert set(conflict.value.fields["ids"]) == clash
            return
        merged = store.snapshots.merge(other.cid, base=start.cid)
        wanted = {id: right.get(id) if right.get(id) != old.get(id) else left.get(id) for id in "abcdefgh"}
        assert contents(store) == {id: value for id, value in wanted.items() if value is not None}
        store.snapshots.rollback(other.cid)
        assert store.snapshots.merge(mine.cid, base=start.cid).root == merged.root, "the order does not matter"
        assert store.snapshots.merge("head", base=start.cid).root == merged.root, "with itself: nothing"

    def test_every_block_of_a_snapshot_is_there(self, store: sync.Holdproof) -> None:
        put(store, **{f"o{number}": "x" * 300_000 for number in range(3)})
        made = store.snapshots.create()
        assert store.read(lambda tx: blocks.missing(tx, [commits.parse(made.root), commits.parse(made.cid)])) == []
        assert store.read(lambda tx: tree_transaction.root(tx, "main")) == commits.parse(made.root)


class TestOnSqlite(OnSqlite, Snapshots):
    pass


class TestInMemory(InMemory, Snapshots):
    pass


class TestOnPostgres(OnPostgres, Snapshots):
    pass
