"""Tenancy: a store that is open for one namespace sees and touches nothing of another, whatever it calls."""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.api.runtime import RuntimeResources
from holdproof.client import Holdproof
from holdproof.db import Tx, migrate, sql
from holdproof.executors import Resource
from holdproof.model.verdicts import Verdict
from holdproof.testing import FrozenClock
from holdproof.upkeep.verification import row_check
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

SECRET: Final = "of-another-tenant"
_THEIR_CHAT: Final = "their-chat"
THEIRS, OURS = "theirs", "ours"
_TABLES = {
    "accesses": "id",
    "access_logins": "login_id",
    "activity_hours": "hour, agent_id",
    "access_tokens": "token_id",
    "agent_registry": "agent_id",
    "agent_state": "agent_id",
    "battles": "id",
    "decision_audit_events": "id",
    "decision_feedback_trajectory": "id",
    "decision_flows": "dfid",
    "decision_ledger_entries": "id",
    "escalation_budget": "id",
    "escalation_requests": "id",
    "flow_attributes": "dfid, key",
    "flow_calls": "dfid",
    "flow_context": "dfid",
    "flow_leases": "dfid",
    "flow_messages": "message_id",
    "flow_promises": "promise_id",
    "flow_steps": "step_id",
    "flow_stream_items": "item_id",
    "flow_transitions": "id",
    "flow_values": "value_id",
    "idempotency_cache": "idempotency_key",
    "imported_rows": "id",
    "intent_retry": "dfid",
    "lock_fences": "resource_id",
    "notes": "path, key",
    "object_history": "entry",
    "object_index": "key",
    "object_text": "key",
    "object_vectors": "key",
    "object_versions": "key, n",
    "queue_starts": "dfid",
    "queues": "name",
    "retention_rules": "id",
    "tenant_limits": "id",
    "tenant_usage": "ns",
    "schedules": "schedule_id",
    "workers": "worker_id",
    "policies": "policy_id",
    "policy_decisions": "id",
    "policy_sets": "ns",
    "delegations": "id",
    "escalation_answers": "id",
    "escalation_messages": "id",
    "log_streams": "stream",
    "notifications": "id",
    "passkey_challenges": "challenge",
    "passkeys": "credential_id",
    "people": "name",
    "prunings": "id",
    "refs": "name",
    "resource_locks": "resource_id",
    "saga_dirty_state": "dfid",
    "skill_approvals": "id",
    "skill_lockdowns": "id",
    "snapshots": "id",
    "subjects": "handle",
    "thread_entries": "checkpoint_id",
    "thread_facts": "key",
    "threads": "thread_id",
    "transcripts": "name",
}
_FORGE = sql("UPDATE flow_context SET data = :data WHERE dfid = 'order-17' AND ns = :ns")
_ROWS = {table: sql(f"SELECT * FROM {table} WHERE ns = :ns ORDER BY {key}") for table, key in _TABLES.items()}


@dataclass(frozen=True)
class World:
    """What the other tenant has, and a flow of our own."""

    flow_id: str
    clean: str
    asked: int
    event: int
    token: str
    lease: int
    own: str
    skill: str
    snapshot: str
    key: str
    """The id of a token of theirs, its secret, the code of a link, and the link's id."""
    secret: str
    code: str
    login: str
    ended: str
    """A flow of theirs with a message, a promise, a published value and a stream, and the promise's token."""
    promise: str
    rule: str


def theirs(store: sync.Holdproof, folder: Path) -> World:
    """Something in every table, each with the secret in it."""
    there = sync.Holdproof(store.core, THEIRS)
    token = there.agents.register("their-agent", version="1.0.0", contract={"is": SECRET}).token
    with there.flows.run("their-agent", flow_type=SECRET) as flow:
        flow.step(SECRET, lambda: SECRET)
        there.flows.signal(flow.flow_id, SECRET, SECRET)
        promise = flow.promise(SECRET).token
        flow.publish(SECRET, SECRET)
        flow.stream(SECRET).write(SECRET)
    flow_id = there.flows.start("their-agent", flow_type=SECRET).flow_id
    there.flows.transition(flow_id, "RUNNING", reason=SECRET)
    lease = there.flows.lease(flow_id, SECRET, lease_s=1000)
    there.contexts.put(flow_id, {"is": SECRET})
    there.state.put("their-agent", {"is": SECRET})
    there.feedback.record("their-agent", flow_id, status=SECRET)
    event = there.audit.record(flow_id, SECRET)
    there.ledger.append(flow_id, SECRET, context_ref=SECRET, evidence_hash=SECRET)
    there.locks.try_acquire(flow_id, {"resource": 1})
    there.idempotency.once("key", SECRET, lambda: SECRET)
    there.retries.reject(flow_id, reason=SECRET)
    there.sagas.mark_dirty(flow_id, SECRET, {"is": SECRET})
    there.evaluations.submit({"is": SECRET}, evaluation_id="battle", score=0.5, intent=[1.0], subject="Ada")
    there.objects.put("their-object", type=SECRET, content=SECRET, meta={"is": SECRET, "vector": [1.0, 0.0]})
    snapshot = there.snapshots.create(SECRET, author=SECRET).cid
    there.threads.put_checkpoint(
        "their-thread", {"is": SECRET}, metadata={"is": SECRET}, facts={"is": SECRET}, run_id="their-run", provable=True
    )
    there.threads.put_writes("their-thread", "z", "task", [(0, "is", SECRET)])
    there.transcripts.put_item(_THEIR_CHAT, "key", SECRET, tag="tag")
    there.notes.put(["their"], "note", {"is": SECRET}, vectors={"is": [1.0, 0.0]}, ttl_s=1e6)
    there.transcripts.put_state(_THEIR_CHAT, {"is": SECRET})
    access, link = there.tokens.create(SECRET), there.logins.create_link(name=SECRET)
    clean = there.flows.start("their-agent").flow_id
    there.flows.transition(clean, "RUNNING")
    asked = there.escalations.request(clean, reason=SECRET, proposal={"is": SECRET})
    ours = sync.Holdproof(store.core, OURS)
    ours.agents.register("our-agent", version="1.0.0")
    own = ours.flows.start("our-agent").flow_id
    ours.flows.transition(own, "RUNNING")
    skill = skill_of(there, folder)
    there.people.put("their-person", groups=[SECRET], by=SECRET)
    there.people.put("their-deputy")
    there.people.delegate("their-person", "their-deputy", until_s=1e6, by=SECRET)
    there.escalations.ask(asked.id, SECRET, by=SECRET)
    there.passkeys.register_options("their-person", origin="https://console.example")
    there.policies.create("their-policy", f"permit(principal, action, resource); // {SECRET}", by=SECRET)
    there.policies.activate("their-policy", by=SECRET)
    there.policies.decide("their-agent", "tool.call", SECRET, context={"is": SECRET})
    store.limits.set(THEIRS, bytes=1 << 40, reason=SECRET)
    rule = there.retention.floor(1, what="feedback", reason=SECRET).id
    settled(store)  # on PostgreSQL entries get their numbers later
    keys = (access.token.token_id, access.secret, link.secret, link.login.login_id, flow.flow_id, promise, rule)
    return World(flow_id, clean, asked.id, event.id, token, lease.token, own, skill, snapshot, *keys)


def skill_of(there: sync.Holdproof, folder: Path) -> str:
    """A skill that the other tenant approved, and one that it found changed."""
    for name in ("locked.org", "skill.org"):
        path = folder / name
        path.write_text("* Open\n")
        there.skills.approve(str(path), by=SECRET, comment=SECRET)
        if name == "locked.org":
            path.write_text(f"* {SECRET}\n")
            there.skills.verify(str(path))
    return str(path)


def rows_of(tx: Tx, ns: str) -> str:
    return repr({table: tx.all(query, ns=ns) for table, query in _ROWS.items()})


_THEIR_OBJECT: Final = "their-object"
Try = Callable[[sync.Holdproof, World], Any]
_GONE = (errors.NotFoundError, errors.LeaseLostError, errors.LockLostError, errors.AuthenticationError)
_LOCKED = (errors.SkillLockedError,)

_REGISTERS: Final = "agents.register"
# What makes things of ours that have the very ids of theirs.
TWINS: Final[tuple[Try, ...]] = (
    lambda s, w: s.agents.register("their-agent", version="1.0.0"),
    lambda s, w: s.flows.start("their-agent", flow_id=w.flow_id),
    lambda s, w: s.flows.start("their-agent", flow_id=w.clean),
    lambda s, w: s.flows.transition(w.clean, "RUNNING"),
    lambda s, w: s.flows.transition(w.flow_id, "RUNNING"),
)

# What each verb is asked of the other tenant's things. It fails as if they were not there, or answers without them.
TRIES: Final[dict[str, list[Try]]] = {
    "activity.answer_times": [lambda s, w: s.activity.answer_times()],
    "activity.stats": [lambda s, w: s.activity.stats(by="all", by_agent=True)],
    "agents.activity": [lambda s, w: s.agents.activity()],
    "escalations.facets": [lambda s, w: s.escalations.facets()],
    "flows.execution": [lambda s, w: s.flows.execution(w.flow_id)],
    "flows.facets": [lambda s, w: s.flows.facets(), lambda s, w: s.flows.facets(text=SECRET)],
    "log.find": [lambda s, w: s.log.find(w.flow_id), lambda s, w: s.log.find(SECRET)],
    "materials.get": [lambda s, w: s.materials.get(w.flow_id)],
    "materials.cyclonedx": [lambda s, w: s.materials.cyclonedx(w.flow_id)],
    "materials.sign": [lambda s, w: s.materials.sign(w.flow_id)],
    "contexts.versions": [lambda s, w: s.contexts.versions(w.flow_id)],
    "escalations.budget": [lambda s, w: s.escalations.budget("their-agent")],
    "escalations.list": [
        lambda s, w: s.escalations.list(flow_id=w.clean),
        lambda s, w: s.escalations.list(),
        lambda s, w: s.escalations.list(status="PENDING", order="due"),
        lambda s, w: s.escalations.list(agent_id="their-agent"),
    ],
    "escalations.count": [lambda s, w: s.escalations.count()],
    "flows.cancel": [lambda s, w: s.flows.cancel(w.flow_id, reason="ours")],
    "flows.pace": [lambda s, w: s.flows.pace()],
    "image.list": [lambda s, w: s.image.list().items],
    "objects.embed": [lambda s, w: s.objects.embed(embedder=lambda text: [1.0, 0.0])],
    "objects.nearest": [lambda s, w: s.objects.nearest([1.0, 0.0])],
    "state.versions": [lambda s, w: s.state.versions("their-agent")],
    "tokens.authenticate_agent": [lambda s, w: s.tokens.authenticate_agent("their-agent", w.token)],
    "tokens.authenticate": [lambda s, w: s.tokens.authenticate(w.secret)],
    "tokens.create": [lambda s, w: s.tokens.create("ours", role="agent", agent_id="their-agent")],
    "logins.end": [lambda s, w: s.logins.end(w.login)],
    "tokens.get": [lambda s, w: s.tokens.get(w.key)],
    "logins.create_link": [lambda s, w: s.logins.create_link(token_id=w.key)],
    "tokens.list": [lambda s, w: s.tokens.list(all=True)],
    "logins.get": [lambda s, w: s.logins.get(w.login)],
    "logins.list": [lambda s, w: s.logins.list(all=True)],
    "logins.exchange": [lambda s, w: s.logins.exchange(w.code)],
    "tokens.revoke": [lambda s, w: s.tokens.revoke(w.key)],
    "logins.authenticate": [lambda s, w: s.logins.authenticate(w.code)],
    _REGISTERS: [TWINS[0]],
    "bundle.export": [lambda s, w: s.bundle.export(w.flow_id, kind="flow")],
    "bundle.attest": [lambda s, w: s.bundle.attest(w.flow_id)],
    "bundle.prov": [lambda s, w: s.bundle.prov(w.flow_id)],
    "bundle.person": [lambda s, w: s.bundle.person("Ada")],
    "agents.authenticate": [lambda s, w: s.agents.authenticate("their-agent", w.token)],
    "agents.get": [lambda s, w: s.agents.get("their-agent")],
    "agents.list": [lambda s, w: s.agents.list()],
    "agents.set_status": [lambda s, w: s.agents.set_status("their-agent", "SUSPENDED")],
    "agents.set_budget": [lambda s, w: s.agents.set_budget("their-agent", per_hour=1)],
    "flows.start": [
        lambda s, w: s.flows.start("their-agent"),
        lambda s, w: s.flows.start("our-agent", parent=w.flow_id),
    ],
    "flows.run": [lambda s, w: _enter(s, "their-agent"), lambda s, w: _enter(s, None, resume=w.clean)],
    "flows.transition": [lambda s, w: s.flows.transition(w.flow_id, "COMPLETED")],
    "flows.get": [lambda s, w: s.flows.get(w.flow_id)],
    "flows.tree": [lambda s, w: s.flows.tree(w.flow_id)],
    "flows.list": [
        lambda s, w: s.flows.list(),
        lambda s, w: s.flows.list(agent_id="their-agent"),
        lambda s, w: s.flows.list(text=SECRET),
    ],
    "flows.export": [lambda s, w: list(s.flows.export())],
    "flows.transitions": [lambda s, w: s.flows.transitions(w.flow_id)],
    "flows.timeline": [lambda s, w: s.flows.timeline(w.flow_id)],
    "flows.orphans": [lambda s, w: s.flows.orphans()],
    "flows.lease": [lambda s, w: s.flows.lease(w.flow_id, "we")],
    "flows.heartbeat": [lambda s, w: s.flows.heartbeat(w.flow_id, w.lease)],
    "flows.release": [lambda s, w: s.flows.release(w.flow_id, w.lease)],
    "flows.recover": [lambda s, w: s.flows.recover("we")],
    "flows.attributes": [lambda s, w: s.flows.attributes(w.flow_id)],
    "flows.cancel_many": [lambda s, w: s.flows.cancel_many(reason="ours", since="2020-01-01T00:00:00Z")],
    "flows.delete_many": [lambda s, w: s.flows.delete_many(since="2020-01-01T00:00:00Z")],
    "flows.retry_many": [lambda s, w: s.flows.retry_many(since="2020-01-01T00:00:00Z")],
    "flows.enqueue": [lambda s, w: s.flows.enqueue("their-agent", "work")],
    "flows.fork": [lambda s, w: s.flows.fork(w.flow_id, at="pay")],
    "flows.rewind": [lambda s, w: s.flows.rewind(w.flow_id, at="pay")],
    "flows.replay": [lambda s, w: s.flows.replay(w.flow_id)],
    "flows.replay_all": [lambda s, w: s.flows.replay_all()],
    "flows.stats": [lambda s, w: s.flows.stats()],
    "queues.create": [lambda s, w: s.queues.create("ours")],
    "queues.get": [lambda s, w: s.queues.get("theirs")],
    "queues.list": [lambda s, w: s.queues.list()],
    "queues.lengths": [lambda s, w: s.queues.lengths()],
    "queues.update": [lambda s, w: s.queues.update("theirs", concurrency=1)],
    "queues.pause": [lambda s, w: s.queues.pause("theirs")],
    "queues.resume": [lambda s, w: s.queues.resume("theirs")],
    "queues.delete": [lambda s, w: s.queues.delete("theirs")],
    "people.put": [lambda s, w: s.people.put("their-person", groups=["ours"])],
    "people.get": [lambda s, w: s.people.get("their-deputy")],
    "people.list": [lambda s, w: s.people.list(all=True)],
    "people.remove": [lambda s, w: s.people.remove("their-deputy")],
    "people.delegate": [lambda s, w: s.people.delegate("their-deputy", "their-person", until_s=9.0)],
    "people.delegations": [lambda s, w: s.people.delegations(all=True)],
    "people.end_delegation": [lambda s, w: s.people.end_delegation(1)],
    "passkeys.list": [lambda s, w: s.passkeys.list()],
    "passkeys.register_options": [lambda s, w: s.passkeys.register_options("their-deputy", origin="https://a.example")],
    "passkeys.revoke": [lambda s, w: s.passkeys.revoke("theirs", by="their-person")],
    "passkeys.challenge": [lambda s, w: s.passkeys.challenge(w.asked, "approve", by="their-person")],
    "channels.notifications": [lambda s, w: s.channels.notifications()],
    "escalations.approvals": [lambda s, w: s.escalations.approvals(w.asked)],
    "escalations.ask": [lambda s, w: s.escalations.ask(w.asked, "which?", by="us")],
    "escalations.reply": [lambda s, w: s.escalations.reply(w.asked, "that one")],
    "escalations.wait_question": [lambda s, w: s.escalations.wait_question(w.asked, timeout_s=0)],
    "escalations.reassign": [lambda s, w: s.escalations.reassign(w.asked, "1 of ours", by="us")],
    "audit.trail": [
        lambda s, w: s.audit.trail(limit=1000),
        lambda s, w: s.audit.trail(flow_id=w.flow_id),
        lambda s, w: s.audit.trail(person=SECRET),
    ],
    "log.list": [lambda s, w: s.log.list(limit=1000)],
    "log.get": [lambda s, w: _entries(s)],
    "log.prove_range": [lambda s, w: s.log.prove_range("decision", agent_id="their-agent")],
    "policies.create": [lambda s, w: s.policies.create("ours", "permit(principal, action, resource);")],
    "policies.get": [lambda s, w: s.policies.get("their-policy")],
    "policies.list": [lambda s, w: s.policies.list()],
    "policies.activate": [lambda s, w: s.policies.activate("their-policy")],
    "policies.retire": [lambda s, w: s.policies.retire("their-policy")],
    "policies.decide": [lambda s, w: s.policies.decide("their-agent", "tool.call", "x", flow_id=w.flow_id)],
    "policies.decisions": [lambda s, w: s.policies.decisions()],
    "policies.reevaluate": [lambda s, w: s.policies.reevaluate("forbid(principal, action, resource);")],
    "schedules.create": [lambda s, w: s.schedules.create("ours", "work", agent_id="their-agent", cron="@daily")],
    "schedules.get": [lambda s, w: s.schedules.get("theirs")],
    "schedules.list": [lambda s, w: s.schedules.list()],
    "schedules.update": [lambda s, w: s.schedules.update("theirs", cron="@hourly")],
    "schedules.pause": [lambda s, w: s.schedules.pause("theirs")],
    "schedules.resume": [lambda s, w: s.schedules.resume("theirs")],
    "schedules.trigger": [lambda s, w: s.schedules.trigger("theirs")],
    "schedules.backfill": [lambda s, w: s.schedules.backfill("theirs", "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z")],
    "schedules.delete": [lambda s, w: s.schedules.delete("theirs")],
    "schedules.fire": [lambda s, w: s.schedules.fire()],
    "workers.list": [lambda s, w: s.workers.list()],
    "flows.inputs": [lambda s, w: s.flows.inputs(w.flow_id)],
    "flows.outcome": [lambda s, w: s.flows.outcome(w.flow_id, timeout_s=0)],
    "flows.result": [lambda s, w: s.flows.result(w.flow_id, timeout_s=0)],
    "flows.steps": [lambda s, w: s.flows.steps(w.flow_id)],
    "flows.signal": [lambda s, w: s.flows.signal(w.clean, "topic", 1)],
    "flows.messages": [lambda s, w: s.flows.messages(w.ended)],
    "flows.published": [lambda s, w: s.flows.published(w.ended, SECRET)],
    "flows.list_published": [lambda s, w: s.flows.list_published(w.ended)],
    "flows.stream": [lambda s, w: list(s.flows.stream(w.ended, SECRET))],
    "promises.resolve": [lambda s, w: s.promises.resolve(w.promise, 1)],
    "promises.reject": [lambda s, w: s.promises.reject(w.promise, "no")],
    "promises.list": [lambda s, w: s.promises.list(w.ended)],
    "contexts.put": [lambda s, w: s.contexts.put(w.flow_id, 1), lambda s, w: s.contexts.put(w.clean, 1)],
    "contexts.update": [lambda s, w: s.contexts.update(w.clean, 1, expected_version=0)],
    "contexts.get": [lambda s, w: s.contexts.get(w.flow_id)],
    "contexts.take": [lambda s, w: s.contexts.take(w.flow_id)],
    "state.put": [lambda s, w: s.state.put("their-agent", 1)],
    "state.update": [lambda s, w: s.state.update("their-agent", 1, expected_version=0)],
    "state.get": [lambda s, w: s.state.get("their-agent")],
    "feedback.record": [
        lambda s, w: s.feedback.record("their-agent", w.own, status="x"),
        lambda s, w: s.feedback.record("our-agent", w.flow_id, status="x"),
    ],
    "feedback.list": [lambda s, w: s.feedback.list(agent_id="their-agent")],
    "audit.record": [lambda s, w: s.audit.record(w.flow_id, "X")],
    "audit.get": [lambda s, w: s.audit.get(w.event)],
    "audit.list": [
        lambda s, w: s.audit.list(flow_id=w.flow_id),
        lambda s, w: s.audit.list(),
        lambda s, w: s.audit.list(event_type=SECRET),
    ],
    "audit.export": [lambda s, w: list(s.audit.export()), lambda s, w: list(s.audit.export(event_type=SECRET))],
    "watch.look": [lambda s, w: s.watch.look()],
    "watch.follow": [lambda s, w: list(s.watch.follow(rounds=1))],
    "ledger.append": [lambda s, w: s.ledger.append(w.flow_id, 1, context_ref="", evidence_hash="")],
    "ledger.get": [lambda s, w: s.ledger.get(w.flow_id)],
    "ledger.list": [lambda s, w: s.ledger.list()],
    "locks.acquire": [
        lambda s, w: s.locks.acquire(w.flow_id, {"r": 1}),
        lambda s, w: s.locks.acquire(w.own, {"resource": 1}, timeout_s=0),
    ],
    "locks.try_acquire": [
        lambda s, w: s.locks.try_acquire(w.flow_id, {"r": 1}),
        lambda s, w: s.locks.try_acquire(w.own, {"resource": 1}),
    ],
    "locks.extend": [lambda s, w: s.locks.extend(w.flow_id, "resource", ttl_s=9)],
    "locks.release": [lambda s, w: s.locks.release(w.flow_id, "resource")],
    "locks.release_all": [lambda s, w: s.locks.release_all(w.flow_id)],
    "locks.list": [lambda s, w: s.locks.list().items, lambda s, w: s.locks.list(flow_id=w.flow_id).items],
    "idempotency.once": [lambda s, w: s.idempotency.once("key", "another request", lambda: "own")],
    "idempotency.get": [lambda s, w: s.idempotency.get("key")],
    "idempotency.list": [lambda s, w: s.idempotency.list()],
    "idempotency.settle": [lambda s, w: s.idempotency.settle("key", 1)],
    "idempotency.delete": [lambda s, w: s.idempotency.delete("key")],
    "retries.reject": [lambda s, w: s.retries.reject(w.flow_id)],
    "retries.get": [lambda s, w: s.retries.get(w.flow_id)],
    "retries.allowed": [lambda s, w: s.retries.allowed(w.flow_id)],
    "sagas.mark_dirty": [lambda s, w: s.sagas.mark_dirty(w.clean, "x")],
    "sagas.get": [lambda s, w: s.sagas.get(w.flow_id)],
    "sagas.list": [lambda s, w: s.sagas.list()],
    "sagas.compensate": [
        lambda s, w: s.sagas.compensate(w.flow_id, "NOOP"),
        lambda s, w: s.sagas.compensate(w.flow_id, "ALERT_HUMAN"),
    ],
    "sagas.clear": [lambda s, w: s.sagas.clear(w.flow_id, by="we")],
    "escalations.request": [lambda s, w: s.escalations.request(w.flow_id, reason="x")],
    "escalations.resolve": [lambda s, w: s.escalations.resolve(w.asked, "approve", by="we")],
    "escalations.expire": [lambda s, w: s.escalations.expire(w.asked)],
    "escalations.get": [lambda s, w: s.escalations.get(w.asked)],
    "escalations.wait": [lambda s, w: s.escalations.wait(w.asked, timeout_s=0)],
    "evaluations.list": [lambda s, w: s.evaluations.list()],
    "evaluations.get": [lambda s, w: s.evaluations.get("battle")],
    "evaluations.reveal": [lambda s, w: s.evaluations.reveal("battle")],
    "dbom.get": [lambda s, w: s.dbom.get("battle")],
    "dbom.envelope": [lambda s, w: s.dbom.envelope("battle")],
    "dbom.spread": [lambda s, w: s.dbom.spread()],
    "dbom.check_intent": [lambda s, w: s.dbom.check_intent(lambda text: [1.0], evaluation_id="battle")],
    "erase.subject": [lambda s, w: s.erase.subject("Ada")],
    "imports.list": [lambda s, w: s.imports.list()],
    "retention.prune": [
        lambda s, w: s.retention.prune("flows", keep=0),
        lambda s, w: s.retention.prune("audit", keep=0),
        lambda s, w: s.retention.prune("feedback", keep=0),
    ],
    "retention.list": [lambda s, w: s.retention.list()],
    "retention.hold": [lambda s, w: s.retention.hold(flow_id=w.flow_id, reason="ours")],
    "retention.floor": [lambda s, w: s.retention.floor(30, reason="ours")],
    "retention.lift": [lambda s, w: s.retention.lift(w.rule, reason="ours")],
    "retention.draft": [
        lambda s, w: s.retention.draft("hold", flow_id=w.flow_id, reason="ours"),
        lambda s, w: s.retention.draft("lift", id=w.rule, reason="ours"),
    ],
    "limits.get": [lambda s, w: s.limits.get()],
    "retention.rules": [lambda s, w: s.retention.rules(all=True)],
    "skills.status": [lambda s, w: s.skills.status(w.skill)],
    "skills.list": [lambda s, w: s.skills.list().items],
    "skills.revoke": [lambda s, w: s.skills.revoke(w.skill, by="we")],
    "skills.load": [lambda s, w: s.skills.load(w.skill)],
    "skills.verify": [lambda s, w: s.skills.verify().items, lambda s, w: s.skills.verify(w.skill).items],
    "skills.watch": [lambda s, w: list(s.skills.watch(rounds=1))],
    "skills.approve": [lambda s, w: s.skills.approve(w.skill, by="we")],
    "objects.put": [lambda s, w: s.objects.put("their-object", type="t")],
    "objects.annotate": [lambda s, w: s.objects.annotate(_THEIR_OBJECT, {"x": 1})],
    "objects.delete": [lambda s, w: s.objects.delete(_THEIR_OBJECT)],
    "objects.apply": [
        lambda s, w: s.objects.apply({"own": {"type": "t"}}, base=w.snapshot),
        lambda s, w: s.objects.apply({_THEIR_OBJECT: None}),
    ],
    "objects.get": [
        lambda s, w: s.objects.get(_THEIR_OBJECT),
        lambda s, w: s.objects.get(_THEIR_OBJECT, at=w.snapshot),
        lambda s, w: s.objects.get(_THEIR_OBJECT, version=1),
    ],
    "objects.folders": [lambda s, w: s.objects.folders()],
    "objects.list": [
        lambda s, w: s.objects.list().items,
        lambda s, w: s.objects.list(at=w.snapshot).items,
        lambda s, w: s.objects.list(at="head").items,
    ],
    "objects.children": [lambda s, w: s.objects.children(_THEIR_OBJECT)],
    "objects.history": [lambda s, w: s.objects.history(_THEIR_OBJECT).items],
    "objects.uses": [lambda s, w: s.objects.uses(_THEIR_OBJECT).items],
    "objects.search": [lambda s, w: s.objects.search(SECRET)],
    "objects.reindex": [lambda s, w: s.objects.reindex()],
    "graph.roots": [lambda s, w: s.graph.roots()],
    "graph.subtree": [lambda s, w: s.graph.subtree(_THEIR_OBJECT)],
    "graph.walk": [lambda s, w: s.graph.walk(_THEIR_OBJECT)],
    "threads.put_checkpoint": [lambda s, w: s.threads.put_checkpoint("their-thread", {}, parent_id="z")],
    "threads.put_writes": [lambda s, w: s.threads.put_writes("their-thread", "z", "task", [(0, "is", 1)])],
    "threads.get_checkpoint": [lambda s, w: s.threads.get_checkpoint("their-thread")],
    "threads.list_checkpoints": [
        lambda s, w: s.threads.list_checkpoints("their-thread").items,
        lambda s, w: s.threads.list_checkpoints().items,
    ],
    "threads.claim": [lambda s, w: s.threads.claim("their-thread")],
    "threads.list": [lambda s, w: s.threads.list().items, lambda s, w: s.threads.list(facts={"is": SECRET}).items],
    "threads.get": [lambda s, w: s.threads.get("their-thread")],
    "threads.copy": [lambda s, w: s.threads.copy("their-thread", "own")],
    "threads.delete": [lambda s, w: s.threads.delete("their-thread")],
    "threads.delete_runs": [lambda s, w: s.threads.delete_runs(["their-run"])],
    "threads.prune": [lambda s, w: s.threads.prune(idle_days=0), lambda s, w: s.threads.prune(keep=1)],
    "snapshots.create": [lambda s, w: s.snapshots.create(), lambda s, w: s.snapshots.create(expected=w.snapshot)],
    "snapshots.list": [lambda s, w: s.snapshots.list().items],
    "snapshots.get": [lambda s, w: s.snapshots.get(w.snapshot)],
    "snapshots.diff": [lambda s, w: s.snapshots.diff(w.snapshot, "work")],
    "snapshots.rollback": [lambda s, w: s.snapshots.rollback(w.snapshot)],
    "snapshots.merge": [lambda s, w: s.snapshots.merge(w.snapshot)],
    "notes.put": [lambda s, w: s.notes.put(["their"], "note", {"is": "own"}, ttl_s=0.5)],
    "notes.get": [lambda s, w: s.notes.get(["their"], "note")],
    "notes.search": [
        lambda s, w: s.notes.search().items,
        lambda s, w: s.notes.search(["their"], filter={"is": {"$gte": ""}}).items,
        lambda s, w: s.notes.search(["their"], vector=[1.0, 0.0]).items,
    ],
    "notes.paths": [lambda s, w: s.notes.paths().items],
    "notes.touch": [lambda s, w: s.notes.touch(["their"], "note")],
    "notes.sweep": [lambda s, w: s.notes.sweep()],
    "notes.delete": [lambda s, w: s.notes.delete(["their"], "note")],
    "transcripts.append": [lambda s, w: s.transcripts.append(_THEIR_CHAT, ["x"], expected=1)],
    "transcripts.put_item": [lambda s, w: s.transcripts.put_item(_THEIR_CHAT, "key", "own")],
    "transcripts.put_state": [lambda s, w: s.transcripts.put_state(_THEIR_CHAT, "own")],
    "transcripts.update_state": [lambda s, w: s.transcripts.update_state(_THEIR_CHAT, {"k": "own"}, expected=9)],
    "transcripts.list_items": [
        lambda s, w: s.transcripts.list_items(_THEIR_CHAT).items,
        lambda s, w: s.transcripts.list_items(_THEIR_CHAT, tag="tag").items,
    ],
    "transcripts.get_item": [lambda s, w: s.transcripts.get_item(_THEIR_CHAT, "key")],
    "transcripts.get": [lambda s, w: s.transcripts.get(_THEIR_CHAT)],
    "transcripts.list": [lambda s, w: s.transcripts.list().items],
    "transcripts.pop_item": [lambda s, w: s.transcripts.pop_item(_THEIR_CHAT)],
    "transcripts.delete_item": [lambda s, w: s.transcripts.delete_item(_THEIR_CHAT, "key")],
    "transcripts.delete_items": [lambda s, w: s.transcripts.delete_items(_THEIR_CHAT)],
    "transcripts.delete": [lambda s, w: s.transcripts.delete(_THEIR_CHAT)],
}
_FILES: Final = {
    *("image.dump", "image.load", "image.open"),
    *("archive.export_car", "archive.import_car", "archive.export_lisp", "archive.import_lisp"),
}
ELSEWHERE: Final = {
    *_FILES,
    *("archive.push", "archive.restore", "memory.checkpoint_memory", "memory.restore_memory"),
    *("evaluations.submit", "dbom.verify", "imports.dir", "imports.green_agent"),
    *("passkeys.register", "passkeys.answer"),
}
"""Verbs that take a file or what an authenticator signed, or make a record of one's own; test_evaluations.py and
test_image.py have their namespaces."""


def _enter(store: sync.Holdproof, agent_id: str | None, **options: Any) -> None:
    with store.flows.run(agent_id, **options):
        pass


def _entries(store: sync.Holdproof) -> list[Any]:
    """Every entry of the log that can be seen, by its index."""
    entries = []
    for index in range(200):
        with suppress(errors.NotFoundError):
            entries.append(store.log.get(str(index)))
    return entries


def verbs(store: Any) -> Iterator[tuple[str, Any]]:
    for name, noun in vars(store).items():
        if isinstance(noun, Resource):
            shown = {
                verb: getattr(noun, verb)
                for verb in vars(type(noun))
                if verb[0] != "_" and verb not in {"held", "kind"}
            }
            yield from ((f"{name}.{verb}", bound) for verb, bound in shown.items() if callable(bound))


def _shown(answer: Any) -> str:
    plain = [each.to_dict() if hasattr(each, "to_dict") else each for each in _listed(answer)]
    return json.dumps(plain, default=str)


def _listed(answer: Any) -> Any:
    return answer if isinstance(answer, list | tuple) else [answer]


class Tenancy(OnStore):
    def test_no_verb_sees_or_touches_another_namespace(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        world = theirs(store, tmp_path)
        ours = sync.Holdproof(store.core, OURS)
        before = store.read(lambda tx: rows_of(tx, THEIRS))
        assert before.count(SECRET) > 20
        clock.advance(1)
        for name, tries in TRIES.items():
            for attempt in () if name == _REGISTERS else tries:
                try:
                    told = _shown(attempt(ours, world))
                except (*_GONE, *_LOCKED, errors.ConflictError, errors.UnauthenticatedError) as error:
                    told = json.dumps(error.to_dict())
                assert SECRET not in told, name
            assert store.read(lambda tx: rows_of(tx, THEIRS)) == before, name

    def test_ids_of_agents_and_flows_belong_to_their_namespace(
        self, store: sync.Holdproof, clock: FrozenClock, tmp_path: Path
    ) -> None:
        """With an agent and flows of the very ids of theirs, no verb of ours sees or touches theirs either."""
        world = theirs(store, tmp_path)
        ours = sync.Holdproof(store.core, OURS)
        before = store.read(lambda tx: rows_of(tx, THEIRS))
        clock.advance(1)
        for make in TWINS:
            assert SECRET not in _shown(make(ours, world))
        with pytest.raises(errors.AlreadyExistsError):
            ours.flows.start("their-agent", flow_id=world.flow_id)
        for name, tries in TRIES.items():
            for attempt in tries:
                try:
                    told = _shown(attempt(ours, world))
                except errors.HoldproofError as error:
                    told = json.dumps(error.to_dict())
                assert SECRET not in told, name
            assert store.read(lambda tx: rows_of(tx, THEIRS)) == before, name
        there = sync.Holdproof(store.core, THEIRS)
        assert there.flows.get(world.flow_id).flow_type == SECRET
        assert there.agents.authenticate("their-agent", world.token).ns == THEIRS

    def test_a_session_token_finds_its_agent_among_those_of_the_name(self, store: sync.Holdproof) -> None:
        tokens = {ns: store.agents.register("buyer", version="1.0.0", ns=ns).token for ns in (OURS, THEIRS)}
        for ns, token in tokens.items():
            assert store.tokens.authenticate_agent("buyer", token).ns == ns
            assert store.tokens.create("t", role="agent", agent_id="buyer", ns=ns).token.ns == ns
        with pytest.raises(errors.InvalidInputError, match="several namespaces"):
            store.tokens.create("t", role="agent", agent_id="buyer")
        with pytest.raises(errors.UnauthenticatedError):
            sync.Holdproof(store.core, OURS).tokens.authenticate_agent("buyer", tokens[THEIRS])

    def test_verify_walks_both_rows_of_one_id(
        self, store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """However pages fall: a row at the end of one hides no row of the same id in another namespace."""
        monkeypatch.setattr(row_check, "_PAGE", 1)
        for ns in (OURS, THEIRS):
            store.agents.register("buyer", version="1.0.0", ns=ns)
            store.state.put("buyer", {"of": ns}, ns=ns)
            store.flows.start("buyer", flow_id="order-17", ns=ns)
            store.contexts.put("order-17", {"of": ns}, ns=ns)
        report = store.verify.run()
        assert report.verdict in {Verdict.VALID, Verdict.PENDING}
        tables = {"agent_registry": 3, "agent_state": 2, "decision_flows": 2, "flow_context": 2}
        assert {table: report.checked[table] for table in tables} == tables
        store.core.database.write(lambda tx: tx.execute(_FORGE, ns=THEIRS, data="{}")).result()
        [finding] = [each for each in store.verify.run().findings if each.verdict is Verdict.TAMPERED]
        store.core.database.write(lambda tx: tx.execute(_FORGE, ns=THEIRS, data=f'{{"of":"{THEIRS}"}}')).result()
        assert (finding.table, finding.row) == ("flow_context", "order-17 of namespace theirs")

    def test_what_is_there_is_refused_as_if_it_were_not(self, store: sync.Holdproof, tmp_path: Path) -> None:
        world = theirs(store, tmp_path)
        ours = sync.Holdproof(store.core, OURS)
        for name in ("flows.get", "flows.transition", "flows.timeline", "audit.get", "escalations.get", "sagas.get"):
            with pytest.raises(errors.NotFoundError):
                TRIES[name][0](ours, world)
        lists = ("agents.list", "flows.list", "audit.list", "locks.list", "escalations.list", "ledger.list")
        for name in (*lists, "flows.export", "audit.export", "watch.look"):
            assert "their-agent" not in _shown(TRIES[name][0](ours, world))
        assert TRIES["idempotency.once"][0](ours, world) == "own"
        assert len(TRIES["locks.acquire"][1](ours, world)) == 1

    def test_every_verb_with_a_namespace_is_tried(self, store: sync.Holdproof) -> None:
        scoped = {name for name, verb in verbs(store) if "ns" in inspect.signature(verb).parameters}
        assert scoped | {"flows.run"} == TRIES.keys() | ELSEWHERE
        decisions = {name for name, _ in verbs(RuntimeResources(store))}
        whole_store = {"channels.deliver", "channels.list", "channels.test", "sweep.run"}
        assert decisions - scoped == {"flows.run", *whole_store}

    def test_every_table_with_a_namespace_is_compared(self) -> None:
        # Without what is of one database only: a table that SQLite rebuilds has no other end.
        scripts = re.sub(
            r"^--\w+:.*$", "", "".join(step.text for step in migrate.shipped("kernel")), flags=re.MULTILINE
        )
        made = re.findall(r"CREATE TABLE (\w+) \((.*?)\n\);", scripts, re.DOTALL)
        assert {table for table, columns in made if "\n  ns TEXT" in columns} == _TABLES.keys()

    def test_another_namespace_cannot_be_asked_for(self, store: sync.Holdproof) -> None:
        ours = sync.Holdproof(store.core, OURS)
        with pytest.raises(errors.NamespaceError):
            ours.agents.list(ns=THEIRS)
        with pytest.raises(errors.NamespaceError):
            ours.evaluations.list(ns=None)  # which is all of them
        with pytest.raises(errors.NamespaceError):
            _enter(ours, "their-agent", ns=THEIRS)
        assert ours.agents.list(ns=OURS).items == []
        assert [agent.ns for agent in store.agents.list(ns="main").items] == ["main"]

    def test_a_decision_stays_in_the_namespace_of_its_store(self, store: sync.Holdproof) -> None:
        ours = sync.Holdproof(store.core, OURS)
        ours.agents.register("our-agent", version="1.0.0")

        @ours.flow(name="trade", agent="our-agent")
        def trade(flow: Any) -> str:
            flow.step("buy", lambda: 1)
            return str(flow.flow_id)

        assert ours.flows.get(trade()).ns == OURS
        with pytest.raises(errors.NamespaceError):
            trade.opening(ns=THEIRS)()

    def test_duties_of_the_whole_store_are_refused(self, store: sync.Holdproof) -> None:
        ours = sync.Holdproof(store.core, OURS)
        for name, verb in verbs(ours):
            if "ns" not in inspect.signature(verb).parameters and name != "flows.run":
                with pytest.raises(errors.NamespaceError):
                    verb()

    def test_a_store_opened_for_a_namespace_works_in_it_on_both_faces(self, store: sync.Holdproof) -> None:
        if not self.shared:
            return
        with self.open(ns=OURS) as ours:
            ours.agents.register("our-agent", version="1.0.0")
            with ours.flows.run("our-agent") as flow:
                assert flow.step("one", lambda: 1) == 1
            assert ours.flows.get(flow.flow_id).ns == OURS

        async def there() -> str:
            face = Holdproof(store.core, OURS)
            async with face.flows.run("our-agent") as flow:
                pass
            return (await face.flows.get(flow.flow_id)).ns

        assert asyncio.run(there()) == OURS


class TestSqlite(OnSqlite, Tenancy):
    pass


class TestMemory(InMemory, Tenancy):
    pass


class TestPostgres(OnPostgres, Tenancy):
    pass
