"""The steps of a proposal: each is one conditional statement, with what depends on it in the same transaction."""

from typing import Any, Final

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import GrowthStepError, HoldproofError, NotFoundError, RollbackExpiredError, StaleVersionError
from holdproof.model.selfgrow import GrowthStatus, Proposal, RollbackToken, Seedling
from holdproof.model.times import later
from holdproof.storage.selfgrow import selfgrow_rows

ROLLBACK_S: Final = 7 * 86_400.0
_MOST_PATTERNS: Final = 100
_LONGEST_PATTERN: Final = 1_000

_PROPOSE = sql(
    "INSERT INTO self_grow_proposals (id, data, content_hash, context, entity, proposed_by, proposed_at, status,"
    " created_at, updated_at) VALUES (:id, :data, :content_hash, :context, :entity, :by, :now, 'draft', :now, :now)"
)


def propose(tx: Tx, data: Any, *, context: str, entity: str, by: str) -> Proposal:
    """Propose a change to what is known as `context.entity`; any plain JSON."""
    # Canonical JSON: the content hash is the same for equal content, whoever wrote it.
    text = canonical.dumps(data).decode()
    row = {"context": validation.name("context", context), "entity": validation.name("entity", entity)}
    row |= {"by": validation.name("by", by), "content_hash": selfgrow_rows.content_hash(text)}
    id = tx.new_id()
    tx.execute(_PROPOSE, expect=1, id=id, data=text, now=tx.now, **row)
    return selfgrow_rows.proposal(tx, id)


_VALIDATE = sql(
    "UPDATE self_grow_proposals SET status = :status, updated_at = :now WHERE id = :id AND status = 'draft'"
    " AND (CAST(:content_hash AS TEXT) IS NULL OR content_hash = :content_hash)"
)


def validate(tx: Tx, proposal_id: str, *, passed: bool = True, content_hash: str | None = None) -> Proposal:
    """Accept or reject a proposal; raises StaleVersionError if `content_hash` is not that of the stored proposal."""
    to = GrowthStatus.VALIDATED if passed else GrowthStatus.REJECTED
    if not tx.count(_VALIDATE, id=proposal_id, status=to.value, content_hash=content_hash, now=tx.now):
        proposal = selfgrow_rows.proposal(tx, proposal_id)
        if proposal.status == GrowthStatus.DRAFT:
            raise StaleVersionError(
                "the proposal is not the one that was reviewed; read it again", proposal_id=proposal_id
            )
        raise _illegal(proposal, to)
    return selfgrow_rows.proposal(tx, proposal_id)


_GERMINATE = sql(
    "UPDATE self_grow_proposals SET status = 'germinated', updated_at = :now WHERE id = :id AND status = 'validated'"
    " RETURNING data, context, entity"
)
_PLANT = sql(
    "INSERT INTO self_grow_nursery (id, proposal_id, data, handle, usage_count, success_count, failure_patterns,"
    " germinated_by, germinated_at, created_at, updated_at)"
    " VALUES (:id, :proposal_id, :data, :handle, 0, 0, '[]', :by, :now, :now, :now)"
)


def germinate(tx: Tx, proposal_id: str, *, by: str, data: Any = None) -> Seedling:
    """Put a validated proposal into the nursery, where it is tried; `data` replaces its content."""
    grown = None if data is None else canonical.dumps(data).decode()
    validation.name("by", by)
    row = tx.one(_GERMINATE, id=proposal_id, now=tx.now)
    if row is None:
        raise _illegal(selfgrow_rows.proposal(tx, proposal_id), GrowthStatus.GERMINATED)
    text, context, entity = row
    id = tx.new_id()
    handle = f"{context}.{entity}"
    planted = {"data": text if grown is None else grown, "handle": handle, "by": by, "now": tx.now}
    tx.execute(_PLANT, id=id, proposal_id=proposal_id, **planted, expect=1)
    return selfgrow_rows.seedling(tx, id)


_USE = sql(
    "UPDATE self_grow_nursery SET usage_count = usage_count + 1, success_count = success_count + :success,"
    " updated_at = :now WHERE id = :id AND pruned_at IS NULL AND EXISTS (SELECT 1 FROM self_grow_proposals p"
    " WHERE p.id = self_grow_nursery.proposal_id AND p.status IN ('germinated', 'promoted'))"
    " RETURNING failure_patterns"
)
_FAILED = sql("UPDATE self_grow_nursery SET failure_patterns = :patterns WHERE id = :id")


def use(tx: Tx, seedling_id: str, *, failure: str | None = None) -> Seedling:
    """Count a use: a success, or a failure with its pattern; each pattern is stored once."""
    if failure is not None:
        failure = validation.words("failure", failure, most=_LONGEST_PATTERN)
    row = tx.one(_USE, id=seedling_id, success=int(failure is None), now=tx.now)
    if row is None:
        proposal = selfgrow_rows.proposal(tx, selfgrow_rows.seedling(tx, seedling_id).proposal_id)
        raise GrowthStepError(f"{proposal.handle} is {proposal.status} and not in use", status=proposal.status)
    (failure_patterns,) = row
    patterns = selfgrow_rows.patterns(failure_patterns)
    if failure is not None and failure not in patterns:
        # Bounded: a seedling that always fails in new ways must not grow its row without end.
        newest = [*patterns, failure][-_MOST_PATTERNS:]
        tx.execute(_FAILED, id=seedling_id, patterns=validation.to_json("failure", newest), expect=1)
    return selfgrow_rows.seedling(tx, seedling_id)


_PROMOTE = sql(
    "UPDATE self_grow_proposals SET status = 'promoted', updated_at = :now WHERE status = 'germinated'"
    " AND id = (SELECT n.proposal_id FROM self_grow_nursery n WHERE n.id = :id)"
)
_TOKEN = sql(
    "INSERT INTO self_grow_rollback_tokens (id, handle, promoted_at, expires_at, spec_path, impl_path, spec_content,"
    " impl_content, created_at) VALUES (:id, :handle, :now, :expires_at, :spec_path, :impl_path, :spec_content,"
    " :impl_content, :now)"
)
_PROMOTED = sql(
    "UPDATE self_grow_nursery SET promoted_at = :now, rollback_token = :token, updated_at = :now WHERE id = :id"
)


def promote(
    tx: Tx,
    seedling_id: str,
    *,
    spec_path: str | None = None,
    impl_path: str | None = None,
    spec_content: str | None = None,
    impl_content: str | None = None,
) -> RollbackToken:
    """Put a seedling into use; the contents are those from before, which the token stores for 7 days."""
    before = {"spec_path": spec_path, "impl_path": impl_path, "spec_content": spec_content}
    before |= {"impl_content": impl_content}
    columns = {name: validation.optional_words(name, text) for name, text in before.items()}
    handle = selfgrow_rows.seedling(tx, seedling_id).handle
    # Promotions and rollbacks of one handle are ordered: "the latest" must not change in between.
    lock_exclusive(tx, f"selfgrow:{handle}")
    if not tx.count(_PROMOTE, id=seedling_id, now=tx.now):
        raise _illegal(
            selfgrow_rows.proposal(tx, selfgrow_rows.seedling(tx, seedling_id).proposal_id), GrowthStatus.PROMOTED
        )
    token = tx.new_id()
    until = later(tx.now, ROLLBACK_S)
    tx.execute(_TOKEN, expect=1, id=token, handle=handle, now=tx.now, expires_at=until, **columns)
    tx.execute(_PROMOTED, id=seedling_id, token=token, now=tx.now, expect=1)
    return selfgrow_rows.token(tx, token)


_ROLL_BACK = sql(
    "UPDATE self_grow_proposals SET status = 'rolled_back', updated_at = :now WHERE status = 'promoted'"
    " AND id = (SELECT n.proposal_id FROM self_grow_nursery n WHERE n.rollback_token = :token)"
    " AND EXISTS (SELECT 1 FROM self_grow_rollback_tokens t WHERE t.id = :token AND t.expires_at > :now)"
    " AND NOT EXISTS (SELECT 1 FROM self_grow_nursery n JOIN self_grow_nursery l ON l.handle = n.handle"
    " AND (l.promoted_at, l.rollback_token) > (n.promoted_at, n.rollback_token)"
    " JOIN self_grow_proposals p ON p.id = l.proposal_id AND p.status = 'promoted' WHERE n.rollback_token = :token)"
)


def rollback(tx: Tx, token_id: str) -> RollbackToken:
    """Undo a promotion within 7 days, the latest of its handle first; return what to restore where."""
    seedling = _of_token(tx, token_id)
    lock_exclusive(tx, f"selfgrow:{seedling.handle}")
    if not tx.count(_ROLL_BACK, token=token_id, now=tx.now):
        raise _no_way_back(tx, seedling, token_id)
    return selfgrow_rows.token(tx, token_id)


_HAS_TOKEN = sql("SELECT id FROM self_grow_nursery WHERE rollback_token = :token ORDER BY id LIMIT 1")


def _of_token(tx: Tx, token_id: str) -> Seedling:
    row = tx.one(_HAS_TOKEN, token=token_id)
    if row is None:
        raise NotFoundError(
            f"there is no rollback token {token_id}",
            remedy="Pass the one that `selfgrow promote` answered.",
            token_id=token_id,
        )
    (seedling_id,) = row
    return selfgrow_rows.seedling(tx, seedling_id)


def _no_way_back(tx: Tx, seedling: Seedling, token_id: str) -> HoldproofError:
    """Why a promotion was not undone."""
    proposal = selfgrow_rows.proposal(tx, seedling.proposal_id)
    if proposal.status != GrowthStatus.PROMOTED:
        return _illegal(proposal, GrowthStatus.ROLLED_BACK)
    # The token itself may have been deleted by `expire`, so the limit is computed from the promotion.
    until = later(seedling.promoted_at or tx.now, ROLLBACK_S)
    if until <= tx.now:
        return RollbackExpiredError(f"the rollback token expired at {until}", token_id=token_id, expires_at=until)
    return GrowthStepError(
        f"{seedling.handle} was promoted again since; roll that back first", handle=seedling.handle, token_id=token_id
    )


_PRUNE = sql(
    "UPDATE self_grow_proposals SET status = 'pruned', updated_at = :now WHERE status IN ('germinated', 'promoted')"
    " AND id = (SELECT n.proposal_id FROM self_grow_nursery n WHERE n.id = :id)"
)
_PRUNED = sql("UPDATE self_grow_nursery SET pruned_at = :now, updated_at = :now WHERE id = :id")


def prune(tx: Tx, seedling_id: str) -> Seedling:
    """Discard a seedling, or take a promoted one out of use; this cannot be undone."""
    if not tx.count(_PRUNE, id=seedling_id, now=tx.now):
        raise _illegal(
            selfgrow_rows.proposal(tx, selfgrow_rows.seedling(tx, seedling_id).proposal_id), GrowthStatus.PRUNED
        )
    tx.execute(_PRUNED, id=seedling_id, now=tx.now, expect=1)
    return selfgrow_rows.seedling(tx, seedling_id)


_EXPIRE = sql("DELETE FROM self_grow_rollback_tokens WHERE expires_at <= :now")


def expire(tx: Tx) -> int:
    """Delete expired rollback tokens; return how many."""
    return tx.count(_EXPIRE, now=tx.now)


def _illegal(proposal: Proposal, to: GrowthStatus) -> GrowthStepError:
    return GrowthStepError(
        f"a proposal that is {proposal.status} cannot become {to}", proposal_id=proposal.id, status=proposal.status
    )
