"""Logging in by passkey: a real Chromium with a virtual authenticator registers one, and comes in by it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors
from holdproof.access import passkeys
from holdproof.crypto.passkey_answers import to_bytes, to_text
from holdproof.model.namespaces import EVERY
from holdproof.server import ServerSettings
from tests.browsers import aside, axe, chromium, findings, shot
from tests.web import Web, problem, running

pytestmark = pytest.mark.timeout(180)
_REFUSED = "this passkey does not open the console here"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def web(anywhere: tuple[Path, str | None]) -> Iterator[Web]:
    home, url = anywhere
    with running(home, url=url) as web:
        yield web


class Person:
    """Somebody at a browser with an authenticator of their own; the console is at `localhost`, as passkeys need."""

    def __init__(self, browser: Any, web: Web, **context: Any) -> None:
        self.web = web
        self.home = web.listening.address.replace("127.0.0.1", "localhost")
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self._devtools = self.context.new_cdp_session(self.page)
        self._devtools.send("WebAuthn.enable")
        options = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasResidentKey": True,
            "hasUserVerification": True,
            "isUserVerified": True,
            "automaticPresenceSimulation": True,
        }
        self._authenticator = self._devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})

    def enter(self, code: str) -> None:
        self.page.goto(f"{self.home}/login?code={code}&next=/access")
        self.page.get_by_role("button", name="Open the console").click()
        self.page.get_by_role("heading", name="Access").wait_for()

    def register(self) -> None:
        self.page.get_by_role("button", name="Register a passkey").click()
        self.page.get_by_text("Your passkey is registered").wait_for()

    def leave(self) -> None:
        self.context.clear_cookies()

    def log_in(self, path: str = "/flows") -> None:
        self.page.goto(f"{self.home}{path}")
        self.page.get_by_role("button", name="Log in with a passkey").click()

    def verified(self, *, whether: bool) -> None:
        about = {**self._authenticator, "isUserVerified": whether}
        self._devtools.send("WebAuthn.setUserVerified", about)

    def signed(self, options: Any) -> Any:
        """What the browser signs for options, without sending it."""
        return self.page.evaluate(
            """async options => (await navigator.credentials.get(
                 {publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options)})).toJSON()""",
            options,
        )

    def options(self) -> Any:
        answer = self.web.client().post("/login/passkey", headers={"Host": self.home.removeprefix("http://")})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, assertion: Any, **headers: str) -> Any:
        about = {"Host": self.home.removeprefix("http://"), **headers}
        return self.web.client(**about).post("/login", data={"passkey": json.dumps(assertion), "next": "/flows"})


def _operator(browser: Any, web: Web, name: str) -> Person:
    """A person who came in by a link and registered a passkey."""
    person = Person(browser, web)
    person.enter(aside(lambda: web.store.logins.create_link(name=name)).secret)
    person.register()
    return person


def _refused(answer: Any) -> None:
    assert _REFUSED in problem(answer, 401, "access.unauthenticated")["detail"]
    assert "set-cookie" not in answer.headers


def test_an_operator_registers_a_passkey_and_comes_in_with_it_where_they_were(browser: Any, web: Web) -> None:
    person = _operator(browser, web, "ann")
    person.page.get_by_text("as operator").first.wait_for()
    shot(person.page, "passkey-access")
    person.leave()
    person.page.goto(f"{person.home}/flows?range=7d")
    shot(person.page, "passkey-login")
    assert findings(person.page, axe()) == []
    person.page.get_by_role("button", name="Log in with a passkey").click()
    person.page.get_by_role("heading", name="Flows", exact=True).wait_for()
    assert person.page.url == f"{person.home}/flows?range=7d"
    [session] = [each for each in aside(web.store.logins.list).items if each.credential_id is not None]
    assert (session.kind, session.role, session.name, session.ns) == ("session", "operator", "ann", "*")
    [login] = [each for each in aside(lambda: web.store.access_log.list(event="login")).items if each.detail]
    assert (login.caller, login.detail) == ("operator:ann", "by passkey")
    assert aside(lambda: web.store.verify.run(full=True, lock=False)).findings == []


def test_a_revoked_passkey_opens_nothing_and_ends_the_sessions_that_came_from_it(browser: Any, web: Web) -> None:
    person = _operator(browser, web, "bea")
    person.leave()
    person.log_in("/access")
    person.page.get_by_role("button", name="Revoke the passkey of bea").click()
    person.page.get_by_role("button", name="Log in with a passkey").wait_for()  # its own session ended with it
    person.log_in("/flows")
    person.page.get_by_text(_REFUSED).wait_for()


def test_a_passkey_has_the_rights_of_the_token_it_was_registered_with_and_ends_with_it(browser: Any, web: Web) -> None:
    token = aside(lambda: web.store.tokens.create("cid", resources=["passkeys", "access_log", "logins", "flows"]))
    person = Person(browser, web)
    person.enter(token.secret)
    person.register()
    person.leave()
    person.log_in("/flows")
    person.page.get_by_role("heading", name="Flows", exact=True).wait_for()
    [session] = [each for each in aside(web.store.logins.list).items if each.name == "cid" and each.credential_id]
    assert session.resources is not None
    assert "flows" in session.resources
    assert person.page.goto(f"{person.home}/health").status == 403
    person.leave()
    assertion = person.signed(person.options())
    aside(lambda: web.store.tokens.revoke(token.token.token_id))
    _refused(person.send(assertion))


def test_a_signature_is_used_once_and_for_this_challenge_and_this_address_only(browser: Any, web: Web) -> None:
    person = _operator(browser, web, "dan")
    options = person.options()
    good = person.signed(options)
    wrong_user = {**good, "id": to_text(b"nobody's"), "rawId": to_text(b"nobody's")}
    for forged in (wrong_user, {}, {"response": {"clientDataJSON": "!"}}):
        _refused(person.send(forged))
    # The right bytes with a wrong signature: the challenge is used up by it.
    signature = bytearray(to_bytes(good["response"]["signature"]))
    signature[-1] ^= 1
    _refused(person.send({**good, "response": {**good["response"], "signature": to_text(bytes(signature))}}))
    _refused(person.send(good))
    again = person.signed(person.options())
    assert person.send(again).headers["location"] == "/flows"
    _refused(person.send(again))
    # Begun at one address of this server, sent to another.
    elsewhere = person.signed(person.options())
    _refused(person.send(elsewhere, Host=f"127.0.0.1:{web.port}"))
    # A registration's challenge is none for a login.
    made = aside(lambda: web.store.passkeys.register_options("dan", origin=person.home)).options
    _refused(person.send(person.signed({**options, "challenge": made["challenge"]})))


def test_nobody_comes_in_without_being_verified_by_their_device(browser: Any, web: Web) -> None:
    person = _operator(browser, web, "eva")
    person.leave()
    options = {**person.options(), "userVerification": "discouraged"}
    person.verified(whether=False)
    _refused(person.send(person.signed(options)))


def test_options_name_nobody_and_are_refused_to_other_sites(browser: Any, web: Web) -> None:
    person = _operator(browser, web, "fay")
    first, second = person.options(), person.options()
    assert first.pop("challenge") != second.pop("challenge")
    assert first == second
    assert not first.get("allowCredentials")
    answer = web.client(**{"Sec-Fetch-Site": "cross-site"}).post("/login/passkey")
    problem(answer, 403, "access.forged")


def test_questions_for_options_are_limited_as_refused_logins_are(tmp_path: Path) -> None:
    with running(tmp_path / "home", ServerSettings(rate_s=1, burst=60)) as web:
        client = web.client(Host=f"localhost:{web.port}")
        statuses = [client.post("/login/passkey").status_code for _ in range(6)]
        assert statuses[0] == 200
        assert statuses[-1] == 429


def test_who_was_removed_and_whose_passkey_was_edited_stay_outside(browser: Any, web: Web) -> None:
    person = _operator(browser, web, "gus")
    assertion = person.signed(person.options())
    aside(lambda: web.store.people.put("gus"))
    aside(lambda: web.store.people.remove("gus"))
    _refused(person.send(assertion))
    aside(lambda: web.store.people.put("gus"))
    # Registered without the console, a passkey signs answers, and opens nothing: neither does one edited to do so.
    signer = Person(browser, web)
    signer.page.goto(f"{signer.home}/login")
    aside(lambda: web.store.people.put("hal"))
    begun = aside(lambda: web.store.passkeys.register_options("hal", origin=signer.home)).options
    credential = signer.page.evaluate(
        """async options => (await navigator.credentials.create(
             {publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options)})).toJSON()""",
        begun,
    )
    made = aside(lambda: web.store.passkeys.register(credential, by="hal"))
    assert made.login_role is None
    _refused(signer.send(signer.signed(signer.options())))


def test_who_is_removed_is_out_at_once(browser: Any, web: Web) -> None:
    person = _operator(browser, web, "lea")
    person.leave()
    person.log_in("/flows")
    person.page.get_by_role("heading", name="Flows", exact=True).wait_for()
    aside(lambda: web.store.people.put("lea"))
    aside(lambda: web.store.people.remove("lea"))
    person.page.goto(f"{person.home}/flows")
    person.page.get_by_role("button", name="Log in with a passkey").wait_for()
    assert [each for each in aside(web.store.logins.list).items if each.name == "lea" and each.credential_id] == []


def test_a_passkey_of_another_namespace_than_main_opens_that_one_only(browser: Any, web: Web) -> None:
    """Or who was removed from `main`, and whose passkeys there were revoked, would come in by one that nobody sees."""
    person = Person(browser, web)
    person.enter(aside(lambda: web.store.logins.create_link(name="kim")).secret)
    person.context.add_cookies([{"name": "holdproof-ns", "value": "far", "url": person.home}])
    person.page.reload()
    person.page.get_by_text("in the namespace far only").wait_for()
    person.register()
    [passkey] = aside(lambda: web.store.passkeys.list(ns="far")).items
    assert (passkey.person, passkey.login_role, passkey.login_ns) == ("kim", "operator", "far")
    person.leave()
    person.log_in("/flows")
    person.page.get_by_role("heading", name="Flows", exact=True).wait_for()
    [session] = [each for each in aside(web.store.logins.list).items if each.credential_id == passkey.credential_id]
    assert session.ns == "far"


def test_a_passkey_logs_in_while_the_store_is_locked(browser: Any, web: Web) -> None:
    person = _operator(browser, web, "ida")
    person.leave()
    aside(lambda: web.store.lockdown.lock(reason="a drill"))
    try:
        person.log_in("/evidence")
        person.page.get_by_role("heading", name="Evidence", exact=True).wait_for()
    finally:
        aside(lambda: web.store.lockdown.unlock(reason="a drill"))


def test_a_caller_over_http_cannot_choose_as_what_their_passkey_opens_the_console(browser: Any, web: Web) -> None:
    token = aside(lambda: web.store.tokens.create("joy", resources=["passkeys"]))
    person = Person(browser, web)
    person.page.goto(f"{person.home}/login")
    client = web.client(token.secret)
    answer = client.post("/v1/passkeys/register_options", json={"name": "joy", "origin": person.home})
    assert answer.status_code == 200, answer.text
    begun = answer.json()["options"]
    credential = person.page.evaluate(
        """async options => (await navigator.credentials.create(
             {publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options)})).toJSON()""",
        begun,
    )
    everything = {"role": "operator", "token_id": None, "ns": "*"}
    answer = client.post("/v1/passkeys/register", json={"credential": credential, "login": everything, "by": "joy"})
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert (made["login_role"], made["login_token_id"]) == ("operator", token.token.token_id)


def test_a_login_says_what_it_is(web: Web) -> None:
    with pytest.raises(errors.InvalidInputError, match="role"):
        web.store.passkeys.register({}, by="ann", login={"role": "agent"})


_DEEP = "[" * 100_000


def _of_browser(client_data: str, **fields: Any) -> dict[str, Any]:
    return {"id": "AAAA", **fields, "response": {"clientDataJSON": to_text(client_data.encode())}}


@pytest.mark.parametrize(
    "assertion",
    [
        _of_browser(_DEEP),
        _of_browser('{"challenge": "\\ud800"}'),
        _of_browser('{"challenge": "\\u0000"}'),
        _of_browser('{"challenge": []}'),
    ],
    ids=["deep", "surrogate", "nul", "list"],
)
def test_what_no_browser_signs_is_refused_in_the_same_words(web: Web, assertion: Any) -> None:
    host = f"localhost:{web.port}"
    _refused(web.client(Host=host).post("/login", data={"passkey": json.dumps(assertion)}))


@pytest.mark.parametrize("id", ["\ud800", "\x00", 5, None, "A" * 100_000])
def test_an_id_that_no_passkey_has_uses_up_its_challenge_too(web: Web, id: Any) -> None:
    client = web.client(Host=f"localhost:{web.port}")
    challenge = client.post("/login/passkey").json()["challenge"]
    client_data = json.dumps({"challenge": challenge})
    _refused(client.post("/login", data={"passkey": json.dumps(_of_browser(client_data, id=id))}))
    with pytest.raises(errors.PasskeyRefusedError, match="used"):
        web.store.write(lambda tx: passkeys.use_challenge(tx, _of_browser(client_data), "login", EVERY))


def test_a_signature_that_cannot_be_parsed_and_an_origin_that_is_none_are_no_defects(web: Web) -> None:
    client = web.client(Host=f"localhost:{web.port}")
    problem(client.post("/login", data={"passkey": _DEEP}), 400, "request.malformed")
    problem(client.post("/login/passkey", headers={"Origin": "http://[bad"}), 403, "access.forged")
    with pytest.raises(errors.InvalidInputError, match="origin is https"):
        web.store.passkeys.register_options("ann", origin="https://[bad")
