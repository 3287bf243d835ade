"""Callers of one server at the same moment: one wins, and every other is told what it was too late for."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors
from holdproof.remote import SyncRemote, connect_sync
from tests.conformance.decisions import CrashError
from tests.conformance.racing import together
from tests.web import Web
from tests.web import running as serving

CALLERS = 6


@pytest.fixture(scope="module")
def web(anywhere: tuple[Path, str | None]) -> Iterator[Web]:
    home, url = anywhere
    with serving(home, url=url) as web:
        web.store.agents.register("trader", version="1.0.0")
        yield web


@pytest.fixture
def callers(web: Web) -> Iterator[list[SyncRemote]]:
    """Operators, each with a token of their own."""
    tokens = [web.store.tokens.create(f"op {n}").secret for n in range(CALLERS)]
    stores = [connect_sync(web.listening.address, token) for token in tokens]
    yield stores
    for store in stores:
        store.close()


def outcomes(callers: list[SyncRemote], call: Any) -> tuple[list[Any], list[errors.HoldproofError]]:
    """What those got who were served, and the errors of those who were refused."""

    won: list[Any] = []
    lost: list[errors.HoldproofError] = []

    def attempt(number: int) -> None:
        try:
            won.append(call(callers[number], number))
        except errors.HoldproofError as error:
            lost.append(error)

    together(CALLERS, attempt)
    assert len(won) + len(lost) == CALLERS
    return won, lost


def test_of_those_who_cancel_a_flow_one_does(web: Web, callers: list[SyncRemote]) -> None:
    flow_id = running(web.store)
    won, lost = outcomes(callers, lambda store, n: store.flows.cancel(flow_id, reason=f"by {n}"))
    assert [flow.status for flow in won] == ["CANCELLED"]
    assert {type(error) for error in lost} == {errors.IllegalTransitionError}
    reasons = [each.reason for each in web.store.flows.transitions(flow_id) if each.to_status == "CANCELLED"]
    assert len(reasons) == 1


def test_of_those_who_answer_a_question_one_is_heard(web: Web, callers: list[SyncRemote]) -> None:
    flow_id = running(web.store)
    asked = web.store.escalations.request(flow_id, reason="may I?")
    answers = ("approve", "reject", "cancel")
    won, lost = outcomes(
        callers, lambda store, n: store.escalations.resolve(asked.id, answers[n % 3], by=f"person {n}")
    )
    assert len(won) == 1
    assert {type(error) for error in lost} <= {errors.AlreadyResolvedError}
    assert web.store.escalations.get(asked.id).resolved_by == won[0].resolved_by


def test_an_answer_and_a_cancelling_at_once_leave_one_end(web: Web, callers: list[SyncRemote]) -> None:
    flow_id = running(web.store)
    asked = web.store.escalations.request(flow_id, reason="may I?")

    def either(store: SyncRemote, number: int) -> Any:
        if number % 2:
            return store.flows.cancel(flow_id, reason="no longer needed")
        return store.escalations.resolve(asked.id, "reject", by=f"person {number}")

    outcomes(callers, either)
    ended = [each.to_status for each in web.store.flows.transitions(flow_id)]
    assert sum(status in {"FAILED", "CANCELLED"} for status in ended) == 1
    assert web.store.escalations.get(asked.id).status != "PENDING"


def test_of_those_who_recover_an_orphan_one_runs_it(web: Web, callers: list[SyncRemote]) -> None:
    done: list[str] = []

    def register(store: Any, *, dies: bool = False) -> Any:
        def order(flow: Any, what: str) -> None:
            if dies:
                raise CrashError
            flow.step("place", done.append, what)

        return store.flow(name="order", agent="trader", lease_s=0.2)(order)

    with pytest.raises(CrashError):
        register(web.store, dies=True)("x")
    while not web.store.flows.orphans():
        time.sleep(0.01)
    for store in callers:
        register(store)
    won, lost = outcomes(callers, lambda store, n: store.flows.recover(f"worker {n}"))
    assert lost == []
    assert [rerun.flow.status for recovery in won for rerun in recovery.reruns] == ["COMPLETED"]
    assert done == ["x"]
