"""The resource of policies: what agents may do, decided before they do it."""

from typing import TYPE_CHECKING

from holdproof.executors import OWN_AGENT, Executor, Reads, Resource, RunsWith, Writes, owns
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.policy import policies
    from holdproof.runtime import policy_acts, policy_decisions
else:
    globals().update(lazy_functions("holdproof.policy", "policies"))
    globals().update(lazy_functions("holdproof.runtime", "policy_acts policy_decisions"))


class Policies(Resource[Executor]):
    """What agents may do: Cedar policies, decided before the act."""

    group = "Prove"
    # A token may let an agent read them. Nothing lets it write: an agent does not change what it is held by.
    grantable = True

    create = RunsWith(
        policies.create,
        grantable=False,
        files=("text",),
        creates=True,
        parameters={"name": "The policy's name.", "text": "Statements of Cedar."},
        example="payments payments.cedar --by ada",
    )
    get = Reads(
        policies.get,
        parameters={"name": "The policy's name.", "version": "Which version; the newest by default."},
        example="payments --version 2",
    )
    list = Reads(
        policies.list,
        columns=("name", "version", "state", "hash", "created_by", "changed_by", "changed_at"),
        parameters={"state": "DRAFT, ACTIVE or RETIRED."},
        example="--state ACTIVE",
    )
    activate = Writes(
        policies.activate,
        grantable=False,
        parameters={"name": "The policy's name.", "version": "Which version; the newest by default."},
        example="payments --by ada",
    )
    retire = Writes(
        policies.retire,
        grantable=False,
        parameters={"name": "The policy's name."},
        example="payments --by ada",
    )
    decide = Writes(
        policy_acts.decide,
        grantable=False,
        agent=owns(agent_id="agent", flow_id="flow?"),
        parameters={
            "action": "tool.call, memory.write or export.",
            "resource": "What it is done with: the tool's name, for one.",
            "context": "The inputs by name, as JSON.",
        },
        example="trader tool.call refund --context '{\"amount\": 90}'",
    )
    decisions = Reads(
        policy_decisions.list,
        grantable=False,
        agent=OWN_AGENT,
        columns=("id", "decided_at", "agent_id", "action", "resource", "decision", "reasons"),
        parameters={"action": "Of which kind of act.", "decision": "allow, deny or ask."},
        example="--decision deny",
    )
    reevaluate = Reads(
        policy_decisions.reevaluate,
        grantable=False,
        files=("draft",),
        parameters={
            "draft": "Statements of Cedar.",
            "name": "The active policy that the draft takes the place of; by default it decides alone.",
            "since": "Decisions from this time on.",
            "limit": "How many decisions are examined.",
        },
        example="draft.cedar --since 2026-01-01T00:00:00Z",
    )
