"""The console in a real browser: an operator's morning, without a mouse, without a script, and for every eye."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.raw_access import behind
from tests.browsers import BENT, aside, axe, chromium, findings, shot
from tests.consoles import TRACE, Scene, populate, question
from tests.web import Web, running

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("browser") / "home") as web:
        yield web


@pytest.fixture(scope="module")
def scene(web: Web) -> Scene:
    return aside(lambda: populate(web.store))


def enter(browser: Any, web: Web, **context: Any) -> Any:
    """A page of somebody who came in by a link."""
    page = browser.new_context(viewport={"width": 1280, "height": 860}, **context).new_page()
    page.set_default_timeout(20_000)
    code = aside(lambda: web.store.logins.create_link(name="Ada")).secret
    page.goto(f"{web.listening.address}/login?code={code}&next=/inbox")
    page.get_by_role("button", name="Open the console").click()
    page.locator("main").wait_for()
    return page


class Worker(threading.Thread):
    """An agent that asks in the middle of its work, and does what was authorised."""

    def __init__(self, web: Web) -> None:
        super().__init__()
        self._store, self.status_after = web.store, threading.Event()
        self.flow_id, self.did = "", None

    def run(self) -> None:
        self._store.agents.register("buyer", version="1.0.0")
        with self._store.flows.run("buyer", flow_type="purchase") as flow:
            self.flow_id = flow.flow_id
            self._store.contexts.put(flow.flow_id, {"limit_eur": 25_000})
            answer = flow.approve(
                "Over the limit", proposal={"limit_eur": 42_000, "venue": "XETR"}, impact="HIGH_IMPACT"
            )
            self.status_after.wait(60)
            self.did = flow.step("order", lambda: answer.answer)


def test_an_operators_morning(browser: Any, tmp_path: Path) -> None:
    """Log in by a link, see a question arrive, change and authorise it, watch the flow go on; verify; see a lock."""
    home = tmp_path / "home"
    with running(home) as web:
        page = enter(browser, web)
        page.get_by_text("Nothing waits for you.").wait_for()
        page.locator("#stream[data-state=live]").wait_for()
        worker = Worker(web)
        worker.start()
        page.get_by_role("link", name="Over the limit").wait_for()  # nobody loaded the page again
        assert page.title().startswith("(1) ")
        shot(page, "1-a-question-arrives")

        page.get_by_role("link", name="Over the limit").click()
        page.get_by_label("Authorise venue").uncheck()
        page.get_by_label("Value of limit_eur").fill("30000")
        page.get_by_label("Why?").fill("not more than that today")
        shot(page, "2-the-answer")
        page.get_by_role("button", name="Approve what is ticked").click()
        page.get_by_text("You authorise 1 of 2 parts").wait_for()
        shot(page, "3-the-consequence")
        page.get_by_role("button", name="Confirm: let the flow go on").click()
        page.get_by_text("Recorded: approved with changes.").wait_for()
        shot(page, "4-recorded")

        page.goto(f"{web.listening.address}/flows/flow?id={worker.flow_id}")
        page.locator("#stream[data-state=live]").wait_for()
        assert page.locator(".facts-line .badge", has_text="completed").count() == 0
        worker.status_after.set()
        page.locator(".facts-line .badge", has_text="completed").first.wait_for()  # nor this one
        worker.join(30)
        assert worker.did == {"limit_eur": 30_000}
        shot(page, "5-the-flow-went-on")

        page.get_by_role("link", name="Evidence").first.click()
        page.get_by_role("button", name="Verify now").click()
        page.locator("#verdict", has_text="VALID").wait_for()
        assert page.locator(".banner.lock").count() == 0
        shot(page, "6-verified")

        with behind(home) as database:
            database.execute("UPDATE escalation_requests SET comment = 'whatever you like'")
        page.get_by_role("link", name="Evidence").first.click()
        page.get_by_role("button", name="Verify now").click()
        page.locator("#verdict", has_text="TAMPERED").wait_for()
        page.locator(".banner.lock").wait_for()
        shot(page, "7-locked")
        for path in ("/inbox", "/flows", "/agents", "/memory", "/health"):
            page.goto(web.listening.address + path)
            assert "The store is locked" in page.locator(".banner.lock").inner_text()
        page.goto(f"{web.listening.address}/agents/agent?id=buyer")
        page.get_by_role("button", name="Suspend").click()
        page.get_by_label("Why?").fill("to see whether it can be written")
        page.get_by_role("button", name="Change it").click()
        page.get_by_text("Back to the console").wait_for()
        assert aside(lambda: web.store.agents.get("buyer")).status == "ACTIVE"


PAGES = {
    "today": "/today",
    "inbox": "/inbox",
    "question": "/inbox/{grave}",
    "decided": "/inbox/decided",
    "answered": "/inbox/{decided}",
    "flows": "/flows",
    "flow": "/flows/flow?id={parent}",
    "agents": "/agents",
    "agent": "/agents/agent?id=treasury-rebalancer",
    "evidence": "/evidence",
    "battle": "/evidence/evaluation?id=eval-1",
    "memory": "/memory?q=flat",
    "object": "/memory/object?id=market/dax&old=1&new=2",
    "snapshots": "/memory/snapshots",
    "telemetry": "/telemetry",
    "trace": f"/telemetry/trace?id={TRACE}",
    "health": "/health",
    "access": "/access",
    "search": "/search?q=treasury",
    "together": "/inbox/together/{calm}",
    "docs": "/docs",
    "docs-search": "/docs?q=flow+cursor",
    "docs-activity": "/docs/activity",
}
PAINTED = {"today", "inbox", "question", "answered", "flow", "evidence", "object", "health", "docs-activity"}
"""Pages that have every colour; looking at contrast takes seconds."""


def asking(look: str, name: str) -> dict[str, Any]:
    """What axe is asked: everything in the light, elsewhere what can be other there."""
    contrast = {"enabled": name in PAINTED}
    if look == "light":
        return {"rules": {"color-contrast": contrast}}
    values = ["scrollable-region-focusable", "target-size"] if look == "phone" else ["color-contrast", "label"]
    return {
        "runOnly": {"type": "rule", "values": values},
        "rules": {"color-contrast": contrast} if look == "dark" else {},
    }


LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "is_mobile": True, "has_touch": True},
}


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_for_every_eye(browser: Any, web: Web, scene: Scene, look: str) -> None:
    source = axe()
    page = enter(browser, web, **LOOKS[look])
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 844})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    for name, path in PAGES.items():
        page.goto(web.listening.address + (path.format(**vars(scene)) if "{" in path else path))
        page.locator("main").wait_for()
        assert findings(page, source, **asking(look, name)) == [], (look, name)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (look, name)
        assert page.evaluate(BENT) == [], (look, name)
        shot(page, f"{look}-{name}")
    assert said == []  # nothing was blocked, nothing is missing
    page.context.close()


def test_a_question_is_answered_by_keyboard_alone(browser: Any, web: Web, scene: Scene) -> None:
    del scene
    number = aside(lambda: asked(web, "keys"))
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/inbox/{number}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reach(page, "document.activeElement.getAttribute('aria-label') === 'Authorise limit_eur'")
    page.keyboard.press("Space")
    reach(page, "document.activeElement.id === 'comment'")
    page.keyboard.type("by keyboard")
    reach(page, "document.activeElement.textContent.startsWith('Approve')")
    page.keyboard.press("Enter")
    page.get_by_text("You authorise 5 of 6 parts").wait_for()
    reach(page, "document.activeElement.textContent.startsWith('Confirm')")
    page.keyboard.press("Enter")
    page.get_by_text("Recorded: approved with changes.").wait_for()
    page.context.close()


def reach(page: Any, wanted: str) -> None:
    """Go on by Tab until what is wanted has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate(f"Boolean({wanted})"):
            return
    raise AssertionError(f"no Tab leads to: {wanted}")


def asked(web: Web, name: str) -> int:
    web.store.agents.register(name, version="1.0.0")
    flow_id = web.store.flows.start(name, flow_type="order").flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    return web.store.escalations.request(flow_id, **question()).id


def test_everything_works_without_a_script(browser: Any, web: Web, scene: Scene) -> None:
    del scene
    number = aside(lambda: asked(web, "plain"))
    page = enter(browser, web, java_script_enabled=False)
    assert page.locator("#stream").inner_text() == "reload to update"
    page.get_by_role("link", name="Rebalance exceeds").first.wait_for(state="attached")
    page.goto(f"{web.listening.address}/inbox/{number}")
    page.get_by_label("Why?").fill("no")
    page.get_by_role("button", name="Reject").click()
    page.get_by_role("button", name="Confirm: reject").click()
    page.goto(f"{web.listening.address}/inbox/{number}")
    page.get_by_text("Already decided: rejected").wait_for()
    page.get_by_role("link", name="Evidence").first.click()
    page.get_by_role("button", name="Verify now").click()
    page.locator("#verdict").wait_for()  # the page renews itself
    page.context.close()


def test_what_somebody_types_is_not_swept_away(browser: Any, web: Web, scene: Scene) -> None:
    del scene
    number = aside(lambda: asked(web, "typing"))
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/inbox/{number}")
    page.get_by_label("Why?").fill("half a sen")
    before = int(page.locator(".count").inner_text())
    aside(lambda: asked(web, "another"))
    page.locator(".count", has_text=str(before + 1)).wait_for()
    # Who does not see the number is told it.
    assert page.get_by_role("status").filter(has_text=f"{before + 1} in the inbox").count() == 1
    assert page.get_by_label("Why?").input_value() == "half a sen"
    page.context.close()
