"""The skills that are locked, for `status` and every opening: apart from what reads and compares their files."""

from holdproof.db import Tx, sql

_IN_FORCE = sql(
    "SELECT s.path, s.reason, s.locked_at FROM skill_lockdowns s WHERE s.against = (SELECT coalesce(max(a.n), 0)"
    " FROM skill_approvals a WHERE a.ns = s.ns AND a.path = s.path) ORDER BY s.locked_at, s.path LIMIT :limit"
)


def in_force(tx: Tx, *, limit: int = 10) -> tuple[str, ...]:
    """Return the skills that are locked, in every namespace, a line each; the first few."""
    rows = tx.all(_IN_FORCE, limit=limit)
    return tuple(f"skill {path} is LOCKED since {since}: {reason}" for path, reason, since in rows)
