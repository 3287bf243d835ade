"""A file that somebody sent, checked at the page Evidence: by form and by drop, in a browser and without."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.forged_bundles import TWINS, Change, members, own_trust
from holdproof import sync
from holdproof.crypto import keys
from holdproof.crypto.keys import PublicKey
from holdproof.server.console import document_check
from holdproof.upkeep import bundle
from holdproof.upkeep.verification import documents
from tests.browsers import aside, axe, chromium, findings, shot
from tests.e2e.test_flow_pages import LOOKS, SMALL, enter
from tests.web import Web, running

pytestmark = pytest.mark.timeout(240)

HTML = {"accept": "text/html"}
CHECK = "/evidence/check"


FORGED: dict[str, Change] = {
    name: TWINS[name]
    for name in ("record edited", "record and leaf edited", "head edited", "trust edited", "DBOM signed by a stranger")
}


def forged(data: bytes, change: Change = FORGED["record and leaf edited"]) -> bytes:
    found = members(data)
    change(found)
    return bundle.pack(found)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("documents") / "home") as web:
        yield web


def decided(store: sync.Holdproof) -> dict[str, bytes]:
    """Decide something, and return what can be exported of it, by its file name."""
    store.agents.register("trader", version="1.0.0")
    with store.flows.run("trader", flow_type="refund", subject="Ada Lovelace") as flow:
        flow.step("pay", lambda: {"paid": 4_900})
    store.evaluations.submit({"paid": 4_900}, evaluation_id="refund-1", score=0.7)
    return {
        "flow.zip": store.bundle.export(flow.flow_id, kind="flow"),
        "evaluation.zip": store.bundle.export("refund-1"),
        "person.zip": store.bundle.person("Ada Lovelace"),
    }


@pytest.fixture(scope="module")
def files(web: Web) -> dict[str, bytes]:
    return aside(lambda: decided(web.store))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bundle of another store."""

    def exported() -> bytes:
        with sync.open(tmp_path_factory.mktemp("other") / "home") as store:
            return decided(store)["evaluation.zip"]

    return aside(exported)


@pytest.fixture(scope="module")
def operator(web: Web) -> httpx.Client:
    return web.logged_in(aside(lambda: web.store.logins.create_link(name="Ada")).secret)


def secret_of(client: httpx.Client) -> str:
    text = client.get("/evidence", headers=HTML).text
    return text.partition('name="csrf" value="')[2].partition('"')[0]


def checked(client: httpx.Client, data: bytes, name: str = "bundle.zip") -> str:
    """Send a file as the form does without JavaScript, and return the page of it."""
    answer = client.post(CHECK, data={"csrf": secret_of(client)}, files={"document": (name, data)}, headers=HTML)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flow.zip", ("Bundle of a flow", "without a gap", "nobody was asked", "pay")),
        ("evaluation.zip", ("Bundle of an evaluation", "A judge&#39;s key signed this result", "scored 0.7")),
        ("person.zip", ("A person&#39;s file", "entries are proven")),
    ],
)
def test_a_file_of_this_store_holds_and_its_root_vouches_for_it(
    operator: httpx.Client, files: dict[str, bytes], name: str, words: tuple[str, ...]
) -> None:
    text = checked(operator, files[name], name)
    for each in ("<strong>It holds.</strong>", "VALID", "a root key of this store", "What was proven", name, *words):
        assert each in text.replace("'", "&#39;"), each


def test_an_auditor_checks_too_and_nothing_is_written_or_locked(web: Web, files: dict[str, bytes]) -> None:
    auditor = web.logged_in(web.store.logins.create_link(name="Eve", role="auditor").secret)
    secret_of(auditor)
    before = web.store.log.head()
    for data in (files["evaluation.zip"], forged(files["evaluation.zip"])):
        checked(auditor, data)
    assert web.store.log.head() == before
    assert web.store.lockdown.status() is None


def test_a_file_of_another_store_holds_by_its_own_keys_only(operator: httpx.Client, foreign: bytes) -> None:
    text = checked(operator, foreign)
    assert "It holds by its own keys." in text
    assert "compare the keys below" in text
    assert "a root key of this store vouches" not in text


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_never_said_to_hold(operator: httpx.Client, files: dict[str, bytes], name: str) -> None:
    text = checked(operator, forged(files["evaluation.zip"], FORGED[name]))
    assert "do not rely on it" in text
    assert "What was proven" not in text
    assert "<strong>It holds.</strong>" not in text


def test_a_file_that_names_this_log_and_brings_a_root_of_its_own_is_suspicious(
    operator: httpx.Client, files: dict[str, bytes]
) -> None:
    text = checked(operator, forged(files["evaluation.zip"], own_trust))
    assert "by its own keys only, and should not" in text
    assert "no root key of this store vouches" in text


def test_a_forged_file_is_unpacked_once_for_each_key_and_once_more(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may cost ten times its bytes each time."""
    examine = documents.examine
    looked: list[bool] = []

    def counted(data: bytes, *, root: PublicKey | None = None) -> Any:
        looked.append(root is not None)
        return examine(data, root=root)

    monkeypatch.setattr(documents, "examine", counted)
    roots = [keys.generate("ed25519").public for _ in range(2)]
    checked = document_check._examine(forged(files["evaluation.zip"]), roots)
    assert checked.report is not None
    assert not checked.report.verdict.sound
    assert looked == [True, True, False]


@pytest.mark.parametrize("data", [b"no zip", b"{}", b"{", b"PK\x05\x06" + bytes(18), b"{" * 100_000], ids=range(5))
def test_what_is_no_file_of_ours_is_told_in_words(operator: httpx.Client, data: bytes) -> None:
    text = checked(operator, data)
    assert "no file that Holdproof exports" in text


def test_names_and_contents_of_a_file_put_nothing_on_the_page(operator: httpx.Client, files: dict[str, bytes]) -> None:
    evil = "<script>alert(1)</script>\u202e.zip"
    text = checked(operator, files["evaluation.zip"], evil)
    assert "<script>alert" not in text
    assert "\u202e" not in text
    found = members(files["evaluation.zip"])
    about = {**json.loads(found["bundle.json"]), "kind": "<script>alert(1)</script>"}
    assert "<script>alert" not in checked(operator, packed({**found, "bundle.json": json.dumps(about).encode()}))


def packed(found: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in found.items():
            archive.writestr(name, data)
    return target.getvalue()


def test_a_file_without_the_secret_of_the_session_is_refused(operator: httpx.Client, files: dict[str, bytes]) -> None:
    file = {"document": ("a.zip", files["flow.zip"])}
    for fields in ({}, {"csrf": "0" * 64}, {"csrf": ""}, {"other": secret_of(operator)}):
        answer = operator.post(CHECK, data=fields, files=file, headers=HTML)
        assert (answer.status_code, "secret of its session" in answer.text) == (403, True)


def test_a_form_that_is_none_is_refused_and_a_choice_that_is_none_asked_for_again(operator: httpx.Client) -> None:
    secret = {"x-csrf-token": secret_of(operator)}
    kind = "multipart/form-data; boundary=x"
    for content_type, body in (
        ("multipart/form-data", b""),
        (kind, b""),
        (kind, b"--x"),
        (kind, b'--x\r\nContent-Disposition: form-data; name="document"\r\n\r\ncut off'),
        (kind, b"--x\r\nno head\r\n--x--\r\n"),
        (kind, b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 2 + b"--x--\r\n"),
        ("application/x-www-form-urlencoded", b"document=x"),
        ("application/json", b"{}"),
    ):
        answer = operator.post(CHECK, content=body, headers={**HTML, **secret, "content-type": content_type})
        assert answer.status_code == 400, (content_type, body, answer.text)
    answer = operator.post(CHECK, data={"csrf": secret_of(operator)}, files={"document": ("", b"")}, headers=HTML)
    assert answer.headers["location"] == "/evidence"
    assert "Choose a file first" in operator.get("/evidence", headers=HTML).text


def test_a_file_above_the_bound_of_a_body_is_refused_before_it_is_read(web: Web, operator: httpx.Client) -> None:
    host = web.listening.address.removeprefix("http://")
    kind = "Content-Type: multipart/form-data; boundary=x"
    head = f"POST {CHECK} HTTP/1.1\r\nHost: {host}\r\n{kind}\r\nContent-Length: {1 << 30}\r\n\r\n--x"
    assert b" 413 " in web.raw(head.encode()).partition(b"\r\n")[0]
    assert "Up to 16.0 MiB" in operator.get("/evidence", headers=HTML).text


def test_the_address_of_the_check_leads_to_the_form(operator: httpx.Client) -> None:
    assert operator.get(CHECK, headers=HTML).headers["location"] == "/evidence#check"


def test_who_may_not_verify_may_not_check_files(web: Web, files: dict[str, bytes]) -> None:
    made = web.store.tokens.create("desk", role="operator", ns="team")
    client = web.logged_in(web.store.logins.create_link(token_id=made.token.token_id).secret)
    assert CHECK not in client.get("/evidence", headers=HTML).text
    form = {"data": {"csrf": secret_of(client)}, "files": {"document": ("a.zip", files["flow.zip"])}}
    assert client.post(CHECK, headers=HTML, **form).status_code == 403  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


DROP = """([bytes, name]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name));
  const area = document.querySelector("section.drop");
  for (const kind of ["dragover", "drop"]) {
    area.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
}"""


@pytest.mark.parametrize("look", LOOKS)
def test_a_file_is_dropped_and_its_verdict_is_read_by_every_eye(
    browser: Any, web: Web, files: dict[str, bytes], foreign: bytes, look: str
) -> None:
    page = enter(browser, web, **LOOKS[look])
    source = axe()
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 844})
    for name, data, words in (
        ("flow", files["flow.zip"], "It holds."),
        ("other", foreign, "It holds by its own keys."),
        ("forged", forged(files["evaluation.zip"]), "do not rely on it"),
        ("none", b"no zip", "no file that Holdproof exports"),
    ):
        page.goto(f"{web.listening.address}/evidence")
        page.evaluate(DROP, [list(data), f"{name}.zip"])
        page.wait_for_url(f"**{CHECK}")
        assert words in page.inner_text(".note[role=status]")
        shot(page, f"{look}-document-{name}")
        assert findings(page, source) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        if look == "phone":
            assert page.evaluate(SMALL) == []
    page.context.close()


def test_a_file_is_chosen_and_checked_without_a_script(
    browser: Any, web: Web, files: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "flow.zip").write_bytes(files["flow.zip"])
    page = enter(browser, web, java_script_enabled=False)
    page.goto(f"{web.listening.address}/evidence")
    page.set_input_files("input[type=file]", str(tmp_path / "flow.zip"))
    page.click("text=Check it")
    assert "It holds." in page.inner_text(".note[role=status]")
    page.context.close()
