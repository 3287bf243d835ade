"""Retention floors and legal holds: what retention and erasure must leave, in rules that only root sets and lifts.

A rule is a statement of root (in-toto, in a DSSE envelope), a row, and its entry in the log:

    subject        [{"name": "rule <id>", "digest": {"sha256": digest of the predicate}}]
    predicateType  urn:holdproof:retention:v1
    predicate      {"action": "set" or "lift", "id", "kind", "scope", "target", "days", "reason", "ns", "origin", "at"}

Rules:
- Whoever can write the database, or has the log key, can neither lift a rule nor make one: root's signature counts, on
  a statement that names this log.
- Rules are read with every entry of theirs compared; one that was deleted from the table is found by its entry. Then
  nothing is removed: TamperedError.
- A floor refuses to prune what is younger, or by number alone; a hold what it names, and the erasure of it.
- Of several floors the longest counts. A hold on one flow keeps its whole tree.
- A rule that is lifted stays, with the reason. Without a root key there are no rules.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from holdproof.crypto import canonical, dsse, statement
from holdproof.crypto.canonical import Json
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor, Statement
from holdproof.db import Tx, sql
from holdproof.errors import ConflictError, FormatError, NotFoundError, ProofError, RetentionHeldError, TamperedError
from holdproof.evidence import keys, logged_tables, tree
from holdproof.evidence.tables import Table
from holdproof.model.namespaces import EVERY
from holdproof.model.retention import RetentionRule
from holdproof.model.times import later

PREDICATE_TYPE: Final = "urn:holdproof:retention:v1"
EVERYTHING: Final = "everything"
Action = Literal["set", "lift"]
RULES: Final = Table(
    "retention_rules",
    RetentionRule,
    kind="audit",
    key="id",
    logged=(
        *("id", "kind", "scope", "target", "days", "reason", "set_at", "lifted_at", "lift_reason", "statement", "ns"),
    ),
)
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class RuleStatement:
    """What root says about a rule; `reason` is that of setting it, or of lifting it."""

    action: Action
    id: str
    kind: str
    scope: str
    target: str
    days: int | None
    reason: str
    ns: str
    origin: str
    at: str

    def encode(self) -> bytes:
        """Return the bytes to be signed as a DSSE payload."""
        predicate: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        digest = canonical.sha256_hex(canonical.dumps(predicate))
        subject = ResourceDescriptor({"sha256": digest}, f"rule {self.id}")
        return statement.encode(Statement((subject,), PREDICATE_TYPE, predicate))


def parse(text: str) -> tuple[RuleStatement, dsse.Envelope]:
    """Parse a statement from untrusted text; its signature is not verified yet."""
    envelope = dsse.parse(text.strip().encode())
    parsed = statement.parse(envelope.payload)
    fields = dict(parsed.predicate)
    texts = [fields.get(name) for name in RuleStatement.__slots__ if name != "days"]
    days = fields.get("days")
    if parsed.predicate_type != PREDICATE_TYPE or fields.keys() != {*RuleStatement.__slots__}:
        raise FormatError("not a statement about a retention rule", predicate_type=parsed.predicate_type)
    if not all(isinstance(each, str) for each in texts) or isinstance(days, bool) or not isinstance(days, int | None):
        raise FormatError("statement about a retention rule: a field is of another type")
    stated = RuleStatement(**fields)  # type: ignore[arg-type]
    # An unknown action, or another order, would be signed but not understood here.
    if stated.action not in ("set", "lift") or stated.encode() != envelope.payload:
        raise FormatError("statement about a retention rule: not as Holdproof writes it")
    return stated, envelope


# --- setting and lifting -----------------------------------------------------------------------------------------

_ADD = sql(RULES.insert())
_GET = sql(RULES.select("WHERE id = :id", leaf=True))
_LIFT = sql(
    RULES.update("lifted_at", "lift_reason", "statement", where="id = :id AND leaf_ver = :leaf_ver - 1"),
)


def get(tx: Tx, id: str, *, ns: str) -> RetentionRule:
    """Return one rule; NotFoundError if there is none."""
    rule = RULES.find(tx, _GET, id=id)
    if rule is None or ns not in (EVERY, rule.ns):
        raise NotFoundError(f"there is no retention rule {id}; `holdproof retention rules` lists them", id=id)
    return rule


def apply(tx: Tx, text: str) -> RetentionRule:
    """Set or lift a rule by a statement that root signed; ProofError for another signer or another log."""
    stated, envelope = parse(text)
    origin = tree.state(tx).origin
    if stated.origin != origin:
        raise ProofError("the statement is for another log", found=stated.origin, expected=origin)
    dsse.verify(envelope, keys.active_keys(tx, "root"), payload_type=PAYLOAD_TYPE)
    tree.lock(tx)  # serialises statements: one rule is not set or lifted twice
    line = dsse.encode(envelope).decode()
    row = tx.one(_GET, id=stated.id)
    if stated.action == "lift":
        return _lift(tx, stated, line)
    if row is not None:
        raise ConflictError(f"the rule {stated.id} was set already", id=stated.id)
    named = {name: getattr(stated, name) for name in ("id", "kind", "scope", "target", "days", "reason", "ns")}
    columns = {**named, "set_at": tx.now, "lifted_at": None, "lift_reason": None, "statement": line}
    RULES.add(tx, _ADD, columns)
    return RULES.from_columns(columns)


def _lift(tx: Tx, stated: RuleStatement, line: str) -> RetentionRule:
    get(tx, stated.id, ns=stated.ns)
    row = tx.one(_GET, id=stated.id)
    assert row is not None, "it was just read"
    record = RULES.record(row)
    if record.value.lifted_at is not None:
        raise ConflictError(f"the rule {stated.id} was lifted at {record.value.lifted_at}", id=stated.id)
    texts = f"{record.columns['statement']}\n{line}"
    changes = {"lifted_at": tx.now, "lift_reason": stated.reason, "statement": texts}
    return RULES.change(tx, _LIFT, record, changes)


def _roots(tx: Tx) -> list[PublicKey]:
    """Return the root keys that were admitted by a valid statement, also former ones: their rules stay in force."""
    flawed = keys.flaws(tx)
    return [keys.public(key) for key in keys.keyring(tx, role="root") if key.keyid not in flawed]


# --- rules in force ----------------------------------------------------------------------------------------------

_ALL = logged_tables.selecting(RULES.logged, "id", "1 = 1")


def flaws(tx: Tx) -> dict[str, str]:
    """Return the rules that root did not set or lift as they stand, by id, with the reason."""
    roots = _roots(tx)
    problems: dict[str, str] = {}
    for row in logged_tables.read(tx, _ALL):
        # A row that differs from its entry is found as every row is; here it is asked who signed the others.
        with suppress(TamperedError):
            (columns,) = logged_tables.confirm_rows(RULES.logged, [row])
            problems[str(columns["id"])] = _flaw(columns, roots)
    return {rule: why for rule, why in problems.items() if why}


def _flaw(columns: Mapping[str, object], roots: list[PublicKey]) -> str:
    """Say why the statements of a rule do not say what its row says; empty where they do."""
    lines = str(columns["statement"]).split("\n")
    actions: list[Action] = ["set"] if columns["lifted_at"] is None else ["set", "lift"]
    if len(lines) != len(actions):
        return "it has not the statements that its state needs"
    for line, action in zip(lines, actions, strict=True):
        try:
            stated, envelope = parse(line)
            dsse.verify(envelope, roots, payload_type=PAYLOAD_TYPE)
        except FormatError as error:
            return f"root did not sign it: {error.message}"
        reason = columns["reason" if action == "set" else "lift_reason"]
        named = [getattr(stated, name) for name in ("id", "kind", "scope", "target", "days", "ns")]
        if (stated.action, stated.reason) != (action, reason) or named != [
            columns[name] for name in ("id", "kind", "scope", "target", "days", "ns")
        ]:
            return "root signed another rule"
    return ""


class InForce(NamedTuple):
    """The rules of a namespace that nobody lifted."""

    rules: tuple[RetentionRule, ...]

    def floor_days(self, what: str) -> int:
        """Return how many days records of a kind stay at least; 0 without a floor."""
        days = [each.days or 0 for each in self.rules if each.kind == "floor" and each.scope in (what, EVERYTHING)]
        return max(days, default=0)

    def holds(self, scope: str) -> list[RetentionRule]:
        """Return the holds of a scope."""
        return [each for each in self.rules if each.kind == "hold" and each.scope == scope]


def in_force(tx: Tx, *, ns: str) -> InForce:
    """Return the rules that count; TamperedError where one was edited, deleted, or made by anybody but root."""
    rows = logged_tables.confirm(tx, RULES.logged, _ALL)
    state = tree.state(tx)
    # Entries of rules without a row: somebody deleted what retention was to heed.
    params = {"start": 0, "end": state.size, "like": f'%"p":"{RULES.name}/%'}
    missing_rows = tx.all(RULES.logged.missing, **params)
    roots = _roots(tx)
    problems = [f"{each['id']}: {why}" for each in rows if (why := _flaw(each, roots))]
    if missing_rows or problems:
        what = problems[0] if problems else f"{len(missing_rows)} of them were deleted"
        raise TamperedError(f"retention rules are not as root set them: {what}", table=RULES.name)
    rules = (RULES.from_columns(each) for each in rows if each["lifted_at"] is None and each["ns"] == ns)
    return InForce(tuple(rules))


def refuse(rule: RetentionRule) -> RetentionHeldError:
    """Return the error for what a hold keeps."""
    what = "everything here is" if rule.scope == EVERYTHING else f"this {rule.scope} is"
    return RetentionHeldError(
        f"{what} under a legal hold since {rule.set_at} ({rule.reason}): root lifts it with"
        f" `holdproof retention lift {rule.id}`",
        rule=rule.id,
    )


def check_everything(tx: Tx, *, ns: str) -> InForce:
    """Return the rules in force; RetentionHeldError where everything is held."""
    rules = in_force(tx, ns=ns)
    for rule in rules.holds(EVERYTHING):
        raise refuse(rule)
    return rules


def earliest(tx: Tx, what: str, rules: InForce) -> str | None:
    """Return the moment from which on records must stay; None without a floor."""
    days = rules.floor_days(what)
    return later(tx.now, -days * _DAY_S) if days else None


# Two lookups by a key each: with OR between them SQLite reads every flow of the namespace.
_OF_SUBJECT = sql(
    "SELECT 1 FROM decision_flows WHERE dfid = :flow AND ns = :ns AND subject = :handle"
    " UNION ALL SELECT 1 FROM decision_flows WHERE root_dfid = :flow AND ns = :ns AND subject = :handle LIMIT 1"
)


def check_subject(tx: Tx, handle: str, *, ns: str) -> None:
    """Raise RetentionHeldError where a subject, a flow of theirs, or everything is held."""
    rules = check_everything(tx, ns=ns)
    for rule in rules.holds("subject"):
        if rule.target == handle:
            raise refuse(rule)
    for rule in rules.holds("flow"):
        # What the flow recorded could not be read any more, although the flow itself would stay.
        if tx.one(_OF_SUBJECT, handle=handle, ns=ns, flow=rule.target) is not None:
            raise refuse(rule)


_LIST = sql(RULES.select("WHERE (:ns = :every OR ns = :ns) AND (:all = 1 OR lifted_at IS NULL) ORDER BY id DESC"))


def every(tx: Tx, *, all: bool, ns: str) -> list[RetentionRule]:
    """Return the rules of a namespace, newest first; with `all` also those that were lifted."""
    return RULES.all(tx, _LIST, ns=ns, every=EVERY, all=int(all))


HELD: Final = (
    " EXISTS (SELECT 1 FROM retention_rules h WHERE h.ns = {flow}.ns AND h.kind = 'hold' AND h.lifted_at IS NULL"
    " AND ((h.scope = 'flow' AND h.target IN ({flow}.dfid, {flow}.root_dfid))"
    " OR (h.scope = 'subject' AND h.target = {flow}.subject)))"
)
"""A condition on a row of `decision_flows` by its alias: whether a hold keeps it. Its rules are those of `in_force`."""


def statement_of(tx: Tx, action: Action, rule: RetentionRule, *, reason: str) -> RuleStatement:
    """Return the statement that sets or lifts a rule of this store."""
    named = {name: getattr(rule, name) for name in ("id", "kind", "scope", "target", "days", "ns")}
    origin = tree.state(tx).origin
    return RuleStatement(action, **named, reason=reason, origin=origin, at=tx.now)
