"""Logging in by the word of a proxy: it counts from the proxy only, for who is named, for one person at a time."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from holdproof.errors import ConfigError
from holdproof.server import ServerSettings
from holdproof.server.serve import ListenAddress
from holdproof.server.settings import ProxyLogin
from tests.web import Web, problem, running

HEADER = "X-Auth-Request-Email"
LOGIN = ProxyLogin(HEADER, frozenset({"ann@example.org"}), frozenset({"*"}))


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    home = tmp_path_factory.mktemp("proxy") / "home"
    with running(home, ServerSettings(proxy_login=LOGIN), place=ListenAddress(port=0, proxies="127.0.0.1")) as web:
        yield web


def behind(web: Web, person: str) -> httpx.Client:
    return web.client(**{HEADER: person, "X-Forwarded-For": "203.0.113.9", "Accept": "text/html"})


def test_who_the_proxy_names_comes_in_by_one_click_and_is_on_record(web: Web) -> None:
    client = behind(web, "ann@example.org")
    assert "Open the console as ann@example.org" in client.get("/login?next=/flows").text
    assert "Open the console as ann@example.org" in client.get("/inbox").text, "at a page that needs a session, too"
    answer = client.post("/login", data={"proxy": "yes", "next": "/flows"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/flows")
    assert "ann@example.org" in client.get("/flows").text
    entry = web.store.access_log.list(event="login", limit=1).items[0]
    assert (entry.caller, entry.address) == ("operator:ann@example.org", "203.0.113.9")


def test_others_whom_the_proxy_lets_through_come_in_as_what_the_server_was_told(web: Web) -> None:
    client = behind(web, "bob@example.org")
    assert client.post("/login", data={"proxy": "yes"}).status_code == 303
    assert web.store.access_log.list(event="login", limit=1).items[0].caller == "auditor:bob@example.org"
    assert [each.role for each in web.store.logins.list().items if each.name == "bob@example.org"] == ["auditor"]


def test_a_session_counts_for_the_person_whom_the_proxy_names_only(web: Web) -> None:
    client = behind(web, "ann@example.org")
    client.post("/login", data={"proxy": "yes"})
    assert client.get("/flows").status_code == 200
    assert client.get("/flows", headers={HEADER: "bob@example.org"}).status_code == 401
    token = web.store.tokens.create("ops").secret
    client.post("/login", data={"code": token})
    assert client.get("/flows").status_code == 200, "a token is its holder's own"


def test_a_session_ends_to_count_once_its_person_may_not_come_in_any_more_or_as_something_else(tmp_path: Path) -> None:
    place = ListenAddress(port=0, proxies="127.0.0.1")
    cookie = None
    statuses = []
    for login in (LOGIN, LOGIN, ProxyLogin(HEADER, frozenset({"bob@x"})), ProxyLogin(HEADER, auditors=LOGIN.operators)):
        with running(tmp_path / "home", ServerSettings(proxy_login=login), place=place) as web:
            client = behind(web, "ann@example.org")
            if cookie is None:
                cookie = client.post("/login", data={"proxy": "yes"}).cookies["holdproof"]
            statuses.append(client.get("/flows", headers={"Cookie": f"holdproof={cookie}"}).status_code)
    assert statuses == [200, 200, 401, 401]


@pytest.mark.parametrize("names", [[], ["ann@example.org", "bob@example.org"], [""]])
def test_a_header_that_is_missing_empty_or_there_twice_names_nobody(web: Web, names: list[str]) -> None:
    headers = [(HEADER, name) for name in names]
    client = web.client()
    assert "Open the console as" not in client.get("/login", headers=headers).text
    problem(client.post("/login", data={"proxy": "yes"}, headers=headers), 401, "access.unauthenticated")


def test_a_header_that_does_not_come_from_the_proxy_names_nobody(tmp_path: Path) -> None:
    place = ListenAddress(port=0, proxies="192.0.2.7")
    with running(tmp_path / "home", ServerSettings(proxy_login=LOGIN), place=place) as web:
        client = behind(web, "ann@example.org")
        assert "Open the console as" not in client.get("/login").text
        assert client.post("/login", data={"proxy": "yes"}).status_code == 401
        assert "set-cookie" not in client.post("/login", data={"proxy": "yes"}).headers


def test_another_site_cannot_log_somebody_in(web: Web) -> None:
    answer = behind(web, "ann@example.org").post(
        "/login", data={"proxy": "yes"}, headers={"Origin": "https://evil.example"}
    )
    assert answer.status_code == 403


def test_a_header_without_a_proxy_or_without_people_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="--proxy"):
        LOGIN.check(None)
    with pytest.raises(ConfigError, match="nobody else"):
        LOGIN.check("*")
    for proxies in ("0.0.0.0/0", "::/0", "127.0.0.1, 0.0.0.0/0"):
        with pytest.raises(ConfigError, match="nobody else"):
            LOGIN.check(proxies)
    with pytest.raises(ConfigError, match="not 'caddy'"):
        LOGIN.check("caddy")
    LOGIN.check("10.0.0.2,10.1.0.0/16,::1")
    with pytest.raises(ConfigError, match="--login-operator"):
        ProxyLogin(HEADER).check("127.0.0.1")
