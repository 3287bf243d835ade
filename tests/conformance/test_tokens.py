"""Tokens, logins and the book at the door, on every backend."""

from dataclasses import replace
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.access import access_log, logins
from holdproof.db import sql
from holdproof.model.access import AccessEvent
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.racing import together

_STORED = sql("SELECT secret_hash FROM access_tokens UNION ALL SELECT secret_hash FROM access_logins")
_LEAVES = sql("SELECT leaf_ver FROM access_tokens WHERE token_id = :token_id")
EVENT = AccessEvent(0, "denied", 401, "access.unauthenticated", "", "127.0.0.1", "GET", "/v1/x", "no", 1, "")


class Tokens(OnStore):
    def test_a_secret_is_shown_once_and_stored_as_its_hash(self, store: sync.Holdproof) -> None:
        made = store.tokens.create("ci", role="auditor", resources=["log", "flows", "log"])
        assert made.secret.startswith("hp_")
        assert len(made.secret) >= 46
        assert made.secret not in repr(made)
        found = store.tokens.authenticate(made.secret)
        assert found == store.tokens.get(made.token.token_id) == made.token
        assert (found.role, found.resources, found.ns) == ("auditor", ("flows", "log"), "*")
        link = store.logins.create_link()
        stored = [row[0] for row in store.read(lambda tx: tx.all(_STORED))]
        assert len(stored) == 2
        for secret in (made.secret, link.secret):
            assert all(secret not in each for each in stored)
        for wrong in (stored[0], "", "hp_", made.secret[:-1], "\ud800"):
            with pytest.raises(errors.UnauthenticatedError):
                store.tokens.authenticate(wrong)

    def test_making_and_revoking_are_versions_of_one_record(self, store: sync.Holdproof) -> None:
        made = store.tokens.create("ci").token
        assert store.read(lambda tx: tx.all(_LEAVES, token_id=made.token_id)) == [(1,)]
        ended = store.tokens.revoke(made.token_id, by="Ada")
        assert (ended.revoked_by, ended.revoked_at is None) == ("Ada", False)
        assert store.tokens.revoke(made.token_id, by="Bob") == ended
        assert store.read(lambda tx: tx.all(_LEAVES, token_id=made.token_id)) == [(2,)]
        assert store.verify.run().verdict.sound

    def test_what_is_revoked_or_past_its_time_opens_nothing(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        short, other = store.tokens.create("short", ttl_s=60), store.tokens.create("other", ttl_s=None)
        clock.advance(61)
        with pytest.raises(errors.UnauthenticatedError, match="expired"):
            store.tokens.authenticate(short.secret)
        assert store.tokens.authenticate(other.secret).expires_at is None
        assert [token.name for token in store.tokens.list().items] == ["other"]
        store.tokens.revoke(other.token.token_id)
        with pytest.raises(errors.UnauthenticatedError, match="revoked"):
            store.tokens.authenticate(other.secret)
        assert [token.name for token in store.tokens.list(all=True).items] == ["other", "short"]

    def test_a_token_of_an_agent_works_where_the_agent_lives(self, store: sync.Holdproof) -> None:
        store.agents.register("far", version="1.0.0", ns="other")
        made = store.tokens.create("far", role="agent", agent_id="far", resources=["objects"])
        assert (made.token.agent_id, made.token.ns) == ("far", "other")
        wrong: list[dict[str, Any]] = [{"role": "agent"}, {"role": "auditor", "agent_id": "far"}, {"role": "god"}]
        for given in wrong:
            with pytest.raises(errors.InvalidInputError):
                store.tokens.create("x", **given)
        absent: list[dict[str, Any]] = [{"agent_id": "nobody"}, {"agent_id": "far", "ns": "main"}]
        for given in absent:
            with pytest.raises(errors.NotFoundError):
                store.tokens.create("x", role="agent", **given)
        with pytest.raises(errors.InvalidInputError, match="keys"):
            store.tokens.create("x", role="agent", agent_id="far", resources=["keys"])

    def test_a_session_token_of_an_agent_is_known_wherever_it_lives(self, store: sync.Holdproof) -> None:
        token = store.agents.register("far", version="1.0.0", ns="other").token
        assert store.tokens.authenticate_agent("far", token).ns == "other"
        for agent, secret in (("trader", token), ("nobody", token), ("far", ""), ("far", token[:-1]), ("a\0", "b")):
            with pytest.raises(errors.UnauthenticatedError):
                store.tokens.authenticate_agent(agent, secret)
        store.agents.set_status("far", "RETIRED", ns="other")
        with pytest.raises(errors.AgentInactiveError):
            store.tokens.authenticate_agent("far", token)

    def test_one_namespace_sees_no_token_of_another(self, store: sync.Holdproof) -> None:
        made = store.tokens.create("b", ns="b")
        assert [token.name for token in store.tokens.list(ns="b").items] == ["b"]
        assert store.tokens.list(ns="a").items == []
        with pytest.raises(errors.NotFoundError):
            store.tokens.revoke(made.token.token_id, ns="a")
        with pytest.raises(errors.UnauthenticatedError):
            store.tokens.authenticate(made.secret, ns="a")
        assert store.tokens.authenticate(made.secret, ns="b").name == "b"

    def test_the_last_use_only_moves_on_and_is_no_leaf(self, store: sync.Holdproof) -> None:
        made = store.tokens.create("ci").token
        late, early = "2030-01-01T00:00:00.000000Z", "2029-01-01T00:00:00.000000Z"
        store.tokens.touch({made.token_id: late, "nobody": late})
        store.tokens.touch({made.token_id: early})
        assert store.tokens.get(made.token_id).last_used_at == late
        assert store.tokens.revoke(made.token_id).last_used_at == late


class Logins(OnStore):
    def test_a_link_opens_once_and_gives_a_session(self, store: sync.Holdproof) -> None:
        link = store.logins.create_link(name="Ada")
        made = store.logins.exchange(link.secret)
        found = store.logins.authenticate(made.secret)
        assert (found.name, found.role, found.kind, found.ns) == ("Ada", "operator", "session", "*")
        with pytest.raises(errors.UnauthenticatedError):
            store.logins.exchange(link.secret)
        assert store.logins.logout(made.secret)
        assert not store.logins.logout(made.secret)
        with pytest.raises(errors.UnauthenticatedError):
            store.logins.authenticate(made.secret)

    def test_each_secret_opens_only_what_it_is_for(self, store: sync.Holdproof) -> None:
        token, link = store.tokens.create("t"), store.logins.create_link()
        session = store.logins.exchange(store.logins.create_link().secret)
        for door_, opens in (
            (store.tokens.authenticate, token),
            (store.logins.exchange, link),
            (store.logins.authenticate, session),
        ):
            for secret in {token.secret, link.secret, session.secret} - {opens.secret}:
                with pytest.raises(errors.UnauthenticatedError):
                    door_(secret)

    def test_a_link_or_a_session_ends_at_its_time(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        late, link = store.logins.create_link(), store.logins.create_link()
        session = store.logins.exchange(link.secret, ttl_s=3600)
        clock.advance(601)
        with pytest.raises(errors.UnauthenticatedError):
            store.logins.exchange(late.secret)
        assert store.logins.authenticate(session.secret).kind == "session"
        clock.advance(3000)
        with pytest.raises(errors.UnauthenticatedError):
            store.logins.authenticate(session.secret)

    def test_whoever_comes_in_removes_old_logins_also_without_a_link(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        first = store.logins.exchange(store.logins.create_link().secret)
        clock.advance(30 * 86_400)
        # As a passkey does it.
        second = store.write(lambda tx: logins.open_session(tx, first.login))
        assert [each.login_id for each in store.logins.list(all=True).items] == [second.login.login_id]

    def test_a_token_that_ends_ends_its_logins(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        for end in ("revoke", "time"):
            token = store.tokens.create("t", role="auditor", resources=["log"], ttl_s=1800).token
            session = store.logins.exchange(store.logins.create_link(token_id=token.token_id).secret)
            unused = store.logins.create_link(token_id=token.token_id, ttl_s=3600)
            assert store.logins.authenticate(session.secret).resources == ("log",)
            if end == "revoke":
                store.tokens.revoke(token.token_id)
            else:
                clock.advance(1800)
            with pytest.raises(errors.UnauthenticatedError):
                store.logins.authenticate(session.secret)
            with pytest.raises(errors.UnauthenticatedError):
                store.logins.exchange(unused.secret)

    @pytest.mark.parametrize("ttl_s", [0, -1, 3601, 1e9, float("inf"), None, "x"])
    def test_no_link_waits_longer_than_an_hour(self, store: sync.Holdproof, ttl_s: Any) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.logins.create_link(ttl_s=ttl_s)
        assert store.logins.list(all=True).items == []

    def test_links_and_sessions_are_listed_without_their_secrets_and_ended_one_by_one(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        token = store.tokens.create("t", role="auditor", ns="far").token
        link, used = store.logins.create_link(name="ada"), store.logins.create_link(token_id=token.token_id)
        session = store.logins.exchange(used.secret)
        assert {each.login_id for each in store.logins.list().items} == {
            link.login.login_id,
            session.login.login_id,
        }
        assert {each.kind for each in store.logins.list(all=True, ns="far").items} == {"link", "session"}
        assert store.logins.list(ns="elsewhere").items == []
        first = store.logins.list(limit=1)
        assert len(store.logins.list(cursor=first.next_cursor, limit=1).items) == 1
        with pytest.raises(errors.NotFoundError):
            store.logins.end(session.login.login_id, ns="elsewhere")
        with pytest.raises(errors.NotFoundError):
            store.logins.end("nobody")
        ended = store.logins.end(session.login.login_id)
        clock.advance(1)
        assert store.logins.end(session.login.login_id) == ended, "once"
        store.logins.end(link.login.login_id)
        for opens, secret in ((store.logins.authenticate, session.secret), (store.logins.exchange, link.secret)):
            with pytest.raises(errors.UnauthenticatedError):
                opens(secret)
        assert store.logins.list().items == []

    def test_an_agent_that_is_retired_comes_in_by_no_token(self, store: sync.Holdproof) -> None:
        token = store.tokens.create("a", role="agent", agent_id="trader").secret
        session = store.agents.register("trader", version="1.1.0").token
        assert store.tokens.authenticate(token).agent_id == "trader"
        store.agents.set_status("trader", "RETIRED", reason="left")
        with pytest.raises(errors.AgentInactiveError):
            store.tokens.authenticate(token)
        with pytest.raises(errors.AgentInactiveError):
            store.tokens.authenticate_agent("trader", session)

    def test_the_console_is_not_for_agents(self, store: sync.Holdproof) -> None:
        token = store.tokens.create("a", role="agent", agent_id="trader").token
        with pytest.raises(errors.InvalidInputError):
            store.logins.create_link(token_id=token.token_id)
        with pytest.raises(errors.InvalidInputError):
            store.logins.create_link(role="agent")

    def test_of_many_who_use_a_link_at_once_one_comes_in(self, store: sync.Holdproof) -> None:
        link = store.logins.create_link()

        def attempt(_: int) -> Any:
            try:
                return store.logins.exchange(link.secret).secret
            except errors.UnauthenticatedError:
                return None

        answers = together(20, attempt)
        [secret] = answers.keys() - {None}
        assert answers[None] == 19
        assert store.logins.authenticate(secret).kind == "session"

    def test_people_come_in_while_the_store_is_locked(self, clock: FrozenClock) -> None:
        with self.open(clock=clock) as store:
            before = store.tokens.create("t")
            store.lockdown.lock(reason="a drill")
            with pytest.raises(errors.LockedError):
                store.tokens.create("u")
            session = store.logins.exchange(store.logins.create_link().secret)
            store.access_log.record([EVENT])
            assert store.logins.authenticate(session.secret).kind == "session"
            assert store.tokens.authenticate(before.secret) == before.token
            assert store.access_log.list().items[0].code == EVENT.code


class Door(OnStore):
    def test_events_come_in_their_order_and_by_kind(self, store: sync.Holdproof) -> None:
        store.access_log.record([EVENT, replace(EVENT, event="login", count=3)])
        found = store.access_log.list().items
        assert [(each.event, each.count) for each in found] == [("login", 3), ("denied", 1)]
        assert [each.event for each in store.access_log.list(event="login").items] == ["login"]
        page = store.access_log.list(limit=1)
        assert [*page.items, *store.access_log.list(cursor=page.next_cursor).items] == found
        assert store.access_log.list(since="2999-01-01T00:00:00Z").items == []

    @pytest.mark.parametrize("text", ["\0", "a\nb\x1b[2J", "\ud800", "x" * 5000, "é ünïcode"])
    def test_what_a_stranger_sent_is_kept_in_a_form_that_harms_nobody(self, store: sync.Holdproof, text: str) -> None:
        store.access_log.record([replace(EVENT, path=text, detail=text)])
        [kept] = store.access_log.list().items
        assert kept.path.isprintable()
        assert len(kept.path) <= 500
        assert not text.isprintable() or kept.path == text[:500]

    def test_only_the_newest_events_stay(self, store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access_log, "MOST_EVENTS", 5)
        for number in range(8):
            store.access_log.record([replace(EVENT, path=f"/{number}")])
        assert [each.path for each in store.access_log.list().items] == ["/7", "/6", "/5", "/4", "/3"]


class TestSqlite(OnSqlite, Tokens, Logins, Door):
    pass


class TestMemory(InMemory, Tokens, Logins, Door):
    pass


class TestPostgres(OnPostgres, Tokens, Logins, Door):
    pass
