"""Fill stores with rows in every logged table, evaluations, and memory that has a history."""

import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from harness import authenticator, time_authority
from harness.anchor_log import AnchorTree
from holdproof import sync
from holdproof.crypto import timestamp
from holdproof.crypto.keys import generate
from holdproof.crypto.vkey import COSIGNATURE_V1, VerifierKey
from holdproof.db import Tx
from holdproof.db.sql import sql_postgres
from holdproof.evidence import (
    anchors,
    archives,
    evaluations,
    import_records,
    key_admission,
    key_use,
    log,
    tenants,
    timestamps,
    trust,
    witness_disputes,
)
from holdproof.model.retention import MonthArchive
from holdproof.upkeep import outbox, unlock

_PENDING = sql_postgres("SELECT 1 FROM log_pending LIMIT 1")
IMPORTED = {"importer": "dir", "source": "dir.db", "source_table": "flows", "source_id": "1", "row_key": "k"}
IMPORTED |= {"verdict": "TAKEN", "note": ""}
EVALUATIONS = 12
_ORIGIN = "https://console.example.org"


def populate(store: sync.Holdproof, count: int = EVALUATIONS) -> None:
    """Evaluations (one of them twice), a subject's sealed one, a root, a rotated judge whose first key is revoked."""
    for number in range(count):
        submit(store, f"b{number}", number / 100)
    submit(store, "b1", 0.5)
    submit(store, "sealed", 0.6, subject="Ada")
    store.run(trust.export_root(store.context))
    first = store.run(key_use.use(store.context, "judge")).keyid
    store.run(key_admission.rotate(store.context, "judge"))
    store.keys.revoke(first)
    submit(store, "after", 0.7)


def submit(store: sync.Holdproof, evaluation_id: str, score: float, **more: Any) -> Any:
    return store.run(
        evaluations.submit(
            store.context,
            {"task": evaluation_id},
            evaluation_id=evaluation_id,
            score=score,
            intent=[score, 1.0],
            **more,
        )
    )


def running(store: sync.Holdproof, agent_id: str = "trader", **options: Any) -> str:
    """A new flow, under way."""
    flow_id = store.flows.start(agent_id, **options).flow_id
    store.flows.transition(flow_id, "RUNNING")
    return flow_id


def settled(store: sync.Holdproof) -> None:
    """Wait until every leaf is under a signed head."""
    if store.database.dialect == "postgres":
        for _ in range(200):
            if not store.read(lambda tx: tx.all(_PENDING)):
                return
            time.sleep(0.02)
        raise AssertionError("the sequencer signed no head within four seconds")


def approve_and_lock(store: sync.Holdproof, skill: Path) -> None:
    skill.write_text("* Trade\n")
    store.skills.approve(str(skill), by="ada")
    skill.write_text("* Steal\n")
    store.skills.verify(str(skill))
    skill.unlink()


def _buy(flow: Any, cents: int) -> int:
    return cents


def fill(store: sync.Holdproof) -> None:
    """At least two rows in every covered table but `restores` and `witness_disputes`."""
    populate(store, 6)
    store.people.put("ada", groups=["finance"])
    for name in ("trader", "judge"):
        store.agents.register(name, version="1.0.0", contract={"limit": 7})
        store.agents.set_status(name, "DEGRADED", reason="try")
        store.agents.set_status(name, "ACTIVE")
        store.state.put(name, {"cash": 100})
        store.tokens.create(name)
        store.queues.create(name, concurrency=5, rate_limit=10, rate_period_s=60)
        store.flows.enqueue(name, "pay", args=["o-17", 900], queue=name, partition="a", deduplicate="o-17")
        store.schedules.create(name, "pay", cron="0 9 * * *", agent_id=name)
        flow_id = running(store, name, created_by=("user", "ada"))
        store.contexts.put(flow_id, {"price": 1.5})
        for number in range(3):
            store.audit.record(flow_id, "SEEN", detail={"by": name, "number": number})
        store.retention.prune("audit", keep=2)
        store.write(lambda tx, name=name: import_records.add(tx, name, IMPORTED, {"extra": 1}, ns="main"))  # type: ignore[misc]
        store.feedback.record(name, flow_id, status="GOOD", reason="fast", score=0.5, source="Human")
        store.ledger.append(flow_id, {"buy": 1}, context_ref="c", evidence_hash="00" * 32, signature="s")
        asked = store.escalations.request(flow_id, reason="may I?", proposal={"buy": 2}, deadline_s=600)
        store.escalations.ask(asked.id, "how many?", by="ada")
        store.write(
            partial(outbox._add, event="escalations", about=f"escalation:{asked.id}", names=["mail"], ns="main")
        )
        store.escalations.resolve(asked.id, "approve", by="ada", proposal={"buy": 1}, comment="less")
        with store.flows.run(name) as flow:
            flow.step("place", dict, {"did": name})
            store.flows.signal(flow.flow_id, "prices", {"price": 1.5}, idempotency_key=name, by="ada")
            flow.receive("prices")
            store.promises.resolve(flow.promise("paid").token, {"cents": 150})
            flow.publish("progress", 0.5)
            flow.stream("words").write("so far")
        # A client of its own, so that a store can be filled twice: a function is registered once.
        sync.Holdproof(store.core).flow(name="buy", agent=name)(_buy)(150)
        store.people.put(name, groups=["finance"], email=f"{name}@example.org")
        store.people.delegate(name, "ada", until_s=600)
        asked_to_sign = store.passkeys.register_options(name, origin=_ORIGIN)
        store.passkeys.register(authenticator.register(asked_to_sign.options, _ORIGIN), by=name)
        # In a namespace of their own: they decide nothing of what else is filled in.
        store.agents.register(name, version="1.0.0", ns=name)
        store.policies.create("tools", "permit(principal, action, resource);", by="ada", ns=name)
        store.policies.activate("tools", by="ada", ns=name)
        store.policies.decide(name, "tool.call", "search", context={"words": name}, ns=name)
        store.retention.floor(1, what="feedback", reason="try", ns=name)
        store.limits.set(name, objects=1_000_000, reason="try")
        store.threads.put_checkpoint(name, {"words": "so far"}, provable=True)
        store.objects.put(name, type="note", content="known", ns=name)
        store.snapshots.create("kept", ns=name)
        store.evaluations.submit({}, evaluation_id=f"of {name}", score=1, subject=name)
        store.verify.run()
        store.dbom.envelope(f"of {name}")
        store.erase.subject(name)
        approve_and_lock(store, store.context.paths.data / f"{name}.org")
        store.witness.add(f"https://{name}.example", key=_witness_key(name))
        store.write(partial(_stamp, name=name))
        store.write(partial(_anchor, name=name))
        store.write(partial(_tenant, name=name))
        store.write(partial(_archive, name=name))
        store.lockdown.lock(reason="try")
        root: Any = store.context.keys.load("root")
        store.lockdown.unlock(unlock.sign(store.lockdown.statement(reason="done").encode(), root).decode())
    settled(store)


def _stamp(tx: Tx, *, name: str) -> None:
    """A time token on the newest head."""
    head = log.head(tx)
    pem = time_authority.own_certificate()
    response = time_authority.stamped(head.encode(), datetime.fromisoformat(tx.now))
    stamp = timestamp.verify(response, head.encode(), timestamp.certificates(pem))
    timestamps.record(tx, f"https://{name}.example", head, certificate=pem, response=response, stamp=stamp)


def _anchor(tx: Tx, *, name: str) -> None:
    """An anchor of the newest head."""
    head = log.head(tx).encode()
    tree = AnchorTree(f"{name}.example")
    proof = tree.prove(tree.add(head))
    anchors.record(tx, head.decode(), proof, key=tree.key, url=f"https://{name}.example")


def _tenant(tx: Tx, *, name: str) -> None:
    """A tenant, and a head that could be its own."""
    row = tenants.begin(tx, f"of-{name.lower()}", "")
    tenants.record_head(tx, row, log.head(tx).encode().decode(), "")


def _archive(tx: Tx, *, name: str) -> None:
    """An archive of a month; the record that it names is of another table, so that it excuses nothing."""
    archive = MonthArchive(tx.new_id(), "audit", "2020-01", 1, f"/{name}", "00" * 32, name, tx.now)
    archives.record(tx, archive, [0])


def _witness_key(name: str) -> str:
    return VerifierKey(name, COSIGNATURE_V1, generate("ed25519").public).encode()


def dispute(store: sync.Holdproof) -> None:
    """Two witnesses that contradict the log; settled once a restore gives it another origin."""
    for name in ("one", "two"):
        url = f"https://{name}.example"
        store.write(partial(witness_disputes.record, url=url, verdict="FORKED", what="has seen another history"))
    settled(store)


def remember(store: sync.Holdproof) -> None:
    """Objects with a history, a long one, a snapshot twice, a value that is a list."""
    store.objects.apply(
        {f"o{number:02}": {"type": "t", "content": f"content {number}", "parent": "o00"} for number in range(40)}
    )
    store.objects.put("long", type="t", content="x" * 600_000, meta={"vector": [0.5, 0.25]})
    store.snapshots.create("first")
    store.objects.put("o01", type="t", content="other")
    store.objects.delete("o02")
    store.snapshots.create("second")
    store.objects.put("o03", type="t", content="not in any snapshot")
    store.values.put([{"n": number} for number in range(200)])
    settled(store)
