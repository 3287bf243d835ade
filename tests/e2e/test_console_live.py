"""The console while others work: many tabs, two operators, a deadline, a restart, an ended session, keys and focus."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdproof.server.serve import ListenAddress
from tests.browsers import aside, chromium
from tests.consoles import question
from tests.e2e.test_console import in_doubt
from tests.web import Web, running

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("live") / "home") as web:
        aside(lambda: asked(web, "first"))
        yield web


def enter(browser: Any, web: Web, path: str = "/inbox", name: str = "Ada", **context: Any) -> Any:
    page = browser.new_context(viewport={"width": 1280, "height": 860}, **context).new_page()
    page.set_default_timeout(20_000)
    page.goto(f"{web.listening.address}/login?code={link(web, name)}&next={path}")
    page.get_by_role("button", name="Open the console").click()
    page.locator("#stream[data-state=live]").wait_for()
    return page


def link(web: Web, name: str = "Ada") -> str:
    return str(aside(lambda: web.store.logins.create_link(name=name)).secret)


def asked(web: Web, name: str, **more: Any) -> int:
    web.store.agents.register(name, version="1.0.0")
    flow_id = web.store.flows.start(name, flow_type="order").flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    return web.store.escalations.request(flow_id, **{**question(), **more}).id


def low(web: Web, name: str, amount: int = 900, **more: Any) -> int:
    return asked(web, name, reason=f"Refund of {amount} EUR", proposal={"amount": amount}, impact="LOW_IMPACT", **more)


def resolve(web: Web, number: int, choice: str = "reject") -> None:
    aside(lambda: web.store.escalations.resolve(number, choice, by="operator:Bob", comment="no"))


def test_eight_tabs_are_all_live_over_one_stream(browser: Any, web: Web) -> None:
    first = enter(browser, web)
    tabs = [first, *(first.context.new_page() for _ in range(7))]
    for tab in tabs[1:]:
        tab.set_default_timeout(20_000)
        tab.goto(f"{web.listening.address}/inbox")
    # Tabs of a headless browser all count as seen, so that each of them has to show what is new.
    for tab in tabs:
        tab.locator("#stream[data-state=live]").wait_for()
    number = aside(lambda: asked(web, "tabs"))
    for tab in tabs:
        tab.locator(f"#q{number}").wait_for()
    assert re.findall(r"^holdproof_http_streams (\d+)", metrics(web), re.MULTILINE) == ["1"]
    resolve(web, number)
    first.context.close()


def metrics(web: Web) -> str:
    token = aside(lambda: web.store.tokens.create("metrics", role="operator")).secret
    return str(aside(lambda: web.client(token).get("/metrics")).text)


def test_an_answer_of_another_operator_closes_the_form_and_says_who(browser: Any, web: Web) -> None:
    number = aside(lambda: asked(web, "two"))
    page = enter(browser, web, f"/inbox/{number}")
    page.get_by_label("Why?").fill("half an answer")
    resolve(web, number)
    page.locator("#outcome", has_text="Already decided: rejected by operator:Bob").wait_for()
    assert page.locator("#answer-form button:enabled, #answer-form textarea:enabled").count() == 0
    # The list beside it goes on without the one that was answered.
    page.locator(f"#row-{number}").wait_for(state="detached")
    page.context.close()


def test_a_deadline_closes_the_form_by_itself(browser: Any, web: Web) -> None:
    number = aside(lambda: asked(web, "late", deadline_s=4))
    page = enter(browser, web, f"/inbox/{number}")
    page.locator("#outcome [data-countdown] time", has_text=re.compile(r"in 0:0\d")).wait_for()
    page.locator("#outcome[data-open=no]").wait_for()
    page.locator("#answer-form button:disabled").first.wait_for()
    assert page.locator("#answer-form button:enabled").count() == 0
    page.context.close()


def test_a_draft_survives_the_way_back_a_reload_and_an_ended_session(browser: Any, web: Web) -> None:
    number = aside(lambda: low(web, "drafts"))
    page = enter(browser, web, f"/inbox/{number}")
    page.get_by_label("Value of amount").fill("450")
    page.get_by_label("Why?").fill("half of it is enough")
    page.get_by_role("button", name="Approve what is ticked").click()
    page.get_by_text("approved with changes").wait_for()
    page.get_by_role("button", name="Back").click()
    assert page.get_by_label("Why?").input_value() == "half of it is enough"
    page.goto(f"{web.listening.address}/inbox/{number}")
    page.reload()
    assert page.get_by_label("Value of amount").input_value() == "450"
    aside(lambda: [web.store.logins.end(each.login_id) for each in web.store.logins.list().items])
    page.get_by_role("button", name="Approve what is ticked").click()
    page.get_by_label("Your token").fill(link(web))
    page.get_by_role("button", name="Open the console").click()
    page.wait_for_url(f"**/inbox/{number}")
    assert page.get_by_label("Value of amount").input_value() == "450"
    assert page.get_by_label("Why?").input_value() == "half of it is enough"
    resolve(web, number)
    page.context.close()


def test_focus_selection_and_typed_text_survive_twenty_updates(browser: Any, web: Web) -> None:
    number = aside(lambda: asked(web, "steady"))
    page = enter(browser, web, f"/inbox/{number}")
    row = page.locator(f"#q{number}")
    row.focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#outcome strong'))")
    words = page.evaluate("String(getSelection())")
    assert words
    page.evaluate("document.getElementById('queue').dataset.same = 'yes'; window.seen = 0")
    page.evaluate(
        "new MutationObserver(() => { window.seen += 1; })"
        ".observe(document.querySelector('#queue .rows'), { childList: true, subtree: true })"
    )
    for turn in range(20):
        other = aside(partial(low, web, "noise", 100 + turn))
        page.locator(f"#q{other}").wait_for()
        resolve(web, other)
        page.locator(f"#q{other}").wait_for(state="detached")
    assert page.evaluate("window.seen") >= 20
    assert page.evaluate("document.activeElement.id") == f"q{number}"
    assert page.evaluate("String(getSelection())") == words
    resolve(web, number)
    page.context.close()


def test_keys_answer_an_escalation_and_open_the_next(browser: Any, web: Web) -> None:
    earlier, later = aside(lambda: (low(web, "keys", 900, deadline_s=600), low(web, "keys", 700, deadline_s=900)))
    page = enter(browser, web)
    page.get_by_role("heading", name="Refund of 900 EUR").wait_for()
    page.keyboard.press("j")
    page.get_by_role("heading", name="Refund of 700 EUR").wait_for()
    page.keyboard.press("k")
    page.get_by_role("heading", name="Refund of 900 EUR").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    # Two keys answer: A shows the consequence, Enter confirms it.
    page.keyboard.press("a")
    page.get_by_role("heading", name="Confirm the consequence").wait_for()
    focused(page, "[data-consequence]")
    page.keyboard.press("Enter")
    page.get_by_text("Recorded: approved as proposed.").wait_for()
    page.get_by_role("heading", name="Refund of 700 EUR").wait_for()
    page.keyboard.press("r")
    focused(page, "#comment")
    page.keyboard.type("too much")
    page.keyboard.press("Control+Enter")
    page.get_by_text("You reject the proposal").wait_for()
    focused(page, "[data-consequence]")
    page.keyboard.press("Enter")
    page.get_by_text("Recorded: rejected.").wait_for()
    answers = aside(lambda: [web.store.escalations.get(each).outcome for each in (earlier, later)])
    assert answers == ["approved as proposed", "rejected"]
    page.context.close()


def focused(page: Any, selector: str) -> None:
    """Wait until an element has the focus: a page gives it only once it is read and drawn."""
    page.wait_for_function("each => document.activeElement.matches(each)", arg=selector)


def test_no_key_is_lost_between_pages_and_none_confirms_what_was_not_seen(browser: Any, web: Web) -> None:
    numbers = aside(lambda: [low(web, "fast", amount, deadline_s=amount) for amount in (1100, 1200, 1300)])
    page = enter(browser, web, f"/inbox/{numbers[0]}")
    # In one task, so that the last two are surely pressed while the first still opens another page: between that page
    # and its first paint the browser itself may drop keys.
    page.evaluate("""() => {
        for (const key of "jja") {
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        }
    }""")
    page.get_by_text("escalation " + str(numbers[2])).wait_for()
    page.get_by_role("heading", name="Confirm the consequence").wait_for()
    page.goto(f"{web.listening.address}/inbox/{numbers[0]}")
    for key in "aa":
        page.keyboard.press(key)
    page.get_by_role("heading", name="Confirm the consequence").wait_for()
    focused(page, "[data-consequence]")
    assert aside(lambda: [web.store.escalations.get(each).status for each in numbers]) == ["PENDING"] * 3
    for each in numbers:
        resolve(web, each)
    page.context.close()


def test_a_key_right_after_a_dialog_closed_is_not_lost(browser: Any, web: Web) -> None:
    number = aside(lambda: low(web, "closing"))
    page = enter(browser, web, f"/inbox/{number}")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    # Within one task no frame is drawn: the button of the closed dialog still has the focus.
    page.evaluate("""() => {
        document.getElementById("help").close();
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "b", bubbles: true }));
    }""")
    focused(page, "#ask")
    resolve(web, number)
    page.context.close()


def test_ask_back_hand_over_and_edit_have_keys(browser: Any, web: Web) -> None:
    number = aside(lambda: low(web, "letters"))
    page = enter(browser, web, f"/inbox/{number}")
    for key, field in (("b", "ask"), ("h", "approvers")):
        page.keyboard.press(key)
        focused(page, f"#{field}")
        page.evaluate("document.activeElement.blur()")
    page.keyboard.press("e")
    focused(page, "[name=value-0]")
    resolve(web, number)
    page.context.close()


def test_who_edits_a_value_sends_the_answer_by_keys(browser: Any, web: Web) -> None:
    number = aside(lambda: asked(web, "edited"))
    page = enter(browser, web, f"/inbox/{number}")
    page.keyboard.press("e")
    focused(page, "[name=value-0]")
    page.keyboard.press("Control+a")
    page.keyboard.type("30000")
    # Of high impact, so that the reason is asked for first.
    page.keyboard.press("Control+Enter")
    focused(page, "#comment")
    page.keyboard.type("up to 30000")
    page.keyboard.press("Control+Enter")
    focused(page, "[data-consequence]")
    page.keyboard.press("Enter")
    page.get_by_text("Recorded: approved with changes.").wait_for()
    answered = aside(lambda: web.store.escalations.get(number))
    assert answered.answer["limit_eur"] == 30000
    page.context.close()


def test_the_three_answers_to_a_step_in_doubt_have_keys(browser: Any, web: Web) -> None:
    number, runs, worker = aside(lambda: in_doubt(web))
    page = enter(browser, web, f"/inbox/{number}")
    keys = [each.get_attribute("data-key") for each in page.locator("#answer-form button[name=choice]").all()]
    assert keys == ["a", "n", "r"]
    page.keyboard.press("n")
    focused(page, "#comment")
    page.keyboard.type("the bank has no such payment")
    page.keyboard.press("Control+Enter")
    focused(page, "[data-consequence]")
    page.get_by_text("did not happen").first.wait_for()
    # Looked up once more: it did happen, and is not run again.
    page.goto(f"{web.listening.address}/inbox/{number}")
    page.get_by_label("Why?").fill("the bank has it after all")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("a")
    focused(page, "[data-consequence]")
    page.keyboard.press("Enter")
    page.get_by_text("Recorded:").wait_for()
    assert aside(lambda: web.store.escalations.get(number).human_decision) == "HAPPENED"
    aside(lambda: worker.join(30))
    assert runs == ["pay"]
    page.context.close()


def test_a_hidden_tab_is_quiet_and_catches_up_when_somebody_looks(browser: Any, web: Web) -> None:
    page = enter(browser, web)
    show = "value => Object.defineProperty(document, 'hidden', { configurable: true, get: () => value })"
    page.evaluate(show, True)
    asked_for: list[str] = []
    page.on("request", lambda request: asked_for.append(request.url))
    number = aside(lambda: low(web, "unseen"))
    page.wait_for_timeout(1500)
    assert asked_for == []
    page.evaluate(show, False)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator(f"#q{number}").wait_for()
    resolve(web, number)
    page.context.close()


def test_a_page_warns_before_its_session_ends(browser: Any, web: Web) -> None:
    page = enter(browser, web)
    assert page.locator("#session").is_hidden()
    # The page looks at the moment that the server told it; ten minutes before it the warning comes.
    page.evaluate("document.body.dataset.until = new Date(Date.now() + 540000).toISOString()")
    page.locator("#session", has_text="Your session ends").wait_for()
    assert page.get_by_role("link", name="log in again").get_attribute("href").startswith("/login?next=")
    page.context.close()


def test_alike_escalations_are_answered_together(browser: Any, web: Web) -> None:
    numbers = aside(lambda: [low(web, "alike", 100 + turn) for turn in range(3)])
    page = enter(browser, web, f"/inbox/{numbers[0]}")
    page.get_by_role("link", name="Answer these 3 together").click()
    page.get_by_label(f"Answer escalation {numbers[2]}").uncheck()
    page.get_by_label("Why?").fill("all within the policy")
    page.get_by_role("button", name="Approve all ticked").click()
    page.get_by_role("heading", name="Confirm the consequence for 2").wait_for()
    # What somebody else answered in between is left out, and named.
    resolve(web, numbers[1])
    page.get_by_role("button", name="Confirm all 2").click()
    page.get_by_text("Recorded: 1 approved as proposed.").wait_for()
    assert f"Not taken: {numbers[1]}" in page.locator(".note").first.inner_text()
    outcomes = aside(lambda: [web.store.escalations.get(each).outcome for each in numbers])
    assert outcomes == ["approved as proposed", "rejected", "pending"]
    resolve(web, numbers[2])
    page.context.close()


def test_a_page_that_does_not_change_is_asked_for_once(browser: Any, web: Web) -> None:
    page = enter(browser, web, "/today")
    calls: list[str] = []
    page.on("request", lambda request: calls.append(request.url))
    page.goto(f"{web.listening.address}/today")
    page.locator("#stream[data-state=live]").wait_for()
    page.wait_for_timeout(1500)
    # Styles and scripts come from the browser's cache; the stream belongs to no tab.
    assert [each for each in calls if each.endswith("/today")] == [f"{web.listening.address}/today"]
    page.context.close()


def test_who_else_looks_is_told(browser: Any, web: Web) -> None:
    number = aside(lambda: asked(web, "watched"))
    one = enter(browser, web, f"/inbox/{number}")
    other = enter(browser, web, f"/inbox/{number}", name="Bob")
    other.get_by_text("Ada looks at this too.").wait_for()
    resolve(web, number)
    one.context.close()
    other.context.close()


def test_search_finds_pages_agents_escalations_and_flows_by_their_beginning(browser: Any, web: Web) -> None:
    number = aside(lambda: asked(web, "needle"))
    flow_id = aside(lambda: web.store.escalations.get(number).flow_id)
    page = enter(browser, web)
    for text, href in (
        ("needle", "/agents/agent?id=needle"),
        (str(number), f"/inbox/{number}"),
        (flow_id, f"/flows/flow?id={flow_id}"),
        ("Evid", "/evidence"),
    ):
        page.keyboard.press("Control+k")
        page.locator("#palette input").fill(text)
        page.locator(f"#hits a[href='{href}']").first.wait_for()
        page.keyboard.press("Escape")
    resolve(web, number)
    page.context.close()


def test_after_a_restart_tabs_are_live_again_and_say_meanwhile_that_they_are_stale(
    browser: Any, tmp_path: Path
) -> None:
    with running(tmp_path / "home") as web:
        aside(lambda: asked(web, "before"))
        page = enter(browser, web)
        port = web.port
    page.locator("#stream[data-state=away]").wait_for()
    page.locator("#stale:visible").wait_for()
    assert "Stale since" in page.locator("#stale").inner_text()

    with running(tmp_path / "home", place=ListenAddress(port=port)) as web:
        page.locator("#stream[data-state=live]").wait_for()
        number = aside(lambda: asked(web, "after"))
        page.locator(f"#q{number}").wait_for()
        page.locator("#stale").wait_for(state="hidden")
        page.context.close()
