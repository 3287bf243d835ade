"""DIR's ten storage protocols, on every backend: its names, its shapes, and none of its own storage's faults."""

import inspect
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.adapters.dir import Bundle, bundle
from holdproof.db import Tx
from holdproof.db.sql import sql
from holdproof.model.verdicts import Verdict
from holdproof.runtime import audit
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.racing import together

ROUND_TRIP = (
    '{"b": 1,  "a":[1.0, 1e2]}',
    '{"a":1,"a":2}',
    '"\\u0000 \\ud83d\\ude00"',
    "[ ]",
    '{"big": 123456789012345678901}',
)


@dataclass
class Intent:
    """A proof-carrying intent as DIR has it."""

    dfid: str
    intent_payload: dict[str, Any]
    context_ref: str = "ctx"
    evidence_hash: str = "hash"
    signature: str | None = None


# What DIR's managers do: look, decide, write.


def acquire(stores: Bundle, dfid: str, wanted: dict[str, float], capacity: float) -> bool:
    for _ in range(100):
        for resource in sorted(wanted):
            if capacity - stores.resource_lock.get_locked_amount(resource, exclude_dfid=dfid) < wanted[resource]:
                return False
        if stores.resource_lock.acquire_batch(dfid, wanted, 1.0):
            return True
    raise AssertionError("neither granted nor refused")


def escalate(stores: Bundle, dfid: str, agent_id: str, most: int = 3) -> bool:
    if stores.escalation.get_window_count(agent_id, "2020-01-01 00:00:00") >= most:
        return False
    stores.escalation.record_budget_token(agent_id)
    stores.escalation.insert_request(dfid, agent_id, "why", "{}", "{}", "LOW_IMPACT")
    return True


def once(stores: Bundle, key: str, work: Callable[[], Any]) -> Any:
    known = stores.idempotency.get(key)
    if known is not None:
        return known
    result = work()
    stores.idempotency.set(key, result)
    return result


class Dir(OnStore):
    @pytest.fixture
    def stores(self, store: sync.Holdproof) -> Bundle:
        return bundle(store)

    @pytest.fixture
    def running(self, live: sync.Holdproof) -> Bundle:
        return bundle(live, lease_s=20.0)

    # --- agents ------------------------------------------------------------------------------------------------------

    def test_an_agent_comes_back_as_it_was_given(self, stores: Bundle) -> None:
        stores.agent_registry.upsert_agent("a", '{"z": 1, "limits": [1.5]}', 7, "ACTIVE", "1.2.0", "opaque token")
        assert stores.agent_registry.get_agent("a") == {
            "agent_id": "a",
            "contract": {"z": 1, "limits": [1.5]},
            "priority": 7,
            "status": "ACTIVE",
            "agent_version": "1.2.0",
            "session_token": "opaque token",
        }
        assert stores.agent_registry.get_agent("b") is None
        assert stores.store.agents.authenticate("a", "opaque token").agent_id == "a"
        with pytest.raises(errors.AuthenticationError):
            stores.store.agents.authenticate("a", "another")

    def test_registering_again_keeps_state_budget_history_and_a_suspension(self, stores: Bundle) -> None:
        registry = stores.agent_registry
        registry.upsert_agent("a", "{}", 0, "ACTIVE", "1.0.0", "one")
        stores.context.set_state("a", '{"kept": true}')
        stores.escalation.record_budget_token("a")
        assert registry.update_status("a", "SUSPENDED", "too bold")
        registry.upsert_agent("a", '{"new": 1}', 1, "ACTIVE", "1.1.0", "two")
        assert stores.context.get_state("a") == '{"kept": true}'
        assert stores.escalation.get_window_count("a", "2000-01-01 00:00:00") == 1
        assert registry.get_status("a") == ("SUSPENDED", "too bold")
        agent = registry.get_agent("a")
        assert agent is not None
        assert (agent["contract"], agent["session_token"]) == ({"new": 1}, "two")

    def test_status_changes_only_for_agents_that_are_there(self, stores: Bundle) -> None:
        registry = stores.agent_registry
        assert not registry.update_status("nobody", "SUSPENDED", None)
        assert registry.get_status("nobody") is None
        for name in ("c", "b", "a"):
            registry.upsert_agent(name, "{}", 0, "ACTIVE", None, None)
        assert registry.update_status("b", "DEGRADED", "slow")
        assert registry.list_active_agents() == ["a", "c", "trader"]
        registry.upsert_agent("c", "{}", 0, "RETIRED", None, None)
        assert registry.get_status("c") == ("RETIRED", None)
        with pytest.raises(errors.InvalidInputError):
            registry.upsert_agent("d", "{}", 0, "HAPPY", None, None)

    # --- contexts ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("text", ROUND_TRIP)
    def test_texts_come_back_byte_for_byte(self, stores: Bundle, text: str) -> None:
        stores.context.set_session("d", text)
        stores.context.set_state("trader", text)
        assert (stores.context.get_session("d"), stores.context.get_state("trader")) == (text, text)
        assert stores.store.contexts.get("d").version == 1

    def test_nothing_is_none_and_no_json_is_refused(self, stores: Bundle) -> None:
        assert (stores.context.get_session("d"), stores.context.get_state("x")) == (None, None)
        for text in ("", "{", "NaN", '"\ud800"'):
            with pytest.raises(errors.InvalidInputError):
                stores.context.set_session("d", text)
        assert stores.context.get_session("d") is None

    def test_a_snapshot_is_that_of_the_value_however_it_is_spelt(self, stores: Bundle) -> None:
        stores.context.set_session("one", '{ "b":2, "a":1 }')
        stores.context.set_session("two", '{"a":1,"b":2}')
        read = stores.store.contexts.get
        assert read("one").snapshot_id == read("two").snapshot_id
        assert read("one").data == {"a": 1, "b": 2}

    # --- unknown flows and agents ------------------------------------------------------------------------------------

    def test_writing_about_an_unknown_flow_opens_it_for_its_agent(self, stores: Bundle) -> None:
        stores.decision_audit.record("1", "E", agent_id="explicit", details={"agent_id": "inner"})
        stores.decision_audit.record("2", "E", details={"agent_id": "inner"})
        stores.saga.mark_dirty("3", "step", "{}")
        agents = [stores.store.flows.get(dfid).agent_id for dfid in "123"]
        assert agents == ["explicit", "inner", "__dir_kernel__"]
        stores.decision_audit.record("1", "E", agent_id="another")
        assert stores.store.flows.get("1").agent_id == "explicit"

    def test_a_flow_is_opened_below_the_root_that_it_is_said_to_have(self, stores: Bundle) -> None:
        stores.decision_audit.record("child", "E", root_dfid="root", agent_id="a")
        flow = stores.store.flows.get("child")
        assert (flow.root_flow_id, flow.parent_flow_id) == ("root", "root")
        assert stores.decision_audit.events_for_dfid("child")[0]["root_dfid"] == "root"
        stores.decision_audit.record("root", "E", root_dfid="elsewhere")
        assert stores.decision_audit.events_for_dfid("root")[0]["root_dfid"] == "elsewhere"

    def test_a_suspended_agent_may_be_written_about(self, stores: Bundle) -> None:
        stores.agent_registry.upsert_agent("a", "{}", 0, "SUSPENDED", None, None)
        stores.decision_audit.record("d", "REJECTED", agent_id="a")
        assert len(stores.decision_audit.events_for_dfid("d")) == 1
        with pytest.raises(errors.AgentInactiveError):
            stores.store.flows.start("a")

    def test_a_flow_that_many_write_about_first_is_opened_once(self, running: Bundle) -> None:
        together(8, lambda number: running.decision_audit.record("d", f"E{number}", agent_id="a", root_dfid="r"))
        assert len(running.decision_audit.events_for_dfid("d")) == 8

    def test_another_namespace_sees_nothing_and_has_names_of_its_own(self, stores: Bundle) -> None:
        other = bundle(stores.store, ns="other")
        stores.context.set_session("d", "{}", agent_id="a")
        assert other.context.get_session("d") is None
        other.context.set_session("d", '{"other":1}')
        other.context.set_state("a", '{"other":1}')
        assert stores.context.get_session("d") == "{}"
        assert stores.context.get_state("a") is None
        assert other.context.get_session("d") == '{"other":1}'

    # --- audit and ledger --------------------------------------------------------------------------------------------

    def test_events_have_dirs_keys_in_the_order_they_came(self, stores: Bundle, clock: FrozenClock) -> None:
        events = stores.decision_audit
        events.record("d", "FIRST", step_id="s", state="x", details={"b": 1, "a": 2}, severity="ERROR")
        events.record("d", "SECOND", severity="LOUD")
        events.record("e", "THIRD")
        first, second = events.events_for_dfid("d")
        moment = first.pop("timestamp")
        assert first == {
            "dfid": "d",
            "root_dfid": "d",
            "event": "FIRST",
            "event_type": "FIRST",
            "created_at": moment,
            "severity": "ERROR",
            "step_id": "s",
            "state": "x",
            "details": {"a": 2, "b": 1},
        }
        assert (second["severity"], second["details"]) == ("INFO", {})
        assert [event["event"] for event in events.all_events_chronological()] == ["FIRST", "SECOND", "THIRD"]
        assert events.events_for_dfid("nowhere") == []

    def test_details_are_encoded_as_dir_encodes_them(self, stores: Bundle) -> None:
        class Custom:
            def __str__(self) -> str:
                return "custom"

        stores.decision_audit.record("d", "E", details={"b": Custom(), "a": "ä"})
        text = stores.store.read(lambda tx: tx.one(sql("SELECT detail_json FROM decision_audit_events")))
        assert text == (json.dumps({"b": "custom", "a": "ä"}, sort_keys=True),)
        with pytest.raises(errors.InvalidInputError):
            stores.decision_audit.record("d", "E", details={"a": float("nan")})

    def test_more_events_than_a_page_all_come(self, stores: Bundle) -> None:
        stores.decision_audit.record("d", "FIRST")

        def more(tx: Tx) -> None:
            for number in range(1_200):
                audit.record(tx, "d", f"E{number}")

        stores.store.write(more)
        assert len(stores.decision_audit.events_for_dfid("d")) == 1_201
        assert len(stores.decision_audit.all_events_chronological()) == 1_201

    def test_the_first_intent_of_a_flow_stays(self, stores: Bundle) -> None:
        ledger = stores.decision_ledger
        ledger.append(Intent("d", {"premium": 1}, signature="sig"), agent_id="a")
        ledger.append(Intent("d", {"premium": 2}), agent_id="a")
        ledger.append(Intent("e", {"premium": 3}), agent_id="b", root_dfid="d")
        entry = ledger.get_by_dfid("d")
        assert entry is not None
        assert entry.pop("committed_at").endswith("Z")
        assert entry == {
            "dfid": "d",
            "root_dfid": "d",
            "agent_id": "a",
            "intent_payload": {"premium": 1},
            "context_ref": "ctx",
            "evidence_hash": "hash",
            "signature": "sig",
        }
        assert [each["intent_payload"]["premium"] for each in ledger.all_entries_chronological()] == [1, 3]
        assert [each["signature"] for each in ledger.entries_for_dfid("e")] == [""]
        assert (ledger.entries_for_dfid("f"), ledger.get_by_dfid("f")) == ([], None)

    # --- idempotency -------------------------------------------------------------------------------------------------

    def test_a_result_is_kept_and_given_back(self, stores: Bundle) -> None:
        keys = stores.idempotency
        assert keys.get("k") is None
        assert keys.get("k") is None, "whoever is to execute may look again"
        keys.set("k", {"b": 1, "a": [True]})
        assert keys.get("k") == {"a": [True], "b": 1}
        keys.set("k", {"another": 1})
        assert keys.get("k") == {"another": 1}
        keys.set("never asked", {"x": 1})
        assert keys.get("never asked") == {"x": 1}

    def test_what_has_expired_is_never_returned(self, stores: Bundle, clock: FrozenClock) -> None:
        stores.idempotency.set("k", {"x": 1})
        clock.advance(366 * 86_400)
        assert stores.idempotency.get("k") is None

    def test_a_result_of_none_is_a_result(self, stores: Bundle) -> None:
        calls: list[int] = []
        assert once(stores, "k", lambda: calls.append(1)) is None
        assert once(stores, "k", lambda: calls.append(2)) == {}
        assert calls == [1]

    def test_the_key_of_another_request_is_a_conflict(self, stores: Bundle) -> None:
        assert stores.idempotency.get("k") is None
        stores.idempotency.set("k", {"x": 1})
        with pytest.raises(errors.IdempotencyConflictError):
            stores.store.idempotency.once("k", {"another": "request"}, lambda: None)

    def test_one_of_four_concurrent_callers_executes(self, running: Bundle) -> None:
        calls: list[int] = []
        gate = threading.Event()

        def work() -> dict[str, int]:
            calls.append(1)
            gate.wait(0.2)
            return {"x": 1}

        assert together(4, lambda _: str(once(running, "k", work))) == {"{'x': 1}": 4}
        assert calls == [1]

    def test_a_caller_that_asks_again_executes_only_while_the_claim_is_its_own(self, live: sync.Holdproof) -> None:
        stores, others = bundle(live, lease_s=0.3), bundle(live, lease_s=20.0)
        assert stores.idempotency.get("k") is None
        assert stores.idempotency.get("k") is None, "nobody else has it: try again"
        assert others.idempotency.get("k") is None, "the lease of the first ran out"
        keeping = threading.Timer(0.2, others.idempotency.set, ("k", {"theirs": 1}))
        keeping.start()
        assert stores.idempotency.get("k") == {"theirs": 1}, "and now it waits for the second"
        keeping.join()

    def test_a_caller_that_never_keeps_a_result_is_replaced_once_its_lease_is_over(self, live: sync.Holdproof) -> None:
        stores = bundle(live, lease_s=0.3)
        assert stores.idempotency.get("k") is None
        assert together(1, lambda _: once(stores, "k", lambda: {"by": 2})["by"]) == {2: 1}
        stores.idempotency.set("k", {"by": 1})
        assert stores.idempotency.get("k") == {"by": 2}, "it came too late"

    # --- sagas -------------------------------------------------------------------------------------------------------

    def test_a_dirty_flow_stays_dirty_until_it_is_cleared(self, stores: Bundle) -> None:
        saga = stores.saga
        saga.mark_dirty("d", "", "")
        saga.mark_dirty("d", "step 2", '{"sold": 100}')
        assert saga.get_dirty_flows() == ["d"]
        assert saga.get_dirty_state("d") == {"failed_step": "step 2", "partial_state": {"sold": 100}}
        saga.clear_dirty("d")
        saga.clear_dirty("d")
        saga.clear_dirty("nowhere")
        assert (saga.get_dirty_flows(), saga.get_dirty_state("d")) == ([], None)
        assert stores.decision_audit.all_events_chronological() == [], "DIR records what it wants recorded"

    # --- locks -------------------------------------------------------------------------------------------------------

    def test_six_hundred_and_four_hundred_of_a_thousand_are_all_there_is(self, stores: Bundle) -> None:
        assert acquire(stores, "a", {"usd": 600.0}, 1000)
        assert acquire(stores, "b", {"usd": 400.0}, 1000)
        assert not acquire(stores, "c", {"usd": 600.0}, 1000)
        assert stores.resource_lock.get_locked_amount("usd", exclude_dfid="") == 1000
        assert stores.resource_lock.get_locked_amount("usd", exclude_dfid="a") == 400
        stores.resource_lock.release("a")
        stores.resource_lock.release("nobody")
        assert acquire(stores, "c", {"usd": 600.0}, 1000)

    def test_acquiring_again_replaces_ones_own_amount(self, stores: Bundle) -> None:
        for amount in (5.0, 8.0, 0.0):
            assert acquire(stores, "a", {"r": amount}, 8)
            assert stores.resource_lock.get_locked_amount("r", exclude_dfid="") == amount
        assert stores.resource_lock.acquire_batch("a", {}, 1.0)

    def test_a_batch_that_was_not_looked_up_never_joins_another_holder(self, stores: Bundle) -> None:
        assert stores.resource_lock.acquire_batch("a", {"r": 1.0}, 1.0)
        assert not stores.resource_lock.acquire_batch("b", {"q": 1.0, "r": 1.0}, 1.0)
        assert stores.resource_lock.get_locked_amount("q", exclude_dfid="") == 0
        assert [lock.flow_id for lock in stores.store.locks.list().items] == ["a"]

    def test_of_six_racers_for_one_of_a_kind_one_wins(self, running: Bundle) -> None:
        assert together(6, lambda number: acquire(running, f"d{number}", {"one": 1.0}, 1)) == {True: 1, False: 5}

    def test_many_racers_never_hold_more_than_there_is(self, running: Bundle) -> None:
        together(12, lambda number: acquire(running, f"d{number}", {"usd": 300.0, "eur": 300.0}, 1000))
        for resource in ("usd", "eur"):
            assert running.resource_lock.get_locked_amount(resource, exclude_dfid="") == 900

    # --- retries -----------------------------------------------------------------------------------------------------

    def test_a_count_is_set_and_forgotten(self, stores: Bundle) -> None:
        retry = stores.intent_retry
        assert retry.get_count("d") == 0
        retry.set_count("d", 2)
        retry.set_count("d", 1)
        assert retry.get_count("d") == 1
        retry.set_count("d", 0)
        assert retry.get_count("d") == 0
        retry.delete("d")
        retry.delete("nowhere")
        assert retry.get_count("d") == 0

    def test_forty_concurrent_rejections_count_as_forty(self, running: Bundle) -> None:
        together(40, lambda _: running.intent_retry.set_count("d", running.intent_retry.get_count("d") + 1))
        assert running.intent_retry.get_count("d") == 40

    # --- escalations -------------------------------------------------------------------------------------------------

    def test_a_window_includes_its_first_moment(self, stores: Bundle, clock: FrozenClock) -> None:
        escalation = stores.escalation
        escalation.record_budget_token("a")
        escalation.record_budget_token("b")
        began = stores.store.read(lambda tx: tx.now)
        clock.advance(10)
        escalation.record_budget_token("a")
        second = began[:19].replace("T", " ")
        assert escalation.get_window_count("a", second) == 2
        assert escalation.get_window_count("a", began) == 2
        assert escalation.get_window_count("a", "2999-01-01 00:00:00") == 0
        assert escalation.get_window_count("nobody", second) == 0

    def test_a_budget_of_three_grants_three_of_eight_concurrent_requests(self, running: Bundle) -> None:
        assert together(8, lambda number: escalate(running, f"d{number}", "a")) == {True: 3, False: 5}
        assert len(running.escalation.get_pending_requests()) == 3

    def test_a_token_is_not_spent_against_a_count_that_has_changed(self, stores: Bundle) -> None:
        assert stores.escalation.get_window_count("a", "2000-01-01 00:00:00") == 0
        bundle(stores.store).escalation.record_budget_token("a")
        with pytest.raises(errors.ConflictError):
            stores.escalation.record_budget_token("a")
        assert stores.escalation.get_window_count("a", "2000-01-01 00:00:00") == 1

    def test_questions_are_pending_until_they_are_answered(self, stores: Bundle) -> None:
        escalation = stores.escalation
        escalation.insert_request("d", "a", "why", '{"b": 1, "a": 2}', '{"buy": 1}', "HIGH_IMPACT")
        escalation.insert_request("d", "a", "", "{}", "{}", "whatever")
        escalation.insert_request("e", "a", "other", "{}", "{}", "LOW_IMPACT")
        assert escalation.get_pending_requests()[0] == {
            "dfid": "d",
            "agent_id": "a",
            "reason": "why",
            "context": {"a": 2, "b": 1},
            "proposal": {"buy": 1},
            "impact": "HIGH_IMPACT",
        }
        assert stores.store.flows.get("d").status == "CREATED"
        escalation.resolve_request("d", "2026-02-01T10:00:00+01:00", "MODIFY", '{"buy": 2}')
        escalation.resolve_request("d", "2026-02-01T11:00:00Z", "ABORT", None)
        escalation.resolve_request("e", "2026-02-01 10:00:00", "ABORT", None)
        escalation.resolve_request("nowhere", "2026-02-01 10:00:00", "ABORT", None)
        assert escalation.get_pending_requests() == []
        first, _, other = (stores.store.escalations.get(number) for number in (1, 2, 3))
        assert (first.status, first.human_decision, first.proposal, first.answer) == (
            "APPROVED",
            "MODIFY",
            {"buy": 1},
            {"buy": 2},
        )
        assert first.resolved_at == "2026-02-01T09:00:00.000000Z"
        assert other.status == "REJECTED"

    # --- transitions -------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("words", "status"),
        [
            ("CREATED ACTIVE VALIDATING ACCEPTED EXECUTING", "RUNNING"),
            ("CREATED ACTIVE VALIDATING ESCALATED", "WAITING_ESCALATION"),
            ("CREATED ACTIVE VALIDATING ESCALATED EXECUTING CLOSED", "COMPLETED"),
            ("CREATED ACTIVE ABORTED", "FAILED"),
            ("CREATED ABORTED", "CANCELLED"),
            ("CREATED ACTIVE EXECUTING PARTIAL_SUCCESS_DIRTY MAINTENANCE_MODE", "COMPENSATING"),
            ("CREATED ACTIVE EXECUTING PARTIAL_SUCCESS_DIRTY CLOSED", "COMPENSATED"),
            ("EXECUTING CLOSED", "COMPLETED"),
            ("ACTIVE ABORTED", "FAILED"),
            ("POSITION_SPAWN agent-7 RETIRED", "CREATED"),
        ],
    )
    def test_words_are_kept_as_given_and_move_the_flow(self, stores: Bundle, words: str, status: str) -> None:
        said = words.split()
        for before, after in pairwise(said):
            stores.lifecycle.record_transition("d", before, after)
        assert stores.store.flows.get("d").status == status
        recorded = stores.store.flows.transitions("d")
        assert [(each.from_status, each.to_status) for each in recorded] == list(pairwise(said))

    @pytest.mark.parametrize(
        ("words", "before", "after"),
        [
            ("CREATED ACTIVE CLOSED", "CLOSED", "ACTIVE"),
            ("CREATED ACTIVE CLOSED", "CLOSED", "CLOSED"),
            ("CREATED ACTIVE CLOSED", "ACTIVE", "VALIDATING"),
            ("CREATED ACTIVE VALIDATING", "ACTIVE", "VALIDATING"),
            ("CREATED ACTIVE", "CREATED", "ACTIVE"),
            ("CREATED", "CREATED", "CLOSED"),
            ("CREATED ACTIVE ESCALATED", "ESCALATED", "CLOSED"),
        ],
    )
    def test_an_illegal_transition_is_refused_and_not_recorded(
        self, stores: Bundle, words: str, before: str, after: str
    ) -> None:
        said = words.split()
        for one, two in pairwise(said):
            stores.lifecycle.record_transition("d", one, two)
        with pytest.raises(errors.IllegalTransitionError):
            stores.lifecycle.record_transition("d", before, after)
        if len(said) > 1:
            assert len(stores.store.flows.transitions("d")) == len(said) - 1

    def test_of_many_that_move_a_flow_from_one_word_one_does(self, running: Bundle) -> None:
        running.lifecycle.record_transition("d", "VALIDATING", "ACCEPTED")

        def move(_: int) -> str:
            try:
                running.lifecycle.record_transition("d", "ACCEPTED", "EXECUTING")
            except errors.IllegalTransitionError:
                return "refused"
            return "moved"

        assert together(5, move) == {"moved": 1, "refused": 4}

    def test_both_ways_of_moving_a_flow_go_together(self, stores: Bundle) -> None:
        stores.lifecycle.record_transition("d", "CREATED", "ACTIVE")
        assert acquire(stores, "d", {"r": 1.0}, 1)
        stores.store.escalations.request("d", reason="why")
        stores.store.escalations.resolve(1, "approve", by="Ada")
        stores.lifecycle.record_transition("d", "EXECUTING", "CLOSED")
        assert stores.store.flows.get("d").status == "COMPLETED"
        assert stores.store.locks.list().items == [], "an ended flow holds nothing"

    # --- the whole ---------------------------------------------------------------------------------------------------

    def test_a_store_that_dir_has_used_verifies(self, running: Bundle) -> None:
        escalate(running, "d", "a")
        running.context.set_session("d", '{ "odd":  "spelling" }')
        running.context.set_state("a", '{ "odd":  "spelling" }')
        running.agent_registry.upsert_agent("a", '{ "odd": 1 }', 0, "ACTIVE", "1.0", "t")
        running.lifecycle.record_transition("d", "VALIDATING", "ESCALATED")
        running.decision_audit.record("d", "E")
        running.decision_ledger.append(Intent("d", {}), agent_id="a")
        running.escalation.resolve_request("d", "2026-01-01 00:00:00", "OVERRIDE", None)
        running.lifecycle.record_transition("d", "ESCALATED", "EXECUTING")
        settled(running.store)
        assert running.store.verify.run(full=True, lock=False).verdict is Verdict.VALID

    def test_every_storage_has_init_schema_and_it_does_no_harm(self, stores: Bundle) -> None:
        stores.context.set_session("d", "{}")
        for name in Bundle.__slots__:
            if name != "store":
                getattr(stores, name).init_schema()
        assert stores.context.get_session("d") == "{}"


class TestOnSqlite(Dir, OnSqlite):
    def test_a_home_is_enough_and_the_tables_have_dirs_names(self) -> None:
        with bundle(str(self.home)) as stores:
            stores.lifecycle.record_transition("d", "CREATED", "ACTIVE")
        with sync.open(self.home) as store:
            found = store.read(
                lambda tx: tx.all(sql("SELECT dfid, root_dfid, from_status, to_status FROM flow_transitions"))
            )
        assert found == [("d", "d", "CREATED", "ACTIVE")]


class TestInMemory(Dir, InMemory):
    def test_memory_is_enough(self) -> None:
        with bundle(":memory:") as stores:
            stores.context.set_session("d", "{}")
            assert stores.context.get_session("d") == "{}"


class TestOnPostgres(Dir, OnPostgres):
    def test_a_url_is_enough(self) -> None:
        with bundle(self.url) as stores:
            stores.context.set_session("d", "{}")
            assert stores.context.get_session("d") == "{}"


SIGNATURES = {
    "agent_registry.upsert_agent": "(agent_id, contract_json, priority, status, agent_version, session_token)",
    "agent_registry.get_agent": "(agent_id)",
    "agent_registry.update_status": "(agent_id, status, suspension_reason)",
    "agent_registry.get_status": "(agent_id)",
    "agent_registry.list_active_agents": "()",
    "context.get_session": "(dfid)",
    "context.set_session": "(dfid, data_json, *, agent_id=None)",
    "context.get_state": "(agent_id)",
    "context.set_state": "(agent_id, data_json)",
    "idempotency.get": "(key)",
    "idempotency.set": "(key, result)",
    "decision_audit.record": "(dfid, event, *, step_id='', state='', details=None, root_dfid=None, agent_id=None,"
    " severity='INFO')",
    "decision_audit.events_for_dfid": "(dfid)",
    "decision_audit.all_events_chronological": "()",
    "decision_ledger.append": "(pci, *, agent_id, root_dfid=None)",
    "decision_ledger.get_by_dfid": "(dfid)",
    "decision_ledger.entries_for_dfid": "(dfid)",
    "decision_ledger.all_entries_chronological": "()",
    "saga.mark_dirty": "(dfid, failed_step, partial_state_json)",
    "saga.get_dirty_flows": "()",
    "saga.get_dirty_state": "(dfid)",
    "saga.clear_dirty": "(dfid)",
    "resource_lock.get_locked_amount": "(resource_id, exclude_dfid)",
    "resource_lock.acquire_batch": "(dfid, resources, timeout_sec)",
    "resource_lock.release": "(dfid)",
    "intent_retry.get_count": "(dfid)",
    "intent_retry.set_count": "(dfid, count)",
    "intent_retry.delete": "(dfid)",
    "escalation.get_window_count": "(agent_id, since_str)",
    "escalation.record_budget_token": "(agent_id)",
    "escalation.insert_request": "(dfid, agent_id, reason, context_json, proposal_json, impact)",
    "escalation.resolve_request": "(dfid, resolved_at, decision, proposal_json)",
    "escalation.get_pending_requests": "()",
    "lifecycle.record_transition": "(dfid, from_status, to_status, *, root_dfid=None)",
}


@pytest.fixture(scope="module")
def memory() -> Iterator[Bundle]:
    with bundle(":memory:") as stores:
        yield stores


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_method_has_the_published_signature(memory: Bundle, name: str) -> None:
    storage, method = name.split(".")
    signature = inspect.signature(getattr(getattr(memory, storage), method))
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == SIGNATURES[name]
