"""Limits of tenants: root sets them, no race passes them, and what was admitted can always be brought to its end."""

import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.filling import settled
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import keys
from holdproof.db import sql
from holdproof.evidence import lockdown, statements, tenant_limits
from holdproof.model.verdicts import Verdict
from holdproof.runtime import audit
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

CALLERS = 24
ALLOWED = 7


def tenant(store: sync.Holdproof, ns: str = "acme") -> sync.Holdproof:
    """The store as a tenant has it, with an agent."""
    bound = sync.Holdproof(store.core, ns)
    bound.agents.register("buyer", version="1.0.0")
    return bound


def refused(call: Any, *, limit: str) -> errors.TenantLimitError:
    """The call is refused by that limit."""
    with pytest.raises(errors.TenantLimitError) as caught:
        call()
    assert limit in caught.value.fields["limit"]
    assert "limits set acme" in caught.value.message
    return caught.value


def look_again(store: sync.Holdproof) -> None:
    """The store looks up its limits as one that was just opened."""
    gate = lockdown.gate_of(store.core.database)
    gate.limits = tenant_limits.TenantLimiter().look
    gate.hurry()


def raced(stores: list[sync.Holdproof], act: Any) -> tuple[int, list[BaseException]]:
    """How many of many callers at once succeeded, and what the others got."""
    errors_of: list[BaseException] = []
    successes: list[int] = []
    barrier = threading.Barrier(CALLERS)

    def call(n: int) -> None:
        barrier.wait()
        try:
            act(stores[n % len(stores)], n)
        except BaseException as error:  # counted by the caller
            errors_of.append(error)
        else:
            successes.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(successes), errors_of


class TenantLimits(OnStore):
    def test_a_limit_holds_its_namespace_and_nobody_else(self, store: sync.Holdproof) -> None:
        acme, globex = tenant(store), tenant(store, "globex")
        store.limits.set("acme", open_flows=2, open_escalations=1, reason="a small plan")
        flows = [acme.flows.start("buyer").flow_id for _ in range(2)]
        refused(lambda: acme.flows.start("buyer"), limit="open_flows")
        refused(lambda: store.flows.start("buyer", ns="acme"), limit="open_flows")
        for _ in range(4):
            globex.flows.start("buyer")
        for flow_id in flows:
            acme.flows.transition(flow_id, "RUNNING")
        asked = acme.escalations.request(flows[0], reason="may I")
        refused(lambda: acme.escalations.request(flows[1], reason="may I"), limit="open_escalations")
        acme.escalations.resolve(asked.id, "approve", by="ann")
        acme.escalations.request(flows[1], reason="may I")
        acme.flows.transition(flows[0], "COMPLETED")
        acme.flows.start("buyer")
        mine = acme.limits.get()
        assert mine.usage == {"open_escalations": 1, "open_flows": 2}
        assert mine.reached == ["open_escalations", "open_flows"]
        assert store.status().limits == {"acme": mine.reached}
        assert [each.ns for each in store.limits.list()] == ["acme"]

    @pytest.mark.parametrize("limit", ["open_flows", "entries_per_minute"])
    def test_no_race_passes_a_limit(self, store: sync.Holdproof, clock: FrozenClock, limit: str) -> None:
        tenant(store)
        stores = [store]
        other = self.open(clock=clock) if self.shared else None
        stores += [other] if other else []
        try:
            store.limits.set("acme", reason="a race", **{limit: ALLOWED})
            if other is not None:
                look_again(other)  # as it does within a second
            count, refusals = raced(stores, lambda each, _: each.flows.start("buyer", ns="acme"))
        finally:
            if other is not None:
                other.close()
        assert count == ALLOWED
        assert {type(each) for each in refusals} == {errors.TenantLimitError}
        assert len(store.flows.list(ns="acme").items) == ALLOWED
        assert store.limits.get(ns="acme").usage == {limit: ALLOWED}

    def test_neighbours_in_the_same_commits_are_not_harmed(self, store: sync.Holdproof) -> None:
        tenant(store), tenant(store, "globex")
        store.limits.set("acme", entries_per_minute=3, bytes=100_000, reason="a race")
        count, refusals = raced([store], lambda each, n: each.flows.start("buyer", ns="globex" if n % 2 else "acme"))
        assert count == CALLERS // 2 + 3
        assert {type(each) for each in refusals} == {errors.TenantLimitError}

    def test_entries_of_a_minute_renew_and_what_was_admitted_comes_to_its_end(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        acme = tenant(store)
        flow_id = acme.flows.start("buyer").flow_id
        acme.flows.transition(flow_id, "RUNNING")
        asked = acme.escalations.request(flow_id, reason="may I")
        store.limits.set("acme", entries_per_minute=2, reason="slow")
        acme.audit.record(flow_id, "LOOKED")
        acme.audit.record(flow_id, "LOOKED")
        error = refused(lambda: acme.audit.record(flow_id, "LOOKED"), limit="entries_per_minute")
        assert error.fields["possible_at"] > store.read(lambda tx: tx.now)
        acme.escalations.resolve(asked.id, "approve", by="ann")
        acme.flows.transition(flow_id, "COMPLETED")
        assert acme.limits.get().usage["entries_per_minute"] > 2, "consequences are counted"
        clock.advance(60)
        acme.feedback.record("buyer", flow_id, status="GOOD")
        assert acme.limits.get().usage == {"entries_per_minute": 1}

    def test_bytes_count_rows_with_their_content_and_memory(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        store.limits.set("acme", bytes=50_000, reason="a small disk")
        acme.objects.put("one", type="note", content="x" * 20_000)
        assert 20_000 < acme.limits.get().usage["bytes"] < 25_000
        acme.transcripts.append("chat", ["y" * 15_000])
        assert 35_000 < acme.limits.get().usage["bytes"] < 40_000
        calls: list[Any] = [
            lambda: acme.objects.put("two", type="note", content="x" * 20_000),
            lambda: acme.objects.put("one", type="note", content="z" * 20_000),
            lambda: acme.notes.put(["a"], "b", {"is": "x" * 20_000}),
            lambda: acme.transcripts.append("chat", ["y" * 20_000]),
            lambda: acme.transcripts.put_state("chat", {"is": "y" * 20_000}),
            lambda: acme.threads.put_checkpoint("t", {"is": "x" * 20_000}, provable=True),
        ]
        before = acme.limits.get().usage
        for call in calls:
            refused(call, limit="bytes")
        assert acme.limits.get().usage == before, "what was refused is not counted"
        acme.objects.delete("one")
        with pytest.raises(errors.NotFoundError):
            acme.objects.get("one")

    def test_bytes_count_threads_without_entries_and_characters_as_they_are_stored(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        store.limits.set("acme", bytes=50_000, reason="a small disk")
        saved = acme.threads.put_checkpoint("t", {"is": "x" * 15_000}).checkpoint_id
        assert 15_000 < acme.limits.get().usage["bytes"] < 16_000
        acme.threads.put_writes("t", saved, "task", [(0, "is", "y" * 10_000)])
        assert 25_000 < acme.limits.get().usage["bytes"] < 27_000
        calls: list[Any] = [
            lambda: acme.threads.put_checkpoint("t", {"is": "z" * 30_000}),
            lambda: acme.threads.put_writes("t", saved, "task", [(1, "is", "z" * 30_000)]),
            lambda: acme.transcripts.append("chat", ["€" * 9_000]),
            lambda: acme.notes.put(["a"], "b", {"is": "€" * 9_000}),
        ]
        for call in calls:
            refused(call, limit="bytes")

    def test_a_document_is_not_replaced_beyond_a_limit(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        acme.state.put("buyer", {"is": 1})
        store.limits.set("acme", bytes=20_000, reason="a small disk")
        acme.state.put("buyer", {"is": "x" * 15_000})
        refused(lambda: acme.state.put("buyer", {"is": "x" * 15_000}), limit="bytes")

    def test_at_a_limit_what_fails_is_undone_and_what_happened_is_recorded(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        undone: list[str] = []

        def run() -> None:
            with acme.flows.run("buyer") as flow:
                flow.step("pay", lambda: "paid", compensate=lambda _: undone.append("pay"))
                store.limits.set("acme", entries_per_minute=0, bytes=0, reason="not paid")
                flow.step("ship", lambda: "shipped")

        refused(run, limit="bytes")
        assert undone == ["pay"]
        assert [each.status for each in acme.flows.list().items] == ["COMPENSATED"]

    def test_at_a_limit_a_dirty_flow_is_handed_to_a_person_and_a_lost_one_taken_over(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        acme = tenant(store)
        dirty, lost = (acme.flows.start("buyer").flow_id for _ in range(2))
        for flow_id in (dirty, lost):
            acme.flows.transition(flow_id, "RUNNING")
        acme.flows.lease(lost, "first", lease_s=10)
        store.limits.set("acme", entries_per_minute=0, bytes=0, reason="not paid")
        acme.sagas.mark_dirty(dirty, "pay")
        acme.sagas.compensate(dirty, "ALERT_HUMAN")
        acme.sagas.clear(dirty, by="ann")
        clock.advance(20)
        acme.flows.lease(lost, "second")
        assert [each.lost_worker for each in acme.flows.execution(lost).takeovers] == ["first"]
        refused(lambda: acme.audit.record(lost, "LOOKED"), limit="bytes")

    def test_a_tenant_at_its_limit_keeps_no_other_from_being_reminded(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        asked = []
        for ns in ("acme", "globex"):
            each = tenant(store, ns)
            flow_id = each.flows.start("buyer").flow_id
            each.flows.transition(flow_id, "RUNNING")
            asked.append((each, each.escalations.request(flow_id, reason="may I", deadline_s=1000).id))
        store.limits.set("acme", entries_per_minute=0, bytes=0, reason="not paid")
        clock.advance(800)
        store.sweep.run()
        assert [len(each.escalations.approvals(number).messages) for each, number in asked] == [1, 1]

    def test_entries_of_the_store_count_for_no_tenant(self, store: sync.Holdproof) -> None:
        store.agents.register("buyer", version="1.0.0")
        store.limits.set("main", entries_per_minute=1, bytes=10_000, reason="x")
        store.verify.run(lock=False)
        store.objects.put("one", type="note", content="x", subject="ann")
        before = store.limits.get().usage
        store.erase.subject("ann")
        settled(store)
        store.verify.run(lock=False)
        after = store.limits.get().usage
        assert after["entries_per_minute"] - before["entries_per_minute"] < 4, "what was erased, and not the erasure"

    def test_a_count_that_somebody_deleted_begins_anew_and_blocks_nothing(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        flow_id = acme.flows.start("buyer").flow_id
        store.limits.set("acme", entries_per_minute=2, bytes=10_000, reason="x")
        store.write(lambda tx: tx.execute(sql("DELETE FROM tenant_usage")))
        acme.flows.transition(flow_id, "RUNNING")
        assert acme.limits.get().usage["entries_per_minute"] == 1
        for first in (
            lambda: acme.transcripts.append("chat", ["y"]),
            lambda: acme.state.put("buyer", {"is": 1}),
            lambda: acme.state.put("buyer", {"is": 2}),
        ):
            store.write(lambda tx: tx.execute(sql("DELETE FROM tenant_usage")))
            first()
        store.write(lambda tx: tx.execute(sql("DELETE FROM tenant_usage")))
        refused(lambda: acme.transcripts.append("chat", ["y" * 10_001]), limit="bytes")

    def test_what_shares_a_transaction_with_a_new_limit_is_counted(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        store.limits.set("acme", entries_per_minute=0, reason="x")
        root = statements.from_recovery(store.keys.export_root().recovery)
        other = statements.sign(store.limits.draft("globex", open_flows=1, reason="x").text.encode(), root)

        def both(tx: Any) -> None:
            """What a group commit does with two callers."""
            tenant_limits.apply(tx, other)
            audit.record(tx, flow_id, "LOOKED", ns="acme")

        store.limits.lift("acme", reason="x")
        flow_id = acme.flows.start("buyer").flow_id
        store.limits.set("acme", entries_per_minute=0, reason="x")
        refused(lambda: store.write(both), limit="entries_per_minute")

    def test_a_statement_of_root_for_another_store_is_found_though_the_log_has_it(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        root = statements.from_recovery(store.keys.export_root().recovery)

        def replay(tx: Any) -> None:
            """Write what root said to another store of this home, as somebody with the log key could."""
            stated = tenant_limits.LimitStatement(tx.new_id(), {"open_flows": 9}, "x", "acme", "elsewhere", tx.now)
            line = statements.sign(stated.encode(), root)
            row = {"id": stated.id, "limits": '{"open_flows":9}', "reason": "x", "set_at": tx.now}
            tenant_limits.RULES.add(tx, tenant_limits._ADD, {**row, "statement": line, "ns": "acme"})

        store.write(replay)
        settled(store)
        assert [each.table for each in store.verify.run(lock=False).findings] == ["tenant_limits"]
        look_again(store)
        with pytest.raises(errors.TamperedError, match="another log"):
            acme.flows.start("buyer")

    def test_only_the_limits_that_changed_are_verified_again(
        self, store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Every process does so after each change of any namespace, and the writer waits.
        verified: list[object] = []
        real = tenant_limits._outcome

        def counting(*arguments: Any) -> tenant_limits.Outcome:
            verified.append(arguments)
            return real(*arguments)

        monkeypatch.setattr(tenant_limits, "_outcome", counting)
        limits = tenant_limits.LimitsInForce()
        for ns in ("acme", "globex"):
            store.limits.set(ns, open_flows=1, reason="the plan they pay for")
        settled(store)  # a row is read beside its entry, which has its place by now
        assert store.read(limits.read) == {"acme": {"open_flows": 1}, "globex": {"open_flows": 1}}
        store.limits.set("acme", open_flows=2, reason="another plan")
        settled(store)
        verified.clear()
        assert store.read(limits.read) == {"acme": {"open_flows": 2}, "globex": {"open_flows": 1}}
        assert len(verified) == 1
        store.limits.lift("acme", reason="no plan")
        assert store.read(limits.read) == {"globex": {"open_flows": 1}}

    def test_a_schedule_at_a_limit_is_told_as_failed(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        acme = tenant(store)
        for name in ("first", "second"):
            acme.schedules.create(name, "buy", cron="* * * * *", agent_id="buyer")
        store.limits.set("acme", open_flows=1, reason="x")
        clock.advance(60)
        fired = acme.schedules.fire()
        assert (len(fired.flows), [each.code for each in fired.failures]) == (1, ["limits.reached"])
        assert fired.next_at is not None

    def test_objects_and_streams_are_counted_as_they_stand(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        store.limits.set("acme", objects=2, open_streams=1, reason="a small plan")
        for key in ("one", "two", "two"):
            acme.objects.put(key, type="note", content=key)
        refused(lambda: acme.objects.put("three", type="note", content="3"), limit="objects")
        acme.objects.delete("one")
        acme.objects.put("three", type="note", content="3")
        with acme.flows.run("buyer") as flow:
            words = flow.stream("words")
            words.write("a")
            refused(lambda: flow.stream("more").write("b"), limit="open_streams")
            words.write("b")
            words.close()
            flow.stream("more").write("b")
        assert acme.limits.get().usage == {"objects": 2, "open_streams": 0}, "the flow has ended"

    def test_root_sets_and_lifts_and_a_tenant_does_neither(self, store: sync.Holdproof) -> None:
        acme = tenant(store)
        store.limits.set("acme", open_flows=0, reason="unpaid")
        refused(lambda: acme.flows.start("buyer"), limit="open_flows")
        for call in (
            lambda: acme.limits.set("acme", open_flows=9, reason="mine"),
            lambda: acme.limits.lift("acme", reason="mine"),
            lambda: acme.limits.list(),
            lambda: acme.limits.get(ns="globex"),
        ):
            with pytest.raises(errors.NamespaceError):
                call()
        store.limits.set("acme", open_flows=1, reason="paid")
        acme.flows.start("buyer")
        store.limits.lift("acme", reason="a friend")
        acme.flows.start("buyer")
        assert (acme.limits.get().limits, acme.limits.get().reason) == ({}, "a friend")
        assert store.status().limits == {}

    def test_a_limit_counts_when_root_signs_elsewhere_and_an_older_one_does_not_come_back(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        recovery = store.keys.export_root(offline=True).recovery
        with pytest.raises(errors.UnknownKeyError, match="limits draft"):
            store.limits.set("acme", open_flows=1, reason="x")
        root = statements.from_recovery(recovery)
        wide = store.limits.draft("acme", open_flows=100, reason="wide").text
        clock.advance(1)
        narrow = store.limits.draft("acme", open_flows=1, reason="narrow").text
        with pytest.raises(errors.ProofError):
            store.limits.import_limits(statements.sign(narrow.encode(), keys.generate("ed25519")))
        assert store.limits.import_limits(statements.sign(narrow.encode(), root)).limits == {"open_flows": 1}
        for text in (narrow, wide):
            with pytest.raises(errors.ConflictError):
                store.limits.import_limits(statements.sign(text.encode(), root))
        elsewhere = narrow.replace('"origin":"', '"origin":"elsewhere/')
        with pytest.raises(errors.FormatError):
            store.limits.import_limits(statements.sign(elsewhere.encode(), root))

    def test_a_limit_is_changed_also_when_the_clock_was_set_back(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.limits.set("acme", open_flows=1, reason="x")
        clock.advance(-3600)
        store.limits.set("acme", open_flows=2, reason="x")
        store.limits.lift("acme", reason="x")
        assert [each.limits for each in store.limits.list().items] == [{}]
        settled(store)
        assert store.verify.run(lock=False).findings == []

    @pytest.mark.parametrize(
        "edit",
        [
            "UPDATE tenant_limits SET limits = '{\"open_flows\":99}'",
            "UPDATE tenant_limits SET ns = 'globex'",
            "UPDATE tenant_limits SET statement = 'x'",
            "UPDATE tenant_limits SET limits = 'x'",
        ],
    )
    def test_an_edited_limit_is_found_and_its_namespace_writes_nothing_new(self, edit: str) -> None:
        with self.open() as store:
            acme = tenant(store)
            tenant(store, "globex")
            store.limits.set("acme", open_flows=1, reason="x")
            settled(store)
            store.write(lambda tx: tx.execute(sql(edit)))
            look_again(store)
            hurt = sync.Holdproof(store.core, "globex") if "globex" in edit else acme
            with pytest.raises(errors.TamperedError):
                hurt.flows.start("buyer")
            store.status()
            assert store.verify.run(lock=False).verdict is Verdict.TAMPERED

    def test_a_limit_that_root_did_not_sign_is_found_though_the_log_has_it(self, store: sync.Holdproof) -> None:
        acme = tenant(store)

        def forge(tx: Any) -> None:
            """Write what somebody with the log key could."""
            stated = tenant_limits.LimitStatement(tx.new_id(), {"open_flows": 9}, "x", "acme", "", tx.now)
            line = statements.sign(stated.encode(), keys.generate("ed25519"))
            row = {"id": stated.id, "limits": '{"open_flows":9}', "reason": "x", "set_at": tx.now}
            tenant_limits.RULES.add(tx, tenant_limits._ADD, {**row, "statement": line, "ns": "acme"})

        store.write(forge)
        settled(store)
        assert [each.table for each in store.verify.run(lock=False).findings] == ["tenant_limits"]
        look_again(store)
        with pytest.raises(errors.TamperedError, match="root did not sign"):
            acme.flows.start("buyer")

    def test_mistakes_are_named(self, store: sync.Holdproof) -> None:
        calls: list[tuple[type[errors.HoldproofError], Any]] = [
            (errors.InvalidInputError, lambda: store.limits.set("acme", reason="x")),
            (errors.InvalidInputError, lambda: store.limits.set("acme", open_flows=-1, reason="x")),
            (errors.InvalidInputError, lambda: store.limits.set("acme", open_flows=1, reason="")),
            (errors.InvalidInputError, lambda: store.limits.set("", open_flows=1, reason="x")),
            (errors.NotFoundError, lambda: store.limits.lift("acme", reason="x")),
            (errors.FormatError, lambda: store.limits.import_limits("{}")),
            (errors.InvalidInputError, lambda: store.limits.list(cursor="x")),
        ]
        for error, call in calls:
            with pytest.raises(error):
                call()
        assert store.limits.list().items == []
        assert store.limits.get(ns="acme").limits == {}


class TestTenantLimitsOnSqlite(TenantLimits, OnSqlite):
    pass


class TestTenantLimitsInMemory(TenantLimits, InMemory):
    pass


class TestTenantLimitsOnPostgres(TenantLimits, OnPostgres):
    pass


def test_the_command_line_sets_and_shows_limits(tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["--home", str(tmp_path / "home"), *words])
        assert done.exit_code == code, done.output
        return done.output

    run("agents", "register", "buyer", "--version", "1.0.0", "--ns", "acme")
    run("limits", "set", "acme", "--open-flows", "1", "--reason", "a small plan")
    run("flows", "start", "buyer", "--ns", "acme")
    assert "limits set acme" in run("flows", "start", "buyer", "--ns", "acme", code=5)
    assert "open_flows" in run("limits", "get", "--ns", "acme")
    assert "acme" in run("limits", "list")
    assert '"acme"' in run("status", "--json")
