"""Recorded decisions by the thousand, and what cedarpy itself says of them under a draft."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import cedarpy

from holdproof import sync
from holdproof.db import Tx
from holdproof.runtime import policy_acts

TOOLS: Final = ("pay", "search", "mail", "delete")
REGIONS: Final = ("eu", "us", "asia")
AGENTS: Final = {"buyer": {"level": 1, "may": ["pay", "search"]}, "clerk": {"level": 3, "may": ["mail"]}}
ACTIVE: Final = """
permit(principal, action, resource) when { context.amount < 900 };
@advice("ask") forbid(principal, action, resource == Tool::"delete") when { context has urgent && context.urgent };
"""
DRAFTS: Final = {
    "by amount": (
        'permit(principal, action, resource) when { context.amount < 500 || context.region == "eu" };',
        "",
    ),
    "by contract": (
        "permit(principal, action, resource) when { principal.contract.level > 1 };\n"
        'permit(principal == Agent::"buyer", action, resource) when { context.tags.contains("small") };\n'
        'forbid(principal, action, resource == Tool::"delete") unless { context has urgent };',
        "",
    ),
    "asking": (
        "permit(principal, action, resource) when { context.amount < 800 };\n"
        'forbid(principal, action, resource == Tool::"mail") when { context.region == "asia" };',
        '@id("ask") @advice("ask") forbid(principal, action, resource) when { context.amount > 300 };',
    ),
}
"""Drafts by name: what decides by itself, and the statements that ask."""
_BATCH: Final = 500


def requests(seed: int, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Agent, tool and inputs of acts, the same for the same seed.

    No two are alike: an act that somebody is asked about already is not recorded a second time.
    """
    rng = random.Random(seed)
    for number in range(count):
        inputs: dict[str, Any] = {"order": number, "amount": rng.randrange(1000), "region": rng.choice(REGIONS)}
        inputs["tags"] = rng.sample(("small", "new", "odd"), rng.randrange(4))
        if rng.random() < 0.5:
            inputs["urgent"] = rng.random() < 0.5
        yield rng.choice([*AGENTS]), rng.choice(TOOLS), inputs


def record(store: sync.Holdproof, seed: int, count: int) -> None:
    """Let active policies decide about acts, and record that."""
    for agent_id, contract in AGENTS.items():
        store.agents.register(agent_id, version="1.0", contract=contract)
    store.policies.create("tools", ACTIVE, by="ada")
    store.policies.activate("tools", by="ada")
    acts = [*requests(seed, count)]
    for start in range(0, count, _BATCH):
        store.write(partial(_decide, acts=acts[start : start + _BATCH]))


def _decide(tx: Tx, acts: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
    for agent_id, tool, inputs in acts:
        # A denial is a value here: its record is committed with the others.
        policy_acts.decide(tx, agent_id, "tool.call", tool, context=inputs)


def answers(seed: int, count: int, draft: str) -> list[str]:
    """What cedarpy says of each act under a draft, asked directly; *ask* where only statements that ask forbid it."""
    plain, asking = DRAFTS[draft]
    entities = [
        {"uid": {"type": "Agent", "id": agent_id}, "attrs": {"contract": contract, "version": "1.0"}, "parents": []}
        for agent_id, contract in AGENTS.items()
    ]
    asked = [
        {
            "principal": f'Agent::"{agent_id}"',
            "action": 'Action::"tool.call"',
            "resource": f'Tool::"{tool}"',
            "context": inputs,
        }
        for agent_id, tool, inputs in requests(seed, count)
    ]
    permitted = cedarpy.is_authorized_batch(asked, plain, entities)
    whole = cedarpy.is_authorized_batch(asked, f"{plain}\n{asking}", entities)
    return [
        "allow" if all_of_it.allowed else "ask" if rest.allowed else "deny"
        for rest, all_of_it in zip(permitted, whole, strict=True)
    ]


def redecided(store: sync.Holdproof, draft: str) -> Iterator[str]:
    """What `policies.reevaluate` says of each recorded decision under a draft, in the order they were recorded."""
    text = "\n".join(DRAFTS[draft])
    cursor: str | None = None
    last = 0
    recorded = {each.id: each.decision for each in _all(store)}
    differing: dict[int, str] = {}
    while last == 0 or cursor is not None:
        page = store.policies.reevaluate(text, cursor=cursor, limit=1000)
        differing |= {each.id: each.draft for each in page.differences}
        last += page.examined
        cursor = page.next_cursor
    assert last == len(recorded), "every decision was examined"
    for number in sorted(recorded):
        yield differing.get(number, recorded[number])


def _all(store: sync.Holdproof) -> Iterator[Any]:
    cursor: str | None = None
    while True:
        page = store.policies.decisions(cursor=cursor, limit=1000)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return
