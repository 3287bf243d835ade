"""Threads: checkpoints that cost what is new in them, fenced, found by their facts, gone when deleted; everywhere."""

from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.db import Tx, sql
from holdproof.memory.threads import deltas, thread_checks, thread_writes, threads
from holdproof.model.threads import EncodedList, EncodedValue
from holdproof.model.verdicts import Verdict
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory, pages
from tests.conformance.racing import together

_COUNT = sql("SELECT count(*), coalesce(sum(length(data)), 0) FROM thread_blocks")
_EDIT = sql("UPDATE thread_checkpoints SET metadata = :metadata")
_DAMAGE = sql("UPDATE thread_blocks SET data = :data")
_LOSE = sql("DELETE FROM thread_blocks")


def held(store: sync.Holdproof) -> tuple[int, int]:
    [(count, size)] = store.read(lambda tx: tx.all(_COUNT))
    return int(count), int(size)


def flaws(store: sync.Holdproof) -> list[Any]:
    checks = (thread_checks.blocks, thread_checks.checkpoints, thread_checks.writes)
    return [flaw for check in checks for flaw in pages(store, check)]


def message(number: int) -> bytes:
    return f"message {number} ".encode() + b"x" * 500


def chat(store: sync.Holdproof, turns: int, thread: str = "t") -> list[str]:
    """A conversation: each checkpoint has one message more, and gives the bytes of that one only."""
    ids: list[str] = []
    digests: tuple[bytes, ...] = ()
    for turn in range(turns):
        digest = sha256(message(turn)).digest()
        digests += (digest,)
        run = EncodedList("m", digests, {digest: message(turn)})
        kept = store.threads.put_checkpoint(
            thread, {"messages": run}, parent_id=ids[-1] if ids else None, metadata={"step": turn}
        )
        ids.append(kept.checkpoint_id)
    return ids


class Threads(OnMemory):
    @pytest.fixture
    def sound(self, store: sync.Holdproof) -> Iterator[sync.Holdproof]:
        yield store
        assert flaws(store) == []

    @pytest.mark.parametrize(
        "value",
        [None, True, -1, 1.5, "text", b"bytes" * 100, {"a": [1, {"b": None}]}, [], [1, "two", [3.0]], ["x"] * 50],
    )
    def test_channels_come_back_as_they_were(self, sound: sync.Holdproof, value: Any) -> None:
        kept = sound.threads.put_checkpoint("t", {"c": value, "other": 1}, metadata={"step": 1}, state=b"own")
        found = sound.threads.get_checkpoint("t")
        assert found is not None
        assert found.channels == {"c": value, "other": 1}
        assert (found.metadata, found.state, found.checkpoint_id) == ({"step": 1}, b"own", kept.checkpoint_id)
        assert (found.parent_id, found.writes, found.h) == (None, (), kept.h)

    def test_what_others_encoded_comes_back_with_its_tag(self, sound: sync.Holdproof) -> None:
        elements = [b"one", b"two", b"one", b"x" * 1000]
        sound.threads.put_checkpoint(
            "t", {"list": EncodedList.of("msgpack", elements), "part": EncodedValue("json", b"{}" * 200)}
        )
        found = sound.threads.get_checkpoint("t")
        assert found is not None
        run = found.channels["list"]
        assert (run.tag, run.elements) == ("msgpack", elements)
        assert found.channels["part"] == EncodedValue("json", b"{}" * 200)
        assert found.to_dict()["channels"]["list"]["tag"] == "msgpack"

    def test_elements_that_the_caller_has_are_not_read(self, sound: sync.Holdproof) -> None:
        texts = [b"known" * 30, b"unknown" * 30]
        known, unknown = (sha256(text).digest() for text in texts)
        written = EncodedList.of("m", [b"written" * 30])
        channels = {"c": EncodedList.of("m", texts), "plain": [*texts]}
        first = sound.threads.put_checkpoint("t", channels).checkpoint_id
        sound.write(lambda tx: thread_writes.put_writes(tx, "t", first, "task", [(0, "c", written)]))
        sound.threads.put_checkpoint("t", {}, parent_id=first)

        def read(tx: Tx) -> tuple[Any, Any]:
            cached = [known, *written.digests]
            checkpoint = threads.find_checkpoint(tx, "t", checkpoint_id=first, cached=lambda _: cached)
            return checkpoint, deltas.since(tx, "t", ["c"], cached=lambda _: cached)

        checkpoint, histories = sound.read(read)
        assert checkpoint.channels["c"] == EncodedList("m", (known, unknown), {unknown: texts[1]})
        assert checkpoint.channels["plain"] == texts
        assert checkpoint.writes[0].value == written, "what tasks wrote is read whole"
        assert histories["c"].seed == checkpoint.channels["c"]
        assert histories["c"].writes == (("task", "c", EncodedList("m", written.digests, {})),)

    def test_a_conversation_costs_what_is_new_in_it(self, sound: sync.Holdproof) -> None:
        ids = chat(sound, 200)
        count, size = held(sound)
        assert count <= 200 + 25 * 3
        assert size <= 200 * 520 + 40_000
        for turn in (0, 7, 8, 100, 199):
            found = sound.threads.get_checkpoint("t", checkpoint_id=ids[turn])
            assert found is not None
            assert found.channels["messages"].elements == [message(number) for number in range(turn + 1)]

    def test_a_list_may_be_edited_cut_and_turned(self, sound: sync.Holdproof) -> None:
        parent, base = None, [bytes([number]) * 100 for number in range(40)]
        for edited in (base, base[:20], [*base[:3], b"new", *base[4:]], base[::-1], base[5:], [], base):
            kept = sound.threads.put_checkpoint("t", {"c": EncodedList.of("m", edited)}, parent_id=parent)
            parent = kept.checkpoint_id
            found = sound.threads.get_checkpoint("t")
            assert found is not None
            assert found.channels["c"].elements == edited

    def test_an_element_that_is_not_known_must_be_given(self, sound: sync.Holdproof) -> None:
        digest = sha256(b"never seen").digest()
        with pytest.raises(errors.NotFoundError):
            sound.threads.put_checkpoint("t", {"c": EncodedList("m", (digest,))})
        with pytest.raises(errors.InvalidInputError):
            sound.threads.put_checkpoint("t", {"c": EncodedList("m", (digest,), {digest: b"another"})})
        with pytest.raises(errors.NotFoundError):
            sound.threads.get_checkpoint("t")

    def test_a_channel_can_be_kept_from_the_parent(self, sound: sync.Holdproof) -> None:
        first = sound.threads.put_checkpoint("t", {"a": ["x"] * 20, "b": 1})
        sound.threads.put_checkpoint("t", {"b": 2}, keep=["a"], parent_id=first.checkpoint_id)
        found = sound.threads.get_checkpoint("t")
        assert found is not None
        assert found.channels == {"a": ["x"] * 20, "b": 2}
        with pytest.raises(errors.NotFoundError):
            sound.threads.put_checkpoint("t", {}, keep=["c"], parent_id=first.checkpoint_id)

    def test_the_newest_has_the_largest_id_and_lines_are_apart(self, sound: sync.Holdproof) -> None:
        for line, id in (("", "b"), ("", "a"), ("child", "c")):
            sound.threads.put_checkpoint("t", {"id": id}, checkpoint_id=id, checkpoint_ns=line)
        for line, id in (("", "b"), ("child", "c")):
            found = sound.threads.get_checkpoint("t", checkpoint_ns=line)
            assert found is not None
            assert found.channels == {"id": id}

    def test_putting_a_checkpoint_again_replaces_it(self, sound: sync.Holdproof) -> None:
        sound.threads.put_checkpoint("t", {"c": 1}, checkpoint_id="a")
        sound.threads.put_checkpoint("t", {"c": 2}, checkpoint_id="a", metadata={"again": True})
        found = sound.threads.get_checkpoint("t")
        assert found is not None
        assert (found.channels, found.metadata) == ({"c": 2}, {"again": True})
        assert sound.threads.get("t").checkpoints == 1

    def test_writes_come_back_in_the_order_of_their_tasks(self, sound: sync.Holdproof) -> None:
        sound.threads.put_writes("t", "a", "task2", [(0, "x", 1), (1, "y", ["z"])], task_path="~b")
        sound.threads.put_writes("t", "a", "task9", [(0, "x", b"v" * 500)], task_path="~a")
        sound.threads.put_checkpoint("t", {}, checkpoint_id="a")
        found = sound.threads.get_checkpoint("t")
        assert found is not None
        assert [(one.task_id, one.idx, one.channel, one.value) for one in found.writes] == [
            ("task9", 0, "x", b"v" * 500),
            ("task2", 0, "x", 1),
            ("task2", 1, "y", ["z"]),
        ]

    def test_a_task_writes_once_unless_it_replaces(self, sound: sync.Holdproof) -> None:
        sound.threads.put_checkpoint("t", {}, checkpoint_id="a")
        sound.threads.put_writes("t", "a", "task", [(0, "x", 1), (-1, "error", "first")])
        sound.threads.put_writes("t", "a", "task", [(0, "x", 2)])
        sound.threads.put_writes("t", "a", "task", [(-1, "error", "second")], replace=True, status="error")
        found = sound.threads.get_checkpoint("t")
        assert found is not None
        assert {one.idx: one.value for one in found.writes} == {0: 1, -1: "second"}
        assert sound.threads.get("t").status == "error"

    def test_history_is_paged_newest_first(self, sound: sync.Holdproof) -> None:
        ids = chat(sound, 7)
        first = sound.threads.list_checkpoints("t", limit=3)
        second = sound.threads.list_checkpoints("t", cursor=first.next_cursor, limit=3)
        third = sound.threads.list_checkpoints("t", cursor=second.next_cursor, limit=3)
        listed = [each.checkpoint_id for page in (first, second, third) for each in page.items]
        assert (listed, third.next_cursor) == (ids[::-1], None)
        before = sound.threads.list_checkpoints("t", before=ids[3], limit=2)
        assert [each.checkpoint_id for each in before.items] == [ids[2], ids[1]]
        sound.threads.put_checkpoint("u", {}, checkpoint_id="other")
        everywhere = sound.threads.list_checkpoints(limit=3)
        assert everywhere.items[0].thread_id == "u"
        assert everywhere.next_cursor is not None
        assert len(sound.threads.list_checkpoints(cursor=everywhere.next_cursor).items) == 5

    @pytest.mark.parametrize("after", ["x", ".x", "9" * 30 + ".x", "9" * 5_000 + ".x", "7.never", "7.\0"])
    def test_a_page_begins_only_where_another_ended(self, sound: sync.Holdproof, after: str) -> None:
        sound.threads.put_checkpoint("t", {})
        for ask in (sound.threads.list, sound.threads.list_checkpoints):
            with suppress(errors.InvalidInputError):
                ask(cursor=after)

    @pytest.mark.parametrize("limit", [0, 1_001, 2**70, True, 1.5, "3"])
    def test_a_page_has_a_size(self, sound: sync.Holdproof, limit: Any) -> None:
        for ask in (sound.threads.list, sound.threads.list_checkpoints, sound.transcripts.list):
            with pytest.raises(errors.InvalidInputError, match="a page has 1 to 1000 rows"):
                ask(limit=limit)

    @pytest.mark.parametrize("seen", ["", "1", "1.", "x.abc.", "1..", "9" * 5_000 + ".abc."])
    def test_only_what_claim_gave_was_seen(self, sound: sync.Holdproof, seen: str) -> None:
        with pytest.raises(errors.InvalidInputError, match="claim"):
            sound.threads.put_checkpoint("t", {}, claim=seen)

    @pytest.mark.parametrize("before", ["yesterday", "2026-01-31T12:00:00", "0001-01-01T00:00:00+01:00", ""])
    def test_a_time_is_checked_before_it_is_compared(self, sound: sync.Holdproof, before: str) -> None:
        sound.threads.put_checkpoint("t", {})
        with pytest.raises(errors.InvalidInputError, match="before"):
            sound.threads.list(updated_before=before)

    # --- the index ---

    def test_a_status_that_no_thread_can_have_is_told(self, sound: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError, match="active, error, idle, interrupted"):
            sound.threads.list(status="waiting")

    def test_threads_are_found_by_facts_status_and_age(self, sound: sync.Holdproof, clock: FrozenClock) -> None:
        for number in range(5):
            sound.threads.put_checkpoint(f"t{number}", {}, facts={"user": "ada" if number % 2 else "bob", "n": number})
            clock.advance(60)
        assert [each.thread_id for each in sound.threads.list().items] == ["t4", "t3", "t2", "t1", "t0"]
        assert [each.thread_id for each in sound.threads.list(facts={"user": "ada"}).items] == ["t3", "t1"]
        assert [each.thread_id for each in sound.threads.list(facts={"user": "ada", "n": 1}).items] == ["t1"]
        assert sound.threads.list(facts={"n": "1"}).items == []
        first = sound.threads.list(limit=2)
        assert first.next_cursor is not None
        assert [each.thread_id for each in sound.threads.list(cursor=first.next_cursor).items] == ["t2", "t1", "t0"]
        sound.threads.put_checkpoint("t1", {}, facts={"user": "eve"}, status="interrupted")
        assert sound.threads.list(facts={"user": "ada", "n": 1}).items == []
        assert [each.facts for each in sound.threads.list(status="interrupted").items] == [{"user": "eve"}]
        assert sound.threads.list(facts={"user": "eve"}, status="active").items == []

    def test_what_tasks_wrote_first_says_what_the_status_is(self, sound: sync.Holdproof) -> None:
        sound.threads.put_writes("t", "a", "task", [(-3, "interrupt", 1)], status="interrupted")
        sound.threads.put_checkpoint("t", {}, checkpoint_id="a")
        assert sound.threads.get("t").status == "interrupted"
        sound.threads.put_checkpoint("t", {}, checkpoint_id="b", parent_id="a")
        assert sound.threads.get("t").status == "active"

    def test_namespaces_do_not_see_each_other(self, sound: sync.Holdproof) -> None:
        sound.threads.put_checkpoint("t", {"c": 1}, ns="one")
        sound.threads.put_checkpoint("t", {"c": 2}, ns="two")
        sound.threads.delete("t", ns="one")
        with pytest.raises(errors.NotFoundError):
            sound.threads.get_checkpoint("t", ns="one")
        found = sound.threads.get_checkpoint("t", ns="two")
        assert found is not None
        assert found.channels == {"c": 2}

    # --- fencing ---

    def test_of_two_runs_that_read_the_same_the_first_to_write_has_the_thread(self, sound: sync.Holdproof) -> None:
        root = sound.threads.put_checkpoint("t", {"c": 0}).checkpoint_id
        one, two = sound.threads.claim("t"), sound.threads.claim("t")
        first = sound.threads.put_checkpoint("t", {"c": 1}, parent_id=root, claim=one, on_conflict="error")
        with pytest.raises(errors.StaleWriterError):
            sound.threads.put_checkpoint("t", {"c": 2}, parent_id=root, claim=two, on_conflict="error")
        sound.threads.put_checkpoint("t", {"c": 3}, parent_id=first.checkpoint_id, claim=one, on_conflict="error")
        third = sound.threads.claim("t")
        fork = sound.threads.put_checkpoint("t", {"c": 4}, parent_id=root, claim=third, on_conflict="error")
        assert fork.forked, "time travel is legal for whoever read last, and is said to be a fork"
        with pytest.raises(errors.StaleWriterError):
            sound.threads.put_checkpoint("t", {"c": 5}, parent_id=first.checkpoint_id, claim=one, on_conflict="error")

    def test_by_default_both_are_kept_and_it_is_said(self, sound: sync.Holdproof) -> None:
        root = sound.threads.put_checkpoint("t", {"c": 0}).checkpoint_id
        one, two = sound.threads.claim("t"), sound.threads.claim("t")
        assert not sound.threads.put_checkpoint("t", {"c": 1}, parent_id=root, claim=one).forked
        assert sound.threads.put_checkpoint("t", {"c": 2}, parent_id=root, claim=two).forked
        assert [each.channels["c"] for each in sound.threads.list_checkpoints("t").items] == [2, 1, 0]

    def test_subgraphs_do_not_fence_their_parents(self, sound: sync.Holdproof) -> None:
        root = sound.threads.put_checkpoint("t", {}).checkpoint_id
        mine = sound.threads.claim("t")
        sound.threads.put_checkpoint(
            "t", {}, checkpoint_ns="child", claim=sound.threads.claim("t", checkpoint_ns="child")
        )
        sound.threads.put_checkpoint("t", {}, checkpoint_ns="grandchild", claim=mine)
        sound.threads.put_checkpoint("t", {}, parent_id=root, claim=mine, on_conflict="error")

    def test_of_many_racing_runs_exactly_one_goes_on(self, sound: sync.Holdproof) -> None:
        root = sound.threads.put_checkpoint("t", {}).checkpoint_id
        claims = [sound.threads.claim("t") for _ in range(8)]

        def run(number: int) -> str:
            try:
                sound.threads.put_checkpoint(
                    "t", {"who": number}, parent_id=root, claim=claims[number], on_conflict="error"
                )
            except errors.StaleWriterError:
                return "refused"
            return "kept"

        assert together(8, run) == {"kept": 1, "refused": 7}

    def test_of_many_that_begin_a_thread_exactly_one_does(self, sound: sync.Holdproof) -> None:
        def run(number: int) -> str:
            try:
                sound.threads.put_checkpoint("new", {"who": number}, on_conflict="error")
            except errors.StaleWriterError:
                return "refused"
            return "kept"

        assert together(8, run) == {"kept": 1, "refused": 7}

    def test_racing_writers_of_one_list_lose_nothing(self, sound: sync.Holdproof) -> None:
        ids = chat(sound, 20)
        base = [message(number) for number in range(20)]

        def run(number: int) -> bool:
            extra = [*base, *(bytes([number]) * 200 for _ in range(8))]
            kept = sound.threads.put_checkpoint("t", {"messages": EncodedList.of("m", extra)}, parent_id=ids[-1])
            found = sound.threads.get_checkpoint("t", checkpoint_id=kept.checkpoint_id)
            return bool(found.channels["messages"].elements == extra)

        assert together(8, run) == {True: 8}

    # --- going away ---

    def test_what_comes_late_for_a_deleted_thread_stays_out(self, sound: sync.Holdproof) -> None:
        ids = chat(sound, 3)
        assert sound.threads.delete("t").checkpoints == 3
        assert held(sound) == (0, 0)
        with pytest.raises(errors.ThreadDeletedError):
            sound.threads.put_checkpoint("t", {}, parent_id=ids[-1])
        with pytest.raises(errors.ThreadDeletedError):
            sound.threads.put_writes("t", ids[-1], "task", [(0, "x", 1)])
        with pytest.raises(errors.NotFoundError):
            sound.threads.get_checkpoint("t")
        assert sound.threads.list().items == []
        assert sound.threads.delete("t").threads == 0
        begun = sound.threads.put_checkpoint("t", {"c": "anew"})
        with pytest.raises(errors.ThreadDeletedError):
            sound.threads.put_checkpoint("t", {}, parent_id=ids[-1])
        with pytest.raises(errors.ThreadDeletedError):
            sound.threads.put_writes("t", ids[0], "task", [(0, "x", 1)])
        sound.threads.put_checkpoint("t", {"c": "on"}, parent_id=begun.checkpoint_id)
        assert sound.threads.get("t").checkpoints == 2

    def test_deleting_is_in_the_log(self, sound: sync.Holdproof) -> None:
        chat(sound, 2)
        sound.threads.delete("t", who="ada")
        chat(sound, 9)
        assert sound.verify.run(lock=False).verdict in (Verdict.VALID, Verdict.PENDING)
        [pruning] = sound.retention.list().items
        assert (pruning.what, pruning.who, pruning.count, pruning.rule) == ("threads", "ada", 2, '{"delete":"t"}')

    def test_pruning_keeps_the_newest_whole_and_drops_what_only_others_had(self, sound: sync.Holdproof) -> None:
        chat(sound, 30)
        sound.threads.put_writes("t", chat(sound, 1, "u")[0], "task", [(0, "x", b"w" * 500)])
        before = held(sound)
        told = sound.threads.prune(keep=1, thread_ids=["t"], dry_run=True)
        assert held(sound) == before
        done = sound.threads.prune(keep=1, thread_ids=["t"])
        assert (done.checkpoints, done.blocks, done.bytes) == (told.checkpoints, told.blocks, told.bytes)
        assert (done.checkpoints, done.blocks) == (29, 1), "all but one node of the list is shared"
        assert held(sound) == (before[0] - done.blocks, before[1] - done.bytes)
        found = sound.threads.get_checkpoint("t")
        assert found is not None
        assert found.channels["messages"].elements == [message(number) for number in range(30)]

    def test_pruning_by_age_and_of_idle_threads(self, sound: sync.Holdproof, clock: FrozenClock) -> None:
        chat(sound, 3, "old")
        clock.advance(3 * 86_400)
        ids = chat(sound, 1, "young")
        sound.threads.put_checkpoint("old", {}, parent_id=sound.threads.list_checkpoints("old").items[0].checkpoint_id)
        assert sound.threads.prune(older_than_days=2).checkpoints == 3
        clock.advance(86_400)
        sound.threads.put_checkpoint("young", {}, parent_id=ids[0])
        assert sound.threads.prune(idle_days=0.5).threads == 1
        assert [each.thread_id for each in sound.threads.list().items] == ["young"]
        with pytest.raises(errors.InvalidInputError):
            sound.threads.prune()

    def test_pruning_spares_what_a_channel_must_be_looked_for_in(self, sound: sync.Holdproof) -> None:
        parent = None
        for number in range(6):
            given = {"delta": "snapshot"} if number == 2 else {}
            needs = [] if number == 2 else ["delta"]
            kept = sound.threads.put_checkpoint("t", given, needs=needs, parent_id=parent, checkpoint_id=f"c{number}")
            parent = kept.checkpoint_id
        assert sound.threads.prune(keep=1).checkpoints == 2
        assert [each.checkpoint_id for each in sound.threads.list_checkpoints("t").items] == ["c5", "c4", "c3", "c2"]

    def test_what_some_runs_wrote_goes_with_its_writes(self, sound: sync.Holdproof) -> None:
        for number in range(4):
            run = f"r{number % 2}"
            id = sound.threads.put_checkpoint("t", {"c": b"x" * (100 + number)}, run_id=run).checkpoint_id
            sound.threads.put_writes("t", id, "task", [(0, "x", b"y" * (200 + number))])
        assert held(sound)[0] == 8
        assert sound.threads.delete_runs(["r0", "none"]).checkpoints == 2
        assert held(sound)[0] == 4
        assert {len(each.channels["c"]) for each in sound.threads.list_checkpoints("t").items} == {101, 103}

    def test_a_copy_stands_by_itself(self, sound: sync.Holdproof) -> None:
        ids = chat(sound, 20)
        sound.threads.put_writes("t", ids[-1], "task", [(0, "x", ["y"])])
        assert sound.threads.copy("t", "u") == 20
        sound.threads.delete("t")
        found = sound.threads.get_checkpoint("u")
        assert found is not None
        assert found.channels["messages"].elements == [message(number) for number in range(20)]
        assert [one.value for one in found.writes] == [["y"]]
        sound.threads.put_checkpoint("u", {}, parent_id=ids[-1], on_conflict="error")
        with pytest.raises(errors.NotFoundError):
            sound.threads.copy("t", "v")

    def test_a_backup_brings_threads_along(self, tmp_path: Path) -> None:
        if not self.shared:
            pytest.skip("a store in memory has no backup")
        with self.open() as store:
            ids = chat(store, 12)
            made = store.backup.create(tmp_path / "backups")
            store.threads.delete("t")
        sync.restore(made.path, **self.target())
        with self.open() as store:
            found = store.threads.get_checkpoint("t")
            assert found is not None
            assert len(found.channels["messages"].elements) == 12
            store.threads.put_checkpoint("t", {}, parent_id=ids[-1])
            store.threads.put_checkpoint("another", {})
            assert flaws(store) == []

    # --- what is refused ---

    @pytest.mark.parametrize(
        "call",
        [
            {"thread_id": ""},
            {"thread_id": "a\0b"},
            {"metadata": {"x": float("nan")}},
            {"metadata": {"x": object()}},
            {"channels": {"": 1}},
            {"channels": {"c": object()}},
            {"channels": {"c": EncodedValue("", b"")}},
            {"channels": {"c": EncodedList("m", (b"short",))}},
            {"on_conflict": "ignore"},
            {"status": "odd"},
            {"claim": "odd"},
        ],
        ids=lambda call: next(iter(call)),
    )
    def test_bad_input_is_refused_and_nothing_is_written(self, sound: sync.Holdproof, call: dict[str, Any]) -> None:
        given = {"thread_id": "t", "channels": {}, **call}
        with pytest.raises(errors.InvalidInputError):
            sound.threads.put_checkpoint(given.pop("thread_id"), given.pop("channels"), **given)
        assert sound.threads.list().items == []

    @pytest.mark.parametrize(
        ("query", "given", "what"),
        [
            (_EDIT, {"metadata": '{"step":99}'}, "edited"),
            (_DAMAGE, {"data": b"another"}, "exchanged"),
            (_LOSE, {}, "missing"),
        ],
        ids=["edited", "exchanged", "lost"],
    )
    def test_damage_is_found(self, store: sync.Holdproof, query: Any, given: dict[str, Any], what: str) -> None:
        chat(store, 20)
        store.write(lambda tx: tx.execute(query, **given))
        assert any(what in flaw.what for flaw in flaws(store))
        assert store.verify.run(lock=False).verdict is Verdict.TAMPERED
        if what != "edited":
            with pytest.raises(errors.ProofError):
                store.threads.get_checkpoint("t")


class TestSqlite(OnSqlite, Threads):
    def test_pruning_gives_disk_back(self, store: sync.Holdproof) -> None:
        for number in range(40):
            store.threads.put_checkpoint("t", {"c": bytes([number]) * 100_000})
        done = store.threads.prune(keep=1)
        assert done.bytes_before is not None
        assert done.bytes_after is not None
        assert done.bytes_before - done.bytes_after > 3_000_000


class TestMemory(InMemory, Threads):
    pass


class TestPostgres(OnPostgres, Threads):
    pass
