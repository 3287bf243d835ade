"""Scheduled jobs: what one instance does for all, once in a period.

Rules:
- A job is claimed by one statement; of any number of instances one gets it, and none again within the period.
- A failed job may be tried again sooner. One whose instance died counts as started, and is due after the period.
- A claim from the future, by a wrong clock, is ignored.
"""

from typing import Final

from holdproof import validation
from holdproof.db import Tx, sql
from holdproof.model.instances import Duty
from holdproof.model.times import later

RETRY_S: Final = 3_600.0

_CLAIM = sql(
    "INSERT INTO upkeep (duty, begun_at, begun_by) VALUES (:duty, :now, :by)"
    " ON CONFLICT (duty) DO UPDATE SET begun_at = excluded.begun_at, begun_by = excluded.begun_by, ended_at = NULL,"
    " error = NULL WHERE upkeep.begun_at <= :before OR upkeep.begun_at > :ahead"
    " OR (upkeep.error IS NOT NULL AND upkeep.begun_at <= :retry) RETURNING duty"
)


def claim(tx: Tx, duty: str, *, by: str, every_s: float) -> bool:
    """Claim a job that is due; return whether this instance got it."""
    last = get(tx, duty)
    before = later(tx.now, -every_s)
    ahead = later(tx.now, every_s)
    retry = later(tx.now, -RETRY_S)
    # The usual case, and nothing is written; the statement below decides the race.
    if last is not None and before < last.begun_at <= ahead and not (last.error and last.begun_at <= retry):
        return False
    row = {"duty": validation.words("duty", duty), "by": by, "now": tx.now}
    return tx.one(_CLAIM, **row, before=before, ahead=ahead, retry=retry) is not None


_END = sql("UPDATE upkeep SET ended_at = :now, error = :error WHERE duty = :duty AND begun_by = :by")


def end(tx: Tx, duty: str, *, by: str, error: str | None = None) -> None:
    """Record how a job ended; nothing if another instance has claimed it since."""
    tx.execute(_END, duty=duty, by=by, error=error, now=tx.now)


_GET = sql("SELECT duty, begun_at, begun_by, ended_at, error FROM upkeep WHERE duty = :duty")


def get(tx: Tx, duty: str) -> Duty | None:
    """Who ran a job last and how it ended; None if nobody ever did."""
    row = tx.one(_GET, duty=duty)
    return None if row is None else Duty(*row)


_ALL = sql("SELECT duty, begun_at, begun_by, ended_at, error FROM upkeep ORDER BY duty")


def recorded(tx: Tx) -> tuple[Duty, ...]:
    """Every job that ever ran."""
    return tuple(Duty(*row) for row in tx.all(_ALL))
