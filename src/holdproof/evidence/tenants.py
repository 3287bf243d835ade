"""Tenants and their heads: rows of the parent store, each with its entry in the parent's log.

Rules:
- A name is one tenant's until that is deleted; its row changes by versions, and only the version that was read can be
  changed: of two who change it at once, one is refused.
- A head is recorded only once it was checked: a log key of the tenant signed it, and it continues the one recorded
  last. So the parent's signed head covers every recorded head of every tenant.
- What does not continue is a finding: a version of the tenant's row. It stays until a person accepts the log as it is.
- Where a tenant lies is confirmed by its entry before anything is opened there.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from holdproof import paging, validation
from holdproof.crypto import checkpoint
from holdproof.db import Row, Tx, sql
from holdproof.errors import AlreadyExistsError, ConflictError, InvalidInputError, TenantNotFoundError
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.model.page import Page
from holdproof.model.tenants import STATUSES, Tenant, TenantHead

TENANTS: Final = Projection(
    "tenants",
    1,
    ("id", "name", "status", "place", "store", "finding", "reason", "created_at", "changed_at"),
)
HEADS: Final = Projection(
    "tenant_heads", 1, ("id", "tenant_id", "name", "origin", "size", "head", "keys", "recorded_at")
)
_TENANTS: Final = logged_tables.describe(TENANTS, kinds=("audit",), key="id")
_HEADS: Final = logged_tables.describe(HEADS, kinds=("audit",), key="id")
LOGGED: Final = (_TENANTS, _HEADS)

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_NEAR: Final = 5_000
"""Among so many names a near one is looked for."""


class TenantRow(NamedTuple):
    """A row of the table, and what its next version needs."""

    id: str
    name: str
    status: str
    place: str
    store: str | None
    finding: str | None
    reason: str | None
    created_at: str
    changed_at: str
    leaf_id: str
    leaf_ver: int

    @property
    def value(self) -> Tenant:
        """What clients are shown of it, without its newest head."""
        return Tenant(*self[:9])


def name(text: Any) -> str:
    """Validate a tenant's name, which is a folder, a part of an address and of a database's name too."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        message = "a tenant is named by up to 40 small letters, digits and hyphens, with no hyphen at either end"
        raise InvalidInputError(message, field="tenant", value=str(text)[:100])
    return text


# --- writing -----------------------------------------------------------------------------------------------------

_ADD = sql(
    "INSERT INTO tenants (id, name, status, place, store, finding, reason, created_at, changed_at, leaf_id, leaf_ver,"
    " leaf_salt) VALUES (:id, :name, :status, :place, :store, :finding, :reason, :created_at, :changed_at, :leaf_id,"
    " :leaf_ver, :leaf_salt) ON CONFLICT DO NOTHING RETURNING id"
)
_CHANGE = sql(
    "UPDATE tenants SET status = :status, place = :place, store = :store, finding = :finding, reason = :reason,"
    " changed_at = :changed_at, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt WHERE id = :id AND leaf_ver = :was"
    " RETURNING id"
)

_AT = sql("SELECT name FROM tenants WHERE place = :place AND name <> :name AND status <> 'deleted' LIMIT 1")
_OF_STORE = sql("SELECT name FROM tenants WHERE store = :store AND id <> :id AND status <> 'deleted' LIMIT 1")


def begin(tx: Tx, tenant: str, place: str) -> TenantRow:
    """Note that a tenant is being created, or that the creation that was interrupted goes on; AlreadyExistsError."""
    current = find(tx, tenant)
    others = [name for (name,) in tx.all(_AT, place=place, name=tenant)] if place else []
    if others:
        raise AlreadyExistsError(f"the tenant {others[0]} is at {place}: name another, empty place", tenant=others[0])
    if current is None:
        return _begin(tx, tenant, place)
    if current.status != "creating":
        raise AlreadyExistsError(f"there is a tenant {tenant} already: it is {current.status}", tenant=tenant)
    return current if current.place == place else change(tx, current, place=place)


def _begin(tx: Tx, tenant: str, place: str) -> TenantRow:
    row: dict[str, Any] = {"id": tx.new_id(), "name": name(tenant), "status": "creating", "place": place, "store": None}
    row |= {"finding": None, "reason": None, "created_at": tx.now, "changed_at": tx.now}
    mark = leaves.stamp(tx, "audit", TENANTS, row)
    if tx.one(_ADD, **row, **mark._asdict()) is None:
        raise AlreadyExistsError(f"somebody else creates the tenant {tenant} at this moment", tenant=tenant)
    return TenantRow(**row, leaf_id=mark.leaf_id, leaf_ver=mark.leaf_ver)


def change(tx: Tx, current: TenantRow, **changes: str | None) -> TenantRow:
    """Write the next version of a tenant's row; ConflictError where somebody changed it since it was read."""
    row: dict[str, Any] = {**_columns(current), "changed_at": tx.now, **changes}
    version = current.leaf_ver + 1
    mark = leaves.stamp(tx, "audit", TENANTS, row, leaf_id=current.leaf_id, leaf_ver=version)
    written = {each: row[each] for each in ("id", "status", "place", "store", "finding", "reason", "changed_at")}
    changed = tx.one(_CHANGE, **written, leaf_ver=version, leaf_salt=mark.leaf_salt, was=current.leaf_ver)
    if changed is None:
        raise ConflictError(f"somebody else changed the tenant {current.name} meanwhile", tenant=current.name)
    return TenantRow(**row, leaf_id=current.leaf_id, leaf_ver=version)


def _columns(row: TenantRow) -> dict[str, Any]:
    return {column: getattr(row, column) for column in TENANTS.columns}


_ADD_HEAD = sql(
    "INSERT INTO tenant_heads (id, tenant_id, name, origin, size, head, keys, recorded_at, leaf_id, leaf_ver,"
    " leaf_salt) VALUES (:id, :tenant_id, :name, :origin, :size, :head, :keys, :recorded_at, :leaf_id, :leaf_ver,"
    " :leaf_salt)"
)


def record_head(tx: Tx, tenant: TenantRow, head: str, keys: str) -> TenantHead:
    """Record a head that was checked, with its entry."""
    about = checkpoint.parse(head.encode()).checkpoint
    value = TenantHead(tx.new_id(), tenant.id, tenant.name, about.origin, about.size, head, keys, tx.now)
    row = value.to_dict()
    mark = leaves.stamp(tx, "audit", HEADS, row)
    tx.execute(_ADD_HEAD, **row, **mark._asdict(), expect=1)
    return value


# --- reading -----------------------------------------------------------------------------------------------------

_COLUMNS: Final = "id, name, status, place, store, finding, reason, created_at, changed_at"
_CONFIRM = logged_tables.selecting(_TENANTS, "id", "t.name = :name AND t.status <> 'deleted'")
_NAMES = sql("SELECT name FROM tenants WHERE status <> 'deleted' ORDER BY name LIMIT :limit")
_NEWEST = "LEFT JOIN tenant_heads h ON h.id = (SELECT max(n.id) FROM tenant_heads n WHERE n.tenant_id = t.id)"
_SHOWN: Final = f"SELECT {', '.join(f't.{each}' for each in _COLUMNS.split(', '))}, h.size, h.recorded_at"
_GET = sql(f"{_SHOWN} FROM tenants t {_NEWEST} WHERE t.name = :name AND t.status <> 'deleted'")
_LIST = sql(
    f"{_SHOWN} FROM tenants t {_NEWEST} WHERE (t.name, t.id) > (:name, :id) AND t.status <> 'deleted'"
    " ORDER BY t.name, t.id LIMIT :limit"
)
_LIST_OF = sql(
    f"{_SHOWN} FROM tenants t {_NEWEST} WHERE (t.name, t.id) > (:name, :id) AND t.status = :status"
    " ORDER BY t.name, t.id LIMIT :limit"
)


def find(tx: Tx, tenant: str) -> TenantRow | None:
    """Return the row of a tenant that is not deleted; None if there is none, TamperedError if somebody edited it.

    Compared with its entry before anything follows from it: its next version would make an edit part of the log.
    """
    rows = logged_tables.confirm(tx, _TENANTS, _CONFIRM, name=name(tenant))
    if not rows:
        return None
    [columns] = rows
    return TenantRow(**{field: columns[field] for field in TenantRow._fields})


def require(tx: Tx, tenant: str) -> TenantRow:
    """Return the row of a tenant, compared with its entry; TenantNotFoundError names what is near."""
    row = find(tx, tenant)
    if row is None:
        raise absent(tx, tenant)
    return row


def absent(tx: Tx, tenant: str) -> TenantNotFoundError:
    """Return the error for a name that no tenant has; it names tenants with a name near to it."""
    names = [each for (each,) in tx.all(_NAMES, limit=_NEAR)]
    near = get_close_matches(tenant, names)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    return TenantNotFoundError(f"there is no tenant {tenant}{hint}", tenant=tenant, near=near)


def get(tx: Tx, tenant: str) -> Tenant:
    """Return a tenant; TenantNotFoundError if there is none."""
    row = tx.one(_GET, name=name(tenant))
    if row is None:
        raise absent(tx, tenant)
    return Tenant(*row)


def list(tx: Tx, *, status: str | None = None, cursor: str | None = None, limit: int = 100) -> Page[Tenant]:
    """List the tenants by name; those that were deleted only with that status."""
    after, last_id = paging.decode(cursor, "", "")
    params = {"name": after, "id": last_id, "limit": paging.fetch(limit)}
    if status is None:
        rows = tx.all(_LIST, **params)
    else:
        rows = tx.all(_LIST_OF, **params, status=validation.one_of("status", status, STATUSES))
    return paging.page([Tenant(*row) for row in rows], limit, lambda each: (each.name, each.id))


_FINDINGS = sql("SELECT name, finding FROM tenants WHERE finding IS NOT NULL AND status <> 'deleted' ORDER BY name")


def findings(tx: Tx) -> Mapping[str, str]:
    """Return what is wrong with tenants, by name."""
    return dict(tx.all(_FINDINGS))


_COUNTS = sql("SELECT status, count(*) FROM tenants WHERE status <> 'deleted' GROUP BY status")


def counts(tx: Tx) -> Mapping[str, int]:
    """Count the tenants by status, those that were deleted left out."""
    return {"active": 0, "creating": 0, "deleting": 0, **dict(tx.all(_COUNTS))}


_HEAD_COLUMNS: Final = ", ".join(HEADS.columns)
_LAST_HEAD = sql(f"SELECT {_HEAD_COLUMNS} FROM tenant_heads WHERE tenant_id = :id ORDER BY id DESC LIMIT 1")  # noqa: S608
_HEADS_OF = sql(
    f"SELECT {_HEAD_COLUMNS} FROM tenant_heads WHERE tenant_id = :tenant_id AND id < :before"  # noqa: S608
    " ORDER BY id DESC LIMIT :limit"
)
_COVERING = sql(
    f"SELECT {_HEAD_COLUMNS} FROM tenant_heads WHERE tenant_id = :id AND origin = :origin AND size > :index"  # noqa: S608
    " ORDER BY size, id LIMIT 1"
)
_LAST: Final = "~"


def _head(row: Row | None) -> TenantHead | None:
    return None if row is None else TenantHead(*row)


def other_of_store(tx: Tx, store: str, tenant_id: str) -> str | None:
    """Return the name of another tenant whose log has that name; None if there is none."""
    row = tx.one(_OF_STORE, store=store, id=tenant_id)
    if row is None:
        return None
    (tenant,) = row
    return str(tenant)


def last_head(tx: Tx, tenant_id: str) -> TenantHead | None:
    """Return the head of a tenant that was recorded last."""
    return _head(tx.one(_LAST_HEAD, id=tenant_id))


def heads(tx: Tx, tenant: str, *, cursor: str | None = None, limit: int = 30) -> Page[TenantHead]:
    """List the recorded heads of a tenant, newest first."""
    (before,) = paging.decode(cursor, _LAST)
    tenant_id = get(tx, tenant).id
    rows = tx.all(_HEADS_OF, tenant_id=tenant_id, before=before, limit=paging.fetch(limit))
    return paging.page([TenantHead(*row) for row in rows], limit, lambda each: (each.id,))


def covering(tx: Tx, tenant_id: str, origin: str, index: int) -> Sequence[TenantHead]:
    """Return recorded heads of that origin that an entry is under: the first, which is the earliest, then the newest.

    The first may be of a history that was given up since: the log went back, and a person accepted that.
    """
    newest = last_head(tx, tenant_id)
    if newest is None or newest.origin != origin or newest.size <= index:
        return ()
    earliest = _head(tx.one(_COVERING, id=tenant_id, origin=origin, index=index))
    return (newest,) if earliest is None or earliest.id == newest.id else (earliest, newest)
