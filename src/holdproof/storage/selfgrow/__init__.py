"""Self-grow: proposals that are validated, tried in a nursery, promoted, and rolled back or pruned.

    grow = SelfGrow(storage.membrane)
    proposal = await grow.propose({"prompt": "Be brief."}, context="self", entity="soul", by="k-gent")
    await grow.validate(proposal.id)
    seedling = await grow.germinate(proposal.id, by="gardener")
    await grow.use(seedling.id)
    token = await grow.promote(seedling.id, spec_path="soul.md", spec_content="Be long.")
    await grow.rollback(token.id)

Rules:
- Only the legal steps of model/selfgrow.py, each once; any other is GrowthStepError, and nothing is changed.
- A promotion keeps what was there before for 7 days. It is rolled back in that time or never, and only while no later
  promotion of the same handle stands.
- Uses are counted while it is in the nursery or promoted; none is lost among racing callers.
"""

from holdproof.faces import Face, Noun, Reads, Writes
from holdproof.storage.selfgrow import rows, steps

__all__ = ["SelfGrow"]


class SelfGrow(Noun[Face]):
    """Proposals on their way into use."""

    propose = Writes(steps.propose)
    validate = Writes(steps.validate)
    germinate = Writes(steps.germinate)
    use = Writes(steps.use)
    promote = Writes(steps.promote)
    rollback = Writes(steps.rollback)
    prune = Writes(steps.prune)
    expire = Writes(steps.expire)
    proposal = Reads(rows.proposal)
    proposals = Reads(rows.proposals)
    seedling = Reads(rows.seedling)
    nursery = Reads(rows.nursery)
    token = Reads(rows.token)
