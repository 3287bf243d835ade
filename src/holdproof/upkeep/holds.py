"""Set and lift retention floors and legal holds: each by a statement of the root key, which may be elsewhere.

With the root key in this home one call does it. Where it is kept offline, `draft` gives the statement, `holdproof keys
sign` signs it with the recovery of root on any machine, and `import_rule` applies it.
"""

from functools import partial
from typing import Final, Literal

from holdproof import validation
from holdproof.content import encryption
from holdproof.crypto.keys import Signer
from holdproof.db import Call, Read, Tx, Work, Write, ask
from holdproof.errors import InvalidInputError, NotFoundError, UnknownKeyError
from holdproof.evidence import retention_rules, statements
from holdproof.evidence.retention_rules import EVERYTHING, RuleStatement
from holdproof.memory.objects import object_retention as memory
from holdproof.model.keys import Signed
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.retention import RetentionRule
from holdproof.runtime import flows, retention
from holdproof.store.context import Context

What = Literal["everything", "flows", "audit", "feedback", "snapshots", "versions"]
_SCOPES: Final = frozenset({EVERYTHING}) | retention.KINDS | memory.KINDS
_MOST_DAYS: Final = 36_500


def hold(
    context: Context, *, reason: str, flow_id: str | None = None, subject: str | None = None, ns: str = MAIN
) -> Work[RetentionRule]:
    """Put a legal hold on a flow, on a person or, if neither is named, on everything; needs the root key."""
    plan = partial(_plan_hold, reason=reason, flow_id=flow_id, subject=subject, ns=ns)
    return (yield from _apply(context, (yield from ask(Write(plan)))))


def floor(
    context: Context, days: int, *, reason: str, what: What = "everything", ns: str = MAIN
) -> Work[RetentionRule]:
    """Let retention keep records for so many days at least; needs the root key. The longest floor counts."""
    plan = partial(_plan_floor, days=days, what=what, reason=reason, ns=ns)
    return (yield from _apply(context, (yield from ask(Read(plan)))))


def lift(context: Context, id: str, *, reason: str, ns: str = MAIN) -> Work[RetentionRule]:
    """Lift a floor or a hold; needs the root key. The rule stays in the list, with the reason."""
    return (yield from _apply(context, (yield from ask(Read(partial(_plan_lift, id=id, reason=reason, ns=ns))))))


def draft(
    context: Context,
    action: Literal["hold", "floor", "lift"],
    *,
    reason: str,
    id: str | None = None,
    flow_id: str | None = None,
    subject: str | None = None,
    days: int | None = None,
    what: What = "everything",
    ns: str = MAIN,
) -> Work[Signed]:
    """Return the statement of a hold, a floor or a lift, not signed yet: for a root key that is kept elsewhere."""
    del context
    validation.one_of("action", action, {"hold", "floor", "lift"})
    if action == "hold":
        stated = yield from ask(Write(partial(_plan_hold, reason=reason, flow_id=flow_id, subject=subject, ns=ns)))
    elif action == "floor":
        stated = yield from ask(Read(partial(_plan_floor, days=days, what=what, reason=reason, ns=ns)))
    else:
        stated = yield from ask(Read(partial(_plan_lift, id=id or "", reason=reason, ns=ns)))
    return Signed(stated.encode().decode(), "statement", "")


def import_rule(tx: Tx, text: str) -> RetentionRule:
    """Apply a statement that root signed elsewhere."""
    return retention_rules.apply(tx, text)


def rules(tx: Tx, *, all: bool = False, ns: str = MAIN) -> Page[RetentionRule]:
    """List the floors and holds in force, newest first; with `all` also those that were lifted."""
    return Page(retention_rules.every(tx, all=all, ns=ns), None)


def _apply(context: Context, stated: RuleStatement) -> Work[RetentionRule]:
    try:
        root: Signer = yield from ask(Call(partial(context.keys.load, "root")))
    except NotFoundError as error:
        raise UnknownKeyError(
            "this needs the root key, which is not here: bring it back (`holdproof keys recover-root`), or sign the"
            " output of `holdproof retention draft` where it is (`holdproof keys sign`) and `retention import-rule` it"
        ) from error
    text: str = yield from ask(Call(lambda: statements.sign(stated.encode(), root)))
    return (yield from ask(Write(partial(retention_rules.apply, text=text))))


def _plan_hold(tx: Tx, *, reason: str, flow_id: str | None, subject: str | None, ns: str) -> RuleStatement:
    if flow_id is not None and subject is not None:
        raise InvalidInputError("a hold is on a flow or on a subject, not on both", field="subject")
    set_hold = partial(_set, tx, "hold", reason=reason, ns=ns)
    if flow_id is not None:
        return set_hold(scope="flow", target=flows.get(tx, flow_id, ns=ns).flow_id)
    if subject is not None:
        # A person who is not known yet can be held: what comes under the name later is held too.
        return set_hold(scope="subject", target=encryption.label(tx, subject, ns=ns))
    return set_hold(scope=EVERYTHING)


def _plan_floor(tx: Tx, *, days: int | None, what: str, reason: str, ns: str) -> RuleStatement:
    validation.one_of("what", what, _SCOPES)
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= _MOST_DAYS:
        raise InvalidInputError(f"a floor is of 1 to {_MOST_DAYS} days", field="days")
    return _set(tx, "floor", scope=what, days=days, reason=reason, ns=ns)


def _set(
    tx: Tx, kind: str, *, scope: str, reason: str, ns: str, target: str = "", days: int | None = None
) -> RuleStatement:
    validation.words("reason", reason, least=1)
    rule = RetentionRule(tx.new_id(), kind, scope, target, days, reason, tx.now, None, None, ns)
    return retention_rules.statement_of(tx, "set", rule, reason=reason)


def _plan_lift(tx: Tx, *, id: str, reason: str, ns: str) -> RuleStatement:
    validation.words("reason", reason, least=1)
    rule = retention_rules.get(tx, id, ns=ns)
    return retention_rules.statement_of(tx, "lift", rule, reason=reason)
