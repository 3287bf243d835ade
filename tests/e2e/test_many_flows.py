"""The console in a browser over a store of 100,000 flows: pages keep their bytes, lists page, searches answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.console import MOST_KB, PAGES, filled
from holdproof.runtime.flow_search import MOST_LOOKED_AT
from tests.browsers import aside, chromium, shot
from tests.e2e.test_flow_pages import enter
from tests.web import Web, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FLOWS = 100_000
ROWS = "section[aria-label=Flows] tbody tr"


@pytest.fixture(scope="module")
def web(anywhere: tuple[Path, str | None]) -> Iterator[Web]:
    home, url = anywhere
    clock = aside(lambda: filled(home, FLOWS, url))
    with running(home, url=url, clock=clock) as web:
        yield web


@pytest.fixture(scope="module")
def page(web: Web) -> Iterator[Any]:
    with chromium() as browser:
        yield enter(browser, web)


@pytest.fixture(scope="module")
def client(web: Web) -> httpx.Client:
    return web.logged_in(aside(lambda: web.store.logins.create_link(name="Ada")).secret)


def ids_of(page: Any) -> list[str]:
    return [each.get_attribute("id") for each in page.locator(ROWS).all()]


def test_the_main_pages_open_within_their_bytes(page: Any, client: httpx.Client, web: Web) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    for path in PAGES:
        with client.stream("GET", path, headers={"accept": "text/html", "accept-encoding": "gzip"}) as answer:
            sent = sum(map(len, answer.iter_raw()))
        assert answer.status_code == 200, path
        assert sent / 1024 <= MOST_KB, path
        assert page.goto(web.listening.address + path).status == 200
        page.locator("main h1").first.wait_for()
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, path
    assert said == []


def test_flows_are_paged_and_counted_and_their_histogram_is_drawn(page: Any, web: Web) -> None:
    page.goto(f"{web.listening.address}/flows?range=all")
    assert page.locator("svg.chart .bar").count() + page.locator("svg.chart rect").count() > 10
    assert "or more" in page.locator(".sub").first.inner_text()
    first = ids_of(page)
    page.get_by_role("link", name="Older").click()
    page.wait_for_url("**cursor=**")
    second = ids_of(page)
    assert len(first) == len(second) == 50
    assert not set(first) & set(second)
    shot(page, "many-flows")
    page.get_by_role("link", name="Newest").click()
    page.wait_for_function("!location.search.includes('cursor')")
    assert ids_of(page) == first


def test_a_search_for_what_is_not_there_says_how_far_it_looked_and_goes_on(page: Any, web: Web) -> None:
    page.goto(f"{web.listening.address}/flows?range=all&error=no+such+word")
    moments = []
    for _ in range(3):
        empty = page.locator(".empty")
        assert f"{MOST_LOOKED_AT:,}".replace(",", "\u202f") in empty.inner_text()
        moments.append(empty.locator("time.exact").get_attribute("datetime"))
        page.get_by_role("link", name="Look further back").click()
        page.wait_for_load_state()
    assert moments == sorted(moments, reverse=True)
    assert len(set(moments)) == len(moments)
    shot(page, "many-search")


def test_a_flow_is_found_by_the_beginning_of_its_id_and_its_gantt_is_drawn(page: Any, web: Web) -> None:
    [last] = aside(lambda: web.store.flows.list(flow_type="rebalance", limit=1)).items
    page.goto(f"{web.listening.address}/today")
    page.keyboard.press("Control+k")
    page.locator("#palette input").fill(last.flow_id)
    page.locator("#palette .hits a", has_text=last.flow_id).first.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/flows/flow?id=**")
    assert page.locator("svg .bar.flow").count() == 1
    assert page.locator("main h1").inner_text()
    shot(page, "many-flow")


def test_every_escalation_that_waits_is_counted_and_the_inbox_stays_small(page: Any, web: Web) -> None:
    page.goto(f"{web.listening.address}/inbox")
    assert "200" in page.locator("main").inner_text()
    page.goto(f"{web.listening.address}/escalations")
    assert "200 in all" in page.locator("h2").first.inner_text()
