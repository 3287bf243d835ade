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

from holdproof.executors import Executor, Reads, Resource, Writes
from holdproof.storage.selfgrow import selfgrow_rows, steps

__all__ = ["SelfGrow"]


class SelfGrow(Resource[Executor]):
    """Proposals that are validated, tried, promoted, and rolled back or pruned."""

    group = "Inspect"

    propose = Writes(
        steps.propose, example='\'{"prompt": "Be brief."}\' --context self --entity soul --by k-gent', creates=True
    )
    validate = Writes(steps.validate)
    germinate = Writes(steps.germinate)
    use = Writes(steps.use)
    promote = Writes(steps.promote)
    rollback = Writes(steps.rollback)
    prune = Writes(steps.prune)
    expire = Writes(steps.expire)
    proposal = Reads(selfgrow_rows.proposal)
    proposals = Reads(selfgrow_rows.proposals)
    seedling = Reads(selfgrow_rows.seedling)
    nursery = Reads(selfgrow_rows.nursery)
    token = Reads(selfgrow_rows.token)
