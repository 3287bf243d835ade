"""The page of a bundle in a real browser: it checks itself offline, shows what was decided, refuses what was edited."""

import json
import re
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

from harness.filling import populate, settled
from holdproof import sync
from holdproof.cli.app import app
from holdproof.crypto import dsse, keys
from holdproof.evidence import trust
from holdproof.model import flows
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import bundle
from holdproof.upkeep.verification import offline, report_page
from tests.browsers import aside, chromium

_DATA = re.compile(r'(<script type="application/json" id="bundle">)(.*?)(</script>)', re.DOTALL)
_MARKUP = "</script><img src=x onerror=alert(1)>"
Parts = dict[str, bytes]


def _play(home: Path) -> tuple[bytes, bytes]:
    """Return the bundle of a flow that a person approved with changes, and that of an evaluation."""
    with sync.open(home) as store:
        store.agents.register("trader", version="1")
        with store.flows.run("trader", flow_type="trade") as flow:
            flow.step("quote", lambda: 7)
            asked = store.escalations.request(flow.flow_id, reason="over limit", proposal={"buy": 9, "for": _MARKUP})
            store.escalations.resolve(asked.id, "approve", by="ann", proposal={"buy": 4}, comment="go")
        populate(store, 1)
        settled(store)
        evaluation = store.evaluations.list().items[0].evaluation_id
        return store.bundle.export(flow.flow_id, kind="flow"), store.bundle.export(evaluation)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> tuple[bytes, bytes]:
    del browser  # first, so that nothing is played where it is skipped
    return aside(lambda: _play(tmp_path_factory.mktemp("report") / "store"))


_OLD = (
    "CREATE TABLE battles (id INTEGER PRIMARY KEY AUTOINCREMENT, battle_id TEXT NOT NULL, timestamp TEXT NOT NULL,"
    " score REAL NOT NULL, breakdown TEXT, raw_result TEXT, dbom_hash TEXT)"
)
_OLD_ROW = (
    "INSERT INTO battles (battle_id, timestamp, score, breakdown, raw_result, dbom_hash)"
    " VALUES ('old', '2026-01-15T00:26:36', 0.5, 'why', '{}', '')"
)


def _import(folder: Path) -> bytes:
    """Return the bundle of an evaluation that was imported."""
    with closing(apsw.Connection(str(folder / "battles.db"))) as connection:
        connection.execute(_OLD)
        connection.execute(_OLD_ROW)
    with sync.open(folder / "store") as store:
        store.imports.green_agent(folder / "battles.db")
        settled(store)
        return store.bundle.export("old")


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> bytes:
    del browser
    return aside(lambda: _import(tmp_path_factory.mktemp("imported")))


def _page(data: bytes) -> str:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        return archive.read(report_page.NAME).decode()


def _look(browser: Any, file: Path, page: str) -> tuple[str, str, list[str]]:
    """Open a page from a file; return its verdict, its text, and everything it asked for."""
    file.write_text(page)
    tab = browser.new_page()
    asked_for: list[str] = []
    tab.on("request", lambda request: asked_for.append(request.url))
    try:
        tab.goto(file.as_uri())
        tab.wait_for_selector("#verdict.valid, #verdict.refused, #verdict.doubtful")
        return tab.inner_text("#verdict"), tab.inner_text("body"), asked_for
    finally:
        tab.close()


def test_the_page_shows_what_was_decided_and_finds_it_valid_without_a_network(
    browser: Any, bundles: tuple[bytes, bytes], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    verdict, text, asked_for = _look(browser, file, _page(bundles[0]))
    assert verdict.startswith("VALID: 8 records"), verdict
    assert asked_for == [file.as_uri()]
    assert "agent trader, trade 1.0" in text
    assert "APPROVED by ann" in text
    assert _MARKUP in text, "shown as text, never taken for markup"
    verdict, text, _ = _look(browser, file, _page(bundles[1]))
    assert verdict.startswith("VALID: 1 records"), verdict
    assert "scored" in text


def _json(parts: Parts, name: str, change: Callable[[Any], None]) -> None:
    value = json.loads(parts[name])
    change(value)
    parts[name] = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _replace(name: str, old: bytes, new: bytes) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        assert old in parts[name]
        parts[name] = parts[name].replace(old, new, 1)

    return change


def _without_first(parts: Parts) -> None:
    _json(parts, "bundle.json", lambda about: about["records"].pop(0))


def _twice(parts: Parts) -> None:
    _json(parts, "bundle.json", lambda about: about["records"].append(about["records"][1]))


def _other_salt(parts: Parts) -> None:
    _json(parts, "bundle.json", lambda about: about["records"][0].update(salt="00" * 16))


def _other_subject(parts: Parts) -> None:
    _json(parts, "bundle.json", lambda about: about.update(subject="another"))


def _swapped(parts: Parts) -> None:
    one = parts["records/0001.json"]
    parts["records/0001.json"] = parts["records/0002.json"]
    parts["records/0002.json"] = one


def _resigned(parts: Parts) -> None:
    """Let the head claim one entry more, under the signature of the old one."""
    lines = parts["head.note"].decode().split("\n")
    lines[1] = str(int(lines[1]) + 1)
    parts["head.note"] = "\n".join(lines).encode()


def _other_key(parts: Parts) -> None:
    """Let a key of the trust file count from elsewhere; its signature is that of the old one."""
    envelope = json.loads(parts["trust.json"])
    trust = json.loads(b64decode(envelope["payload"]))
    trust["keys"][0]["from"] = None
    envelope["payload"] = b64encode(json.dumps(trust).encode()).decode()
    parts["trust.json"] = json.dumps(envelope).encode()


def _other_path(parts: Parts) -> None:
    lines = parts["records/0003.tlog-proof"].decode().split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("index ")) + 1
    lines[at] = b64encode(bytes(32)).decode()
    parts["records/0003.tlog-proof"] = "\n".join(lines).encode()


def _reversed(parts: Parts) -> None:
    """Let the flow end where it began: every record is genuine."""
    _json(parts, "bundle.json", lambda about: about["records"].reverse())


def _without_move(parts: Parts) -> None:
    def drop(about: Any) -> None:
        rows = [json.loads(parts[f"{each['name']}.json"]) for each in about["records"]]
        [at, *_] = [n for n, row in enumerate(rows) if row.get("to_status") == "WAITING_ESCALATION"]
        about["records"].pop(at)

    _json(parts, "bundle.json", drop)


def _other_kind(parts: Parts) -> None:
    _json(parts, "bundle.json", lambda about: about.update(kind="flows"))


def _no_proof(parts: Parts) -> None:
    del parts["records/0002.tlog-proof"]


_TAMPERINGS: dict[str, Callable[[Parts], None]] = {
    "a record edited": _replace("records/0001.json", b"trader", b"traitor"),
    "a leaf edited": _replace("records/0002.leaf.json", b'"v":1', b'"v":2'),
    "the opening left out": _without_first,
    "a record twice": _twice,
    "another salt": _other_salt,
    "another subject": _other_subject,
    "two records swapped": _swapped,
    "a larger head": _resigned,
    "another trust": _other_key,
    "another path": _other_path,
    "no proof": _no_proof,
    "the order turned round": _reversed,
    "a transition left out": _without_move,
    "an unknown kind": _other_kind,
}


@pytest.mark.parametrize("tampering", _TAMPERINGS)
def test_a_tampered_page_is_refused_and_shows_nothing(
    tampering: str, browser: Any, bundles: tuple[bytes, bytes], tmp_path: Path
) -> None:
    edited = _edited(_page(bundles[0]), _TAMPERINGS[tampering])
    verdict, text, _ = _look(browser, tmp_path / "report.html", edited)
    assert verdict.startswith("REFUSED: "), tampering
    assert "ann" not in text


def _edited(page: str, change: Callable[[Parts], None]) -> str:
    match = _DATA.search(page)
    assert match is not None
    parts = {name: b64decode(text) for name, text in json.loads(match[2]).items()}
    change(parts)
    data = json.dumps({name: b64encode(part).decode() for name, part in parts.items()})
    return page[: match.start(2)] + data + page[match.end(2) :]


def _relisted(parts: Parts) -> None:
    """Add a log key of a stranger to the list of keys, and let it sign the list; the root key stays in it."""
    key = keys.generate("ed25519")
    envelope = dsse.parse(parts["trust.json"])
    listed = json.loads(envelope.payload)
    public = key.public.to_pem().decode()
    listed["keys"].append(
        {"keyid": key.keyid, "role": "log", "alg": key.alg, "public": public, "from": 0, "until": None}
    )
    parts["trust.json"] = dsse.encode(dsse.sign(trust.PAYLOAD_TYPE, json.dumps(listed).encode(), key))


def test_a_list_of_keys_that_the_root_key_did_not_sign_is_not_valid_and_no_other_key_is_shown(
    browser: Any, bundles: tuple[bytes, bytes], tmp_path: Path
) -> None:
    """A stranger who re-signs the list must not be vouched for by the root key that stands in it."""
    file = tmp_path / "report.html"
    _, genuine, _ = _look(browser, file, _page(bundles[0]))
    assert "root key " in genuine
    assert "judge key " not in genuine, "no judge signed anything here"
    verdict, text, _ = _look(browser, file, _edited(_page(bundles[0]), _relisted))
    assert verdict.startswith("UNCONFIRMED: the root key did not sign"), verdict
    assert "root key " not in text.split("Proven under")[1]


def _without_approvals(parts: Parts) -> None:
    def drop(about: Any) -> None:
        about["records"] = [each for each in about["records"] if not each["projection"].startswith("escalation_")]

    _json(parts, "bundle.json", drop)


def test_the_verdict_says_that_records_may_be_left_out_and_that_no_approval_is_there(
    browser: Any, bundles: tuple[bytes, bytes], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    verdict, text, _ = _look(browser, file, _page(bundles[0]))
    assert "that nothing was left out, only the store can show" in verdict
    assert "no approval" not in text
    verdict, text, _ = _look(browser, file, _edited(_page(bundles[0]), _without_approvals))
    assert verdict.endswith("no approval is in this bundle"), verdict
    assert "nobody was asked" not in text


def _called_imported(parts: Parts) -> None:
    _json(parts, "bundle.json", lambda about: about.update(kind="imported"))


def test_an_evaluation_that_is_called_imported_is_refused_and_an_imported_one_is_unsigned(
    browser: Any, bundles: tuple[bytes, bytes], imported: bytes, tmp_path: Path
) -> None:
    """To call it imported must not spare it the check of the judge's signature."""
    file = tmp_path / "report.html"
    verdict, _, _ = _look(browser, file, _edited(_page(bundles[1]), _called_imported))
    assert verdict.startswith("REFUSED: "), verdict
    verdict, text, _ = _look(browser, file, _page(imported))
    assert verdict.startswith("UNSIGNED: it was imported"), verdict
    assert "judge key " not in text


def test_the_page_knows_the_words_of_transitions() -> None:
    program = report_page._program().decode()
    for name, expected in (
        ("WORDS", dict(flows.WORDS)),
        ("ENDS", {" ".join(pair): status for pair, status in flows._ENDS.items()}),
    ):
        match = re.search(rf"const {name} = (\{{.*?\}});", program)
        assert match is not None
        assert json.loads(match[1]) == expected


def test_a_bundle_whose_page_shows_other_records_is_tampered_and_one_without_a_page_is_not(
    bundles: tuple[bytes, bytes], tmp_path: Path
) -> None:
    members = offline.unpack(bundles[0])
    assert offline.check(bundles[0]).verdict is Verdict.VALID
    without = {name: data for name, data in members.items() if name != report_page.NAME}
    assert offline.check(bundle.pack(without)).verdict is Verdict.VALID
    other = {**members, report_page.NAME: report_page.make(offline.unpack(bundles[1]))}
    assert offline.check(bundle.pack(other)).verdict is Verdict.TAMPERED
    older = {**members, report_page.NAME: members[report_page.NAME].replace(b"checking", b"looking")}
    report = offline.check(bundle.pack(older))
    assert (report.verdict, "report.html" in " ".join(report.notes)) == (Verdict.VALID, True)
    file = tmp_path / "bundle.zip"
    file.write_bytes(bundle.pack(other))
    answer = CliRunner().invoke(app, ["show", str(file)])
    assert (answer.exit_code, "ann" in answer.output) == (20, False)


def test_the_command_shows_the_same_in_a_terminal(bundles: tuple[bytes, bytes], tmp_path: Path) -> None:
    file = tmp_path / "bundle.zip"
    file.write_bytes(bundles[0])
    answer = CliRunner().invoke(app, ["show", str(file)])
    assert answer.exit_code == 0, answer.output
    heads = [line.split("  ")[0].strip() for line in answer.stdout.splitlines()[:5]]
    assert heads[:3] == ["decided", "by", "on"]
    assert "APPROVED by ann" in answer.stdout
    assert answer.stdout.splitlines()[-1] == "VALID"
