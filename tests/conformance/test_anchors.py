"""Anchors: heads as entries of another log, which runs here with a tree and a key of its own."""

import base64
import hashlib
import io
import json
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from harness import anchor_log
from harness.anchor_log import NAME, AnchorTree
from harness.filling import running, settled
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.config_sections import AnchorLog
from holdproof.crypto import anchor, canonical, checkpoint, keys, merkle, tiles, tlog_proof
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import COSIGNATURE_V1, ED25519, VerifierKey
from holdproof.db import sql
from holdproof.evidence import bounded_http
from holdproof.model.verdicts import Verdict
from holdproof.testing import FrozenClock
from holdproof.upkeep.verification import offline
from tests.conformance.test_bounded_http import dripping
from tests.conformance.test_witness import raw_server


@pytest.fixture
def tree() -> AnchorTree:
    return AnchorTree()


@pytest.fixture
def url(tree: AnchorTree) -> Iterator[str]:
    with anchor_log.serving(tree) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def opened(home: Path, settings: str, target: str | None = None) -> sync.Holdproof:
    """A store with these settings of `anchor`; empty for none."""
    file = home / "config" / "config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"anchor: {settings}\n" if settings else "")
    store = sync.open(home, target)
    with suppress(errors.ConflictError):
        store.agents.register("trader", version="1.0.0")
    return store


def trusting(url: str, key: VerifierKey) -> str:
    return f"{{url: '{url}', key: '{key.encode()}', every_s: 1}}"


# --- the store ---------------------------------------------------------------------------------------------------


def test_a_head_is_anchored_verified_and_told_on_the_trail(
    tmp_path: Path, tree: AnchorTree, url: str, target: str | None
) -> None:
    with opened(tmp_path, trusting(url, tree.key), target) as store:
        running(store)
        settled(store)
        size = store.log.head().checkpoint.size
        anchored = store.anchors.create()
        settled(store)
        assert (anchored.size, anchored.log, anchored.log_index, anchored.url) == (size, NAME, 5, url)
        assert list(store.anchors.list().items) == [anchored]
        assert store.anchors.get(anchored.id).anchor == anchored
        what = f"head of size {size} anchored as entry 5 of another log"
        assert what in [each.what for each in store.log.list(kind="audit").items]
        assert ("anchored", NAME) in [(each.kind, each.by) for each in store.log.heads()]
        report = store.verify.run()
        assert (report.verdict, report.checked["anchors"]) == (Verdict.VALID, 1)
        assert not [each for each in report.not_checked if "anchored in" in each]
        assert store.verify.run(since_last=True).checked["anchors"] == 1
        with pytest.raises(errors.NotFoundError, match="anchors list"):
            store.anchors.get("nothing")


def test_the_log_is_told_the_hash_of_the_head_and_nothing_else(tmp_path: Path, tree: AnchorTree, url: str) -> None:
    with opened(tmp_path, trusting(url, tree.key)) as store:
        running(store)
        first = store.anchors.get(store.anchors.create().id)
        second = store.anchors.get(store.anchors.create().id)
    used: set[str] = set()
    for entry, anchored in zip(tree.entries[5:], (first, second), strict=True):
        told = json.loads(entry)["spec"]["hashedRekordV002"]
        digest = base64.b64encode(hashlib.sha256(anchored.head.encode()).digest()).decode()
        assert told["data"] == {"algorithm": "SHA2_256", "digest": digest}
        assert set(told["signature"]["verifier"]) == {"publicKey", "keyDetails"}
        used.add(told["signature"]["verifier"]["publicKey"]["rawBytes"])
    assert len(used) == 2, "a key for each entry"


def test_whoever_watches_the_other_log_finds_the_entry_by_its_tiles(tmp_path: Path, tree: AnchorTree, url: str) -> None:
    def fetch(path: str) -> bytes:
        with urllib.request.urlopen(f"{url}/api/v2/{path}") as answer:
            return bytes(answer.read())

    with opened(tmp_path, trusting(url, tree.key)) as store:
        running(store)
        anchored = store.anchors.get(store.anchors.create().id)
    head = checkpoint.parse(fetch("checkpoint"))
    checkpoint.verify(head, origin=NAME, log_keys=[tree.key])
    index = anchored.anchor.log_index
    path = tiles.prove_inclusion(index, head.checkpoint.size, lambda tile: fetch(tile.path))
    entry = tlog_proof.parse(anchored.proof.encode()).extra
    merkle.verify_inclusion(merkle.leaf_hash(entry), index, head.checkpoint.size, path, head.checkpoint.root)


def test_an_anchor_from_the_future_does_not_delay_the_next(tmp_path: Path, tree: AnchorTree, url: str) -> None:
    opened(tmp_path, trusting(url, tree.key)).close()
    with sync.open(tmp_path, clock=FrozenClock("2031-01-01T00:00:00.000000Z")) as store:
        running(store)
        assert store.anchors.beat() is not None
    with sync.open(tmp_path, clock=FrozenClock("2030-01-01T00:00:00.000000Z")) as store:
        running(store)
        assert store.anchors.beat() is not None
        running(store)
        assert store.anchors.beat() is None, "nor does it hasten those after the next"


def test_by_the_clock_only_a_log_that_grew_is_anchored(tmp_path: Path, tree: AnchorTree, url: str) -> None:
    with opened(tmp_path, trusting(url, tree.key)) as store:
        running(store)
        first = store.anchors.beat()
        assert first is not None
        assert store.anchors.beat() is None, "younger than every_s"
        store.write(lambda tx: tx.execute(sql("UPDATE head_anchors SET created_at = '2020-01-01T00:00:00.000000Z'")))
        assert store.anchors.beat() is None, "nothing was logged but the anchor itself"
        running(store)
        second = store.anchors.beat()
        assert second is not None
        assert second.size > first.size
    with opened(tmp_path, "") as store:
        assert store.anchors.beat() is None
        with pytest.raises(errors.NotFoundError, match="anchor: "):
            store.anchors.create()
        assert any(f"do not name key {tree.key.encode()}" in each for each in store.verify.run().not_checked)


def test_a_locked_store_does_not_ask_the_log(
    tmp_path: Path, tree: AnchorTree, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, trusting(url, tree.key)) as store:
        running(store)
        store.lockdown.lock(reason="a drill")
        monkeypatch.setattr(bounded_http, "send", lambda *words, **options: pytest.fail("the log was asked"))
        with pytest.raises(errors.LockedError):
            store.anchors.create()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE head_anchors SET log_index = log_index + 1",
        "UPDATE head_anchors SET size = size - 1",
        "UPDATE head_anchors SET log = 'another'",
        "UPDATE head_anchors SET proof = 'nothing'",
        "UPDATE head_anchors SET key = 'nothing'",
        "UPDATE head_anchors SET head = replace(head, 'holdproof', 'otherwise')",
        "DELETE FROM head_anchors",
    ],
)
def test_an_edited_or_deleted_anchor_is_found(
    tmp_path: Path, tree: AnchorTree, url: str, target: str | None, edit: str
) -> None:
    with opened(tmp_path, trusting(url, tree.key), target) as store:
        running(store)
        settled(store)
        store.anchors.create()
        settled(store)
        store.write(lambda tx: tx.execute(sql(edit)))
        report = store.verify.run()
        assert report.verdict is Verdict.TAMPERED
        assert "head_anchors" in {each.table for each in report.findings}


def test_an_anchor_that_was_edited_with_its_entry_does_not_hold(tmp_path: Path, tree: AnchorTree, url: str) -> None:
    with opened(tmp_path, trusting(url, tree.key)) as store:
        running(store)
        store.anchors.create()
        store.write(lambda tx: tx.execute(sql("UPDATE head_anchors SET log_index = 2")))
        whys = [each.what for each in store.verify.run().findings]
    assert any("an anchor that does not hold: it says another log or another place" in each for each in whys), whys


# --- logs that lie, or do not answer -----------------------------------------------------------------------------


def _edit(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Put another value at a place of the answer."""
    *names, last = path.split(".")

    def change(answer: dict[str, Any]) -> None:
        for name in names:
            answer = answer[name]
        answer[last] = value(answer[last]) if callable(value) else value

    return change


def _other_body(body: str) -> str:
    entry = json.loads(base64.b64decode(body))
    entry["spec"]["hashedRekordV002"]["data"]["digest"] = base64.b64encode(bytes(32)).decode()
    return base64.b64encode(json.dumps(entry).encode()).decode()


def _other_root(envelope: str) -> str:
    lines = envelope.split("\n")
    lines[2] = base64.b64encode(bytes(32)).decode()
    return "\n".join(lines)


def _flipped(hashes: list[str]) -> list[str]:
    first = bytearray(base64.b64decode(hashes[0]))
    first[0] ^= 1
    return [base64.b64encode(first).decode(), *hashes[1:]]


LIES: dict[str, tuple[Callable[[dict[str, Any]], None], type[errors.FormatError]]] = {
    "a hash of the path flipped": (_edit("inclusionProof.hashes", _flipped), errors.ProofError),
    "the path cut": (_edit("inclusionProof.hashes", lambda hashes: hashes[1:]), errors.ProofError),
    "no path": (_edit("inclusionProof.hashes", []), errors.ProofError),
    "another place": (_edit("logIndex", "3"), errors.ProofError),
    "a place behind the tree": (_edit("logIndex", "600"), errors.ProofError),
    "another root": (_edit("inclusionProof.checkpoint.envelope", _other_root), errors.ProofError),
    "an entry about other bytes": (_edit("canonicalizedBody", _other_body), errors.ProofError),
    "another log's checkpoint": (
        _edit("inclusionProof.checkpoint.envelope", AnchorTree("other.example").head().encode().decode()),
        errors.ProofError,
    ),
    "an unsigned checkpoint": (
        _edit("inclusionProof.checkpoint.envelope", lambda text: text.split("\n\n")[0]),
        errors.FormatError,
    ),
    "no checkpoint": (_edit("inclusionProof.checkpoint.envelope", None), errors.FormatError),
    "a checkpoint that is no text": (_edit("inclusionProof.checkpoint.envelope", "\ud800"), errors.FormatError),
    "no proof": (_edit("inclusionProof", None), errors.FormatError),
    "another kind of entry": (_edit("kindVersion.kind", "dsse"), errors.FormatError),
    "another version of entry": (_edit("kindVersion.version", "0.0.1"), errors.FormatError),
    "a number that is none": (_edit("logIndex", "five"), errors.FormatError),
    "a negative number": (_edit("logIndex", -1), errors.FormatError),
    "a hash that is short": (_edit("inclusionProof.hashes", ["AAAA"]), errors.FormatError),
    "hashes without end": (_edit("inclusionProof.hashes", ["AAAA"] * 100), errors.FormatError),
    "a body that is no base64": (_edit("canonicalizedBody", "%"), errors.FormatError),
    "a body that is no entry": (_edit("canonicalizedBody", "AAAA"), errors.FormatError),
    "no body": (_edit("canonicalizedBody", None), errors.FormatError),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_does_not_hold_is_refused_and_not_stored(tmp_path: Path, tree: AnchorTree, lie: str) -> None:
    change, kind = LIES[lie]
    with anchor_log.serving(tree, change) as url, opened(tmp_path, trusting(url, tree.key)) as store:
        running(store)
        with pytest.raises(errors.FormatError) as refusal:
            store.anchors.create()
        assert type(refusal.value) is kind, refusal.value
        assert list(store.anchors.list().items) == []


def test_a_log_with_another_key_than_that_of_the_settings_is_not_believed(
    tmp_path: Path, tree: AnchorTree, url: str
) -> None:
    stranger = VerifierKey(NAME, ED25519, keys.generate("ed25519").public)
    with opened(tmp_path, trusting(url, stranger)) as store:
        running(store)
        with pytest.raises(errors.ProofError, match="anchor does not hold"):
            store.anchors.create()
        assert list(store.anchors.list().items) == []


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere.example/\r\ncontent-length: 0\r\n\r\n", "answered 302"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "answered 500"),
        (b"HTTP/1.1 429 Slower\r\ncontent-length: 0\r\n\r\n", "answered 429"),
        (b"nonsense\r\n\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
    ],
)
def test_a_log_that_refuses_or_redirects_is_unreachable(
    tmp_path: Path, tree: AnchorTree, answer: bytes, what: str
) -> None:
    with raw_server(answer) as url, opened(tmp_path, trusting(url, tree.key)) as store:
        running(store)
        with pytest.raises(errors.UnreachableError, match=what):
            store.anchors.create()


def test_a_log_that_never_answers_drips_or_has_no_end_is_left(tmp_path: Path, tree: AnchorTree) -> None:
    head = b"HTTP/1.1 201 Created\r\n\r\n"
    cases = [(head, b"x", errors.UnreachableError), (b"", b"", errors.UnreachableError)]
    for number, (start, drop, kind) in enumerate([*cases, (head, bytes(1 << 18), errors.FormatError)]):
        with dripping(start, drop) as url, opened(tmp_path / str(number), trusting(url, tree.key)) as store:
            running(store)
            with pytest.raises(kind):
                store.anchors.create(timeout_s=1.0 if kind is errors.UnreachableError else 30.0)
            assert list(store.anchors.list().items) == []


def test_a_log_that_nobody_runs_is_unreachable(tmp_path: Path, tree: AnchorTree) -> None:
    with opened(tmp_path, trusting("http://127.0.0.1:1", tree.key)) as store:
        running(store)
        with pytest.raises(errors.UnreachableError, match="the log http://127"):
            store.anchors.create(timeout_s=2)


@pytest.mark.parametrize(
    "settings", ["{url: 'https://l.example'}", "{url: 'https://l.example', key: nonsense}", "cosigner"]
)
def test_a_log_without_a_key_of_a_log_is_refused_before_it_is_asked(tmp_path: Path, settings: str) -> None:
    if settings == "cosigner":
        key = VerifierKey(NAME, COSIGNATURE_V1, keys.generate("ed25519").public)
        settings = trusting("https://l.example", key)
    with opened(tmp_path, settings) as store, pytest.raises(errors.ConfigError, match="key"):
        store.anchors.create()


def test_the_password_of_a_log_is_never_shown() -> None:
    assert "secret" not in repr(AnchorLog("https://me:secret@log.example"))


# --- proofs that a person brings ---------------------------------------------------------------------------------


def test_a_proof_of_any_c2sp_log_is_kept_if_it_is_about_a_head_of_this_log(
    tmp_path: Path, tree: AnchorTree, target: str | None
) -> None:
    with opened(tmp_path / "home", f"{{key: '{tree.key.encode()}'}}", target) as store:
        running(store)
        settled(store)
        head = store.log.head().encode()
        proof = tree.prove(tree.add(head))
        running(store)  # the log goes on while a person asks
        kept = store.anchors.put(head.decode(), tlog_proof.encode(proof).decode())
        assert (kept.url, kept.log, kept.log_index) == (None, NAME, 5)
        with pytest.raises(errors.ProofError, match="does not hold"):
            store.anchors.put(store.log.head().encode().decode(), tlog_proof.encode(proof).decode())
        settled(store)
        assert (store.verify.run().verdict, len(store.anchors.list().items)) == (Verdict.VALID, 1)
    with opened(tmp_path / "other", f"{{key: '{tree.key.encode()}'}}") as other:
        running(other)
        with pytest.raises(errors.ProofError):
            other.anchors.put(head.decode(), tlog_proof.encode(proof).decode())
        with pytest.raises(errors.FormatError):
            other.anchors.put(head.decode(), "nothing")
        for texts in (("\ud800", "nothing"), (head.decode(), "\ud800"), (head.decode(), "x" * (2 << 20))):
            with pytest.raises(errors.InvalidInputError):
                other.anchors.put(*texts)
        assert list(other.anchors.list().items) == []


# --- bundles -----------------------------------------------------------------------------------------------------


def bundle_of(store: sync.Holdproof) -> bytes:
    flow = running(store)
    store.flows.transition(flow, "COMPLETED")
    settled(store)
    store.anchors.create()
    running(store)  # the head moves on
    settled(store)
    return store.bundle.export(flow, kind="flow")


def repacked(parts: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return target.getvalue()


def checked_by_the_page(folder: Path, data: bytes) -> subprocess.CompletedProcess[str]:
    [program] = re.findall(r"^```python\n(.*?)^```$", offline.instructions().decode(), re.MULTILINE | re.DOTALL)
    (folder / "check.py").write_text(program)
    (folder / "bundle.zip").write_bytes(data)
    page = [sys.executable, "-I", "-S", str(folder / "check.py"), str(folder / "bundle.zip")]
    return subprocess.run(page, capture_output=True, text=True, check=False)


def test_a_bundle_says_in_which_log_it_is_anchored(
    tmp_path: Path, tree: AnchorTree, url: str, target: str | None
) -> None:
    with opened(tmp_path / "home", trusting(url, tree.key), target) as store:
        data = bundle_of(store)
        [anchored] = store.anchors.list().items
    report = offline.check(data)
    assert report.verdict is Verdict.VALID, report.findings
    [note] = [each for each in report.notes if "anchored" in each]
    assert f"entry {anchored.log_index} of the log {NAME}, whose key is {tree.key.encode()}" in note
    done = checked_by_the_page(tmp_path, data)
    assert done.returncode == 0, done.stderr
    assert f"anchored as entry {anchored.log_index} of {NAME}; its key: {tree.key.encode()}" in done.stdout


def test_a_bundle_whose_anchor_was_taken_out_is_refused_by_whoever_demands_one(
    tmp_path: Path, tree: AnchorTree, url: str
) -> None:
    """What is left of it holds: only the reader knows that there was one."""
    with opened(tmp_path / "home", trusting(url, tree.key)) as store:
        data = bundle_of(store)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if not name.startswith(("anchor/", "report."))}
    about = json.loads(parts["bundle.json"])
    del about["anchor"]
    parts["bundle.json"] = canonical.dumps(about)
    without = repacked(parts)
    assert offline.check(data, attested=["anchor"]).verdict is Verdict.VALID
    assert offline.check(without).verdict is Verdict.VALID
    report = offline.check(without, attested=["anchor"])
    assert (report.verdict, [each.what for each in report.findings]) == (
        Verdict.MISSING_HERE,
        ["it has no part `anchor/`"],
    )
    assert offline.check(data, attested=["time"]).verdict is Verdict.MISSING_HERE
    with pytest.raises(errors.InvalidInputError):
        offline.check(data, attested=["anchors"])
    (tmp_path / "bundle.zip").write_bytes(without)
    words = ["verify", str(tmp_path / "bundle.zip"), "--attested", "anchor"]
    assert CliRunner().invoke(app, words).exit_code == Verdict.MISSING_HERE.exit_code
    refused = CliRunner().invoke(app, ["verify", str(tmp_path / "home"), "--attested", "anchor"])
    assert refused.exit_code == errors.InvalidInputError.exit_code


def test_a_bundle_takes_no_anchor_that_somebody_put_into_the_database(
    tmp_path: Path, tree: AnchorTree, url: str, target: str | None
) -> None:
    with opened(tmp_path / "home", trusting(url, tree.key), target) as store:
        flow = running(store)
        store.flows.transition(flow, "COMPLETED")
        settled(store)
        id = store.anchors.create().id
        settled(store)
        foreign = AnchorTree()
        head = store.anchors.get(id).head.encode()
        foreign.create_entry(anchor.request(head, keys.generate()))
        index = len(foreign.entries) - 1
        proof = tlog_proof.encode(foreign.prove(index, extra=foreign.entries[index])).decode()
        columns = "id, origin, size, head, url, log, log_index, key, proof, created_at, leaf_id, leaf_ver, leaf_salt"
        values = f"'0', origin, size, head, url, log, {index}, :key, :proof, created_at, '0', 1, leaf_salt"
        plant = sql(f"INSERT INTO head_anchors ({columns}) SELECT {values} FROM head_anchors")
        store.write(lambda tx: tx.execute(plant, key=foreign.key.encode(), proof=proof))
        with pytest.raises(errors.ProofError, match="head_anchors"):
            store.bundle.export(flow, kind="flow")


def test_a_bundle_takes_an_anchor_whose_own_entry_still_waits(
    tmp_path: Path, tree: AnchorTree, url: str, postgres_url: str
) -> None:
    with opened(tmp_path / "home", trusting(url, tree.key), postgres_url) as store:
        flow = running(store)
        store.flows.transition(flow, "COMPLETED")
        settled(store)
        with psycopg.connect(postgres_url) as sequencer:
            # As another process holds it while it signs.
            sequencer.execute("SELECT 1 FROM kernel.log_state FOR UPDATE")
            store.anchors.create()
            data = store.bundle.export(flow, kind="flow")
    report = offline.check(data)
    assert report.verdict is Verdict.VALID, report.findings
    assert [each for each in report.notes if "anchored" in each]


PARTS = ["head.note", "head.tlog-proof", "log.vkey", "entry", "consistency", "missing"]


@pytest.mark.parametrize("part", PARTS)
def test_a_bundle_with_another_anchor_is_refused_by_us_and_by_its_page(
    tmp_path: Path, tree: AnchorTree, url: str, part: str
) -> None:
    with opened(tmp_path / "home", trusting(url, tree.key)) as store:
        packed = io.BytesIO(bundle_of(store))
    with zipfile.ZipFile(packed) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if name != "report.html"}
    about = json.loads(parts["bundle.json"])
    proof = tlog_proof.parse(parts["anchor/head.tlog-proof"])
    if part == "head.note":
        parts["anchor/head.note"] = parts["head.note"]
    elif part == "head.tlog-proof":
        parts["anchor/head.tlog-proof"] = tlog_proof.encode(tree.prove(2, extra=proof.extra))
    elif part == "log.vkey":
        parts["anchor/log.vkey"] = AnchorTree().key.encode().encode()
    elif part == "entry":
        extra = proof.extra.replace(b"SHA2_256", b"SHA2_512")
        parts["anchor/head.tlog-proof"] = tlog_proof.encode(TlogProof(proof.index, proof.proof, proof.head, extra))
    elif part == "consistency":
        about["anchor"] = ["00" * 32, *about["anchor"][1:]]
        parts["bundle.json"] = json.dumps(about, separators=(",", ":"), sort_keys=True).encode()
    else:
        del parts["anchor/log.vkey"]
    data = repacked(parts)
    if part == "missing":
        with pytest.raises(errors.FormatError):
            offline.check(data)
    else:
        assert offline.check(data).verdict is Verdict.TAMPERED
    done = checked_by_the_page(tmp_path, data)
    assert done.returncode != 0
    assert "REFUSED" in done.stderr


# --- proofs alone ------------------------------------------------------------------------------------------------


def test_every_bit_flip_of_an_anchor_is_refused_or_changes_nothing(tree: AnchorTree) -> None:
    head = b"holdproof/1\n7\nroot\n"
    tree.create_entry(anchor.request(head, keys.generate()))
    whole = tree.prove(5, extra=tree.entries[5])
    encoded = tlog_proof.encode(whole)
    anchor.verify(whole, head, tree.key)
    for place in range(len(encoded)):
        flipped = encoded[:place] + bytes([encoded[place] ^ 1]) + encoded[place + 1 :]
        try:
            read = tlog_proof.parse(flipped)
            anchor.verify(read, head, tree.key)
        except errors.FormatError:
            continue
        assert read.extra == whole.extra, "what it says"
        assert (read.index, read.proof, read.head.checkpoint) == (whole.index, whole.proof, whole.head.checkpoint)


def test_the_first_entry_of_a_log_has_no_path_and_an_index_that_json_leaves_out() -> None:
    tree = AnchorTree(before=0)
    answer = tree.create_entry(anchor.request(b"head", keys.generate()))
    del answer["logIndex"], answer["inclusionProof"]["hashes"]
    proof = anchor.parse_answer(json.dumps(answer).encode())
    assert (proof.index, proof.proof) == (0, ())
    anchor.verify(proof, b"head", tree.key)


def test_only_a_key_on_p256_signs_entries() -> None:
    with pytest.raises(errors.BadKeyError):
        anchor.request(b"head", keys.generate("ed25519"))
