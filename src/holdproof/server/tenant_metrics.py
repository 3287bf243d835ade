"""What `/metrics` of a server tells of its tenants, by their names.

Rules:
- The number of series is bounded: requests are counted by name for the first so many tenants that are used, those of
  all further ones under `_other`, which is nobody's name; stores are read of the tenants that are open, findings are
  named up to a bound.
- A name is counted once its tenant was opened: nobody adds series by asking for names.
- A tenant whose database does not answer keeps no scrape waiting: each is asked for as long as the parent is.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

from holdproof.db import Tx
from holdproof.errors import HoldproofError
from holdproof.evidence import tenants
from holdproof.model.flows import OPEN
from holdproof.runtime import gauges
from holdproof.server.metrics import MetricValue
from holdproof.server.state import ServerState

MOST_NAMED: Final = 200
"""So many tenants have series of their own."""
OTHERS: Final = "_other"
_ABOUT: Final = {
    "log.size": ("holdproof_tenant_log_leaves", "Leaves under the newest signed head of a tenant that is open."),
    "log.pending": ("holdproof_tenant_log_pending", "Leaves of a tenant that wait for a signed head."),
    "escalations.pending": ("holdproof_tenant_escalations_pending", "Escalations of a tenant that wait for a person."),
    "flows.orphaned": ("holdproof_tenant_flows_orphaned", "Flows of a tenant without a worker."),
    "flows.dirty": ("holdproof_tenant_flows_dirty", "Flows of a tenant that failed half way."),
}


class TenantMetrics:
    """Requests of tenants by name and class of answer, and how long they waited for it; and the last round of heads."""

    def __init__(self, most_named: int = MOST_NAMED) -> None:
        self._most_named = most_named
        self._names: set[str] = set()
        self._counts: dict[tuple[str, str], int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)
        self.round_s = 0.0
        self.unreachable = 0

    def observe(self, tenant: str, status: int, seconds: float) -> None:
        """Count one request that a tenant answered, by the time until its answer began."""
        if tenant not in self._names:
            if len(self._names) < self._most_named:
                self._names.add(tenant)
            else:
                tenant = OTHERS
        self._counts[tenant, f"{status // 100}xx"] += 1
        self._seconds[tenant] += seconds

    def numbers(self) -> Iterator[MetricValue]:
        """Yield what was counted."""
        for (tenant, status), count in sorted(self._counts.items()):
            labels = {"tenant": tenant, "status": status}
            yield MetricValue(
                "holdproof_tenant_requests_total", "Requests that a tenant answered.", count, labels, "counter"
            )
        for tenant, seconds in sorted(self._seconds.items()):
            about = "Time until answers of a tenant began."
            yield MetricValue("holdproof_tenant_request_seconds_total", about, seconds, {"tenant": tenant}, "counter")
        yield MetricValue("holdproof_tenant_round_seconds", "How long the last round of heads took.", self.round_s)
        about = "Tenants whose database did not answer in the last round."
        yield MetricValue("holdproof_tenants_unreachable", about, self.unreachable)


def of_parent(tx: Tx) -> Iterator[MetricValue]:
    """Yield what the parent's rows say: how many tenants there are, and which of them are not believed."""
    for status, count in tenants.counts(tx).items():
        yield MetricValue("holdproof_tenants", "Tenants by status.", count, {"status": status})
    findings = tenants.findings(tx)
    yield MetricValue(
        "holdproof_tenant_findings", "Tenants that are not opened: what is wrong was found.", len(findings)
    )
    for name in islice(findings, MOST_NAMED):
        yield MetricValue("holdproof_tenant_finding", "1 for a tenant that is not opened.", 1, {"tenant": name})


async def of_open(states: Mapping[str, ServerState]) -> list[MetricValue]:
    """Return what the stores of open tenants say; of one that does not answer, that it does not."""
    answers = await asyncio.gather(*(_of_tenant(name, state) for name, state in states.items()))
    return [number for numbers in answers for number in numbers]


async def _of_tenant(name: str, state: ServerState) -> list[MetricValue]:
    try:
        stored = await state.numbers.ask(partial(_stored, name, state))
    except HoldproofError:
        # Also one that is being closed at this moment.
        stored = []
    about = "1 while the database of a tenant that is open answers."
    return [MetricValue("holdproof_tenant_database_up", about, int(bool(stored)), {"tenant": name}), *stored]


async def _stored(name: str, state: ServerState) -> list[MetricValue]:
    labels = {"tenant": name}
    locked = await state.store.lockdown.status()
    facts = await state.store.read(gauges.read)
    flows = sum(facts[f"flows.{status}"] for status in OPEN)
    return [
        MetricValue("holdproof_tenant_locked", "1 while a tenant refuses writes.", int(locked is not None), labels),
        MetricValue("holdproof_tenant_flows", "Open flows of a tenant.", flows, labels),
        *(MetricValue(metric, about, facts[name], labels) for name, (metric, about) in _ABOUT.items()),
    ]
