"""Published values: what a flow shows to others while it runs, the newest value of each key.

Rules:
- What the flow itself publishes is recorded as a step: a flow that is run again publishes nothing twice. Inside a step,
  as for the progress of a long one, it is published directly; a step that runs again publishes it again.
- Each version has its entry in the log, and what is read is compared with it: TamperedError for what was edited.
- Values are sealed for the person whose flow it is.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdproof import validation
from holdproof.db import Read, Tx, Wait, Work, Write, ask, sql
from holdproof.errors import NotFoundError, TimeoutExpiredError
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import Table
from holdproof.model.messages import PublishedValue
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.model.typed_json import Recordable
from holdproof.runtime import flow_run, flows, own_steps, recorded
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.suspension import WorkerLease

VALUES: Final = Table(
    "flow_values",
    PublishedValue,
    kind="published",
    key="value_id",
    logged=("value_id", "dfid", "key", "value", "version", "published_at", "ns"),
    columns={"recorded": "value"},
)


def publish(run: FlowRun, key: str, value: Recordable = None, *, in_step: bool = False) -> Work[None]:
    """Publish a value under a key, for `flows.published`; it replaces the one before."""
    own_steps.name("key", key)
    put = partial(_put, lease=run.lease, key=key, text=own_steps.encoded(value, "the value"))
    if in_step or flow_run.is_inside_step(run):
        yield from ask(Write(partial(_put_leased, lease=run.lease, put=put)))
    else:
        yield from own_steps.record(run, f"publish {key}", put)


def _put_leased(tx: Tx, lease: WorkerLease, put: Any) -> None:
    flow_run.lock_leased(tx, lease)
    put(tx)


_KEY = logged_tables.selecting(VALUES.logged, "value_id", "t.dfid = :dfid AND t.ns = :ns AND t.key = :key")
_ADD = sql(VALUES.insert())
_CHANGE = sql(
    VALUES.update(*("value", "version", "published_at"), where="value_id = :value_id AND leaf_ver = :leaf_ver - 1")
)


def _put(tx: Tx, lease: WorkerLease, key: str, text: str) -> int:
    """Write the next version of a key, and return its number."""
    rows = logged_tables.confirm(tx, VALUES.logged, _KEY, dfid=lease.flow_id, ns=lease.ns, key=key)
    changes: dict[str, Any] = {"value": recorded.store(tx, text, lease.subject), "version": 1, "published_at": tx.now}
    if rows:
        [columns] = rows
        earlier = VALUES.stored(columns)
        changes["version"] = earlier.value.version + 1
        VALUES.change(tx, _CHANGE, earlier, changes)
    else:
        row = {"value_id": tx.new_id(), "dfid": lease.flow_id, "key": key, "ns": lease.ns, **changes}
        VALUES.add(tx, _ADD, row)
    # Readers wait for the flow's topic; the flow itself is not woken, since it did this.
    tx.notify(f"flow:{lease.flow_id}")
    return int(changes["version"])


# --- reading -----------------------------------------------------------------------------------------------------


def get(
    flow_id: str, key: str, *, wait: bool = False, timeout_s: float | None = None, ns: str = MAIN
) -> Work[PublishedValue]:
    """Return the newest value that a flow has published under a key; with `wait` wait for the first one.

    Raises NotFoundError where there is none, also once the flow has ended, and TimeoutExpiredError after `timeout_s`.
    """
    own_steps.name("key", key)
    until = ""
    while True:
        value, ended, now = yield from ask(Read(partial(_look, flow_id=flow_id, key=key, ns=ns)))
        if value is not None:
            return value
        if ended or not wait:
            raise NotFoundError(f"flow {flow_id} has published nothing under {key}", flow_id=flow_id, key=key)
        if not until and timeout_s is not None:
            until = later(now, validation.seconds("timeout_s", timeout_s))
        if until and now >= until:
            raise TimeoutExpiredError(f"flow {flow_id} has not published {key} yet", flow_id=flow_id, key=key)
        yield Wait(f"flow:{flow_id}", until or None)


def _look(tx: Tx, flow_id: str, key: str, ns: str) -> tuple[PublishedValue | None, bool, str]:
    """Return the value of a key, if there is one, whether the flow has ended, and the time."""
    flow = flows.get(tx, flow_id, ns=ns)
    rows = logged_tables.confirm(tx, VALUES.logged, _KEY, dfid=flow_id, ns=ns, key=key)
    value = next((_shown(tx, VALUES.from_columns(columns)) for columns in rows), None)
    return value, flow.ended, tx.now


_ALL = logged_tables.selecting(VALUES.logged, "value_id", "t.dfid = :dfid AND t.ns = :ns")


def list(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[PublishedValue, ...]:
    """Return what a flow has published, the newest value of each key, by key."""
    flows.get(tx, flow_id, ns=ns)
    rows = logged_tables.confirm(tx, VALUES.logged, _ALL, dfid=flow_id, ns=ns)
    values = [_shown(tx, VALUES.from_columns(columns)) for columns in rows]
    return tuple(sorted(values, key=lambda each: each.key))


def _shown(tx: Tx, published: PublishedValue) -> PublishedValue:
    return replace(published, recorded=recorded.load(tx, published.recorded))
