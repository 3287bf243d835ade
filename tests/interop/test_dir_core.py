"""DIR's own managers on our storages: what `dir-core` (PyPI) does with its own must come out the same, or better.

Skipped where the package is not installed; it asks for Python 3.12.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.filling import settled
from holdproof.adapters.dir import Bundle, bundle
from holdproof.model.verdicts import Verdict
from tests.conformance.racing import together

pytest.importorskip("dir_core", reason="dir-core is not installed")
escalation: Any = pytest.importorskip("dir_core.escalation")
idempotency: Any = pytest.importorskip("dir_core.idempotency")
lifecycle: Any = pytest.importorskip("dir_core.lifecycle")
locking: Any = pytest.importorskip("dir_core.resource_lock")
models: Any = pytest.importorskip("dir_core.models")
protocols: Any = pytest.importorskip("dir_core.storage.base")
registry: Any = pytest.importorskip("dir_core.agent_registry")
retry: Any = pytest.importorskip("dir_core.intent_retry")
runtime: Any = pytest.importorskip("dir_core.runtime")
saga: Any = pytest.importorskip("dir_core.saga")
storage: Any = pytest.importorskip("dir_core.storage")
contexts: Any = pytest.importorskip("dir_core.context_store")
ledger: Any = pytest.importorskip("dir_core.ledger")


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bundle]:
    where = {"sqlite": str(tmp_path / "home"), "memory": ":memory:"}.get(request.param)
    with bundle(where or request.getfixturevalue("postgres_url")) as opened:
        yield opened
        settled(opened.store)
        assert opened.store.verify.run(full=True, lock=False).verdict is Verdict.VALID


def proposal(dfid: str = "d", agent_id: str = "a") -> Any:
    return models.PolicyProposal(dfid=dfid, agent_id=agent_id, policy_kind="TRADE")


def test_each_storage_is_one_of_dirs_protocols(stores: Bundle) -> None:
    for name in Bundle.__slots__[1:]:
        protocol = "".join(word.capitalize() for word in name.split("_")) + "Storage"
        assert isinstance(getattr(stores, name), getattr(protocols, protocol)), protocol


def test_the_whole_runtime_runs(stores: Bundle) -> None:
    dir_runtime = runtime.DecisionRuntime(stores)
    assert dir_runtime.register_agent("a", {"schema": {"x": 1}}, "1.2.0", priority=3).accepted
    assert dir_runtime.register_agent("b", {}, "2.0.0").reason == "VERSION_MISMATCH"
    verdict, _ = dir_runtime.evaluate_proposal(proposal(), {"price": 1.5}, dim_context={})
    events = dir_runtime.audit.events_for_dfid("d")
    assert [event["event"] for event in events] == [f"PROPOSAL_{verdict}"]
    assert dir_runtime.context_store.get_session("d") == {"price": 1.5}
    assert dir_runtime.registry.set_agent_status("a", "SUSPENDED", "why")
    assert dir_runtime.register_agent("a", {}, "1.3.0").accepted
    assert dir_runtime.registry.get_agent_status("a") == ("SUSPENDED", "why")
    assert dir_runtime.evaluate_proposal(proposal(), {})[1] == "AGENT_SUSPENDED"


def test_contexts_merge(stores: Bundle) -> None:
    store = contexts.ContextStore(storage=stores.context)
    for updates in ({"a": 1}, {"b": 2}):
        store.update_session("d", updates)
        store.update_state("a", updates)
    found = store.compile_working_context("a", "d")
    assert (found["session"], found["state"]) == ({"a": 1, "b": 2}, {"a": 1, "b": 2})


def test_a_thousand_is_not_lent_out_twice(stores: Bundle) -> None:
    manager = locking.ResourceLockManager(availability_provider=lambda _: 1000.0, storage=stores.resource_lock)
    results = [manager.acquire(f"d{number}", {"usd": float(amount)}) for number, amount in enumerate((600, 400, 600))]
    assert results == ["ACQUIRED", "ACQUIRED", "INSUFFICIENT_LIQUIDITY"]
    manager.release("d0")
    assert manager.acquire("d2", {"usd": 600.0}) == "ACQUIRED"


def test_one_of_six_racers_gets_the_only_one(stores: Bundle) -> None:
    manager = locking.ResourceLockManager(availability_provider=lambda _: 1.0, storage=stores.resource_lock)
    won = together(6, lambda number: str(manager.acquire(f"d{number}", {"one": 1.0})))
    assert won == {"ACQUIRED": 1, "INSUFFICIENT_LIQUIDITY": 5}


def test_a_budget_of_three_grants_three_of_eight(stores: Bundle) -> None:
    manager = escalation.EscalationManager(storage=stores.escalation)
    impact = escalation.ImpactCategory.HIGH_IMPACT
    granted = together(8, lambda n: str(manager.request_escalation(f"d{n}", "a", "why", {}, proposal(f"d{n}"), impact)))
    assert granted == {"GRANTED": 3, "BUDGET_EXHAUSTED": 5}
    pending = manager.get_pending()
    assert len(pending) == 3
    manager.resolve_escalation(pending[0]["dfid"], "MODIFY", proposal(pending[0]["dfid"]))
    manager.resolve_escalation(pending[1]["dfid"], "ABORT")
    assert len(manager.get_pending()) == 1


def test_forty_rejections_are_forty(stores: Bundle) -> None:
    governor = retry.IntentRetryGovernor(max_retries=40, storage=stores.intent_retry)
    together(40, lambda _: governor.record_rejection("d") > 0)
    assert governor.should_abort("d")
    lifecycle.transition(
        "d", lifecycle.FlowStatus.ACTIVE, lifecycle.FlowStatus.ABORTED, governor, storage=stores.lifecycle
    )
    assert not governor.should_abort("d")
    assert stores.store.flows.get("d").status == "FAILED"


def test_a_step_runs_once_under_dirs_own_guard(stores: Bundle) -> None:
    guard = idempotency.IdempotencyGuard(stores.idempotency)
    calls: list[int] = []

    def work(x: int) -> dict[str, int]:
        calls.append(x)
        return {"x": x}

    assert together(4, lambda _: str(guard.run("d", "s", {"x": 1}, work))) == {"{'x': 1}": 4}
    assert guard.run("d", "s", {"x": 2}, work) == {"x": 2}
    assert calls == [1, 2]
    for _ in range(3):
        guard.run("d", "nothing", {"x": 3}, lambda x: calls.append(x))
    assert calls == [1, 2, 3]


def test_a_saga_is_compensated_once_its_callback_says_so(stores: Bundle) -> None:
    done: list[Any] = []

    def revert(dfid: str, state: Any) -> bool:
        done.append((dfid, state))
        return True

    manager = saga.SagaCompensation(revert_callback=revert, storage=stores.saga)
    manager.mark_dirty("d", "step 2", {"sold": 100})
    assert manager.get_dirty_flows() == ["d"]
    assert manager.execute_compensation("d", models.CompensationAction.NOOP).success
    assert manager.get_dirty_flows() == ["d"]
    assert manager.execute_compensation("d", models.CompensationAction.REVERT).success
    assert (manager.get_dirty_flows(), done) == ([], [("d", {"sold": 100})])


def test_the_ledger_binds_once(stores: Bundle) -> None:
    book = ledger.DecisionLedger(stores.decision_ledger)
    intent = models.ProofCarryingIntent(dfid="d", intent_payload={"x": 1}, context_ref="c", evidence_hash="e")
    book.append(intent, agent_id="a")
    book.append(intent, agent_id="a")
    assert len(book) == 1
    assert book.entries()[0]["intent_payload"] == {"x": 1}


# --- a database that DIR wrote -----------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """What DIR's own storages make of DIR's own managers."""
    path = tmp_path / "dir.db"
    theirs: Any = storage.sqlite_storage(str(path))
    dir_runtime = runtime.DecisionRuntime(theirs)
    dir_runtime.register_agent("a", {"schema": {"x": 1}}, "1.2.0")
    dir_runtime.evaluate_proposal(proposal(), {"price": 1.5}, dim_context={})
    dir_runtime.context_store.update_state("a", {"mean": 1.5})
    manager = escalation.EscalationManager(storage=theirs.escalation)
    manager.request_escalation("d", "a", "why", {"b": 1}, proposal(), escalation.ImpactCategory.HIGH_IMPACT)
    idempotency.IdempotencyGuard(theirs.idempotency).run("d", "s", {"x": 1}, lambda x: {"x": x})
    retry.IntentRetryGovernor(storage=theirs.intent_retry).record_rejection("d")
    saga.SagaCompensation(storage=theirs.saga).mark_dirty("d", "step", {"sold": 1})
    locking.ResourceLockManager(availability_provider=lambda _: 10.0, storage=theirs.resource_lock).acquire(
        "d", {"usd": 4.0}
    )
    intent = models.ProofCarryingIntent(dfid="d", intent_payload={"x": 1}, context_ref="c", evidence_hash="e")
    theirs.decision_ledger.append(intent, agent_id="a")
    for before, after in (("CREATED", "ACTIVE"), ("CLOSED", "ACTIVE"), ("ACTIVE", "EXECUTING")):
        theirs.lifecycle.record_transition("d", before, after)
    return path


def test_a_database_that_dir_wrote_goes_on_here(stores: Bundle, written: Path) -> None:
    found = stores.store.imports.dir(written)
    assert set(found.verdicts) == {"TAKEN"}, found.to_dict()
    theirs: Any = storage.sqlite_storage(str(written))
    assert stores.agent_registry.get_agent("a") == theirs.agent_registry.get_agent("a")
    assert stores.context.get_session("d") == theirs.context.get_session("d")
    assert stores.context.get_state("a") == theirs.context.get_state("a")
    key = idempotency.idempotency_key("d", "s", {"x": 1})
    assert stores.idempotency.get(key) == theirs.idempotency.get(key) == {"x": 1}
    assert stores.saga.get_dirty_state("d") == theirs.saga.get_dirty_state("d")
    assert stores.resource_lock.get_locked_amount("usd", "") == theirs.resource_lock.get_locked_amount("usd", "") == 4
    assert stores.intent_retry.get_count("d") == theirs.intent_retry.get_count("d") == 1
    assert stores.escalation.get_pending_requests() == theirs.escalation.get_pending_requests()
    ours, other = stores.decision_audit.events_for_dfid("d"), theirs.decision_audit.events_for_dfid("d")
    assert [(each["event"], each["details"]) for each in ours] == [(each["event"], each["details"]) for each in other]
    assert len(stores.decision_ledger.all_entries_chronological()) == 1
    assert stores.store.flows.get("d").status == "RUNNING"
    assert stores.store.imports.dir(written).done == {"known": len(found.rows)}
