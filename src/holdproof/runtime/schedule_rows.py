"""Rows of schedules: finding them, locking them, and writing their next version.

A row is compared with its entry in the log before its next version is written, whoever writes it: the next version
would else make an edit look right.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from holdproof import validation
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import NotFoundError
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model.cron import Cron
from holdproof.model.schedules import Schedule
from holdproof.model.times import END, to_micros, to_text
from holdproof.runtime import flows, recorded

SCHEDULES: Final = Table(
    "schedules",
    Schedule,
    kind="schedule",
    key="schedule_id",
    logged=(
        *("schedule_id", "name", "function", "function_version", "arguments", "instant_as", "agent_id", "queue"),
        *("cron", "timezone", "catch_up", "paused", "version", "fired_until", "next_at", "created_at", "updated_at"),
        *("deleted_at", "ns"),
    ),
    loads={"paused": bool},
)


def to_datetime(text: str) -> datetime:
    """Return a moment as cron expressions reckon with it."""
    return datetime.fromisoformat(text)


def from_datetime(moment: datetime) -> str:
    """Return a moment as it is stored."""
    return to_text(to_micros(moment.isoformat()))


def next_instant(cron: Cron, after: datetime) -> str:
    """Return the first instant after a moment, as it is stored."""
    following = cron.next_after(after)
    # Only the end of the calendar has none: an expression that never matches is refused.
    return END if following is None else from_datetime(following)


def timing(cron: str, timezone: str, now: str) -> dict[str, Any]:
    """Return the columns that say when, for a schedule that begins now."""
    parsed = Cron.parse(validation.name("cron", cron), validation.name("timezone", timezone))
    return {"cron": cron, "timezone": timezone, "fired_until": now, "next_at": next_instant(parsed, to_datetime(now))}


# --- reading -------------------------------------------------------------------------------------------------------

_BY_NAME = sql(SCHEDULES.select("WHERE name = :name AND ns = :ns AND deleted_at IS NULL"))


def find(tx: Tx, name: str, ns: str) -> Schedule:
    """Return a schedule by name, its arguments as they are stored."""
    schedule = SCHEDULES.find(tx, _BY_NAME, name=name, ns=ns)
    if schedule is None:
        raise NotFoundError(f"there is no schedule {name}", listed_by="schedules list", name=name)
    return schedule


def exists(tx: Tx, name: str, ns: str) -> bool:
    """Return whether a name is taken."""
    return tx.one(_BY_NAME, name=name, ns=ns) is not None


def with_arguments(tx: Tx, schedule: Schedule) -> Schedule:
    """Return a schedule with its arguments as values, for its caller."""
    return replace(schedule, arguments=recorded.load(tx, schedule.arguments))


# --- writing -------------------------------------------------------------------------------------------------------

_ADD = sql(SCHEDULES.insert())
_CHANGE = sql(
    SCHEDULES.update(
        *("function", "function_version", "arguments", "instant_as", "agent_id", "queue", "cron", "timezone"),
        *("catch_up", "paused", "version", "fired_until", "next_at", "updated_at", "deleted_at"),
        where="schedule_id = :schedule_id AND leaf_ver = :leaf_ver - 1",
    )
)


def add(tx: Tx, row: Mapping[str, Any]) -> Schedule:
    """Write a new schedule, and let workers look again when they are to fire."""
    SCHEDULES.add(tx, _ADD, row)
    tx.notify(flows.tasks_topic(row["ns"]))
    return with_arguments(tx, SCHEDULES.from_columns(row))


_CONFIRM = logged_tables.selecting(SCHEDULES.logged, "schedule_id", "t.schedule_id = :schedule_id")


def confirmed(tx: Tx, schedule_id: str) -> StoredRecord[Schedule] | None:
    """Return a schedule that was compared with its entry in the log; None where it was deleted.

    Raises TamperedError where it was edited, or an older version was put back.
    """
    for row in logged_tables.confirm(tx, SCHEDULES.logged, _CONFIRM, schedule_id=schedule_id):
        columns = {column: row[column] for column in SCHEDULES.columns}
        if columns["deleted_at"] is None:
            return StoredRecord(SCHEDULES.from_columns(columns), columns, row["leaf_id"], row["leaf_ver"])
    return None


def lock(tx: Tx, schedule_id: str) -> StoredRecord[Schedule] | None:
    """Return a schedule, as `confirmed` does, that nobody else changes before this transaction ends."""
    lock_exclusive(tx, f"schedule:{schedule_id}")
    return confirmed(tx, schedule_id)


def lock_named(tx: Tx, name: str, ns: str) -> StoredRecord[Schedule]:
    """Lock a schedule by its name; NotFoundError where there is none."""
    record = lock(tx, find(tx, name, ns).schedule_id)
    # Somebody else may have deleted it while this transaction waited for the lock.
    if record is None:
        raise NotFoundError(f"there is no schedule {name}", listed_by="schedules list", name=name)
    return record


def change(tx: Tx, record: StoredRecord[Schedule], changes: Mapping[str, Any]) -> Schedule:
    """Write the next version that somebody made, and let workers look again when they are to fire."""
    row = {**changes, "version": record.value.version + 1, "updated_at": tx.now}
    schedule = SCHEDULES.change(tx, _CHANGE, record, row)
    tx.notify(flows.tasks_topic(schedule.ns))
    return with_arguments(tx, schedule)


def advance(tx: Tx, record: StoredRecord[Schedule], cron: Cron, until: datetime) -> None:
    """Write the next version that a firing made: every instant up to a moment is decided on."""
    columns = {"fired_until": from_datetime(until), "next_at": next_instant(cron, until)}
    SCHEDULES.change(tx, _CHANGE, record, columns)
