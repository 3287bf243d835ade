"""What a person is shown before an answer: which rows of a list change, what was asked before, what is to be undone."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from holdproof import errors
from tests.e2e.test_console import page
from tests.web import Web, running


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("proposals") / "home") as web:
        web.store.agents.register("clerk", version="1.0.0")
        yield web


@pytest.fixture(scope="module")
def operator(web: Web) -> httpx.Client:
    return web.logged_in(web.store.logins.create_link(name="Ada").secret)


def asked(web: Web, reason: str, proposal: Any, context: Any = None) -> int:
    flow_id = web.store.flows.start("clerk", flow_type="order").flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    if context is not None:
        web.store.contexts.put(flow_id, context)
    return web.store.escalations.request(flow_id, reason=reason, proposal=proposal).id


def test_of_a_list_the_rows_that_change_are_marked(web: Web, operator: httpx.Client) -> None:
    before = [{"sku": f"chair-{number}", "count": 1} for number in range(12)]
    after = [{**row, "count": 40} if row["sku"] == "chair-2" else row for row in before[:-1]]
    number = asked(web, "order chairs", {"orders": after}, {"orders": before})
    text = page(operator, f"/inbox/{number}").text
    assert "changed 1 → 40 chair-2" in text
    assert "gone 1 chair-11" in text
    assert "2 rows without a change" in text
    shown = operator.get(f"/inbox/{number}", headers={"accept": "text/html"}).text
    assert "<del>1</del> → <ins>40</ins>" in shown


def test_a_cell_of_a_list_hides_no_character(web: Web, operator: httpx.Client) -> None:
    number = asked(web, "pay", {"orders": [{"id": 1, "to": "\u202eada"}]}, {"orders": [{"id": 1, "to": "ada"}]})
    answer = operator.get(f"/inbox/{number}", headers={"accept": "text/html"})
    assert "\u202e" not in answer.text
    assert "U+202E" in answer.text


def test_only_what_was_asked_before_is_an_earlier_escalation(web: Web, operator: httpx.Client) -> None:
    first, second, third = (asked(web, f"{name} request", {"amount": 1}) for name in ("first", "second", "third"))
    links = page(operator, f"/inbox/{second}").links
    earlier = operator.get(f"/inbox/{second}", headers={"accept": "text/html"}).text.split("Earlier escalations")[1]
    assert f'href="/inbox/{first}"' in earlier
    assert f'href="/inbox/{third}"' not in earlier
    assert any(each.startswith(f"/inbox/{third}") for each in links)  # it waits in the list beside


def test_a_flow_that_failed_half_way_says_what_it_had_done_and_how_that_is_undone(
    web: Web, operator: httpx.Client
) -> None:
    def closed(order: Any) -> None:
        raise OSError("the market is closed")

    with suppress(errors.CompensationFailedError), web.store.flows.run("clerk", flow_type="trade") as flow:
        flow.step("buy", lambda: {"order": 17}, compensate=closed)
        raise ValueError("on second thought")
    assert web.store.sagas.get(flow.flow_id).failed_step
    text = page(operator, f"/flows/flow?id={flow.flow_id}").text
    assert "What it had done: buy 1" in text
    assert f"holdproof sagas compensate {flow.flow_id} REVERT MODULE:FUNCTION" in text
    assert "times in UTC" in text


def test_a_value_over_the_limit_of_the_contract_says_so(web: Web, operator: httpx.Client) -> None:
    web.store.agents.register("buyer", version="1.0.0", contract={"limits": {"amount": 500}})
    flow_id = web.store.flows.start("buyer").flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    for amount, over in ((800, True), (400, False)):
        number = web.store.escalations.request(flow_id, reason="desks", proposal={"amount": amount}).id
        assert ("limit of 500" in page(operator, f"/inbox/{number}").text) is over
        web.store.escalations.resolve(number, "approve", by="ann", comment="yes")


def test_a_flow_that_ended_names_the_command_that_replays_it(web: Web, operator: httpx.Client) -> None:
    @web.store.flow(agent="clerk", name="count")
    def count(flow: Any, number: int) -> int:
        return number + 1

    count(1)
    [ended] = web.store.flows.list(flow_type="count").items
    text = page(operator, f"/flows/flow?id={ended.flow_id}").text
    assert f"holdproof flows replay MODULE {ended.flow_id}" in text
