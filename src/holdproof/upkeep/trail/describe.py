"""Entries in words: for each table under the log, what a version of its rows says happened.

Rules:
- Only the newest version of a record is in its table. What an older entry says is told from columns that do not change,
  and no more than that: nothing is guessed from the state that came later.
- Nothing is decrypted: of content that belongs to a subject the trail says that it is sealed.
- A table without words of its own is told by its name and key, so that no entry is ever missing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdproof.errors import FormatError
from holdproof.lazy import lazy_module
from holdproof.model.flows import status_after

if TYPE_CHECKING:
    from holdproof.upkeep import unlock
else:
    unlock = lazy_module("holdproof.upkeep.unlock")

Columns = Mapping[str, Any]
SEALED: Final = "(sealed)"
_SEALED_MARK: Final = '{"$sealed":'
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a row that an entry is of: its columns, and which of the record's versions it is."""

    columns: Columns
    number: int
    newest: bool

    @property
    def first(self) -> bool:
        """Whether it is the first version of its record."""
        return self.number == 1


@dataclass(frozen=True, slots=True)
class Words:
    """What an entry says."""

    what: str
    note: str | None = None
    person: str | None = None
    proposal: str | None = None


def plain(value: Any) -> str | None:
    """Return a column as a text of bounded length; of a subject's content only that it is sealed."""
    if value is None or value == "":
        return None
    text = str(value)
    if text.startswith(_SEALED_MARK):
        return SEALED
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _flow(version: Version) -> Words:
    row = version.columns
    by = row["created_by_id"] if row["created_by_type"] not in (None, "agent") else None
    return Words(f"opened {row['flow_type']} {row['flow_version']}", person=plain(by))


def _transition(version: Version) -> Words:
    row = version.columns
    before = row["from_status"] or "CREATED"
    status = status_after(before, row["to_status"]) or row["to_status"]
    return Words(f"{before} to {status}", plain(row["reason"]))


def _step(version: Version) -> Words:
    row = version.columns
    name = row["name"] if row["n"] == 1 else f"{row['name']} ({row['n']})"
    # A step is started, then settled; versions between are attempts.
    if version.first:
        return Words(f"step {name} started", plain(f"undoes {row['compensates']}" if row["compensates"] else None))
    if not version.newest:
        return Words(f"step {name} went on")
    return Words(f"step {name} {row['state']}", plain(row["error"]))


def _call(version: Version) -> Words:
    row = version.columns
    return Words(f"called {row['name']} {row['version'] or ''}".rstrip(), plain(row["arguments"]))


_OUTCOMES: Final = {"APPROVED": "approved", "REJECTED": "rejected", "CANCELLED": "cancelled", "PENDING": "asked again"}


def _escalation(version: Version) -> Words:
    row = version.columns
    text = plain(row["proposal_json"])
    proposal = None if text == SEALED else text
    if version.first or not version.newest:
        return Words(f"asked: {plain(row['reason']) or 'approval'}", plain(row["impact"]), proposal=proposal)
    answer = plain(row["answer_json"])
    changes = f"with {answer}" if answer is not None else None
    note = "; ".join(filter(None, (changes, plain(row["comment"])))) or None
    outcome = _OUTCOMES.get(row["status"], str(row["status"]).lower())
    if row["status"] == "APPROVED" and row["kind"] == "approval":
        outcome = "approved as proposed" if answer is None else "approved with changes"
    return Words(outcome, note, person=plain(row["resolved_by"]), proposal=proposal)


def _event(version: Version) -> Words:
    row = version.columns
    detail = plain(row["detail_json"])
    note = None if detail == "{}" else detail
    return Words(f"{row['event_type']} ({row['severity']})", note, person=_author(row["detail_json"]))


def _author(detail: Any) -> str | None:
    """Return who recorded an audit event, where its detail says so."""
    try:
        value = json.loads(detail)
    except (TypeError, ValueError):
        return None
    author = value.get("recorded_by") if isinstance(value, dict) else None
    return author if isinstance(author, str) else None


def _agent(version: Version) -> Words:
    row = version.columns
    if version.first:
        return Words("agent registered")
    return Words(f"agent {row['status']}" if version.newest else "agent changed", plain(row["suspension_reason"]))


def _key(version: Version) -> Words:
    row = version.columns
    action = "revoked" if version.newest and row["revoked_from"] is not None else "admitted"
    return Words(f"{row['role']} key {str(row['keyid'])[:16]} {action}", plain(row["alg"]))


def _lockdown(version: Version) -> Words:
    row = version.columns
    if version.first:
        return Words(f"locked: {row['verdict']}", plain(row["reason"]))
    try:
        reason, signer = unlock.reason_and_signer(str(row["statement"]))
    except FormatError:  # somebody edited it: `verify` tells
        return Words("unlocked")
    return Words(f"unlocked by the {signer} key", plain(reason))


def _witness(version: Version) -> Words:
    row = version.columns
    # Of earlier versions only the address is known: it never changes.
    if version.newest and row["removed_at"] is not None:
        return Words(f"witness {row['url']} removed", plain(row["reason"]))
    key = plain(row["vkey"]) if version.newest else None
    return Words(f"witness {row['url']} {'added' if version.first else 'changed'}", key)


def _stamped(version: Version) -> Words:
    row = version.columns
    return Words(f"head of size {row['size']} stamped at {row['stamped_at']}", plain(row["authority"]))


def _anchored(version: Version) -> Words:
    row = version.columns
    return Words(f"head of size {row['size']} anchored as entry {row['log_index']} of another log", plain(row["log"]))


def _tenant(version: Version) -> Words:
    row = version.columns
    # Of earlier versions only the name is known: it never changes.
    if not version.newest:
        return Words(f"tenant {row['name']} changed")
    if row["finding"] is not None:
        return Words(f"tenant {row['name']}: its log is not believed", plain(row["finding"]))
    return Words(f"tenant {row['name']} {row['status']}", plain(row["reason"]))


def _token(version: Version) -> Words:
    row = version.columns
    if version.first:
        return Words(f"token {row['name']} created, {row['role']}", person=plain(row["created_by"]))
    return Words(f"token {row['name']} revoked", person=plain(row["revoked_by"]) if version.newest else None)


def _tree(version: Version) -> Words:
    row = version.columns
    # The row says where the name stands now; an older entry only that it was moved.
    if not version.newest:
        return Words(f"memory {row['name']} written")
    return Words(f"memory {row['name']} written", f"revision {row['rev']}, root {row['cid']}")


def _snapshot(version: Version) -> Words:
    row = version.columns
    return Words(f"memory snapshot {row['cid']}", plain(row["note"]))


def _approval(version: Version) -> Words:
    row = version.columns
    return Words(f"skill {row['path']}: {row['action']}", plain(row["comment"]), person=plain(row["approved_by"]))


def _skill_lockdown(version: Version) -> Words:
    row = version.columns
    return Words(f"skill {row['path']} locked", plain(row["reason"]))


def _erasure(version: Version) -> Words:
    row = version.columns
    return Words(f"erased {row['kind']}, {row['count']} records", person=plain(row["who"]))


def _pruning(version: Version) -> Words:
    row = version.columns
    return Words(f"retention removed {row['count']} {row['what']}", plain(row["rule"]), person=plain(row["who"]))


def _archive(version: Version) -> Words:
    row = version.columns
    what = f"{row['count']} {row['what']} of {row['month']} archived"
    return Words(what, f"{row['place']}, sha256 {row['sha256']}", person=plain(row["who"]))


def _limits(version: Version) -> Words:
    row = version.columns
    done = "lifted" if row["limits"] == "{}" else f"set to {row['limits']}"
    return Words(f"limits of {row['ns']} {done}", plain(row["reason"]))


def _rule(version: Version) -> Words:
    row = version.columns
    rule = (
        f"{row['kind']} on {row['scope']}" if row["days"] is None else f"floor of {row['days']} days on {row['scope']}"
    )
    if version.first:
        return Words(f"retention {rule} set", plain(row["reason"]))
    return Words(f"retention {rule} lifted", plain(row["lift_reason"]))


def _restore(version: Version) -> Words:
    row = version.columns
    return Words(f"restored to {row['origin']}", plain(row["source"]))


def _evaluation(version: Version) -> Words:
    row = version.columns
    return Words(f"evaluation {row['battle_id']} scored {row['score']}")


def _message(version: Version) -> Words:
    row = version.columns
    if version.first:
        return Words(f"message on {row['topic']} sent", person=plain(row["sent_by"]))
    return Words(f"message on {row['topic']} received")


def _promise(version: Version) -> Words:
    row = version.columns
    return Words(f"promise {row['name']} {'made' if version.first else row['state']}")


def _feedback(version: Version) -> Words:
    row = version.columns
    return Words(f"feedback {row['status']} from {row['source']}", plain(row["reason"]))


def _policy(version: Version) -> Words:
    row = version.columns
    name = f"policy {row['name']} {row['version']}"
    if version.first:
        return Words(f"{name} created", person=plain(row["created_by"]))
    state = str(row["state"]).lower() if version.newest else "changed"
    return Words(f"{name} {state}", person=plain(row["changed_by"]) if version.newest else None)


_RULINGS: Final = {"allow": "allowed", "deny": "denied", "ask": "asks about"}


def _policy_decision(version: Version) -> Words:
    row = version.columns
    ruling = _RULINGS.get(row["decision"], row["decision"])
    return Words(f"policy {ruling} {row['action']} {row['resource']}", plain(row["reasons"]))


def _person(version: Version) -> Words:
    row = version.columns
    by = plain(row["updated_by"]) if version.newest else None
    action = "named" if version.first else "removed" if version.newest and row["removed_at"] else "changed"
    return Words(f"person {row['name']} {action}", person=by)


def _delegation(version: Version) -> Words:
    row = version.columns
    pair = f"{row['from_person']} to {row['to_person']}"
    if version.first:
        return Words(f"delegated from {pair}", f"until {row['until']}", person=plain(row["created_by"]))
    return Words(f"delegation from {pair} ended", person=plain(row["ended_by"]))


def _answer(version: Version) -> Words:
    row = version.columns
    place = f" in the place of {row['seat']}" if row["seat"] not in (None, row["person"]) else ""
    return Words(
        f"answered: {row['decision']}{place}", plain(row["comment"]), person=plain(row["person"] or row["answered_by"])
    )


def _escalation_message(version: Version) -> Words:
    row = version.columns
    return Words(f"{row['kind']} on an escalation", plain(row["text"]), person=plain(row["said_by"]))


def _passkey(version: Version) -> Words:
    row = version.columns
    if version.first:
        return Words(f"passkey of {row['person']} registered", plain(row["origin"]), person=plain(row["created_by"]))
    return Words(f"passkey of {row['person']} revoked", person=plain(row["revoked_by"]))


def _notification(version: Version) -> Words:
    row = version.columns
    if version.first or not version.newest:
        return Words(f"people are told of {row['event']}")
    return Words(f"{row['event']} {row['outcome']}", plain(row["problems"]))


def _access(version: Version) -> Words:
    row = version.columns
    if row["kind"] == "export":
        return Words(f"exported by {row['what']}", plain(row["target"]), person=plain(row["who"]))
    return Words(f"content of a subject read by {row['what']}", plain(row["target"]), person=plain(row["who"]))


def _verification(version: Version) -> Words:
    row = version.columns
    count = f"{row['found']} findings" if row["found"] != 1 else "1 finding"
    return Words(f"verified ({row['level']}): {row['verdict']}", count, person=plain(row["who"]))


def _named(form: str, note: str = "") -> Callable[[Version], Words]:
    """Return the words of a table whose entries are told by their columns alone."""

    def say(version: Version) -> Words:
        return Words(form.format(**version.columns), plain(version.columns[note]) if note else None)

    return say


WORDS: Final[Mapping[str, Callable[[Version], Words]]] = {
    "accesses": _access,
    "agent_registry": _agent,
    "agent_state": _named("state of the agent written"),
    "battles": _evaluation,
    "decision_audit_events": _event,
    "decision_feedback_trajectory": _feedback,
    "decision_flows": _flow,
    "delegations": _delegation,
    "decision_ledger_entries": _named("verified intent recorded", "intent_payload"),
    "erasures": _erasure,
    "escalation_answers": _answer,
    "escalation_messages": _escalation_message,
    "escalation_requests": _escalation,
    "flow_calls": _call,
    "flow_context": _named("context written"),
    "flow_messages": _message,
    "flow_promises": _promise,
    "flow_steps": _step,
    "flow_stream_items": _named("stream {stream} item {position} written"),
    "flow_transitions": _transition,
    "flow_values": _named("value {key} published"),
    "imported_rows": _named("imported {source_table} {source_id}: {verdict}", "source"),
    "head_anchors": _anchored,
    "keyring": _key,
    "lockdowns": _lockdown,
    "log_witnesses": _witness,
    "time_tokens": _stamped,
    "notifications": _notification,
    "passkeys": _passkey,
    "people": _person,
    "policies": _policy,
    "policy_decisions": _policy_decision,
    "policy_sets": _named("active policies of {ns} changed"),
    "prunings": _pruning,
    "queues": _named("queue {name} configured"),
    "refs": _tree,
    "restores": _restore,
    "retention_archives": _archive,
    "retention_rules": _rule,
    "tenant_heads": _named("head of size {size} of the tenant {name} recorded", "origin"),
    "tenant_limits": _limits,
    "tenants": _tenant,
    "schedules": _named("schedule {name} written"),
    "schema_migrations": _named("migration {name} applied"),
    "skill_approvals": _approval,
    "skill_lockdowns": _skill_lockdown,
    "snapshots": _snapshot,
    "subjects": _named("key of a subject"),
    "access_tokens": _token,
    "thread_entries": _named("checkpoint {checkpoint_id} of thread {thread_id} written"),
    "verifications": _verification,
    "witness_disputes": _named("witness {url} contradicts: {verdict}", "what"),
}
"""What entries of each table say."""


def words(table: str, kind: str, key: object, version: Version) -> Words:
    """Return what an entry says, given the version of the row that it is of."""
    say = WORDS.get(table)
    return Words(f"{kind} {key}") if say is None else say(version)
