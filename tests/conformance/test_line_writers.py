"""Who writes a line of checkpoints, what comes ahead of its checkpoint, and what stays of subgraphs; everywhere."""

from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.memory.threads import deltas
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory
from tests.conformance.racing import together


def put(store: sync.Holdproof, id: str, parent: str | None = None, **options: Any) -> str:
    return store.threads.put_checkpoint("t", {"c": id}, checkpoint_id=id, parent_id=parent, **options).checkpoint_id


def write(store: sync.Holdproof, id: str, task: str = "task", **options: Any) -> None:
    store.threads.put_writes("t", id, task, [(0, "c", task)], **options)


class Lines(OnMemory):
    # --- fencing ---

    def test_a_run_that_read_between_two_writes_of_another_is_refused(self, store: sync.Holdproof) -> None:
        put(store, "1")
        one = store.threads.claim("t")
        put(store, "2", "1", claim=one, on_conflict="error")
        between = store.threads.claim("t")
        put(store, "3", "2", claim=one, on_conflict="error")
        with pytest.raises(errors.StaleWriterError):
            put(store, "4", "2", claim=between, on_conflict="error")
        put(store, "5", "3", claim=one, on_conflict="error")
        put(store, "6", "5", claim=store.threads.claim("t"), on_conflict="error")

    def test_what_an_overtaken_run_writes_replaces_nothing(self, store: sync.Holdproof) -> None:
        put(store, "1")
        one = store.threads.claim("t")
        two = store.threads.claim("t")
        write(store, "1", "resume", claim=one, on_conflict="error", replace=True)
        with pytest.raises(errors.StaleWriterError):
            write(store, "1", "other", claim=two, on_conflict="error", replace=True)
        with pytest.raises(errors.StaleWriterError):
            put(store, "2", "1", claim=two, on_conflict="error")
        assert [each.task_id for each in store.threads.get_checkpoint("t").writes] == ["resume"]
        put(store, "3", "1", claim=one, on_conflict="error")

    def test_a_write_between_two_reads_is_counted_without_a_claim_too(self, store: sync.Holdproof) -> None:
        put(store, "1")
        before = store.threads.claim("t")
        write(store, "1")
        with pytest.raises(errors.StaleWriterError):
            put(store, "2", "1", claim=before, on_conflict="error")

    def test_the_run_that_began_a_thread_goes_on_until_it_is_overtaken(self, store: sync.Holdproof) -> None:
        write(store, "1", on_conflict="error")
        put(store, "1", on_conflict="error")
        write(store, "2", on_conflict="error")
        put(store, "2", "1", on_conflict="error")
        put(store, "3", "2", claim=store.threads.claim("t"), on_conflict="error")
        with pytest.raises(errors.StaleWriterError):
            write(store, "2", "late", on_conflict="error")

    def test_acknowledged_turns_of_racing_runs_are_all_in_the_newest_checkpoint(self, store: sync.Holdproof) -> None:
        """Each turn reads, and writes twice; whoever is overtaken begins again."""
        put(store, "000")

        def turn(number: int) -> str:
            claim = store.threads.claim("t")
            newest = store.threads.get_checkpoint("t")
            done = str(newest.channels["c"])
            first = f"{int(newest.checkpoint_id) + 1:03}"
            second = f"{int(newest.checkpoint_id) + 2:03}"
            fenced: dict[str, Any] = {"claim": claim, "on_conflict": "error"}
            before = newest.checkpoint_id
            store.threads.put_checkpoint("t", {"c": done}, checkpoint_id=first, parent_id=before, **fenced)
            more = {"c": f"{done} <{number}>"}
            store.threads.put_checkpoint("t", more, checkpoint_id=second, parent_id=first, **fenced)
            return "acknowledged"

        def insist(number: int) -> str:
            for _ in range(200):
                try:
                    return turn(number)
                except errors.StaleWriterError:
                    continue
            return "starved"

        assert together(6, insist) == {"acknowledged": 6}
        said = str(store.threads.get_checkpoint("t").channels["c"])
        assert sorted(word for word in said.split() if word.startswith("<")) == [f"<{number}>" for number in range(6)]

    @pytest.mark.parametrize("claim", ["", "1.abc.", "1.2.xyz.", "1.2.", "-1.0.ab."])
    def test_a_claim_is_what_claim_gave(self, store: sync.Holdproof, claim: str) -> None:
        put(store, "1")
        with pytest.raises(errors.InvalidInputError, match="claim"):
            write(store, "1", claim=claim)

    # --- ahead of its checkpoint ---

    def test_after_a_deletion_a_new_run_may_write_ahead_of_its_first_checkpoint(self, store: sync.Holdproof) -> None:
        put(store, "1")
        store.threads.delete("t")
        write(store, "2")
        assert store.threads.list().items == []
        put(store, "2")
        assert [each.task_id for each in store.threads.get_checkpoint("t").writes] == ["task"]

    def test_what_a_dead_run_wrote_ahead_goes_when_the_thread_begins_anew(self, store: sync.Holdproof) -> None:
        put(store, "1")
        store.threads.delete("t")
        write(store, "2", "dead")
        with pytest.raises(errors.ThreadDeletedError):
            put(store, "2", "1")
        put(store, "3")
        put(store, "2x")  # a checkpoint beside, of no dead run
        assert store.threads.get_checkpoint("t", checkpoint_id="2x").writes == ()
        with pytest.raises(errors.ThreadDeletedError):
            write(store, "1", "dead")

    def test_deleting_a_thread_again_takes_what_came_late(self, store: sync.Holdproof) -> None:
        put(store, "1")
        store.threads.delete("t")
        write(store, "2", "dead")
        assert store.threads.delete("t").threads == 0
        with pytest.raises(errors.ThreadDeletedError):
            write(store, "2", "dead")

    # --- circles, and what is left ---

    def test_a_circle_of_parents_ends(self, store: sync.Holdproof) -> None:
        put(store, "1", "2", needs=["x"])
        put(store, "2", "1", needs=["x"])
        write(store, "1")
        histories = store.read(lambda tx: deltas.since(tx, "t", ["c", "x"], checkpoint_id="2"))
        assert not histories["x"].seeded
        assert store.threads.prune(keep=1).checkpoints == 0, "all of a circle may be needed"
        put(store, "3", "3", needs=["x"])
        assert store.threads.prune(keep=1).checkpoints == 2, "its own parent needs nobody else"

    def test_of_calls_that_are_over_nothing_is_kept(self, store: sync.Holdproof) -> None:
        parent: str | None = None
        for number in range(10, 30, 4):
            parent = put(store, str(number), parent)
            put(store, str(number + 1), checkpoint_ns=f"node:{number}")
            put(store, str(number + 2), str(number + 1), checkpoint_ns=f"node:{number}")
            put(store, str(number + 2), checkpoint_ns=f"node:{number}|inner:{number}")
            put(store, str(number + 3), checkpoint_ns="keeps-its-state")
        store.threads.prune(keep=1)
        left = [(each.checkpoint_ns, each.checkpoint_id) for each in store.threads.list_checkpoints("t").items]
        assert sorted(left) == [
            ("", "26"),
            ("keeps-its-state", "29"),
            ("node:26", "28"),
            ("node:26|inner:26", "28"),
        ], "the last call is not over: its caller has no later checkpoint"

    def test_calls_of_the_checkpoints_that_are_kept_stay(self, store: sync.Holdproof) -> None:
        for number in (10, 20, 30):
            put(store, str(number), str(number - 10) if number > 10 else None)
            put(store, str(number + 1), checkpoint_ns=f"node:{number}")
        store.threads.prune(keep=2)
        left = {each.checkpoint_id for each in store.threads.list_checkpoints("t").items}
        assert left == {"20", "21", "30", "31"}

    def test_a_parent_that_was_pruned_is_not_named(self, store: sync.Holdproof) -> None:
        put(store, "1")
        put(store, "2", "1")
        put(store, "3", "2")
        assert store.threads.get_checkpoint("t").parent_id == "2"
        store.threads.prune(keep=2)
        assert [each.parent_id for each in store.threads.list_checkpoints("t").items] == ["2", None]


class TestSqlite(OnSqlite, Lines):
    pass


class TestMemory(InMemory, Lines):
    pass


class TestPostgres(OnPostgres, Lines):
    pass
