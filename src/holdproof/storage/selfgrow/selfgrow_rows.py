"""Reading proposals, the nursery and rollback tokens."""

import json
from typing import Any

from holdproof import paging, validation
from holdproof.crypto import canonical
from holdproof.db import Row, Tx, sql
from holdproof.errors import NotFoundError
from holdproof.model.page import Page
from holdproof.model.selfgrow import GrowthStatus, Proposal, RollbackToken, Seedling
from holdproof.model.times import END

_PROPOSAL = sql(
    "SELECT id, data, content_hash, context, entity, proposed_by, proposed_at, status, created_at, updated_at"
    " FROM self_grow_proposals WHERE id = :id"
)


def proposal(tx: Tx, proposal_id: str) -> Proposal:
    """Return one proposal."""
    row = tx.one(_PROPOSAL, id=proposal_id)
    if row is None:
        raise NotFoundError(
            f"there is no proposal {proposal_id}", listed_by="selfgrow proposals", proposal_id=proposal_id
        )
    return _proposal(row)


# Other programs may have written rows without a time: these come last.
_PROPOSALS = sql(
    "SELECT id, data, content_hash, context, entity, proposed_by, proposed_at, status, created_at, updated_at"
    " FROM self_grow_proposals WHERE (CAST(:status AS TEXT) IS NULL OR status = :status)"
    " AND (coalesce(created_at, ''), id) < (:at, :before) ORDER BY coalesce(created_at, '') DESC, id DESC LIMIT :limit"
)


def proposals(tx: Tx, *, status: str | None = None, cursor: str | None = None, limit: int = 100) -> Page[Proposal]:
    """List proposals, newest first."""
    at, before = paging.decode(cursor, END, "")
    status_value = None if status is None else validation.member("status", GrowthStatus, status).value
    rows = tx.all(_PROPOSALS, status=status_value, at=at, before=before, limit=paging.fetch(limit))
    return paging.page(map(_proposal, rows), limit, lambda proposal: (proposal.created_at, proposal.id))


_SEEDLING = sql(
    "SELECT id, proposal_id, data, handle, usage_count, success_count, failure_patterns, germinated_by, germinated_at,"
    " promoted_at, pruned_at, rollback_token, created_at, updated_at FROM self_grow_nursery WHERE id = :id"
)


def seedling(tx: Tx, seedling_id: str) -> Seedling:
    """Return one seedling."""
    row = tx.one(_SEEDLING, id=seedling_id)
    if row is None:
        raise NotFoundError(f"nothing in the nursery is called {seedling_id}", seedling_id=seedling_id)
    return _seedling(row)


_NURSERY = sql(
    "SELECT n.id, n.proposal_id, n.data, n.handle, n.usage_count, n.success_count, n.failure_patterns,"
    " n.germinated_by, n.germinated_at, n.promoted_at, n.pruned_at, n.rollback_token, n.created_at, n.updated_at"
    " FROM self_grow_nursery n JOIN self_grow_proposals p ON p.id = n.proposal_id"
    " WHERE (CAST(:status AS TEXT) IS NULL OR p.status = :status)"
    " AND (CAST(:handle AS TEXT) IS NULL OR n.handle = :handle)"
    " AND (coalesce(n.created_at, ''), n.id) < (:at, :before)"
    " ORDER BY coalesce(n.created_at, '') DESC, n.id DESC LIMIT :limit"
)


def nursery(
    tx: Tx, *, status: str | None = None, handle: str | None = None, cursor: str | None = None, limit: int = 100
) -> Page[Seedling]:
    """List what germinated, newest first."""
    at, before = paging.decode(cursor, END, "")
    status_value = None if status is None else validation.member("status", GrowthStatus, status).value
    filters = {"status": status_value, "handle": handle}
    rows = tx.all(_NURSERY, **filters, at=at, before=before, limit=paging.fetch(limit))
    return paging.page(map(_seedling, rows), limit, lambda seedling: (seedling.created_at or "", seedling.id))


_TOKEN = sql(
    "SELECT id, handle, promoted_at, expires_at, spec_path, impl_path, spec_content, impl_content, created_at"
    " FROM self_grow_rollback_tokens WHERE id = :id"
)


def token(tx: Tx, token_id: str) -> RollbackToken:
    """Return a rollback token: what can be restored with it."""
    row = tx.one(_TOKEN, id=token_id)
    if row is None:
        raise NotFoundError(
            f"there is no rollback token {token_id}",
            remedy="Pass the one that `selfgrow promote` answered.",
            token_id=token_id,
        )
    return RollbackToken(*row)


def content_hash(text: str) -> str:
    """The SHA-256 of the stored text of a proposal."""
    return canonical.sha256(text.encode()).hex()


def patterns(text: str | None) -> tuple[str, ...]:
    """Decode the column `failure_patterns`."""
    value = _decode(text)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _proposal(row: Row) -> Proposal:
    # Imported rows may have empty columns.
    id, data, *texts = row
    return Proposal(id, _decode(data), *("" if text is None else str(text) for text in texts))


def _seedling(row: Row) -> Seedling:
    id, proposal_id, data, handle, usage_count, success_count, failure_patterns, *times = row
    # Imported rows may have empty columns.
    counts = (int(usage_count or 0), int(success_count or 0))
    columns = (id, proposal_id, _decode(data), handle or "", *counts, patterns(failure_patterns), *times)
    return Seedling(*columns)


def _decode(text: str | None) -> Any:
    """Decode JSON; another text, left there by another program, is returned as it is."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
