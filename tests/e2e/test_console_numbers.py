"""The numbers on the overviews of the console: each leads to exactly what it counts, in its namespace."""

import re
import time
from html import unescape
from pathlib import Path

import pytest

from holdproof import sync
from tests.web import running

HTML = {"accept": "text/html"}
_TILE = r'<a (?:class="tile[^"]*" )?href="([^"]+)"(?: class="tile[^"]*")?><b>([^<]+)</b><span>([^<]+)</span>'


class DeadWorkerError(BaseException):
    """A worker that is gone in the middle of its work."""


class Exercise:
    """Flows and escalations in every end, calls that finished and that did not; and another namespace with more."""

    def __init__(self, store: sync.Holdproof) -> None:
        self._store = store
        for ns in ("main", "elsewhere"):
            store.agents.register("trader", version="1.0.0", ns=ns)
            self._flow("a", "RUNNING", ns=ns)
            self._flow("b", "RUNNING", "COMPLETED", ns=ns)
            self._flow("c", "RUNNING", "FAILED", ns=ns)
            self._flow("d", "RUNNING", "COMPENSATING", "COMPENSATED", ns=ns)
        self._flow("e", "CANCELLED", ns="main")
        store.agents.set_budget("trader", per_hour=100)
        asked = [self._ask(f"q{number}") for number in range(4)]
        store.escalations.resolve(asked[0], "approve", by="operator:Ada")
        store.escalations.resolve(asked[1], "reject", by="operator:Ada", comment="no")
        time.sleep(0.05)
        assert store.escalations.expire(asked[2]).outcome == "expired"
        for ns, key in (("main", "lost"), ("main", "lost too"), ("elsewhere", "lost there")):
            with pytest.raises(DeadWorkerError):
                store.idempotency.once(key, 1, self._die, lease_s=0.01, ns=ns)
        store.idempotency.once("fine", 1, lambda: 7)
        time.sleep(0.05)

    def _flow(self, name: str, *statuses: str, ns: str) -> str:
        flow_id = self._store.flows.start("trader", flow_id=f"{name} of {ns}", flow_type=name, ns=ns).flow_id
        for status in statuses:
            self._store.flows.transition(flow_id, status, ns=ns)
        return flow_id

    def _ask(self, name: str) -> int:
        flow_id = self._flow(name, "RUNNING", ns="main")
        deadline_s = 0.01 if name == "q2" else None
        return self._store.escalations.request(flow_id, reason=name, proposal={}, deadline_s=deadline_s).id

    def _die(self) -> None:
        raise DeadWorkerError


def test_every_number_of_today_and_health_leads_to_exactly_what_it_counts(tmp_path: Path) -> None:
    with running(tmp_path / "home") as web:
        Exercise(web.store)
        client = web.logged_in()
        wanted = {
            "flows started": 9,
            "ended": 6,
            "failed": 4,
            "open now": 3,
            "escalations asked": 4,
            "answered": 2,
            "expired unanswered": 1,
            "flows running": None,
            "outcomes unknown": 2,
            "failed half way": 0,
        }
        met = set()
        for start in ("/today", "/health"):
            for href, number, label in re.findall(_TILE, client.get(start, headers=HTML).text):
                if label not in wanted:
                    continue
                met.add(label)
                path, _, query = unescape(href).partition("?")
                rows = client.get(f"{path}.json?{query}").json()
                assert number == str(len(rows)), (start, label, href)
                assert wanted[label] in {None, len(rows)}, (start, label)
        assert met == wanted.keys()
        [link] = set(re.findall(r'href="/calls([^"]+)"', client.get("/today", headers=HTML).text))
        assert {each["key"] for each in client.get(f"/calls.json{link}").json()} == {"lost", "lost too"}
