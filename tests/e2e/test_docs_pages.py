"""The pages of the API: each method once, found by its words, called by the line that stands there, tried in place."""

import re
import shlex
from collections.abc import Iterator
from html import unescape
from itertools import pairwise
from typing import Any

import httpx
import pytest

from holdproof.server import api_reference
from tests.browsers import aside, chromium
from tests.web import Web, running

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("docs") / "home") as web:
        yield web


@pytest.fixture(scope="module")
def document(web: Web) -> dict[str, Any]:
    document: dict[str, Any] = web.client().get("/openapi.json").json()
    return document


@pytest.fixture(scope="module")
def resources(document: dict[str, Any]) -> tuple[api_reference.ApiResource, ...]:
    return api_reference.resources(document)


def test_every_address_is_shown_once_with_all_that_it_takes(
    document: dict[str, Any], resources: tuple[api_reference.ApiResource, ...]
) -> None:
    addresses = [each for resource in resources for each in resource.addresses]
    assert sorted(each.path for each in addresses) == sorted(document["paths"])
    for each in addresses:
        names = [one.name for one in each.parameters]
        operations = document["paths"][each.path].values()
        told = {one["name"] for operation in operations for one in operation.get("parameters", ())}
        for operation in operations:
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            told |= body.get("properties", {}).keys()
        assert len(names) == len(set(names)), each.path
        assert set(names) == told, each.path


def test_every_method_has_a_page_with_a_call_and_most_have_an_example(
    web: Web, resources: tuple[api_reference.ApiResource, ...]
) -> None:
    client = web.client()
    for resource in resources:
        answer = client.get(f"/docs/{resource.name}")
        assert answer.status_code == 200
        text = unescape(answer.text)
        for each in resource.addresses:
            assert text.count(f'id="{each.anchor}"') == 1
            assert each.path in text
            assert each.curl.splitlines()[0] in text
    addresses = [each for resource in resources for each in resource.addresses]
    assert sum(bool(each.example) for each in addresses) > len(addresses) * 0.7
    assert client.get("/docs/nothing").status_code == 404


def test_words_between_backticks_are_shown_as_code(web: Web) -> None:
    client = web.client()
    for path in ("/docs", "/docs?q=flows", "/docs/flows", "/docs/escalations"):
        text = re.sub(r"(?s)<pre.*?</pre>", "", client.get(path).text)
        assert "`" not in text, path
    assert "<code>2 of finance</code>" in client.get("/docs/escalations").text


def test_the_methods_of_a_page_are_folded_and_an_address_opens_its_own(web: Web) -> None:
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
        page.goto(f"{web.listening.address}/docs/flows")
        page.locator(".method").first.wait_for()
        assert page.evaluate("document.documentElement.scrollHeight") < 9_000
        assert page.locator(".fold[open]").count() == 0
        page.get_by_role("link", name="cancel_many", exact=True).click()
        page.locator("[id='flows.cancel_many'] .calls pre").first.wait_for()
        assert page.locator(".fold[open]").count() == 1
        title = page.get_by_role("heading", name="/v1/flows/cancel_many")
        assert title.evaluate("each => each.getBoundingClientRect().top") >= 0
        page.goto(f"{web.listening.address}/docs/workers")
        page.locator("[id='workers.list'] .calls pre").first.wait_for()


def test_a_page_is_small_and_made_once(web: Web) -> None:
    for path in ("/docs", "/docs/flows", "/docs/escalations"):
        first = web.client().get(path)
        assert int(first.headers["content-length"]) <= 60_000
        assert web.client().get(path).content == first.content


def test_a_search_without_a_script_finds_methods_by_their_words(web: Web) -> None:
    client = web.client()
    hits = client.get("/docs", params={"q": "FLOWS cancel"}).text
    assert "/v1/flows/cancel_many" in hits
    assert "/v1/flows/start" not in hits
    nothing = client.get("/docs", params={"q": "no-such-word"}).text
    assert "No method has these words." in nothing
    assert "<script>x" not in client.get("/docs", params={"q": '"><script>x'}).text
    assert client.get("/docs", params={"q": "a" * 101}).status_code == 422


@pytest.mark.parametrize(
    ("path", "by"), [("flows/stats", "day"), ("activity/stats", "all"), ("telemetry/usage", "tool")]
)
def test_a_count_over_http_is_by_what_its_caller_asks_for(web: Web, path: str, by: str) -> None:
    token = web.store.tokens.create(name=f"counts-{by}", role="operator").secret
    client = web.client(token)
    assert client.get(f"/v1/{path}", params={"by": by}).status_code == 200
    assert client.post(f"/v1/{path}", json={"by": by}).status_code == 200
    assert client.get(f"/v1/{path}").status_code == 200
    assert client.get(f"/v1/{path}", params={"by": "colour"}).status_code == 422


CALLS = ("flows.list", "activity.stats", "agents.register", "objects.put", "log.growth")


@pytest.mark.parametrize("anchor", CALLS)
def test_the_call_that_stands_there_is_taken(
    web: Web, resources: tuple[api_reference.ApiResource, ...], anchor: str
) -> None:
    [each] = [one for resource in resources for one in resource.addresses if one.anchor == anchor]
    token = web.store.tokens.create(name=f"docs-{anchor}", role="operator").secret
    line = each.curl.replace("$HOLDPROOF_SERVER", web.listening.address).replace("$HOLDPROOF_TOKEN", token)
    words = shlex.split(line.replace("\\\n", " "))
    headers = dict(word.split(": ", 1) for option, word in pairwise(words) if option == "-H")
    body = next((word for option, word in pairwise(words) if option == "-d"), None)
    method = "GET" if body is None else "POST"
    answer = httpx.request(method, words[-1], headers=headers, content=body)
    assert answer.status_code == 200, answer.text


def test_a_search_as_one_types_and_a_try_in_place(web: Web) -> None:
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 860}).new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        code = aside(lambda: web.store.logins.create_link(name="Ada")).secret
        page.goto(f"{web.listening.address}/login?code={code}&next=/inbox")
        page.get_by_role("button", name="Open the console").click()
        page.locator("main").wait_for()

        page.goto(f"{web.listening.address}/docs")
        page.keyboard.press("/")
        page.keyboard.type("escalations resolve")
        page.get_by_role("link", name="/v1/escalations/resolve").wait_for()
        assert re.fullmatch(r"\d+ methods?", page.locator("#hits").inner_text())
        assert not page.locator("#cards").is_visible()
        page.get_by_role("searchbox").fill("no such thing")
        page.get_by_text("No method has these words.").wait_for()
        page.get_by_role("searchbox").fill("")
        page.locator("#cards").wait_for()

        page.goto(f"{web.listening.address}/docs/agents#agents.list")
        method = page.locator("[id='agents.list']")
        method.get_by_text("Try it").click()
        method.get_by_role("button", name="Call").click()
        answer = method.locator("pre[role=status]")
        page.wait_for_function("text => text.textContent.includes('next_cursor')", arg=answer.element_handle())
        assert answer.inner_text().startswith("200 ")
        assert errors == []
