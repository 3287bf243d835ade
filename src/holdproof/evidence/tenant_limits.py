"""Limits of namespaces: how much a tenant may write and have open, said by root and held to inside transactions.

A limit is a statement of root (in-toto, in a DSSE envelope), a row, and its entry in the log:

    subject        [{"name": "limits of <ns>", "digest": {"sha256": digest of the predicate}}]
    predicateType  urn:holdproof:limits:v1
    predicate      {"id", "limits": {name: number}, "reason", "ns", "origin", "at"}

Rules:
- Whoever can write the database, or has the log key, cannot make or raise a limit: root's signature counts, on a
  statement that names this log. The newest statement of a namespace replaces the one before; an empty one ends limits.
- What is counted by rows (open flows, escalations, streams, objects) is counted under a lock, in the transaction that
  adds one; entries of a minute and bytes are counted in a row that the same transaction changes. No race passes one.
- What follows from what was admitted is counted and never refused: results of steps, answers, ends, erasures, and all
  that only removes.
- A store without limits pays a look at an empty table a second. A change counts at once in the process that made it,
  in others within a second.
- The writes of a namespace whose limits somebody edited are refused: TamperedError.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from holdproof.crypto import canonical, dsse, statement
from holdproof.crypto.canonical import Json
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor, Statement
from holdproof.db import Database, Query, Row, Tx, lock_exclusive, sql
from holdproof.errors import ConflictError, FormatError, HoldproofError, ProofError, TamperedError, TenantLimitError
from holdproof.evidence import keys, lockdown, log, logged_tables, tree
from holdproof.evidence.tables import Table
from holdproof.model.limits import LIMITS, TenantLimit
from holdproof.model.times import later

PREDICATE_TYPE: Final = "urn:holdproof:limits:v1"
TOPIC: Final = "tenant limits"
MOST: Final = 1 << 53
"""A limit is less than this."""


def _numbers(text: str) -> dict[str, int]:
    """Return limits as their column has them; none where somebody edited it into something else, as `verify` tells."""
    try:
        limits: dict[str, int] = json.loads(text)
    except ValueError:
        return {}
    return limits if _is_sound(limits) else {}


def _is_sound(limits: object) -> bool:
    return isinstance(limits, dict) and all(
        name in LIMITS and type(value) is int and 0 <= value < MOST for name, value in limits.items()
    )


RULES: Final = Table(
    "tenant_limits",
    TenantLimit,
    kind="audit",
    key="id",
    logged=("id", "limits", "reason", "set_at", "statement", "ns"),
    loads={"limits": _numbers},
)
_UNLIMITED: Final = 1 << 62
_MINUTE: Final = len("2026-11-19T10:00")


@dataclass(frozen=True, slots=True)
class LimitStatement:
    """What root says about the limits of a namespace."""

    id: str
    limits: Mapping[str, int]
    reason: str
    ns: str
    origin: str
    at: str

    def encode(self) -> bytes:
        """Return the bytes to be signed as a DSSE payload."""
        predicate: dict[str, Json] = {name: getattr(self, name) for name in self.__slots__}
        predicate["limits"] = dict(self.limits)
        digest = canonical.sha256_hex(canonical.dumps(predicate))
        subject = ResourceDescriptor({"sha256": digest}, f"limits of {self.ns}")
        return statement.encode(Statement((subject,), PREDICATE_TYPE, predicate))


def parse(text: str) -> tuple[LimitStatement, dsse.Envelope]:
    """Parse a statement from untrusted text; its signature is not verified yet."""
    envelope = dsse.parse(text.strip().encode())
    parsed = statement.parse(envelope.payload)
    fields: dict[str, Any] = dict(parsed.predicate)
    if parsed.predicate_type != PREDICATE_TYPE or fields.keys() != {*LimitStatement.__slots__}:
        raise FormatError("not a statement about the limits of a namespace", predicate_type=parsed.predicate_type)
    limits = fields["limits"]
    if not all(isinstance(each, str) for name, each in fields.items() if name != "limits") or not _is_sound(limits):
        raise FormatError("statement about limits: a field is of another type")
    stated = LimitStatement(**fields)
    # Another order, or other fields, would be signed but not understood here.
    if stated.encode() != envelope.payload:
        raise FormatError("statement about limits: not as Holdproof writes it")
    return stated, envelope


# --- setting -----------------------------------------------------------------------------------------------------

_ADD = sql(RULES.insert())
_NEWEST = sql(RULES.select("WHERE ns = :ns ORDER BY id DESC LIMIT 1"))
_BEGIN = sql("INSERT INTO tenant_usage (ns, minute, entries, bytes) VALUES (:ns, '', 0, 0) ON CONFLICT (ns) DO NOTHING")


def newest(tx: Tx, ns: str) -> TenantLimit | None:
    """Return what root said last about a namespace, or None."""
    return RULES.find(tx, _NEWEST, ns=ns)


def apply(tx: Tx, text: str) -> TenantLimit:
    """Set the limits of a namespace by a statement that root signed; ProofError for another signer or log."""
    stated, envelope = parse(text)
    origin = tree.state(tx).origin
    if stated.origin != origin:
        raise ProofError("the statement is for another log", found=stated.origin, expected=origin)
    dsse.verify(envelope, keys.active_keys(tx, "root"), payload_type=PAYLOAD_TYPE)
    tree.lock(tx)  # serialises statements: of two the newer one counts
    current = newest(tx, stated.ns)
    if current is not None and current.id >= stated.id:
        raise ConflictError(f"the limits of {stated.ns} were set by a newer statement, or by this one", id=current.id)
    columns = {
        "id": stated.id,
        "limits": canonical.dump_text(dict(stated.limits)),
        "reason": stated.reason,
        "set_at": tx.now,
        "statement": dsse.encode(envelope).decode(),
        "ns": stated.ns,
    }
    # What root says about a namespace is not the namespace's. Others share this transaction: theirs stays counted.
    limiter = tx.limiter
    tx.limiter = None
    try:
        RULES.add(tx, _ADD, columns)
    finally:
        tx.limiter = limiter
    tx.execute(_BEGIN, ns=stated.ns)
    tx.note(TOPIC, stated.ns)
    return RULES.from_columns(columns)


def _roots(tx: Tx) -> list[PublicKey]:
    """Return the root keys that were admitted by a valid statement, also former ones: their word stays in force."""
    flawed = keys.flaws(tx)
    return [keys.public(key) for key in keys.keyring(tx, role="root") if key.keyid not in flawed]


# --- what counts -------------------------------------------------------------------------------------------------

_ALL = logged_tables.selecting(RULES.logged, "id", "1 = 1")
_CURRENT = logged_tables.selecting(
    RULES.logged, "id", "NOT EXISTS (SELECT 1 FROM tenant_limits n WHERE n.ns = t.ns AND n.id > t.id)"
)


def flaws(tx: Tx) -> dict[str, str]:
    """Return the limits that root did not set as they stand, by id, with the reason."""
    roots = _roots(tx)
    origin = tree.state(tx).origin
    problems: dict[str, str] = {}
    for row in logged_tables.read(tx, _ALL):
        # A row that differs from its entry is found as every row is; here it is asked who signed the others.
        with suppress(TamperedError):
            (columns,) = logged_tables.confirm_rows(RULES.logged, [row])
            problems[str(columns["id"])] = _flaw(columns, roots, origin)
    return {rule: why for rule, why in problems.items() if why}


def _flaw(columns: Mapping[str, Any], roots: list[PublicKey], origin: str) -> str:
    """Say why the statement of a limit does not say what its row says; empty where it does."""
    try:
        stated, envelope = parse(str(columns["statement"]))
        dsse.verify(envelope, roots, payload_type=PAYLOAD_TYPE)
    except FormatError as error:
        return f"root did not sign it: {error.message}"
    # A restore gives the log another generation; the store stays the same.
    if log.generation(stated.origin)[0] != log.generation(origin)[0]:
        return "root signed it for another log"
    content = (stated.id, canonical.dump_text(dict(stated.limits)), stated.reason, stated.ns)
    return "" if content == tuple(columns[name] for name in ("id", "limits", "reason", "ns")) else "root signed another"


Outcome = Mapping[str, int] | TamperedError
"""The limits of a row, or why they are not as root set them."""


class LimitsInForce:
    """The limits of every namespace, each looked up once: checking a signature is what costs, and few rows change."""

    def __init__(self) -> None:
        self._outcomes: dict[Row, Outcome] = {}
        self._judged_by: object = None

    def read(self, tx: Tx) -> dict[str, Outcome]:
        """Return the limits of the namespaces that have any; an error in place of those that are not as root set them.

        Equal rows have the same outcome, for the same root keys of the same store.
        """
        roots = _roots(tx)
        origin = tree.state(tx).origin
        judged_by = (roots, log.generation(origin)[0])
        former = self._outcomes if judged_by == self._judged_by else {}
        rows = logged_tables.read(tx, _CURRENT)
        self._outcomes = {row: former[row] if row in former else _outcome(row, roots, origin) for row in rows}
        self._judged_by = judged_by
        ns_column = RULES.logged.column("ns")
        return {str(row[ns_column]): outcome for row, outcome in self._outcomes.items() if outcome}


def _outcome(row: Row, roots: list[PublicKey], origin: str) -> Outcome:
    try:
        (columns,) = logged_tables.confirm_rows(RULES.logged, [row])
        if why := _flaw(columns, roots, origin):
            ns = columns["ns"]
            raise TamperedError(f"the limits of {ns} are not as root set them: {why}", table=RULES.name)
        return RULES.from_columns(columns).limits
    except TamperedError as error:
        return error


_FLOW_IS_OPEN: Final = "status IN ('CREATED', 'RUNNING', 'WAITING_ESCALATION', 'COMPENSATING')"
COUNTED: Final[Mapping[str, Query]] = {
    name: sql(f"SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT :most) AS counted")  # noqa: S608 (constants)
    for name, rows in {
        "objects": "object_index WHERE ns = :ns",
        "open_escalations": "escalation_requests WHERE ns = :ns AND status = 'PENDING'",
        "open_flows": f"decision_flows WHERE ns = :ns AND {_FLOW_IS_OPEN}",
        "open_streams": "flow_stream_items i JOIN decision_flows f ON f.dfid = i.dfid AND f.ns = i.ns"  # noqa: S608
        f" WHERE f.ns = :ns AND f.{_FLOW_IS_OPEN} AND i.position = 0 AND NOT EXISTS (SELECT 1 FROM flow_stream_items c"
        " WHERE c.dfid = i.dfid AND c.ns = i.ns AND c.stream = i.stream AND c.closed = 1)",
    }.items()
}
"""The limits that are counted by rows; each stops counting at `:most`."""
_USED = sql("SELECT minute, entries, bytes FROM tenant_usage WHERE ns = :ns")


def usage(tx: Tx, ns: str, limits: Mapping[str, int]) -> dict[str, int]:
    """Return what a namespace uses of each of its limits; rows are counted to one beyond the limit."""
    minute, entries, written = tx.one(_USED, ns=ns) or ("", 0, 0)
    used = {"entries_per_minute": entries if minute == tx.now[:_MINUTE] else 0, "bytes": written}
    return {
        name: used[name] if name in used else _count(tx, ns, name, most + 1) for name, most in sorted(limits.items())
    }


_LIMITED = sql(
    RULES.select(
        "t WHERE limits <> '{}' AND NOT EXISTS (SELECT 1 FROM tenant_limits n WHERE n.ns = t.ns AND n.id > t.id)"
        " ORDER BY ns LIMIT 1000"
    )
)


def used(tx: Tx) -> dict[str, tuple[Mapping[str, int], Mapping[str, int]]]:
    """Return the limits of the namespaces that have any, by name, and what each uses; of the first thousand."""
    limited = RULES.all(tx, _LIMITED)
    return {each.ns: (each.limits, usage(tx, each.ns, each.limits)) for each in limited}


def reached(tx: Tx) -> dict[str, list[str]]:
    """Return the limits that nothing is left of, by namespace."""
    full = {
        ns: [name for name, most in limits.items() if uses[name] >= most] for ns, (limits, uses) in used(tx).items()
    }
    return {ns: names for ns, names in full.items() if names}


def _count(tx: Tx, ns: str, name: str, most: int) -> int:
    row = tx.one(COUNTED[name], ns=ns, most=most)
    assert row is not None, "an aggregate has one row"
    (count,) = row
    return int(count)


# --- holding to it -----------------------------------------------------------------------------------------------

# One row a namespace, changed by every transaction that writes in it: its lock is what no race passes. One that is
# gone, as nothing under the log is, begins anew: it must keep nobody from recording what happened.
_ROW: Final = "INSERT INTO tenant_usage (ns, minute, entries, bytes)"
_SPENT: Final = (
    "entries = CASE WHEN tenant_usage.minute = excluded.minute THEN tenant_usage.entries + 1 ELSE 1 END,"
    " bytes = tenant_usage.bytes + excluded.bytes, minute = excluded.minute"
)
_NEW_IS_WITHIN: Final = "CAST(:most_entries AS BIGINT) > 0 AND CAST(:size AS BIGINT) <= CAST(:most_bytes AS BIGINT)"
_IS_WITHIN: Final = (
    "(tenant_usage.minute <> :minute OR tenant_usage.entries < CAST(:most_entries AS BIGINT))"
    " AND tenant_usage.bytes + CAST(:size AS BIGINT) <= CAST(:most_bytes AS BIGINT)"
)
_COUNT = sql(f"{_ROW} VALUES (:ns, :minute, 1, :size) ON CONFLICT (ns) DO UPDATE SET {_SPENT}")
_SPEND = sql(
    f"{_ROW} SELECT CAST(:ns AS TEXT), CAST(:minute AS TEXT), 1, CAST(:size AS BIGINT) WHERE {_NEW_IS_WITHIN}"
    f" ON CONFLICT (ns) DO UPDATE SET {_SPENT} WHERE {_IS_WITHIN}"
)
_STORE = sql(
    f"{_ROW} SELECT CAST(:ns AS TEXT), '', 0, CAST(:size AS BIGINT)"
    " WHERE CAST(:size AS BIGINT) <= CAST(:most_bytes AS BIGINT) ON CONFLICT (ns) DO UPDATE"
    " SET bytes = tenant_usage.bytes + excluded.bytes"
    " WHERE tenant_usage.bytes + CAST(:size AS BIGINT) <= CAST(:most_bytes AS BIGINT)"
)
_ADMIT = sql(
    f"{_ROW} SELECT CAST(:ns AS TEXT), '', 0, 0 WHERE {_NEW_IS_WITHIN}"
    f" ON CONFLICT (ns) DO UPDATE SET bytes = tenant_usage.bytes WHERE {_IS_WITHIN}"
)
_CHANGED = sql("SELECT coalesce(max(id), ''), count(*) FROM tenant_limits")


class TenantLimiter:
    """Holds the namespaces of one open store to their limits; see db.tx.Limiter."""

    def __init__(self) -> None:
        self._in_force = LimitsInForce()
        self._limits: Mapping[str, Outcome] = {}
        self._version: object = None

    def look(self, tx: Tx) -> "TenantLimiter | None":
        """Look up what root said; return this limiter if anybody is limited."""
        version = tx.one(_CHANGED)
        if version != self._version:
            self._limits = self._in_force.read(tx)
            self._version = version
        return self if self._limits else None

    def spend(self, tx: Tx, ns: str, size: int, *, must: bool) -> None:
        """See db.tx.Limiter."""
        size += tx.stored_bytes
        tx.stored_bytes = 0
        if (limits := self._metered(ns, must=must)) is None:
            return
        params = {"ns": ns, "minute": tx.now[:_MINUTE], "size": size}
        if must:
            tx.execute(_COUNT, **params, expect=1)
        else:
            tx.guard(_SPEND, _refusal(tx, ns, limits), **params, **_most(limits))

    def store(self, tx: Tx, ns: str, size: int, *, must: bool = False) -> None:
        """See db.tx.Limiter."""
        if (limits := self._metered(ns, must=must)) is not None:
            most = _UNLIMITED if must else _most(limits)["most_bytes"]
            tx.guard(_STORE, _refusal(tx, ns, limits), ns=ns, size=size, most_bytes=most)

    def admit(self, tx: Tx, ns: str, size: int) -> None:
        """See db.tx.Limiter."""
        if (limits := self._metered(ns)) is not None:
            params = {"ns": ns, "minute": tx.now[:_MINUTE], "size": size}
            tx.guard(_ADMIT, _refusal(tx, ns, limits), **params, **_most(limits))

    def require(self, tx: Tx, ns: str, name: str, adding: int = 1) -> None:
        """See db.tx.Limiter."""
        most = self._of(ns).get(name)
        if most is None:
            return
        # Held to the end of the transaction: between counting and adding nobody else adds.
        lock_exclusive(tx, f"limit:{ns}:{name}")
        if _count(tx, ns, name, most + 1) + adding > most:
            raise TenantLimitError(
                f"the namespace {ns} may have {most} {name.replace('_', ' ')}: end or remove some, or let root allow"
                f" more (`holdproof limits set {ns}`)",
                ns=ns,
                limit=name,
                most=most,
            )

    def _of(self, ns: str) -> Mapping[str, int]:
        limits = self._limits.get(ns, {})
        if isinstance(limits, TamperedError):
            raise limits
        return limits

    def _metered(self, ns: str, *, must: bool = False) -> Mapping[str, int] | None:
        """Return the limits of a namespace whose entries and bytes are counted; None for others."""
        if must and isinstance(self._limits.get(ns), TamperedError):
            return None
        limits = self._of(ns)
        return limits if "bytes" in limits or "entries_per_minute" in limits else None


def _most(limits: Mapping[str, int]) -> dict[str, int]:
    return {
        "most_entries": limits.get("entries_per_minute", _UNLIMITED),
        "most_bytes": limits.get("bytes", _UNLIMITED),
    }


def _refusal(tx: Tx, ns: str, limits: Mapping[str, int]) -> Any:
    """Return what makes the error of a namespace that has written as much as it may."""
    names = [name for name in ("bytes", "entries_per_minute") if name in limits]
    numbers = " or ".join(f"{limits[name]} {name.replace('_', ' ')}" for name in names)
    renews = later(f"{tx.now[:_MINUTE]}:00.000000Z", 60.0)
    wait = f"wait until {renews}, or " if "entries_per_minute" in limits else ""

    def refuse(message: str) -> HoldproofError:
        del message  # which statement it was says nothing to the caller
        return TenantLimitError(
            f"the namespace {ns} has written its {numbers}: {wait}let root allow more (`holdproof limits set {ns}`);"
            f" `holdproof limits get {ns}` says which",
            ns=ns,
            limit=" ".join(names),
            possible_at=renews if wait else None,
        )

    return refuse


def start(database: Database) -> None:
    """Hold the namespaces of a store to their limits from now on: its gate looks them up."""
    gate = lockdown.gate_of(database)
    gate.limits = TenantLimiter().look

    def hurry(tx: Tx, namespaces: list[str]) -> None:
        del tx, namespaces
        gate.hurry()

    database.hooks.on_note[TOPIC] = hurry
