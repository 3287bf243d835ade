"""Conversion of DIR's rows: what each value becomes, and which rows cannot be stored.

Rules:
- A value that fits is stored unchanged; times get our spelling, and their original text is stored beside the row.
- A value that does not fit is replaced by its column's default, which the note says, and stored beside the row.
- A row without a usable key is kept aside, with the reason.
- Older names of tables and columns are recognised.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.errors import InvalidInputError
from holdproof.importers import driver
from holdproof.model.agents import STATUSES as AGENT_STATUSES
from holdproof.model.coordination import POLICIES
from holdproof.model.flows import STATUSES as FLOW_STATUSES
from holdproof.model.records import SEVERITIES, SOURCES
from holdproof.model.times import utc

OLD_TABLES: Final = {"context_session": "flow_context", "context_state": "agent_state"}
OLD_COLUMNS: Final = {"key": "idempotency_key"}

COLUMNS: Final = {
    "agent_registry": "agent_id:key contract:json priority:int status:agent agent_version:text? session_token:text?"
    " suspension_reason:text? registered_at:time updated_at:time",
    "decision_flows": "dfid:key root_dfid:text dfid_parent:key? agent_id:key flow_type:text flow_version:text"
    " status:flow created_by_type:text? created_by_id:text? priority:int started_at:time? completed_at:time?"
    " created_at:time updated_at:time",
    "flow_transitions": "dfid:key root_dfid:text from_status:text? to_status:text correlation_id:text?"
    " causation_id:text? created_at:time",
    "flow_context": "dfid:key data:json version:count updated_at:time",
    "agent_state": "agent_id:key data:json version:count updated_at:time",
    "decision_feedback_trajectory": "agent_id:key dfid:key status:text reason:text? score:real? source:source"
    " created_at:time",
    "idempotency_cache": "idempotency_key:key request_hash:text result:json created_at:time expires_at:time?",
    "saga_dirty_state": "dfid:key failed_step:text partial_state_json:json created_at:time",
    "resource_locks": "resource_id:key dfid:key amount:amount acquired_at:time expires_at:time?",
    "intent_retry": "dfid:key rejection_count:number max_retries:most retry_policy:policy next_retry_at:time?"
    " backoff_until:time? updated_at:time",
    "escalation_budget": "agent_id:key created_at:time",
    "escalation_requests": "dfid:key root_dfid:text agent_id:key reason:text context_json:json proposal_json:json"
    " impact:text status:asked human_decision:text? created_at:time resolved_at:time?",
    "decision_ledger_entries": "dfid:key root_dfid:text agent_id:key intent_payload:json context_ref:text"
    " evidence_hash:text signature:text committed_at:time",
    "decision_audit_events": "dfid:key root_dfid:text event_type:text severity:severity correlation_id:text?"
    " causation_id:text? step_id:text state:text detail_json:json created_at:time",
}
"""DIR's tables in the order in which they are imported: name and kind of each column, `?` where NULL is a value."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What becomes of one row: its values here, or None if it is kept aside, and notes about it."""

    table: str
    source: Mapping[str, Any]
    key: str
    values: dict[str, Any] | None
    notes: tuple[str, ...] = ()

    @property
    def source_id(self) -> str:
        """The id of the row in the source."""
        # DIR's tables have an `id`, or their key comes first.
        named = self.source.get("id", next(iter(self.source.values()), ""))
        return str(driver.as_json(named))

    @property
    def verdict(self) -> str:
        """TAKEN, ADAPTED or KEPT."""
        return "KEPT" if self.values is None else "ADAPTED" if self.notes else "TAKEN"

    def beside(self, written: Mapping[str, Any] | None) -> dict[str, Any]:
        """Every value of the source that the written row does not hold unchanged."""
        row = written or {}
        return driver.row_as_json(
            {name: value for name, value in self.source.items() if not _same(row.get(name, _ABSENT), value)}
        )


_ABSENT: Final = object()


def _same(ours: Any, theirs: Any) -> bool:
    return type(ours) is type(theirs) and ours == theirs


def plan(table: str, source: Mapping[str, Any], key: str) -> RowPlan:
    """Convert a row, column by column."""
    values: dict[str, Any] = {}
    notes: list[str] = []
    columns = {OLD_COLUMNS.get(name, name): value for name, value in source.items()}
    for name, kind in column_kinds(table):
        try:
            values[name] = _convert(kind, columns.get(name))
        except (ValueError, InvalidInputError) as error:
            # Without its key a row cannot be addressed here, whatever else it holds.
            if kind.startswith("key"):
                return RowPlan(table, source, key, None, (f"{name}: {error}",))
            values[name] = None if kind.endswith("?") else _KINDS[kind].default
            # A column that the source does not have at all needs no note.
            if name in columns:
                notes.append(f"{name}: {error}")
    return RowPlan(table, source, key, values, tuple(notes))


def column_kinds(table: str) -> list[tuple[str, str]]:
    """Name and kind of each column of a table."""
    return [(name, kind) for name, kind in (each.split(":") for each in COLUMNS[table].split())]


def _convert(kind: str, value: Any) -> Any:
    if value is None and kind.endswith("?"):
        return None
    return _KINDS[kind.removesuffix("?")].convert(value)


# --- kinds of values: conversion and default ------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("it is not a text" if not isinstance(value, str) else "it contains NUL")
    return value


def _json(value: Any) -> str:
    return validation.json_text("it", _text(value))


def _key(value: Any) -> str:
    return validation.name("it", value)


def _time(value: Any) -> str:
    try:
        return utc(_text(value))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"it is not a time ({error})") from error


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError("it is not a number")
    return float(value)


def _integer(least: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if _number(value) != int(value) or int(value) < least:
            raise ValueError("it is not an integer" if least < 0 else f"it is not an integer from {least} on")
        return int(value)

    return convert


def _amount(value: Any) -> float:
    if _number(value) < 0:
        raise ValueError("it is below zero")
    return float(value)


def _word(allowed: frozenset[str]) -> Callable[[Any], str]:
    # Accepted in upper and lower case; stored in our spelling.
    spellings = {word.upper(): word for word in allowed}

    def convert(value: Any) -> str:
        if _text(value).upper() not in spellings:
            raise ValueError(f"{value!r} is not one of {', '.join(sorted(allowed))}")
        return spellings[value.upper()]

    return convert


class _Kind(NamedTuple):
    convert: Callable[[Any], Any]
    default: Any


_LEAST: Final = -(2**63)
_ANSWERS: Final = frozenset({"PENDING", "APPROVED", "REJECTED", "CANCELLED", "RESOLVED"})
_KINDS: Final[dict[str, _Kind]] = {
    "key": _Kind(_key, None),
    "text": _Kind(_text, ""),
    "json": _Kind(_json, "{}"),
    "time": _Kind(_time, None),
    "int": _Kind(_integer(_LEAST), 0),
    "number": _Kind(_integer(0), 0),
    "count": _Kind(_integer(1), 1),
    "most": _Kind(_integer(1), 3),
    "real": _Kind(_number, 0.0),
    "amount": _Kind(_amount, 0.0),
    "agent": _Kind(_word(AGENT_STATUSES), "SUSPENDED"),
    "flow": _Kind(_word(FLOW_STATUSES), "CREATED"),
    "asked": _Kind(_word(_ANSWERS), "CANCELLED"),
    "severity": _Kind(_word(SEVERITIES), "INFO"),
    "source": _Kind(_word(SOURCES), "KERNEL"),
    "policy": _Kind(_word(POLICIES), "EXPONENTIAL_BACKOFF"),
}
