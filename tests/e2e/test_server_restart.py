"""What remote callers wait for goes on when their server stops and another takes its place."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness import filling
from holdproof import errors
from holdproof.remote import SyncRemote, connect_sync
from holdproof.server.serve import ListenAddress
from tests.web import Web, running


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def under_way(web: Web, token: str, count: int, futures: list[Any]) -> None:
    """Wait until so many requests are under way beside the one that asks."""
    headers = {"Authorization": f"Bearer {token}"}
    wanted = f"holdproof_http_requests_under_way {count + 1}"
    while wanted not in httpx.get(f"{web.listening.address}/metrics", headers=headers).text:
        assert not any(each.done() for each in futures), futures
        time.sleep(0.02)


def test_who_waits_for_a_person_or_a_result_waits_on_at_the_next_server(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    with running(tmp_path) as web:
        place = ListenAddress(port=web.port)
        token = web.store.tokens.create("bob").secret
        web.store.agents.register("clerk", version="1")
        flow_id = filling.running(web.store, "clerk")
        asked = web.store.escalations.request(flow_id, reason="may I?").id
        far = connect_sync(web.listening.address, token)
        futures = [
            threads.submit(far.escalations.wait, asked),
            threads.submit(far.flows.result, flow_id),
            threads.submit(far.escalations.wait, asked, timeout_s=3.0),
        ]
        under_way(web, token, 3, futures)
    assert not any(each.done() for each in futures[:2])
    with running(tmp_path, place=place) as web:
        # Whoever said how long waits no longer than that, two servers or one.
        assert futures[2].result(60).status == "PENDING"
        web.store.escalations.resolve(asked, "approve", by="ada")
        assert futures[0].result(60).status == "APPROVED"
        web.store.flows.transition(flow_id, "COMPLETED")
        assert futures[1].result(60) is None
        far.close()


def test_a_remote_flow_that_waits_does_not_fail_with_its_server_and_is_taken_up_again(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    steps: list[str] = []

    def registered(far: SyncRemote) -> Any:
        @far.flow(name="pay", agent="clerk", lease_s=1.0)
        def pay(flow: Any) -> Any:
            flow.step("prepare", lambda: steps.append("prepared"), compensate=lambda _: steps.append("undone"))
            return flow.approve("may I?").status

        return pay

    with running(tmp_path) as web:
        place = ListenAddress(port=web.port)
        token = web.store.tokens.create("bob").secret
        web.store.agents.register("clerk", version="1")
        far = connect_sync(web.listening.address, token)
        paid = threads.submit(registered(far))
        while not web.store.escalations.list().items:
            assert not paid.done(), paid.result()
            time.sleep(0.02)
        under_way(web, token, 1, [paid])
    with pytest.raises(errors.StoppingError):
        paid.result(60)
    far.close()
    with running(tmp_path, place=place) as web, connect_sync(web.listening.address, token) as far:
        registered(far)
        [asked] = web.store.escalations.list().items
        assert web.store.flows.get(asked.flow_id).status == "WAITING_ESCALATION"
        web.store.escalations.resolve(asked.id, "approve", by="ada")
        until = time.monotonic() + 60
        while not (reruns := far.flows.recover().reruns):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert [(each.flow.flow_id, each.flow.status) for each in reruns] == [(asked.flow_id, "COMPLETED")]
        assert steps == ["prepared"]
