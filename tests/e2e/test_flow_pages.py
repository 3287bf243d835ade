"""The pages of flows, agents, evidence and operation in a real browser: seen, reached, acted on, checked."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdproof.demo import ACTS
from holdproof.demo import Scene as Story
from tests.browsers import BENT, aside, axe, chromium, findings, picture, shot
from tests.consoles import populate
from tests.flow_scenes import populate_flows
from tests.web import Web, running

pytestmark = pytest.mark.timeout(240)

HTML = {"accept": "text/html"}
PAGES = {
    "flows": "/flows?range=all",
    "flow-failed": "/flows/flow?id={failed}",
    "flow-tree": "/flows/flow?id={tree}",
    "flow-waits": "/flows/flow?id={locked}",
    "flow-taken-over": "/flows/flow?id={killed}",
    "agents": "/agents",
    "agent": "/agents/agent?id=booker",
    "cost": "/cost?by=agent",
    "telemetry": "/telemetry",
    "work": "/queues",
    "policies": "/policies",
    "threads": "/threads",
    "thread": "/threads/thread?id=trip-1&at=1f00009&old=1f00002",
    "evidence": "/evidence",
    "proof-search": "/evidence/proof?q={killed}",
    "proof": "/evidence/proof?entry=40",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "is_mobile": True, "has_touch": True},
}
SMALL = """() => [...document.querySelectorAll("main a, main button, main summary, main input, main select")]
  .filter((each) => each.closest("svg, p, li, dd, td, .sub, .note") === null && each.offsetParent !== null)
  .filter((each) => !each.matches("label > input[type=checkbox]"))
  .map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect()])
  .filter(([, box]) => box.height < 23.5 || box.right > innerWidth + 1)
  .map(([html, box]) => html + " " + box.height + " " + box.right)"""

TEXTS = """(svg) => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].map((each) => {
    const box = each.getBoundingClientRect();
    const across = [box.left - frame.left, box.right - frame.left];
    return [each.textContent, ...across, box.top - frame.top, box.bottom - frame.top, frame.width, frame.height];
  });
}"""
"""What is written in a drawing, and where."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("pages") / "home") as web:
        yield web


@pytest.fixture(scope="module")
def ids(web: Web, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Flows in trouble, and the demo up to the kill and the take-over."""

    def fill() -> dict[str, str]:
        populate(web.store)
        ids = populate_flows(web.store)
        story = Story(web.store, lambda _: None, folder=tmp_path_factory.mktemp("demo"))
        for act in ACTS[:3]:
            act(story)
        return {**ids, "killed": story.facts["killed"]}

    return aside(fill)


@pytest.fixture(scope="module")
def client(web: Web, ids: dict[str, str]) -> httpx.Client:
    del ids
    return web.logged_in(web.store.logins.create_link(name="Ada").secret)


def enter(browser: Any, web: Web, **context: Any) -> Any:
    page = browser.new_context(viewport={"width": 1280, "height": 860}, **context).new_page()
    page.set_default_timeout(20_000)
    code = aside(lambda: web.store.logins.create_link(name="Ada")).secret
    page.goto(f"{web.listening.address}/login?code={code}")
    page.get_by_role("button", name="Open the console").click()
    page.locator("main").wait_for()
    return page


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_for_every_eye_and_hand(browser: Any, web: Web, ids: dict[str, str], look: str) -> None:
    source = axe()
    page = enter(browser, web, **LOOKS[look])
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 844})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    for name, path in PAGES.items():
        answer = page.goto(web.listening.address + path.format(**ids))
        assert answer.status == 200, name
        page.locator("main").wait_for()
        options = {} if look == "light" else {"runOnly": {"type": "rule", "values": ["color-contrast", "target-size"]}}
        assert findings(page, source, **options) == [], (look, name)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (look, name)
        assert page.evaluate(BENT) == [], (look, name)
        if look == "phone":
            assert page.evaluate(SMALL) == [], name
        shot(page, f"{look}-pages-{name}")
    assert said == []  # nothing was blocked, nothing is missing
    page.context.close()


def test_a_take_over_is_seen_on_the_flow_of_the_demo(browser: Any, web: Web, ids: dict[str, str]) -> None:
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/flows/flow?id={ids['killed']}")
    words = page.locator(".took-over strong").inner_text()
    assert words.startswith("worker ")
    assert words.endswith(" · 1 step replayed")
    assert " lost · taken by " in words
    assert page.locator(".cut-gap").count() == 1
    assert "taken" in page.locator(".cut-text").text_content()
    picture(page, "flow")
    page.context.close()


def test_labels_of_charts_are_distinct_inside_and_do_not_touch(browser: Any, web: Web, ids: dict[str, str]) -> None:
    page = enter(browser, web)
    for path in ("/flows?range=all", f"/flows/flow?id={ids['tree']}", "/cost"):
        page.goto(web.listening.address + path)
        for drawing in page.locator("svg.chart").all():
            boxes = drawing.evaluate(TEXTS)
            assert boxes
            for text, left, right, top, bottom, width, height in boxes:
                assert left >= -1, text
                assert right <= width + 1, text
                assert top >= -2, text
                assert bottom <= height + 2, text
    page.context.close()


def test_many_flows_are_cancelled_after_a_page_that_names_them(browser: Any, web: Web, ids: dict[str, str]) -> None:
    del ids

    def open_three() -> list[str]:
        web.store.agents.register("batcher", version="1.0.0")
        return [web.store.flows.start("batcher", flow_type="batch").flow_id for _ in range(3)]

    flows = aside(open_three)
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/flows?agent=batcher")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("heading", name="Cancel 3 flows?").wait_for()
    late = aside(lambda: web.store.flows.start("batcher", flow_type="batch").flow_id)
    page.get_by_label("Why?").fill("the import was wrong")
    page.get_by_role("button", name="Cancel 3").click()
    page.get_by_text("3 flows were changed").wait_for()
    assert aside(lambda: {web.store.flows.get(id).status for id in flows}) == {"CANCELLED"}
    # What came after the page that was confirmed is not what the person confirmed.
    assert aside(lambda: web.store.flows.get(late).status) == "CREATED"
    page.context.close()


def test_a_flow_is_forked_from_a_step(browser: Any, web: Web, ids: dict[str, str]) -> None:
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/flows/flow?id={ids['killed']}")
    page.get_by_role("button", name="Fork from book carrier 1").click()
    page.get_by_role("heading", name="Fork this flow?").wait_for()
    assert page.locator("#at").input_value() == "book carrier 1"
    page.get_by_role("button", name="Fork the flow").click()
    page.get_by_text("This is the fork.").wait_for()
    assert page.get_by_text("effects: simulate").count() == 1
    page.context.close()


def test_a_proof_is_checked_in_the_page_and_a_changed_entry_is_not_believed(
    browser: Any, web: Web, ids: dict[str, str]
) -> None:
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/evidence")
    page.get_by_label("Prove a record").fill(ids["killed"])
    page.get_by_role("button", name="Find its proof").click()
    page.get_by_role("link", name="step book carrier DONE").first.click()
    page.get_by_text("Checked in this page").first.wait_for()
    assert page.locator("[data-check] .badge.good").count() == 3
    picture(page, "proof")
    broken = page.evaluate(
        "async () => { const chain = document.getElementById('proof');"
        " chain.dataset.entry = btoa(atob(chain.dataset.entry).replace('step', 'stop')); return checkProof(chain); }"
    )
    assert broken == {"entry": False, "path": False, "head": True}
    forged = page.evaluate(
        "async () => { const chain = document.getElementById('proof');"
        " chain.dataset.note = chain.dataset.note.replace(/\\n\\d+\\n/, '\\n7\\n'); return checkProof(chain); }"
    )
    assert not forged["head"]
    page.context.close()


def test_pages_are_worked_with_by_keyboard(browser: Any, web: Web, ids: dict[str, str]) -> None:
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/flows/flow?id={ids['failed']}")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent === 'charge card'"):
            break
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.startsWith('#s-')")
    page.goto(f"{web.listening.address}/flows?range=all")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('svg.histogram') !== null"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**since=**")
    assert page.locator("#flows tbody tr").count() > 0
    page.context.close()


# --- without a browser -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/flows", "/agents", "/telemetry", "/queues", "/schedules", "/workers", "/threads"])
def test_every_list_is_there_for_programs(client: httpx.Client, path: str) -> None:
    rows = client.get(f"{path}.json").json()
    assert isinstance(rows, list)
    text = client.get(f"{path}.csv")
    assert text.headers["content-type"].startswith("text/csv")
    assert len(text.text.splitlines()) >= 1 + len(rows)
    assert client.get(f"{path}.xml", headers=HTML).status_code == 404


def test_the_rows_for_programs_are_those_of_the_query(client: httpx.Client, ids: dict[str, str]) -> None:
    rows = client.get("/flows.json?type=book+trip").json()
    assert [row["flow_id"] for row in rows] == [ids["failed"]]
    assert client.get("/flows.json?error=INSUFFICIENT+funds").json() == rows
    assert client.get("/flows.json?range=1h&until=2020-01-01T00:00:00Z").json() == []


def test_a_cell_that_a_spreadsheet_would_run_is_text(web: Web, client: httpx.Client) -> None:
    web.store.agents.register("=cmd()", version="1.0.0")
    assert "'=cmd()" in client.get("/agents.csv").text


@pytest.mark.parametrize(
    "path", ["/flows?range=ever", "/flows?since=yesterday", "/flows?attribute=x", "/cost?by=moon", "/agents?range=x"]
)
def test_a_slip_is_an_error_and_no_empty_page(client: httpx.Client, path: str) -> None:
    assert client.get(path, headers=HTML).status_code == 422


def test_pages_stay_small(client: httpx.Client, ids: dict[str, str]) -> None:
    sizes = {
        name: len(gzip.compress(client.get(path.format(**ids), headers=HTML).content)) for name, path in PAGES.items()
    }
    assert max(sizes.values()) < 60 * 1024, json.dumps(sizes)


def test_the_pictures_of_the_documentation_are_there_and_small() -> None:
    for name in ("flow", "proof"):
        file = Path(__file__).parents[2] / "docs" / "images" / f"{name}.png"
        assert 5_000 < file.stat().st_size < 200_000
