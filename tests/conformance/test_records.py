"""What is recorded about decisions: audit, ledger, contexts, state, feedback; on every backend."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.db import sql
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

_SPACED = '{"b": 1,  "a": "\\u00e9", "a": 2, "z": "\\u0000"}'
_RAW_JSON = sql(
    "INSERT INTO saga_dirty_state (dfid, partial_state_json, created_at) VALUES (:dfid, :text, :now)"
    " RETURNING partial_state_json"
)
_VALUES: list[Any] = [{}, {"a": [1, 2.5, None, True]}, [], "é\u4e2d\0", 0, None, {"deep": {"er": [{}]}}]


class Records(OnStore):
    # --- audit ----------------------------------------------------------------------------------------------------

    def test_events_come_back_in_the_order_they_were_recorded(self, store: sync.Holdproof) -> None:
        flow_id, other = running(store), running(store)
        made = [
            store.audit.record(
                flow_id,
                f"E{number}",
                severity=severity,
                step_id="s",
                state="x",
                detail={"n": number},
                correlation_id="c",
                causation_id="k",
            )
            for number, severity in enumerate(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
        ]
        store.audit.record(other, "OTHER")
        page = store.audit.list(flow_id=flow_id, limit=3)
        rest = store.audit.list(flow_id=flow_id, limit=3, cursor=page.next_cursor)
        assert [*page.items, *rest.items] == made[::-1]
        assert rest.next_cursor is None
        assert made[0].detail == {"n": 0}

    def test_events_are_found_by_type_severity_and_time(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = running(store)
        store.audit.record(flow_id, "A")
        clock.advance(10)
        later = store.audit.record(flow_id, "A", severity="ERROR")
        store.audit.record(flow_id, "B", severity="ERROR")
        assert len(store.audit.list(event_type="A").items) == 2
        assert len(store.audit.list(severity="ERROR").items) == 2
        assert store.audit.list(event_type="A", since=later.created_at).items == [later]
        assert len(store.audit.list(limit=2).items) == 2

    def test_an_unknown_severity_or_flow_is_an_error(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        with pytest.raises(errors.InvalidInputError):
            store.audit.record(flow_id, "E", severity="LOUD")
        with pytest.raises(errors.InvalidInputError):
            store.audit.list(severity="LOUD")
        with pytest.raises(errors.NotFoundError):
            store.audit.record("none", "E")
        with pytest.raises(errors.NotFoundError):
            store.audit.record(flow_id, "E", ns="other")
        with pytest.raises(errors.InvalidInputError):
            store.audit.record(flow_id, "E", detail={"x": object()})
        assert store.audit.list(flow_id=flow_id).items == []

    # --- ledger ---------------------------------------------------------------------------------------------------

    def test_the_first_entry_of_a_flow_wins(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        first = store.ledger.append(flow_id, {"buy": 1}, context_ref="c", evidence_hash="h", signature="s")
        second = store.ledger.append(flow_id, {"buy": 2}, context_ref="d", evidence_hash="i")
        assert first == second == store.ledger.get(flow_id)
        assert (first.intent, first.agent_id, first.signature) == ({"buy": 1}, "trader", "s")
        assert store.ledger.list().items == [first]
        assert store.ledger.list(agent_id="nobody").items == []
        with pytest.raises(errors.NotFoundError):
            store.ledger.append("none", {}, context_ref="", evidence_hash="")
        with pytest.raises(errors.NotFoundError):
            store.ledger.get(running(store))

    # --- contexts and state ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize("value", _VALUES, ids=repr)
    def test_a_value_comes_back_as_it_went_in(self, store: sync.Holdproof, value: Any) -> None:
        flow_id = running(store)
        put = store.contexts.put(flow_id, value)
        assert put == store.contexts.get(flow_id)
        assert put.data == value
        assert store.state.put("trader", value).data == value
        assert store.state.get("trader").data == value

    def test_the_snapshot_id_is_a_hash_of_the_canonical_json(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        put = store.contexts.put(flow_id, {"b": 1.0, "a": "é"})
        assert put.snapshot_id == hashlib.sha256('{"a":"é","b":1}'.encode()).hexdigest()[:16]
        assert store.state.put("trader", {"a": "é", "b": 1}).snapshot_id == put.snapshot_id

    def test_every_write_is_the_next_version(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        assert [store.contexts.put(flow_id, n).version for n in range(3)] == [1, 2, 3]
        assert [store.state.put("trader", n).version for n in range(3)] == [1, 2, 3]

    def test_a_stale_version_is_refused_and_nothing_changes(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        assert store.contexts.update(flow_id, "a", expected_version=0).version == 1
        assert store.contexts.update(flow_id, "b", expected_version=1).version == 2
        assert store.state.update("trader", "a", expected_version=0).version == 1
        for stale in (0, 1, 3):
            with pytest.raises(errors.StaleVersionError):
                store.contexts.update(flow_id, "c", expected_version=stale)
        with pytest.raises(errors.StaleVersionError):
            store.state.update("trader", "c", expected_version=0)
        assert (store.contexts.get(flow_id).data, store.state.get("trader").data) == ("b", "a")

    def test_a_context_that_was_taken_is_not_given_again(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        store.contexts.put(flow_id, "secret")
        assert store.contexts.take(flow_id).data == "secret"
        for again in (store.contexts.take, store.contexts.get):
            with pytest.raises(errors.ContextTakenError):
                again(flow_id)
        store.contexts.put(flow_id, "next")
        assert store.contexts.get(flow_id).version == 2

    def test_what_is_not_there_is_a_typed_error(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        calls: list[Callable[[], object]] = [
            lambda: store.contexts.get(flow_id),
            lambda: store.contexts.take(flow_id),
            lambda: store.contexts.put("none", 1),
            lambda: store.contexts.put(flow_id, 1, ns="other"),
            lambda: store.state.get("trader"),
            lambda: store.state.put("nobody", 1),
        ]
        for call in calls:
            with pytest.raises(errors.NotFoundError):
                call()
        with pytest.raises(errors.InvalidInputError):
            store.contexts.put(flow_id, 2**53)

    def test_a_json_column_keeps_its_text_byte_for_byte(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        [(kept,)] = store.write(lambda tx: tx.all(_RAW_JSON, dfid=flow_id, text=_SPACED, now=tx.now))
        assert kept == _SPACED

    # --- feedback -------------------------------------------------------------------------------------------------

    def test_an_agents_trajectory_is_what_was_recorded(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        flow_id = running(store)
        first = store.feedback.record("trader", flow_id, status="Rejected", reason="late", score=2, source="Human")
        clock.advance(5)
        second = store.feedback.record("trader", flow_id, status="Accepted", score=0.5)
        third = store.feedback.record("trader", flow_id, status="Escalate", source="Monitor")
        assert store.feedback.list(agent_id="trader").items == [third, second, first]
        assert store.feedback.list(agent_id="trader", since=second.created_at).items == [third, second]
        page = store.feedback.list(agent_id="trader", limit=2)
        assert store.feedback.list(agent_id="trader", cursor=page.next_cursor).items == [first]
        assert type(first.score) is float

    def test_wrong_feedback_is_refused(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        calls: list[Callable[[], object]] = [
            lambda: store.feedback.record("trader", flow_id, status="Accepted", source="Gossip"),
            lambda: store.feedback.record("trader", flow_id, status="Accepted", score=float("nan")),
            lambda: store.feedback.record("trader", flow_id, status="Accepted", score=True),
        ]
        for call in calls:
            with pytest.raises(errors.InvalidInputError):
                call()
        for agent, flow in (("nobody", flow_id), ("trader", "none")):
            with pytest.raises(errors.NotFoundError):
                store.feedback.record(agent, flow, status="Accepted")


class TestSqlite(OnSqlite, Records):
    pass


class TestMemory(InMemory, Records):
    pass


class TestPostgres(OnPostgres, Records):
    pass
