"""Stores with something of everything: rows in every table under the log, memory with a history."""

from pathlib import Path
from typing import Any

from holdproof import sync
from holdproof.importers import import_records
from holdproof.upkeep import unlock
from tests.conformance.decisions import running
from tests.conformance.places import settled
from tests.conformance.stores import populate

IMPORTED = {"importer": "dir", "source": "dir.db", "source_table": "flows", "source_id": "1", "row_key": "k"}
IMPORTED |= {"verdict": "TAKEN", "note": ""}


def approve_and_lock(store: sync.Holdproof, skill: Path) -> None:
    skill.write_text("* Trade\n")
    store.skills.approve(str(skill), by="ada")
    skill.write_text("* Steal\n")
    store.skills.verify(str(skill))
    skill.unlink()


def fill(store: sync.Holdproof) -> None:
    """At least two rows in every covered table but `restores`."""
    populate(store, 6)
    for name in ("trader", "judge"):
        store.agents.register(name, version="1.0.0", contract={"limit": 7})
        store.agents.set_status(name, "DEGRADED", reason="try")
        store.agents.set_status(name, "ACTIVE")
        store.state.put(name, {"cash": 100})
        store.tokens.create(name)
        flow_id = running(store, name, created_by=("user", "ada"))
        store.contexts.put(flow_id, {"price": 1.5})
        for number in range(3):
            store.audit.record(flow_id, "SEEN", detail={"by": name, "number": number})
        store.retention.prune("audit", keep=2)
        store.write(lambda tx, name=name: import_records.add(tx, name, IMPORTED, {"extra": 1}, ns="main"))  # type: ignore[misc]
        store.feedback.record(name, flow_id, status="GOOD", reason="fast", score=0.5, source="Human")
        store.ledger.append(flow_id, {"buy": 1}, context_ref="c", evidence_hash="00" * 32, signature="s")
        asked = store.escalations.request(flow_id, reason="may I?", proposal={"buy": 2}, deadline_s=600)
        store.escalations.resolve(asked.id, "approve", by="ada", proposal={"buy": 1}, comment="less")
        with store.flows.run(name) as flow:
            flow.step("place", dict, {"did": name})
        store.objects.put(name, type="note", content="known", ns=name)
        store.snapshots.create("kept", ns=name)
        store.evaluations.submit({}, evaluation_id=f"of {name}", score=1, subject=name)
        store.erase.subject(name)
        approve_and_lock(store, store.context.paths.data / f"{name}.org")
        store.lockdown.lock(reason="try")
        root: Any = store.context.keys.load("root")
        store.lockdown.unlock(unlock.sign(store.lockdown.statement(reason="done").encode(), root).decode())
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
