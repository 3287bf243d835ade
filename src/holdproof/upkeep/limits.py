"""Set and read the limits of namespaces: each change is a statement of the root key, which may be elsewhere.

With the root key in this home one call does it. Where it is kept offline, `draft` gives the statement, `holdproof keys
sign` signs it with the recovery of root on any machine, and `import_limits` applies it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from holdproof import paging, validation
from holdproof.crypto.keys import Signer
from holdproof.db import Call, Read, Tx, Work, Write, ask, sql
from holdproof.errors import InvalidInputError, NotFoundError, UnknownKeyError
from holdproof.evidence import statements, tenant_limits, tree
from holdproof.evidence.tenant_limits import MOST, LimitStatement
from holdproof.model.keys import Signed
from holdproof.model.limits import TenantLimit, TenantUsage
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.store.context import Context


def set(
    context: Context,
    tenant: str,
    *,
    reason: str,
    open_flows: int | None = None,
    open_escalations: int | None = None,
    open_streams: int | None = None,
    objects: int | None = None,
    entries_per_minute: int | None = None,
    bytes: int | None = None,
) -> Work[TenantLimit]:
    """Set what a namespace may use, in place of what was set before; needs the root key.

    What is not named is unlimited. 0 allows none.
    """
    limits = _named(
        open_flows=open_flows,
        open_escalations=open_escalations,
        open_streams=open_streams,
        objects=objects,
        entries_per_minute=entries_per_minute,
        bytes=bytes,
    )
    return (yield from _apply(context, partial(_plan, tenant=tenant, limits=limits, reason=reason)))


def lift(context: Context, tenant: str, *, reason: str) -> Work[TenantLimit]:
    """End every limit of a namespace; needs the root key."""
    return (yield from _apply(context, partial(_plan_lift, tenant=tenant, reason=reason)))


def draft(
    context: Context,
    tenant: str,
    *,
    reason: str,
    open_flows: int | None = None,
    open_escalations: int | None = None,
    open_streams: int | None = None,
    objects: int | None = None,
    entries_per_minute: int | None = None,
    bytes: int | None = None,
) -> Work[Signed]:
    """Return the statement of `set`, not signed yet: for a root key that is kept elsewhere."""
    del context
    limits = _named(
        open_flows=open_flows,
        open_escalations=open_escalations,
        open_streams=open_streams,
        objects=objects,
        entries_per_minute=entries_per_minute,
        bytes=bytes,
    )
    stated = yield from ask(Read(partial(_plan, tenant=tenant, limits=limits, reason=reason)))
    return Signed(stated.encode().decode(), "statement", "")


def import_limits(tx: Tx, text: str) -> TenantLimit:
    """Set limits by a statement that root signed elsewhere."""
    return tenant_limits.apply(tx, text)


def get(tx: Tx, *, ns: str = MAIN) -> TenantUsage:
    """Return what a namespace may use, and what it uses of that; what is counted by rows to one beyond the limit."""
    current = tenant_limits.newest(tx, ns)
    limits = {} if current is None else current.limits
    usage = tenant_limits.usage(tx, ns, limits)
    reached = [name for name, most in limits.items() if usage[name] >= most]
    since = (None, None) if current is None else (current.set_at, current.reason)
    return TenantUsage(ns, limits, usage, reached, *since)


_NAMESPACES = sql("SELECT DISTINCT ns FROM tenant_limits WHERE ns > :after ORDER BY ns LIMIT :limit")


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100) -> Page[TenantUsage]:
    """List the namespaces for which root ever set limits, by name, with what they use."""
    (after,) = paging.decode(cursor, "")
    names = [ns for (ns,) in tx.all(_NAMESPACES, after=after, limit=paging.fetch(limit))]
    page = paging.page(names, limit, lambda ns: (ns,))
    return Page([get(tx, ns=ns) for ns in page.items], page.next_cursor)


def _named(**limits: int | None) -> dict[str, int]:
    named = {name: value for name, value in sorted(limits.items()) if value is not None}
    if not named:
        raise InvalidInputError("name a limit, as open_flows; `holdproof limits lift` ends them", field="open_flows")
    for name, value in named.items():
        if type(value) is not int or not 0 <= value < MOST:
            raise InvalidInputError(f"{name} is a whole number from 0 on", field=name)
    return named


def _plan(tx: Tx, *, tenant: str, limits: Mapping[str, int], reason: str) -> LimitStatement:
    validation.words("reason", reason, least=1)
    ns = validation.name("tenant", tenant)
    return LimitStatement(_next_id(tx, ns), limits, reason, ns, tree.state(tx).origin, tx.now)


def _next_id(tx: Tx, ns: str) -> str:
    """Return an id after that of the statement in force, also where the clock was set back since."""
    new = tx.new_id()
    current = tenant_limits.newest(tx, ns)
    if current is None or current.id < new:
        return new
    return str(UUID(int=UUID(current.id).int + 1))


def _plan_lift(tx: Tx, *, tenant: str, reason: str) -> LimitStatement:
    current = tenant_limits.newest(tx, validation.name("tenant", tenant))
    if current is None or not current.limits:
        raise NotFoundError(f"the namespace {tenant} has no limits", ns=tenant)
    return _plan(tx, tenant=tenant, limits={}, reason=reason)


def _apply(context: Context, plan: Callable[[Tx], LimitStatement]) -> Work[TenantLimit]:
    stated = yield from ask(Read(plan))
    try:
        root: Signer = yield from ask(Call(partial(context.keys.load, "root")))
    except NotFoundError as error:
        raise UnknownKeyError(
            "this needs the root key, which is not here: bring it back (`holdproof keys recover-root`), or sign the"
            " output of `holdproof limits draft` where it is (`holdproof keys sign`) and `limits import-limits` it"
        ) from error
    text: str = yield from ask(Call(lambda: statements.sign(stated.encode(), root)))
    return (yield from ask(Write(partial(tenant_limits.apply, text=text))))
