"""Agents: the handshake, tokens and statuses, on every backend."""

from dataclasses import replace

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.db import sql
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

_TOKEN = sql("SELECT session_token FROM agent_registry WHERE agent_id = :agent_id")


class Agents(OnStore):
    def test_a_handshake_stores_the_contract_and_gives_a_token(self, store: sync.Holdproof) -> None:
        session = store.agents.register("a", version="1.2.3", contract={"roles": ["x"], "ü": 1.5}, priority=7)
        assert store.agents.get("a") == session.agent
        assert (session.agent.contract, session.agent.priority) == ({"roles": ["x"], "ü": 1.5}, 7)
        assert (session.agent.status, session.agent.agent_version) == ("ACTIVE", "1.2.3")
        assert len(session.token) >= 43
        assert session.token not in repr(session)

    @pytest.mark.parametrize("version", ["3", "2026-01-31", "v2 (night build)", "main@4f1c2d9"])
    def test_a_version_is_any_text_where_no_range_is_given(self, store: sync.Holdproof, version: str) -> None:
        assert store.agents.register("a", version=version).agent.agent_version == version

    def test_a_flow_registers_its_agent_unless_the_store_is_strict(self, store: sync.Holdproof) -> None:
        core = store.core.context
        settings = replace(core.settings, strict_agents=True)
        strict = sync.Holdproof(store.core)
        strict.context = replace(core, settings=settings)

        def work(flow: object) -> str:
            return "done"

        assert store.flow(agent="new")(work)() == "done"
        assert store.agents.get("new").agent_version is None
        refused = strict.flow(agent="newer")(work)
        for call in (refused, refused.enqueue):
            with pytest.raises(errors.NotFoundError, match="agents register"):
                call()
        store.agents.register("newer", version="1")
        assert refused() == "done"

    @pytest.mark.parametrize("version", ["2.0.0", "0.9", "one", "", "1.3.9", "1.", "01.4"])
    def test_a_version_outside_the_range_is_refused_and_nothing_is_stored(
        self, store: sync.Holdproof, version: str
    ) -> None:
        with pytest.raises(errors.VersionMismatchError, match="VERSION_MISMATCH"):
            store.agents.register("late", version=version, supported="1.4")
        with pytest.raises(errors.NotFoundError):
            store.agents.get("late")

    def test_registering_again_keeps_state_budget_history_and_a_suspension(self, store: sync.Holdproof) -> None:
        first = store.agents.register("a", version="1.0.0", contract={"v": 1})
        flow_id = running(store, "a")
        store.state.put("a", {"mean": 3})
        store.escalations.request(flow_id, reason="?")
        store.agents.set_status("a", "SUSPENDED", reason="odd")
        again = store.agents.register("a", version="1.1.0", contract={"v": 2})
        assert again.token != first.token
        assert (again.agent.status, again.agent.suspension_reason) == ("SUSPENDED", "odd")
        assert (again.agent.contract, again.agent.registered_at) == ({"v": 2}, first.agent.registered_at)
        assert store.state.get("a").data == {"mean": 3}
        assert len(store.flows.list(agent_id="a").items) == 1
        assert len(store.escalations.list(status="PENDING", agent_id="a").items) == 1

    def test_only_the_newest_token_is_accepted(self, store: sync.Holdproof) -> None:
        old = store.agents.register("a", version="1.0.0").token
        new = store.agents.register("a", version="1.0.0").token
        assert store.agents.authenticate("a", new).agent_id == "a"
        for agent, token in (("a", old), ("a", ""), ("nobody", new), ("trader", new)):
            with pytest.raises(errors.AuthenticationError):
                store.agents.authenticate(agent, token)

    def test_a_token_is_stored_as_a_hash_only(self, store: sync.Holdproof) -> None:
        token = store.agents.register("a", version="1.0.0").token
        [(stored,)] = store.read(lambda tx: tx.all(_TOKEN, agent_id="a"))
        assert token not in stored
        assert stored.startswith("sha256:")
        with pytest.raises(errors.AuthenticationError):
            store.agents.authenticate("a", stored)

    @pytest.mark.parametrize("status", ["SUSPENDED", "RETIRED", "DEGRADED", "ESCALATION_ONLY"])
    def test_an_agent_that_is_not_active_opens_no_flow(self, store: sync.Holdproof, status: str) -> None:
        store.agents.set_status("trader", status, reason="test")
        with pytest.raises(errors.AgentInactiveError):
            store.flows.start("trader")
        store.agents.set_status("trader", "ACTIVE")
        assert store.flows.start("trader").status == "CREATED"
        assert store.agents.get("trader").suspension_reason is None

    def test_an_agent_of_another_namespace_is_not_seen(self, store: sync.Holdproof) -> None:
        token = store.agents.register("b", version="1.0.0", ns="other").token
        for look in (
            lambda: store.agents.get("b"),
            lambda: store.flows.start("b"),
            lambda: store.agents.set_status("b", "RETIRED"),
        ):
            with pytest.raises(errors.NotFoundError):
                look()
        with pytest.raises(errors.AuthenticationError):
            store.agents.authenticate("b", token)
        own = store.agents.register("b", version="2.0.0", supported="2.x").token
        assert store.agents.authenticate("b", token, ns="other").agent_version == "1.0.0"
        assert store.agents.authenticate("b", own).agent_version == "2.0.0"
        with pytest.raises(errors.AuthenticationError):
            store.agents.authenticate("b", own, ns="other")

    def test_lists_go_on_where_the_page_before_ended(self, store: sync.Holdproof) -> None:
        for number in range(4):
            store.agents.register(f"x{number}", version="1.0.0")
        store.agents.set_status("x2", "RETIRED")
        page = store.agents.list(limit=3)
        rest = store.agents.list(limit=3, cursor=page.next_cursor)
        assert [agent.agent_id for agent in (*page.items, *rest.items)] == ["trader", "x0", "x1", "x2", "x3"]
        assert rest.next_cursor is None
        assert [agent.agent_id for agent in store.agents.list(status="RETIRED").items] == ["x2"]

    @pytest.mark.parametrize("name", ["", "a\nb", "x" * 501, "\0"])
    def test_a_name_must_be_one(self, store: sync.Holdproof, name: str) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.agents.register(name, version="1.0.0")

    def test_an_unknown_status_or_a_contract_without_json_is_refused(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.agents.set_status("trader", "HAPPY")
        with pytest.raises(errors.InvalidInputError):
            store.agents.register("a", version="1.0.0", contract={"x": float("nan")})


class TestSqlite(OnSqlite, Agents):
    pass


class TestMemory(InMemory, Agents):
    pass


class TestPostgres(OnPostgres, Agents):
    pass
