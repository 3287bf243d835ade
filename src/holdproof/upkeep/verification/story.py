"""The story of a bundle: what was decided, by whom, on which inputs, approved by whom, when; of proven records."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdproof.model.verify import BundleEvent, BundleStory
from holdproof.upkeep.trail import describe
from holdproof.upkeep.verification.offline import ProvenRecord


def tell(kind: str, records: Sequence[ProvenRecord]) -> BundleStory:
    """Return the story that records tell, each of which was proven to be in the log."""
    events = tuple(_event(each) for each in sorted(records, key=lambda each: each.index))
    if kind != "flow":
        row = records[0].content
        decided = f"evaluation {row['battle_id']} scored {row['score']}"
        result = describe.plain(row["raw_result"]) or ""
        return BundleStory(decided, "a judge of the store", (result,), (), str(row["timestamp"]), "", events)
    [flow] = _rows(records, "decision_flows")
    moves = _rows(records, "flow_transitions")
    calls = _rows(records, "flow_calls")
    by = f"agent {flow['agent_id']}, {flow['flow_type']} {flow['flow_version']}"
    inputs = tuple(f"{row['name']} {describe.plain(row['arguments']) or ''}" for row in calls)
    approvals = tuple(_approval(row) for row in _rows(records, "escalation_requests"))
    end = str(moves[-1]["created_at"]) if moves else ""
    return BundleStory(_decided(moves), by, inputs, approvals, str(flow["created_at"]), end, events)


def _rows(records: Sequence[ProvenRecord], table: str) -> list[Mapping[str, Any]]:
    return [each.content for each in records if each.table == table]


def _decided(moves: Sequence[Mapping[str, Any]]) -> str:
    if not moves:
        return "nothing yet"
    result = describe.plain(moves[-1].get("result"))
    return f"{moves[-1]['to_status']}: {result}" if result else str(moves[-1]["to_status"])


def _approval(row: Mapping[str, Any]) -> str:
    """Say who answered, how and when, and what was shown to that person."""
    proposal = f"shown {describe.plain(row['proposal_json']) or 'nothing'}"
    if row["resolved_by"] is None:
        return f"{row['status']}; {proposal}"
    answer = describe.plain(row["answer_json"])
    with_changes = f", answered with {answer}" if answer else ""
    return f"{row['status']} by {row['resolved_by']} at {row['resolved_at']}; {proposal}{with_changes}"


def _event(record: ProvenRecord) -> BundleEvent:
    row = record.content
    # A bundle holds the newest version of each record: told as such, whatever its number.
    words = describe.words(record.table, record.kind, "", describe.Version(row, record.version, True))
    return BundleEvent(record.at, record.kind, words.what, words.note, words.person, record.index)
