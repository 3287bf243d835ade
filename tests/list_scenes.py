"""A store with something on every list of the console: what flows hold and commit, files, skills, upkeep."""

from pathlib import Path
from typing import Final

from holdproof import sync
from holdproof.evidence import tenants
from holdproof.model.threads import EncodedValue

RULES: Final = (
    "# When to buy\n\nBuy when the trend of the index is up for three days.\nNever more than 5 % at once.\n",
    "# When to buy\n\nBuy when the trend of the index is up for five days.\nNever more than 5 % at once.\n"
    "Ask a person above 25,000 EUR.\n",
)


def populate_lists(store: sync.Holdproof, folder: Path) -> dict[str, str]:
    """Write it, and return the ids of the flows that wrote and used the object `rules/buying`."""
    for name in ("researcher", "trader"):
        store.agents.register(name, version="1.0.0")
    store.write(lambda tx: tenants.begin(tx, "acme", ""))
    ids = _memory(store)
    holder = store.flows.start("trader", flow_type="rebalance").flow_id
    store.locks.try_acquire(holder, {"ledger/2026-11": 1.0}, ttl_s=3_600)
    store.locks.try_acquire(holder, {"api calls": 3.0}, capacity=10.0, ttl_s=3_600)
    for number in range(3):
        flow = store.flows.start("trader" if number else "researcher", flow_type="order").flow_id
        store.ledger.append(
            flow, {"buy": "DAX", "amount": 1_000 + number}, context_ref=f"context-{number}", evidence_hash="ab" * 32
        )
    for number, score in enumerate((0.31, 0.62, 0.87)):
        store.evaluations.submit({"task": number}, evaluation_id=f"hedge-{number}", score=score, intent=[score])
    _asked(store)
    _talked(store)
    _files(store, folder)
    _upkeep(store, folder)
    return {**ids, "holder": holder}


def _memory(store: sync.Holdproof) -> dict[str, str]:
    ids = {}
    store.objects.put("rules/buying", type="rule", content={"text": RULES[0], "limit_eur": 20_000})
    with store.flows.run("researcher", flow_type="study the market") as flow:
        ids["writer"] = flow.flow_id
        content = {"text": RULES[1], "limit_eur": 25_000, "source": "backtest of 2026-10"}
        flow.step("write", lambda: store.objects.put("rules/buying", type="rule", content=content).version)
    for _ in range(2):
        with store.flows.run("trader", flow_type="rebalance") as flow:
            ids["reader"] = flow.flow_id
            flow.step("look up the rule", lambda: store.objects.get("rules/buying").version)
    return ids


def _asked(store: sync.Holdproof) -> None:
    """Questions, one of them answered; calls by their key; a token."""
    for reason in ("Buy at the open", "Sell before the report"):
        flow = store.flows.start("trader", flow_type="order").flow_id
        store.flows.transition(flow, "RUNNING")
        number = store.escalations.request(flow, reason=reason, proposal={"shares": 10}).id
    store.escalations.resolve(number, "approve", by="operator:Ada", comment="as agreed")
    store.idempotency.once("order o-17", {"shares": 10}, lambda: {"order": 17})
    store.tokens.create("nightly export", role="auditor")


def _talked(store: sync.Holdproof) -> None:
    """Two threads of a framework, two transcripts, and two snapshots of what is known."""
    for name in ("trip-1", "trip-2"):
        state = {"messages": EncodedValue("json", b'[{"role": "user", "content": "To Lisbon, please."}]')}
        store.threads.put_checkpoint(name, state, checkpoint_id="1f00001", metadata={"step": 1})
        store.transcripts.append(f"desk/{name}", [{"role": "user", "content": "hello"}])
    store.snapshots.create("before the fed", author="operator:Ada")
    store.objects.put("market/dax", type="fact", content={"trend": "up"})
    store.snapshots.create("after the fed", author="trader")


def _files(store: sync.Holdproof, folder: Path) -> None:
    store.blobs.put("reports/2026-10.txt", b"a quiet month", content_type="text/plain")
    store.blobs.put("reports/2026-11.bin", bytes(200_000), content_type="application/octet-stream")
    for number in range(3):
        store.vectors.add(f"note-{number}", [0.1 * (number + 1)] * 384, {"kind": "note", "of": "market"})
    for name in ("deploy.org", "refund.org"):
        (folder / name).write_text(f"* How to {name}\nStep by step.\n")
        store.skills.approve(str(folder / name), by="ada", comment="reviewed line by line")
    store.skills.revoke(str(folder / "refund.org"), by="ada", comment="outdated")


def _upkeep(store: sync.Holdproof, folder: Path) -> None:
    for _ in range(3):
        with store.flows.run("trader", flow_type="heartbeat"):
            pass
    store.retention.prune("flows", flow_type="heartbeat", keep=1)
    store.retention.floor(183, what="audit", reason="logs are kept for six months")
    store.retention.hold(flow_id=store.flows.list(limit=1).items[0].flow_id, reason="case 4711")
    store.backup.create(folder / "backups" / "monday")
