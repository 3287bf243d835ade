"""The pages that are one list, and the page of an object, in a real browser and for programs, on both databases."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdproof.server.console.list_declarations import LISTS
from tests.browsers import aside, axe, chromium, findings, shot
from tests.e2e.test_flow_pages import LOOKS, SMALL, enter
from tests.list_scenes import populate_lists
from tests.web import Web, running

pytestmark = pytest.mark.timeout(240)

HTML = {"accept": "text/html"}
SHOWS = {
    "/escalations": ("Buy at the open", "Sell before the report", "pending", "approved as proposed"),
    "/inbox/decided": ("Sell before the report", "operator:Ada", "as agreed"),
    "/calls": ("order o-17", "done"),
    "/access/tokens": ("nightly export", "auditor"),
    "/access/log": ("operator:Ada", "/login"),
    "/evaluations": ("hedge-2", "0.87", "VALID"),
    "/locks": ("ledger/2026-11", "api calls", "10"),
    "/ledger": ("amount 1002", "trader", "researcher"),
    "/blobs": ("reports/2026-10.txt", "text/plain", "195.3 KiB"),
    "/vectors": ("note-1", "kind note"),
    "/skills": ("deploy.org", "approved", "revoked", "reviewed line by line"),
    "/retention": ("flows", "Floors and legal holds"),
    "/holds": ("183", "logs are kept for six months", "case 4711"),
    "/backups": ("monday", "log entries"),
    "/tenants": ("acme", "creating"),
    "/memory/objects": ("rules/buying", "market/dax", "trend up", "last written"),
    "/memory/snapshots": ("before the fed", "what is there now", "Compare", "Sign one now"),
    "/threads": ("trip-1", "Transcripts"),
    "/threads/transcripts": ("desk/trip-2",),
    "/memory/object?id=rules/buying": ("researcher", "Used in", "2 flows", "rebalance", "backtest of 2026-10"),
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def web(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with ExitStack() as stack:
        url = None
        if request.param == "postgres":
            pool, reached = (request.getfixturevalue(name) for name in ("migrated_pool", "reached"))
            url = reached(stack.enter_context(pool.database()))
        yield stack.enter_context(server(tmp_path_factory.mktemp(f"lists-{request.param}"), url))


@contextmanager
def server(folder: Path, url: str | None) -> Iterator[Web]:
    """A server whose settings name a folder of backups."""
    (folder / "home" / "config").mkdir(parents=True)
    settings = f"backups: {{folder: {folder / 'backups'}, every_s: 864000, keep: 5}}\n"
    (folder / "home" / "config" / "config.yaml").write_text(settings)
    with running(folder / "home", url=url) as web:
        yield web


@pytest.fixture(scope="module")
def ids(web: Web) -> dict[str, str]:
    folder = Path(str(web.store.context.settings.backups.folder)).parent
    return aside(lambda: populate_lists(web.store, folder))


@pytest.fixture(scope="module")
def client(web: Web, ids: dict[str, str]) -> httpx.Client:
    del ids
    return web.logged_in(aside(lambda: web.store.logins.create_link(name="Ada")).secret)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.mark.parametrize("path", SHOWS)
def test_a_page_shows_what_there_is(client: httpx.Client, path: str) -> None:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == 200, answer.text
    for words in SHOWS[path]:
        assert words in answer.text, (path, words)


@pytest.mark.parametrize("declared", LISTS, ids=lambda declared: declared.path)
def test_a_list_is_counted_filtered_sorted_and_there_for_programs(client: httpx.Client, declared: Any) -> None:
    rows = client.get(f"{declared.path}.json").json()
    assert rows
    assert f"{len(rows)} in all" in client.get(declared.path, headers=HTML).text
    lines = client.get(f"{declared.path}.csv").text.splitlines()
    assert lines[0] == ",".join(each.place for each in declared.columns)
    assert len(lines) == 1 + len(rows)
    assert client.get(f"{declared.path}.json", params={"q": "no row has these words"}).json() == []
    place = declared.columns[0].place
    rising = client.get(f"{declared.path}.json", params={"sort": place}).json()
    falling = client.get(f"{declared.path}.json", params={"sort": f"-{place}"}).json()
    first = place.split(".")[0]
    assert [each[first] for each in falling] == [each[first] for each in rising][::-1]
    assert client.get(declared.path, params={"range": "1h"}, headers=HTML).status_code == 200
    # What is no order, no page and no range is told, and no empty page.
    for wrong in ({"sort": "moon"}, {"page": "0"}, {"page": "x"}, {"range": "ever"}, {"cursor": "x"}):
        if declared.paged or "cursor" not in wrong:
            assert client.get(declared.path, params=wrong, headers=HTML).status_code == 422, wrong
    assert client.get(f"{declared.path}.xml", headers=HTML).status_code == 404


def test_filters_of_a_list_are_those_of_the_store_and_of_what_is_shown(client: httpx.Client) -> None:
    def names(path: str, place: str) -> list[Any]:
        return [each[place] for each in client.get(path).json()]

    assert names("/evaluations.json?text=HEDGE-2", "evaluation_id") == ["hedge-2"]
    assert names("/evaluations.json?min=0.5&max=0.7", "evaluation_id") == ["hedge-1"]
    assert names("/evaluations.json?imported=yes", "evaluation_id") == []
    assert names("/evaluations.json?until=2020-01-01T00:00", "evaluation_id") == []
    assert names("/ledger.json?agent=researcher", "agent_id") == ["researcher"]
    assert names("/locks.json?resource=api+calls", "resource_id") == ["api calls"]
    assert names("/locks.json?until=2020-01-01T00:00", "resource_id") == []
    assert names("/blobs.json?prefix=reports/2026-11", "key") == ["reports/2026-11.bin"]
    assert names("/blobs.json?type=text/plain", "key") == ["reports/2026-10.txt"]
    assert names("/vectors.json?prefix=note-2", "id") == ["note-2"]
    assert names("/memory/objects.json?prefix=market/", "id") == ["market/dax"]
    assert names("/memory/objects.json?type=rule", "id") == ["rules/buying"]
    assert names("/memory/objects.json?until=2020-01-01T00:00", "id") == []
    assert names("/memory/snapshots.json?author=trader", "message") == ["after the fed"]
    assert names("/threads/transcripts.json?prefix=desk/trip-2", "name") == ["desk/trip-2"]
    assert client.get("/threads?status=moon", headers=HTML).status_code == 422
    assert names("/skills.json?state=REVOKED", "state") == ["REVOKED"]
    assert names("/holds.json?kind=hold", "kind") == ["hold"]
    assert client.get("/evaluations?min=much", headers=HTML).status_code == 422
    assert client.get("/evaluations?imported=perhaps", headers=HTML).status_code == 422


def test_what_is_searched_and_sorted_is_what_the_columns_show(client: httpx.Client) -> None:
    # The rule's JSON names an end of time that no column shows.
    assert client.get("/retention.json?q=9999-12-31").json() == []
    assert client.get("/retention.json?q=heartbeat").json()
    # What is checked only of the rows that are shown is no order of all of them.
    assert client.get("/evaluations?sort=verdict", headers=HTML).status_code == 422
    assert 'value="verdict"' not in client.get("/evaluations", headers=HTML).text


def test_a_cell_of_a_list_is_json_a_number_or_a_text_that_no_spreadsheet_runs(web: Web, client: httpx.Client) -> None:
    for key in ("=cmd()", "\uff1dcmd()", "-2+3"):
        aside(partial(web.store.vectors.add, key, [0.1] * 384, {"none": None}))
    lines = client.get("/vectors.csv?q=none").text.splitlines()
    assert [line[:7] for line in lines[1:]] == ["'-2+3,\"", "'=cmd()", "'\uff1dcmd()"]
    assert all('"{""none"": null}"' in line for line in lines[1:])
    aside(lambda: web.store.evaluations.submit({"task": 9}, evaluation_id="below", score=-0.5, intent=[1.0]))
    assert ",-0.5," in client.get("/evaluations.csv?text=below").text


@pytest.mark.parametrize("declared", LISTS, ids=lambda declared: declared.path)
def test_what_no_list_understands_is_told_and_is_no_defect(client: httpx.Client, declared: Any) -> None:
    cursors = []
    for each in LISTS:
        cursor = client.get(f"/v1/{each.resource}/{each.method}", params={"limit": 1}).json()
        cursors += [cursor["next_cursor"]] if isinstance(cursor, dict) and cursor.get("next_cursor") else []
    assert cursors
    odd = ["nan", "inf", "1e999", "\0", "\ud800".encode("utf-8", "surrogatepass"), "\u202e", "%", "9" * 600, "'\"<u-x>"]
    names = ["q", *(each.name for each in declared.filters), "sort", "page", "cursor", "since", "until", "range"]
    asked = [("cursor", each) for each in cursors] + [(name, each) for name in names for each in odd]
    for name, value in asked:
        for suffix in ("", ".json", ".csv"):
            answer = client.get(declared.path + suffix, params={name: value}, headers=HTML)
            assert answer.status_code in {200, 422}, (name, value, answer.text[-2000:])
            assert "<u-x>" not in answer.text or suffix, (name, value)


def test_more_than_a_page_is_shown_page_by_page(web: Web, client: httpx.Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("holdproof.server.console.list_pages._SHOWN", 2)
    monkeypatch.setattr("holdproof.server.console.listing.MOST_ROWS", 3)
    for number in range(5):
        aside(partial(web.store.blobs.put, f"many/{number}", b"x"))
    first = client.get("/blobs?prefix=many/", headers=HTML).text
    assert "3 of the 3 looked at" in first
    assert "1 to 2 are shown" in first
    assert "many/3" not in first
    assert "many/2" in client.get("/blobs?prefix=many/&page=2", headers=HTML).text
    rows = client.get("/blobs.json?prefix=many/")
    assert [each["key"] for each in rows.json()] == ["many/0", "many/1", "many/2"]
    further = client.get("/blobs.json", params={"prefix": "many/", "cursor": rows.headers["x-next-cursor"]})
    assert [each["key"] for each in further.json()] == ["many/3", "many/4"]
    for number in range(5):
        aside(partial(web.store.blobs.delete, f"many/{number}"))


def test_an_auditor_and_a_person_of_one_namespace_see_what_they_may(web: Web, ids: dict[str, str]) -> None:
    del ids
    auditor = web.logged_in(aside(lambda: web.store.logins.create_link(name="Eve", role="auditor")).secret)
    bound = web.logged_in(aside(lambda: web.store.logins.create_link(name="Bob", ns="main")).secret)
    statuses = {
        declared.path: [each.get(declared.path, headers=HTML).status_code for each in (auditor, bound)]
        for declared in LISTS
    }
    # Of the whole store: not for a person of one namespace.
    refused = {path: [200, 403] for path in ("/blobs", "/vectors", "/tenants", "/access/log")}
    refused["/backups"] = [403, 403]
    assert statuses == {path: refused.get(path, [200, 200]) for path in statuses}
    # Nothing is offered that is refused.
    text = bound.get("/today", headers=HTML).text
    assert all((f'href="{path}"' in text) == (path not in refused) for path in ("/backups", "/blobs", "/locks"))


def test_an_object_says_who_wrote_it_and_where_it_was_used(browser: Any, web: Web, ids: dict[str, str]) -> None:
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/memory/object?id=rules/buying")
    assert page.locator("#diff-summary").inner_text().split() == ["changed", "2", "added", "1"]
    assert page.locator(".lines ins", has_text="five days").count() == 1
    assert page.locator(".lines del", has_text="three days").count() == 1
    assert page.locator("#write-1", has_text="outside of a flow").count() == 1
    page.locator("#write-2").get_by_role("link", name="researcher").wait_for()
    page.locator("#write-2 .id a").click()
    page.wait_for_url(f"**/flows/flow?id={ids['writer']}")
    page.go_back()
    page.locator("section[aria-labelledby=uses] a", has_text="rebalance").first.click()
    page.wait_for_url(f"**/flows/flow?id={ids['reader']}")
    page.context.close()


@pytest.mark.parametrize("look", LOOKS)
def test_every_list_is_for_every_eye_and_hand(browser: Any, web: Web, ids: dict[str, str], look: str) -> None:
    del ids
    source = axe()
    page = enter(browser, web, **LOOKS[look])
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 844})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    for path in SHOWS:
        page.goto(web.listening.address + path)
        options = {} if look == "light" else {"runOnly": {"type": "rule", "values": ["color-contrast", "target-size"]}}
        assert findings(page, source, **options) == [], (look, path)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, (look, path)
        if look == "phone":
            assert page.evaluate(SMALL) == [], path
        shot(page, f"{look}-list-{path.strip('/').partition('?')[0].replace('/', '-')}")
    assert said == []
    page.context.close()


def test_a_list_is_filtered_and_sorted_by_keyboard(browser: Any, web: Web, ids: dict[str, str]) -> None:
    del ids
    page = enter(browser, web)
    page.goto(f"{web.listening.address}/ledger")
    page.get_by_label("Search", exact=True).focus()
    page.keyboard.type("1001")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=1001**")
    assert page.locator("#list tbody tr").count() == 1
    page.get_by_role("link", name="Clear").focus()
    page.keyboard.press("Enter")
    page.locator("#list tbody tr").nth(2).wait_for()
    page.locator("#list th", has_text="agent").get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert page.locator("#list td[data-label=agent]").all_inner_texts() == ["researcher", "trader", "trader"]
    page.context.close()
