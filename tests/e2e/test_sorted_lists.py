"""Lists of the console in a real browser: sorted by mouse, by keyboard and on a phone, while flows come."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.browsers import aside, axe, chromium, shot
from tests.web import Web, running

pytestmark = pytest.mark.timeout(240)

AGENTS = ("beta", "delta", "alpha", "Gamma")
SORTED = ["alpha", "beta", "delta", "Gamma"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(params=["sqlite", "postgres"])
def web(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Web]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with running(tmp_path / "home", url=url) as web:
        for agent in AGENTS:
            aside(partial(start, web, agent))
        yield web


def start(web: Web, agent: str) -> str:
    web.store.agents.register(agent, version="1.0.0")
    # Nobody runs it: that it began is told at once too, and not only seen at the next look by the clock.
    flow_id: str = web.store.flows.start(agent, flow_type="order").flow_id
    return flow_id


def enter(browser: Any, web: Web, **context: Any) -> Any:
    size = {"width": 1280, "height": 860}
    page = browser.new_context(**{"viewport": size, **context}).new_page()
    page.set_default_timeout(30_000)
    code = aside(lambda: web.store.logins.create_link(name="Ada")).secret
    page.goto(f"{web.listening.address}/login?code={code}&next=/flows")
    page.get_by_role("button", name="Open the console").click()
    page.locator("#stream[data-state=live]").wait_for()
    return page


def agents(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("#flows td[data-label=agent]").all_inner_texts()]


def test_a_list_sorts_by_a_column_and_stays_sorted_while_flows_come(browser: Any, web: Web) -> None:
    page = enter(browser, web)
    newest_first = [*reversed(AGENTS)]
    assert agents(page) == newest_first
    column = page.locator("#flows th", has_text="agent")
    # By keyboard: the name of the column is a button.
    column.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert (agents(page), column.get_attribute("aria-sort")) == (SORTED, "ascending")
    page.keyboard.press("Enter")
    assert (agents(page), column.get_attribute("aria-sort")) == (SORTED[::-1], "descending")
    flow_id = aside(lambda: start(web, "epsilon"))
    page.locator(f"#row-{flow_id}").wait_for()
    assert agents(page) == ["Gamma", "epsilon", "delta", "beta", "alpha"]
    assert column.get_by_role("button").evaluate("each => each === document.activeElement")
    page.keyboard.press("Enter")
    assert (agents(page), column.get_attribute("aria-sort")) == (["epsilon", *newest_first], None)
    page.context.close()


def test_a_phone_sorts_a_list_too(browser: Any, web: Web) -> None:
    page = enter(browser, web, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    page.locator("#flows th", has_text="agent").get_by_role("button").tap()
    assert [text.removeprefix("agent: ") for text in agents(page)] == SORTED
    boxes = page.evaluate(
        "[...document.querySelectorAll('button.sort')].map((each) => each.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == 5
    assert all(box["height"] >= 24 and box["left"] >= 0 and box["right"] <= 390 for box in boxes)
    page.evaluate(axe())
    found = page.evaluate("axe.run(document.querySelector('#flows'), {runOnly: ['wcag2a', 'wcag2aa']})")
    assert [each["id"] for each in found["violations"]] == []
    shot(page, "flows-sorted-390")
    page.context.close()
