"""Objects: the same content is the same root, nothing is overwritten, nobody's update is lost; on every backend."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdproof
from holdproof import errors, paging, sync
from holdproof.memory.objects import objects, refs, tree_transaction
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.logs import settle
from tests.conformance.memories import OnMemory
from tests.conformance.racing import together

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]  # one law, on several backends
ODD = "ä / \0 ~"


def root(store: sync.Holdproof, ns: str = "main") -> str:
    return str(store.read(lambda tx: tree_transaction.root(tx, ns)))


def leaves(store: sync.Holdproof) -> int:
    settle(store)
    return store.log.head().checkpoint.size


class Objects(OnMemory):
    def test_an_object_is_read_as_it_was_put(self, store: sync.Holdproof) -> None:
        put = store.objects.put(
            ODD,
            type="note",
            content="text\0",
            attributes={"price": 1.5, "big": 2**70, "$odd": [b"x", None]},
            parent="p",
            children=["b", "a", "b"],
            meta={"vector": [0.25, -1.0], "last_sync": 3_900_000_000},
        )
        assert put == store.objects.get(ODD)
        assert (put.version, put.children, put.attributes["price"]) == (1, ("b", "a", "b"), 1.5)
        assert put.meta == {"vector": [0.25, -1.0], "last_sync": 3_900_000_000}

    def test_a_put_makes_the_next_version_and_the_old_ones_stay(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        for number in range(3):
            clock.advance(1)
            store.objects.put("a", type="note", content=number)
        history = store.objects.history("a").items
        assert [(each.n, each.version) for each in history] == [(3, 3), (2, 2), (1, 1)]
        assert history[0].at == "2026-01-01T00:00:03.000000Z"
        assert [store.objects.get("a", version=n).content for n in (1, 2, 3)] == [0, 1, 2]
        assert [each.n for each in store.objects.history("a", cursor=paging.encode(3), limit=1).items] == [2]
        with pytest.raises(errors.NotFoundError):
            store.objects.get("a", version=4)

    def test_to_put_what_is_there_changes_nothing(self, store: sync.Holdproof) -> None:
        first = store.objects.put("a", type="note", content="x" * 300_000, attributes={"n": 1.0})
        before = root(store), leaves(store)
        assert store.objects.put("a", type="note", content="x" * 300_000, attributes={"n": 1.0}) == first
        assert before == (root(store), leaves(store))
        assert len(store.objects.history("a").items) == 1

    def test_a_heartbeat_leaves_the_cid_as_it_is(self, store: sync.Holdproof) -> None:
        first = store.objects.put("a", type="note", content="x")
        second = store.objects.annotate("a", {"last_sync": 1})
        assert (second.cid, second.meta) == (first.cid, {"last_sync": 1})
        third = store.objects.put("a", type="note", content="y")
        assert third.meta == {"last_sync": 1}, "a put without meta leaves it"
        assert store.objects.annotate("a", {}).meta == {}
        assert len(store.objects.history("a").items) == 2

    def test_a_deleted_object_is_gone_and_its_history_goes_on(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="note", content=1, meta={"x": 1})
        assert store.objects.delete("a")
        with pytest.raises(errors.NotFoundError):
            store.objects.get("a")
        assert not store.objects.delete("a"), "there is nothing to delete any more"
        with pytest.raises(errors.NotFoundError):
            store.objects.annotate("a", {"x": 1})
        again = store.objects.put("a", type="note", content=1)
        assert (again.version, again.meta) == (3, {})
        assert [each.cid is None for each in store.objects.history("a").items] == [False, True, False]

    def test_a_version_can_be_given(self, store: sync.Holdproof) -> None:
        assert store.objects.put("a", type="t", version=3_913_000_000).version == 3_913_000_000
        assert store.objects.put("a", type="t", content=1).version == 3_913_000_001

    def test_a_put_over_another_version_than_expected_is_refused(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", expected_version=0)
        with pytest.raises(errors.StaleVersionError):
            store.objects.put("a", type="t", content=1, expected_version=0)
        store.objects.put("a", type="t", content=1, expected_version=1)
        with pytest.raises(errors.StaleVersionError) as stale:
            store.objects.delete("a", expected_version=1)
        assert stale.value.fields["version"] == 2

    def test_several_change_together_or_not_at_all(self, store: sync.Holdproof) -> None:
        store.objects.put("c", type="t")
        before = root(store)
        with pytest.raises(errors.InvalidInputError):
            store.objects.apply({"a": {"type": "t"}, "b": {"type": "t", "content": object()}, "c": None})
        assert root(store) == before
        store.objects.apply({"a": {"type": "t"}, "b": {"type": "t", "meta": {"x": 1}}, "c": None, "never": None})
        assert [each.id for each in store.objects.list().items] == ["a", "b"]

    def test_one_leaf_is_enough_for_many_objects(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t")
        before = leaves(store)
        store.objects.apply({f"o{number}": {"type": "t"} for number in range(50)})
        assert leaves(store) == before + 1

    def test_changes_from_an_older_snapshot_are_rebased(self, store: sync.Holdproof) -> None:
        store.objects.apply({"a": {"type": "t"}, "b": {"type": "t"}})
        base = store.snapshots.create().cid
        store.objects.put("a", type="t", content="theirs")
        store.objects.apply({"b": {"type": "t", "content": "mine"}}, base=base)
        assert [each.content for each in store.objects.list().items] == ["theirs", "mine"]
        with pytest.raises(errors.MergeConflictError) as conflict:
            store.objects.apply({"a": {"type": "t", "content": "mine"}, "c": {"type": "t"}}, base=base)
        assert conflict.value.fields["ids"] == ["a"]

        def both(id: str, old: Any, now: Any, wanted: Any) -> dict[str, Any]:
            assert (id, old.content, wanted["content"]) == ("a", None, "mine")
            return {"type": "t", "content": now.content + " and mine"}

        store.objects.apply({"a": {"type": "t", "content": "mine"}}, base=base, resolve=both)
        assert store.objects.get("a").content == "theirs and mine"

    def test_namespaces_have_nothing_in_common(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="here")
        store.objects.put("a", type="t", content="there", ns="other")
        store.objects.delete("a", ns="other")
        assert store.objects.get("a").content == "here"
        narrow = sync.Holdproof(store.core, ns="other")
        with pytest.raises(errors.NotFoundError):
            narrow.objects.get("a")
        with pytest.raises(errors.NamespaceError):
            narrow.objects.get("a", ns="main")

    @pytest.mark.parametrize(
        "wrong",
        [
            {"type": ""},
            {"type": "a\n"},
            {"type": "t", "children": "abc"},
            {"type": "t", "children": [""]},
            {"type": "t", "parent": ""},
            {"type": "t", "attributes": []},
            {"type": "t", "version": -1},
            {"type": "t", "meta": 1},
            {"type": "t", "version": 2**60},
        ],
    )
    def test_what_is_no_object_is_refused(self, store: sync.Holdproof, wrong: dict[str, Any]) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.objects.put("a", **wrong)
        with pytest.raises(errors.InvalidInputError):
            store.objects.apply({"a": {"type": "t", "colour": "red"}})
        assert store.objects.list().items == []

    # --- the graph ------------------------------------------------------------------------------------------------

    def test_children_are_those_named_in_their_order_then_those_that_name_their_parent(
        self, store: sync.Holdproof
    ) -> None:
        for id in ("x", "b", ODD):
            store.objects.put(id, type="t", parent="top")
        store.objects.put("free", type="t")
        store.objects.put("top", type="t", children=["x", "free", "gone"])
        wanted = ["x", "free", "b", ODD]
        assert [each.id for each in store.objects.children("top")] == wanted
        then = store.snapshots.create().cid
        store.objects.delete("b")
        assert [each.id for each in store.objects.children("top", at=then)] == wanted
        assert [each.id for each in store.objects.children("top")] == ["x", "free", ODD]
        tree = store.graph.subtree("top")
        assert ([each.object.id for each in tree.children], tree.missing) == (["x", "free", ODD], ("gone",))
        assert [each.id for each in store.graph.roots()] == ["free", "top"]

    def test_children_and_roots_come_page_by_page_in_their_order(self, store: sync.Holdproof) -> None:
        others = [f"c{number:03}" for number in range(230)]
        own = ["z", "c007", "gone", "y"]
        store.objects.apply({id: {"type": "t", "parent": "top"} for id in (*others, "y", "z")})
        store.objects.put("top", type="t", children=own)
        store.objects.apply({id: {"type": "t"} for id in ("root-1", "root-2")})
        wanted = ["z", "c007", "y", *(id for id in others if id != "c007")]
        snapshot = store.snapshots.create().cid
        for at in (None, snapshot):
            for limit in (1, 2, 3, 100, 1_000):
                ids: list[str] = []
                cursor = None
                while len(ids) <= len(wanted):
                    page = store.objects.children("top", at=at, cursor=cursor, limit=limit)
                    ids += [each.id for each in page]
                    cursor = page.next_cursor
                    # Two are enough of the smallest pages.
                    if cursor is None or (limit < 3 and len(ids) > 5):
                        break
                assert ids == wanted[: len(ids)]
                assert cursor is not None or ids == wanted
        first = store.graph.roots(limit=2)
        second = store.graph.roots(limit=2, cursor=first.next_cursor)
        assert [each.id for each in (*first, *second)] == ["root-1", "root-2", "top"]
        assert second.next_cursor is None
        with pytest.raises(errors.InvalidInputError, match="cursor"):
            store.graph.roots(cursor="of another listing")
        with pytest.raises(errors.InvalidInputError, match="cursor"):
            store.objects.children("top", cursor="of another listing")

    def test_a_ring_ends_where_it_would_begin_again(self, store: sync.Holdproof) -> None:
        store.objects.apply({name: {"type": "t", "children": [below]} for name, below in ("ab", "bc", "ca")})
        assert [each.id for each in store.graph.walk("a")] == ["a", "b", "c"]

    def test_a_subtree_is_bounded_and_says_so(self, store: sync.Holdproof) -> None:
        store.objects.apply({f"n{at}": {"type": "t", "children": [f"n{at + 1}"]} for at in range(5)})
        assert [each.id for each in store.graph.walk("n0", depth=2)] == ["n0", "n1", "n2"]
        assert store.graph.subtree("n0", depth=0).cut
        assert store.graph.subtree("n0", limit=1).cut
        assert not store.graph.subtree("n4").cut
        with pytest.raises(errors.InvalidInputError):
            store.graph.subtree("n0", depth=1000)
        with pytest.raises(errors.NotFoundError):
            store.graph.subtree("none")

    def test_a_prefix_lists_the_ids_that_begin_with_it_in_pages(self, store: sync.Holdproof) -> None:
        ids = ["market", "market-a", "market/dax", "market/eu/x", "market/eu/y", "markets/z", "other/q", "~odd"]
        for id in ids:
            store.objects.put(id, type="t")
        for prefix in ("", "m", "market", "market/", "market/eu/", "~", "none"):
            shown: list[str] = []
            cursor: str | None = None
            while True:
                page = store.objects.list(prefix=prefix, cursor=cursor, limit=2)
                shown += [each.id for each in page.items]
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert sorted(shown) == [id for id in sorted(ids) if id.startswith(prefix)], prefix

    def test_folders_are_what_ids_have_up_to_the_next_slash_with_their_counts(self, store: sync.Holdproof) -> None:
        for id in ("plain", "market/dax", "market/eu/x", "market/eu/y", "marked/z", "a b"):
            store.objects.put(id, type="t")
        for number in range(103):
            store.objects.put(f"many/{number}", type="t")
        top = store.objects.folders()
        assert [(each.prefix, each.count, each.more) for each in top.folders] == [
            ("many/", 100, True),
            ("marked/", 1, False),
            ("market/", 3, False),
        ]
        assert top.complete
        assert [each.prefix for each in store.objects.folders(prefix="market/").folders] == ["market/eu/"]
        assert store.objects.folders(prefix="market/eu/").folders == []
        first = store.objects.folders(limit=2)
        assert (len(first.folders), first.complete) == (2, False)
        store.objects.delete("marked/z")
        assert "marked/" not in [each.prefix for each in store.objects.folders().folders]

    def test_objects_are_listed_in_pages(self, store: sync.Holdproof) -> None:
        store.objects.apply({f"o{number:03}": {"type": "t"} for number in range(25)} | {ODD: {"type": "t"}})
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = store.objects.list(cursor=cursor, limit=7)
            found += [each.id for each in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        with pytest.raises(errors.InvalidInputError, match="cursor"):
            store.objects.list(cursor="")
        assert store.objects.list(limit=26).next_cursor is None, "a page that is exactly full is the last one"
        assert found == [*(f"o{number:03}" for number in range(25)), ODD]

    # --- laws -----------------------------------------------------------------------------------------------------

    @given(data=st.data())
    @settings(max_examples=12, deadline=None, suppress_health_check=CHECKS)
    def test_the_same_objects_have_the_same_root_in_whatever_order_they_come(
        self, store: sync.Holdproof, data: Any
    ) -> None:
        ids = data.draw(st.sets(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=12))
        gone = data.draw(st.sets(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), max_size=4)) - ids
        spaces = []
        for turn in range(2):
            ns = f"{len(store.read(lambda tx: refs.page(tx, limit=10_000)))}-{turn}"
            for id in data.draw(st.permutations(sorted(ids | gone))):
                store.objects.put(id, type="t", content=id, version=1, ns=ns)
            for id in gone:
                store.objects.delete(id, ns=ns)
            spaces.append(root(store, ns))
        whole = f"at once {leaves(store)}"
        store.objects.apply({id: {"type": "t", "content": id, "version": 1} for id in ids}, ns=whole)
        assert {*spaces, root(store, whole)} == {spaces[0]}

    # --- races ----------------------------------------------------------------------------------------------------

    def test_racing_writers_lose_no_update(self, store: sync.Holdproof) -> None:
        store.objects.put("sum", type="t", content=0)

        def add(tx: Any) -> int:
            edit = tree_transaction.TreeTransaction(tx, "main")  # held from before the read
            now = objects.get(tx, "sum").content
            del edit
            objects.put(tx, "sum", type="t", content=now + 1)
            objects.put(tx, f"o{now}", type="t")
            return 1

        together(8, lambda _: [store.write(add) for _ in range(5)].count(1))
        assert store.objects.get("sum").content == 40
        assert len(store.objects.list(limit=100).items) == 41
        assert [each.version for each in store.objects.history("sum").items] == [*range(41, 0, -1)]

    def test_of_racing_conditional_writers_one_wins(self, store: sync.Holdproof) -> None:
        def first(number: int) -> bool:
            try:
                store.objects.put("a", type="t", content=number, expected_version=0)
            except errors.StaleVersionError:
                return False
            return True

        assert together(8, first)[True] == 1

    def test_a_failing_neighbour_in_the_group_harms_nobody(self, store: sync.Holdproof) -> None:
        def one(number: int) -> bool:
            def work(tx: Any) -> None:
                objects.put(tx, f"o{number}", type="t")
                if number % 2:
                    raise ZeroDivisionError

            try:
                store.write(work)
            except ZeroDivisionError:
                return False
            return True

        together(10, one)
        assert [each.id for each in store.objects.list().items] == [f"o{number}" for number in range(0, 10, 2)]

    def test_no_object_is_put_while_the_store_is_locked(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t")
        store.lockdown.lock(reason="try")
        with pytest.raises(errors.LockedError):
            store.objects.put("b", type="t")
        assert store.objects.get("a").version == 1


class TestOnSqlite(OnSqlite, Objects):
    pass


class TestInMemory(InMemory, Objects):
    pass


class TestOnPostgres(OnPostgres, Objects):
    pass


def test_both_faces_show_the_same(tmp_path: Path) -> None:
    async def work() -> Any:
        async with holdproof.open(tmp_path / "home") as store:
            await store.objects.put("a", type="t", content=1)
            await store.snapshots.create("first")
            await store.image.dump()
            cid = await store.values.put([1, 2])
            return (await store.objects.list()).items, (await store.snapshots.list()).items, await store.values.get(cid)

    shown = asyncio.run(work())
    with sync.open(tmp_path / "home") as store:
        assert shown == (store.objects.list().items, store.snapshots.list().items, [1, 2])
        assert store.image.load().how == "same"
