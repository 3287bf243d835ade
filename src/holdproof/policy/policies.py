"""Policies in the store: versions that are signed and under the log, and the set of those that are active.

Rules:
- A policy has a name and versions 1, 2, 3 …; a version is checked, signed with the judge key and written once. Only its
  state changes: DRAFT, ACTIVE, RETIRED. Of each name at most one version is active.
- What is active also stands in one row for the namespace (`policy_sets`), so that neither an edited state nor a missing
  row switches a policy off. That row is written with the first policy, and never removed: where it is missing although
  there are policies, or the log has its entry, it is TamperedError; else the namespace never had a policy.
- Before policies decide, that row and every active version are compared with their entries in the log, in the
  transaction that decides: TamperedError, and nothing runs. So an activation elsewhere counts at the next decision.
- Compiled policies are cached by the rows that they come from; rows that are equal were compared before.
"""

import json
import threading
import uuid
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from holdproof import paging, validation
from holdproof.crypto import canonical, dsse, statement
from holdproof.crypto.keys import Signer
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor
from holdproof.db import Call, Read, Row, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import (
    ConflictError,
    FormatError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    PolicySyntaxError,
    ProofError,
    TamperedError,
    UnknownKeyError,
)
from holdproof.evidence import key_use, keys, logged_tables, tree
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.policies import STATES, Policy, PolicySet
from holdproof.policy import engine
from holdproof.policy.engine import CompiledPolicies
from holdproof.store.context import Context

PREDICATE_TYPE: Final = "urn:holdproof:policy:v1"
POLICIES: Final = Table(
    "policies",
    Policy,
    kind="policy",
    key="policy_id",
    logged=(
        *("policy_id", "name", "version", "text", "hash", "state", "created_by", "created_at", "changed_by"),
        *("changed_at", "keyid", "statement", "ns"),
    ),
)
SETS: Final = Table(
    "policy_sets",
    PolicySet,
    kind="policy",
    key="ns",
    logged=("ns", "revision", "hash", "active", "changed_by", "changed_at"),
    loads={"active": json.loads},
)
HAS_POLICIES: Final = (
    "(SELECT 1 FROM policy_sets p WHERE p.ns = :ns UNION ALL SELECT 1 FROM policies p WHERE p.ns = :ns"
    " UNION ALL SELECT 1 FROM log_leaves p WHERE p.id = :policy_set LIMIT 1)"
)
"""A column for queries that acts make anyway, with `policy_set=set_handle(ns)`: 1 where the namespace ever had a
policy, also if its rows were removed since, else NULL."""
_SIGNED: Final = ("name", "version", "hash", "created_by", "created_at", "ns")
_NO_POLICIES: Final = "[]"


@lru_cache(maxsize=1024)
def set_handle(ns: str) -> str:
    """Return the handle under which the log has the policy set of a namespace."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:holdproof:policy_sets:{ns}"))


# --- creating ----------------------------------------------------------------------------------------------------

_NEWEST = sql("SELECT coalesce(max(version), 0) FROM policies WHERE ns = :ns AND name = :name")


def create(context: Context, name: str, text: str, *, by: str = "operator", ns: str = MAIN) -> Work[Policy]:
    """Store the next version of a policy, as a draft that decides nothing until it is activated.

    `text` is Cedar: one or more statements. Raises PolicySyntaxError, which names the line, for any other text.
    """
    validation.name("name", name, most=200)
    if "/" in name:
        raise InvalidInputError(
            "the name of a policy has no /, which comes before the @id of a statement", field="name"
        )
    yield from ask(Call(partial(engine.check, text)))
    signer: Signer = yield from key_use.use(context, "judge")
    newest, origin, now = yield from ask(Read(lambda tx: (_newest(tx, name, ns), tree.state(tx).origin, tx.now)))
    row = {
        "name": name,
        "version": newest + 1,
        "text": text,
        "hash": canonical.sha256_hex(text.encode()),
        "created_by": validation.name("by", by),
        "created_at": now,
        "ns": validation.namespace(ns),
        "keyid": signer.keyid,
    }
    envelope: str = yield from ask(Call(lambda: _sign(row, origin, signer)))
    return (yield from ask(Write(partial(_add, row={**row, "statement": envelope}))))


def _newest(tx: Tx, name: str, ns: str) -> int:
    [(version,)] = tx.all(_NEWEST, ns=ns, name=name)
    return int(version)


def _encode(row: Mapping[str, Any], origin: str) -> bytes:
    """Return the bytes that are signed for a version, in the log of that name."""
    predicate = {name: row[name] for name in _SIGNED}
    subject = (ResourceDescriptor({"sha256": row["hash"]}, row["name"]),)
    return statement.encode(statement.Statement(subject, PREDICATE_TYPE, {**predicate, "origin": origin}))


def _sign(row: Mapping[str, Any], origin: str, signer: Signer) -> str:
    return dsse.encode(dsse.sign(PAYLOAD_TYPE, _encode(row, origin), signer)).decode()


_ADD = sql(POLICIES.insert())
_ADD_SET = sql(SETS.insert())


def _add(tx: Tx, row: Mapping[str, Any]) -> Policy:
    ns = row["ns"]
    # Two who create a version of one name at once must not both be the next.
    _lock(tx, ns)
    if not keys.is_registered(tx, row["keyid"], "judge"):
        raise UnknownKeyError("the judge key is not in the keyring any more", keyid=row["keyid"])
    if _newest(tx, row["name"], ns) != row["version"] - 1:
        raise ConflictError(f"somebody else created a version of {row['name']} meanwhile: look again", name=row["name"])
    columns = {
        **row,
        "policy_id": tx.new_id(),
        "state": "DRAFT",
        "changed_by": row["created_by"],
        "changed_at": row["created_at"],
    }
    # Looked for before there is a policy, which says that there was a set.
    is_first = _set_record(tx, ns) is None
    POLICIES.add(tx, _ADD, columns)
    if is_first:
        empty = {
            "ns": ns,
            "revision": 0,
            "hash": _hash_of(_NO_POLICIES),
            "active": _NO_POLICIES,
            "changed_by": row["created_by"],
            "changed_at": tx.now,
        }
        SETS.add(tx, _ADD_SET, empty, handle=set_handle(ns))
    return POLICIES.from_columns(columns)


def _lock(tx: Tx, ns: str) -> None:
    lock_exclusive(tx, f"policies:{ns}")


def _hash_of(active: str) -> str:
    return canonical.sha256_hex(active.encode())


# --- reading -----------------------------------------------------------------------------------------------------

_GET = logged_tables.selecting(
    POLICIES.logged,
    "policy_id",
    "t.ns = :ns AND t.name = :name AND t.version = (SELECT coalesce(CAST(:version AS INTEGER), max(v.version))"
    " FROM policies v WHERE v.ns = :ns AND v.name = :name)",
)
_SET = logged_tables.selecting(SETS.logged, "ns", "t.ns = :ns")


def get(tx: Tx, name: str, *, version: int | None = None, ns: str = MAIN) -> Policy:
    """Return a version of a policy, the newest by default, compared with its entry in the log."""
    return _record(tx, name, version, ns).value


def _record(tx: Tx, name: str, version: int | None, ns: str) -> StoredRecord[Policy]:
    for row in logged_tables.confirm(tx, POLICIES.logged, _GET, name=name, version=version, ns=ns):
        return POLICIES.stored(row)
    which = f"policy {name}" if version is None else f"version {version} of policy {name}"
    raise NotFoundError(f"there is no {which}: holdproof policies list", name=name, version=version)


def _set_record(tx: Tx, ns: str) -> StoredRecord[PolicySet] | None:
    for row in logged_tables.confirm(tx, SETS.logged, _SET, ns=ns):
        return SETS.stored(row)
    _check_never(tx, ns)
    return None


_EVER = sql(f"SELECT {HAS_POLICIES}")


def _check_never(tx: Tx, ns: str) -> None:
    """Refuse that a policy set is missing, unless the namespace never had a policy."""
    [(ever,)] = tx.all(_EVER, ns=ns, policy_set=set_handle(ns))
    if ever is not None:
        raise TamperedError(f"policy_sets {ns}: the row was removed", table="policy_sets", row=ns)


_LIST = sql(
    POLICIES.select(
        "WHERE ns = :ns AND (name > :name OR (name = :name AND version < :version))"
        " AND (CAST(:state AS TEXT) IS NULL OR state = :state) ORDER BY name, version DESC LIMIT :limit"
    )
)


def list(
    tx: Tx, *, state: str | None = None, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[Policy]:
    """List policies by name, of each the newest version first."""
    if state is not None:
        validation.one_of("state", state, STATES)
    name, version = paging.decode(cursor, "", 0)
    versions = POLICIES.all(tx, _LIST, ns=ns, name=name, version=version, state=state, limit=paging.fetch(limit))
    return paging.page(versions, limit, lambda policy: (policy.name, policy.version))


# --- activating --------------------------------------------------------------------------------------------------

# `leaf_ver - 1`: the version that was read is the one that is replaced, or the transaction fails.
_CHANGE = sql(
    POLICIES.update(*("state", "changed_by", "changed_at"), where="policy_id = :policy_id AND leaf_ver = :leaf_ver - 1")
)
_CHANGE_SET = sql(
    SETS.update(
        *("revision", "hash", "active", "changed_by", "changed_at"), where="ns = :ns AND leaf_ver = :leaf_ver - 1"
    )
)


def activate(tx: Tx, name: str, *, version: int | None = None, by: str = "operator", ns: str = MAIN) -> Policy:
    """Let a version of a policy decide from now on, the newest by default; another active version is retired.

    The first activation ends that everything is allowed: from then on an act needs a `permit`.
    """
    _lock(tx, ns)
    record = _record(tx, name, version, ns)
    policy = record.value
    # Refused here, by its line, or because there is no engine: once it is active, both would deny everything.
    CompiledPolicies([(policy.name, policy.text)])
    if policy.state == "ACTIVE":
        return policy
    active = _active(tx, ns)
    if name in active:
        earlier, _ = active[name]
        _change(tx, _record(tx, name, earlier, ns), "RETIRED", by)
    _set_active(tx, {**active, name: (policy.version, policy.hash)}, by, ns)
    return _change(tx, record, "ACTIVE", by)


def retire(tx: Tx, name: str, *, by: str = "operator", ns: str = MAIN) -> Policy:
    """Let the active version of a policy decide no longer; without any active policy everything is allowed again."""
    _lock(tx, ns)
    active = _active(tx, ns)
    if name not in active:
        raise NotFoundError(f"policy {name} is not active: holdproof policies list --state ACTIVE", name=name)
    version, _ = active.pop(name)
    _set_active(tx, active, by, ns)
    return _change(tx, _record(tx, name, version, ns), "RETIRED", by)


def _change(tx: Tx, record: StoredRecord[Policy], state: str, by: str) -> Policy:
    changes = {"state": state, "changed_by": validation.name("by", by), "changed_at": tx.now}
    return POLICIES.change(tx, _CHANGE, record, changes)


def _active(tx: Tx, ns: str) -> dict[str, tuple[int, str]]:
    """Return version and hash of each active policy, by name."""
    record = _set_record(tx, ns)
    return {} if record is None else {name: (version, digest) for name, version, digest in record.value.active}


def _set_active(tx: Tx, active: Mapping[str, tuple[int, str]], by: str, ns: str) -> None:
    record = _set_record(tx, ns)
    assert record is not None, "it was read in this transaction"
    text = canonical.dump_text([[name, *active[name]] for name in sorted(active)])
    changes = {
        "revision": record.value.revision + 1,
        "hash": _hash_of(text),
        "active": text,
        "changed_by": validation.name("by", by),
        "changed_at": tx.now,
    }
    SETS.change(tx, _CHANGE_SET, record, changes)


# --- deciding ----------------------------------------------------------------------------------------------------


class ActivePolicies(NamedTuple):
    """The active policies of a namespace: the hash of the set, and the set compiled; or why it cannot be."""

    hash: str
    names: tuple[tuple[str, int], ...]
    texts: Mapping[str, str]
    compiled: CompiledPolicies | str


_ROWS = logged_tables.selecting(POLICIES.logged, "policy_id", "t.ns = :ns AND t.state = 'ACTIVE'")
_CACHE: Final[dict[tuple[Row, ...], ActivePolicies | None]] = {}
_CACHE_LOCK: Final = threading.Lock()
_MOST_CACHED: Final = 64


def active(tx: Tx, *, ns: str) -> ActivePolicies | None:
    """Return the active policies as this transaction sees them; None where there are none.

    Raises TamperedError where a row is not what its entry in the log says, or a row is missing.
    """
    sets = logged_tables.read(tx, _SET, ns=ns)
    if not sets:
        _check_never(tx, ns)
        return None
    rows = logged_tables.read(tx, _ROWS, ns=ns)
    key = (*sets, *rows)
    with _CACHE_LOCK:
        if key in _CACHE:
            return _CACHE[key]
    loaded = _load(tx, sets, rows, ns)
    with _CACHE_LOCK:
        if len(_CACHE) >= _MOST_CACHED:
            _CACHE.clear()
        _CACHE[key] = loaded
    return loaded


def _load(tx: Tx, sets: tuple[Row, ...], rows: tuple[Row, ...], ns: str) -> ActivePolicies | None:
    """Compare rows with their entries, check the signatures, and compile."""
    [policy_set] = logged_tables.confirm_rows(SETS.logged, sets)
    versions = logged_tables.confirm_rows(POLICIES.logged, rows)
    expected = json.loads(policy_set["active"])
    by_name = {row["name"]: row for row in versions}
    if sorted([row["name"], row["version"], row["hash"]] for row in versions) != expected:
        # An edited state or version does not match its entry; what is left is a row that was removed or added.
        raise TamperedError("policies: the active policies are not those of policy_sets", table="policies", row=ns)
    if not expected:
        return None
    for row, columns in zip(rows, versions, strict=True):
        _check_signature(tx, columns, logged_tables.logged_row(row).first_index)
    names = tuple((name, version) for name, version, _ in expected)
    texts = {name: by_name[name]["text"] for name, _ in names}
    return ActivePolicies(policy_set["hash"], names, texts, _compiled(texts))


def _compiled(texts: Mapping[str, str]) -> CompiledPolicies | str:
    """Compile policies, or say why that is not possible: whatever they would decide is denied then."""
    try:
        return CompiledPolicies(texts.items())
    except (PolicySyntaxError, MissingExtraError) as error:
        return error.message
    except Exception as error:
        return f"the policy engine failed: {type(error).__name__}: {error}"


def _check_signature(tx: Tx, row: Mapping[str, Any], index: int | None) -> None:
    """Refuse a version that no judge key of this store signed as it is; `index` is where its first entry stands."""
    key = keys.find(tx, row["keyid"])
    try:
        if key is None or key.role != "judge" or key.keyid in keys.flaws(tx):
            raise ProofError(f"it is signed with {str(row['keyid'])[:16]}, which is no judge key of this store")
        envelope = dsse.parse(row["statement"].encode())
        origin = statement.parse(envelope.payload).predicate.get("origin")
        if origin not in keys.origins(tx) or envelope.payload != _encode(row, str(origin)):
            raise ProofError("its statement says something else than the row")
        if canonical.sha256_hex(row["text"].encode()) != row["hash"]:
            raise ProofError("its text has another hash")
        dsse.verify(envelope, [keys.public(key)], payload_type=PAYLOAD_TYPE)
        if not key.trusted_at(index):
            raise ProofError(f"its key does not count from leaf {key.revoked_from} on")
    except (ProofError, FormatError) as error:
        raise TamperedError(
            f"policies {row['name']} {row['version']}: {error.message}", table="policies", row=row["policy_id"]
        ) from error
