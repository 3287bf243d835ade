"""Time tokens (RFC 3161): heads stamped by an authority that tests run, checked by us and by two other judges."""

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from cryptography.x509 import load_pem_x509_certificate
from rfc3161_client import VerifierBuilder, decode_timestamp_response
from rfc3161_client.errors import VerificationError

from harness import time_authority
from harness.filling import running, settled
from harness.time_authority import Authority, openssl
from holdproof import errors, sync
from holdproof.config_sections import TimeAuthority
from holdproof.crypto import der, timestamp
from holdproof.db import sql
from holdproof.db.clock import system_clock
from holdproof.evidence import bounded_http
from holdproof.model.verdicts import Verdict
from holdproof.upkeep.verification import offline

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on the path")
DATA = b"holdproof/1\n7\nroot\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return time_authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return time_authority.make(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def url(authority: Authority) -> Iterator[str]:
    with time_authority.serving(authority) as address:
        yield address


def opened(home: Path, url: str | None, authority: Authority, target: str | None = None) -> sync.Holdproof:
    """A store whose settings name the authority."""
    settings = home / "config" / "config.yaml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("" if url is None else f"time: {{url: '{url}', certificate: {authority.ca}, every_s: 1}}\n")
    store = sync.open(home, target)
    with suppress(errors.ConflictError):
        store.agents.register("trader", version="1.0.0")
    return store


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


# --- the store ---------------------------------------------------------------------------------------------------


def test_a_head_is_stamped_verified_and_told_on_the_trail(
    tmp_path: Path, url: str, authority: Authority, target: str | None
) -> None:
    with opened(tmp_path, url, authority, target) as store:
        running(store)
        settled(store)
        size = store.log.head().checkpoint.size
        stamped = store.timestamps.create()
        settled(store)
        assert (stamped.size, stamped.authority, stamped.url) == (size, "CN=Time Authority", url)
        assert list(store.timestamps.list().items) == [stamped]
        assert store.timestamps.get(stamped.id).timestamp == stamped
        assert f"head of size {size} stamped at {stamped.stamped_at}" in [
            each.what for each in store.log.list(kind="audit").items
        ]
        report = store.verify.run()
        assert (report.verdict, report.checked["time tokens"]) == (Verdict.VALID, 1)
        assert not [each for each in report.not_checked if "time authority" in each]
        with pytest.raises(errors.NotFoundError, match="timestamps list"):
            store.timestamps.get("nothing")


def test_by_the_clock_only_a_log_that_grew_is_stamped(tmp_path: Path, url: str, authority: Authority) -> None:
    with opened(tmp_path, url, authority) as store:
        running(store)
        first = store.timestamps.beat()
        assert first is not None
        assert store.timestamps.beat() is None, "younger than every_s"
        store.write(lambda tx: tx.execute(sql("UPDATE time_tokens SET created_at = '2020-01-01T00:00:00.000000Z'")))
        assert store.timestamps.beat() is None, "nothing was logged but the token itself"
        running(store)
        second = store.timestamps.beat()
        assert second is not None
        assert second.size > first.size
    with opened(tmp_path, None, authority) as store:
        assert store.timestamps.beat() is None
        with pytest.raises(errors.NotFoundError, match="time: "):
            store.timestamps.create()
        assert any("the settings do not name certificate" in each for each in store.verify.run().not_checked)


class Shifted:
    """A machine's clock that is off."""

    def __init__(self) -> None:
        self.seconds = 0

    def __call__(self) -> int:
        return system_clock() + self.seconds * 1_000_000


@pytest.mark.parametrize(
    ("before", "after", "wrong"), [(0, 0, 0), (240, 0, 0), (0, -240, 0), (900, 0, 1), (0, -900, 1), (-900, 900, 0)]
)
def test_an_entry_whose_time_contradicts_a_token_is_misdated_and_does_not_lock(
    tmp_path: Path, url: str, authority: Authority, target: str | None, before: int, after: int, wrong: int
) -> None:
    with opened(tmp_path, url, authority, target):
        pass
    clock = Shifted()
    with sync.open(tmp_path, target, clock=clock) as store:
        clock.seconds = before
        store.agents.register("earlier", version="1.0.0")
        settled(store)
        clock.seconds = 0
        store.timestamps.create()
        settled(store)
        clock.seconds = after
        store.agents.register("later", version="1.0.0")
        settled(store)
        clock.seconds = 0
        report = store.verify.run(full=True, lock=True)
        assert [each.verdict for each in report.findings] == [Verdict.MISDATED] * wrong, report.findings
        assert report.locked is None


def test_a_locked_store_does_not_ask_the_authority(
    tmp_path: Path, url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, url, authority) as store:
        running(store)
        store.lockdown.lock(reason="a drill")
        monkeypatch.setattr(bounded_http, "send", lambda *words, **options: pytest.fail("the authority was asked"))
        with pytest.raises(errors.LockedError):
            store.timestamps.create()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE time_tokens SET stamped_at = '2020-01-01T00:00:00.000000Z'",
        "UPDATE time_tokens SET size = size - 1",
        "UPDATE time_tokens SET token = 'AAAA'",
        "UPDATE time_tokens SET head = replace(head, 'holdproof', 'otherwise')",
        "DELETE FROM time_tokens",
    ],
)
def test_an_edited_or_deleted_token_is_found(tmp_path: Path, url: str, authority: Authority, edit: str) -> None:
    with opened(tmp_path, url, authority) as store:
        running(store)
        store.timestamps.create()
        store.write(lambda tx: tx.execute(sql(edit)))
        report = store.verify.run()
        assert report.verdict is Verdict.TAMPERED
        assert "time_tokens" in {each.table for each in report.findings}


def test_an_answer_that_the_certificate_of_the_settings_does_not_vouch_for_is_not_stored(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    with time_authority.serving(stranger) as other, opened(tmp_path, other, authority) as store:
        running(store)
        with pytest.raises(errors.ProofError, match="leads to no trusted one"):
            store.timestamps.create()
        assert list(store.timestamps.list().items) == []


@pytest.mark.parametrize("settings", ["{url: 'https://tsa.example'}", "{url: 'https://t', certificate: /nowhere}"])
def test_an_authority_without_a_certificate_is_refused_before_it_is_asked(tmp_path: Path, settings: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(f"time: {settings}\n")
    with sync.open(tmp_path) as store:
        store.agents.register("trader", version="1.0.0")
        with pytest.raises(errors.ConfigError, match="certificate"):
            store.timestamps.create()


def test_an_authority_that_does_not_answer_is_unreachable(tmp_path: Path, authority: Authority) -> None:
    with opened(tmp_path, "http://127.0.0.1:1", authority) as store:
        running(store)
        with pytest.raises(errors.UnreachableError, match="time authority"):
            store.timestamps.create(timeout_s=2)


def test_the_password_of_an_authority_is_never_shown() -> None:
    assert "secret" not in repr(TimeAuthority("https://me:secret@tsa.example"))


# --- bundles -----------------------------------------------------------------------------------------------------


def bundle_of(store: sync.Holdproof) -> bytes:
    flow = running(store)
    store.flows.transition(flow, "COMPLETED")
    settled(store)
    store.timestamps.create()
    running(store)  # the head moves on
    settled(store)
    return store.bundle.export(flow, kind="flow")


def test_a_bundle_says_when_its_records_existed(tmp_path: Path, url: str, authority: Authority) -> None:
    with opened(tmp_path / "home", url, authority) as store:
        data = bundle_of(store)
        [stamped] = store.timestamps.list().items
    report = offline.check(data)
    assert report.verdict is Verdict.VALID, report.findings
    ca = load_pem_x509_certificate(authority.ca.read_bytes())
    [note] = [each for each in report.notes if "time authority" in each]
    assert stamped.stamped_at in note
    assert all(each in note for each in timestamp.fingerprints(authority.ca.read_text()))
    # Two judges nobody here wrote, and the page of the bundle.
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(tmp_path / "bundle")
    time = tmp_path / "bundle" / "time"
    told = openssl(
        *("ts", "-verify", "-data", str(time / "head.note"), "-in", str(time / "token.tsr")),
        *("-CAfile", str(authority.ca)),
    )
    assert "Verification: OK" in told
    response = decode_timestamp_response((time / "token.tsr").read_bytes())
    verifier = VerifierBuilder().add_root_certificate(ca).build()
    assert verifier.verify_message(response, (time / "head.note").read_bytes())
    [program] = re.findall(r"^```python\n(.*?)^```$", offline.instructions().decode(), re.MULTILINE | re.DOTALL)
    (tmp_path / "check.py").write_text(program)
    (tmp_path / "bundle.zip").write_bytes(data)
    page = [sys.executable, "-I", "-S", str(tmp_path / "check.py"), str(tmp_path / "bundle.zip")]
    done = subprocess.run(page, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Time stamp:" in done.stdout


def test_a_bundle_whose_records_are_newer_than_every_token_has_no_time(
    tmp_path: Path, url: str, authority: Authority
) -> None:
    with opened(tmp_path, url, authority) as store:
        running(store)
        store.timestamps.create()
        report = offline.check(store.bundle.export(running(store), kind="flow"))
        assert report.verdict is Verdict.VALID
        assert not [each for each in report.notes if "time authority" in each]


@pytest.mark.parametrize("part", ["head.note", "token.tsr", "authority.pem", "proof", "missing"])
def test_a_bundle_with_another_time_is_refused(
    tmp_path: Path, url: str, authority: Authority, stranger: Authority, part: str
) -> None:
    with opened(tmp_path, url, authority) as store:
        parts = unpacked(bundle_of(store))
    about = json.loads(parts["bundle.json"])
    if part == "head.note":
        parts["time/head.note"] = parts["head.note"]
    elif part == "token.tsr":
        parts["time/token.tsr"] = stranger.answer(timestamp.request(parts["time/head.note"], 1))
    elif part == "authority.pem":
        parts["time/authority.pem"] = stranger.ca.read_bytes()
    elif part == "proof":
        about["time"] = ["00" * 32, *about["time"][1:]]
        parts["bundle.json"] = json.dumps(about, separators=(",", ":"), sort_keys=True).encode()
    else:
        del parts["time/token.tsr"]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    if part == "missing":
        with pytest.raises(errors.FormatError):
            offline.check(target.getvalue())
    else:
        assert offline.check(target.getvalue()).verdict is Verdict.TAMPERED


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != "report.html"}


# --- tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_three_judges_accept_a_token(tmp_path: Path, kind: str) -> None:
    authority = time_authority.make(tmp_path, kind=kind)
    response = authority.answer(timestamp.request(DATA, 5))
    by_ca = timestamp.verify(response, DATA, timestamp.certificates(authority.ca.read_text()), nonce=5)
    by_itself = timestamp.verify(response, DATA, timestamp.certificates(authority.certificate.read_text()))
    assert by_ca.time == by_itself.time
    assert by_ca.policy == "1.2.3.4.1"
    assert judged_by_openssl(tmp_path, response, DATA, authority)
    assert judged_by_client(response, DATA, authority)


def judged_by_openssl(folder: Path, response: bytes, data: bytes, authority: Authority) -> bool:
    (folder / "data").write_bytes(data)
    (folder / "token.tsr").write_bytes(response)
    words = ("ts", "-verify", "-data", "data", "-in", "token.tsr", "-CAfile", str(authority.ca))
    return subprocess.run(["openssl", *words], cwd=folder, capture_output=True, check=False).returncode == 0


def judged_by_client(response: bytes, data: bytes, authority: Authority) -> bool:
    verifier = VerifierBuilder().add_root_certificate(load_pem_x509_certificate(authority.ca.read_bytes())).build()
    try:
        return bool(verifier.verify_message(decode_timestamp_response(response), data))
    except (VerificationError, ValueError):
        return False


def _swap(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def swap(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new)

    return swap


def _flip_signature(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _flip_certificate(data: bytes) -> bytes:
    at = data.index(b"Time Authority")
    return data[:at] + b"Tame" + data[at + 4 :]


def _earlier(data: bytes) -> bytes:
    [moment] = set(re.findall(rb"\d{14}Z", data))
    return data.replace(moment, b"20200101000000Z")


def _refused(data: bytes) -> bytes:
    """The status says that it was not granted."""
    at = data.index(b"\x02\x01\x00")
    return data[: at + 2] + b"\x02" + data[at + 3 :]


TAMPERED: dict[str, Callable[[bytes], bytes]] = {
    "another time": _earlier,
    "another hash": _swap(hashlib.sha256(DATA).digest(), b"\0" * 32),
    "another number": _swap(der.write_integer(5), der.write_integer(6)),
    "another policy": _swap(der.write_oid("1.2.3.4.1"), der.write_oid("1.2.3.4.2")),
    "another signature": _flip_signature,
    "another certificate": _flip_certificate,
    "another content": _swap(der.write_oid("1.2.840.113549.1.9.16.1.4"), der.write_oid("1.2.840.113549.1.9.16.1.5")),
    "another hash function": _swap(der.write_oid("2.16.840.1.101.3.4.2.1"), der.write_oid("2.16.840.1.101.3.4.2.2")),
    "not granted": _refused,
    "cut off": lambda data: data[:-20],
    "longer": lambda data: data + b"\0",
    "no token": lambda data: der.write(der.SEQUENCE, der.write(der.SEQUENCE, der.write_integer(0))),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_tampered_token_is_refused_by_every_judge(tmp_path: Path, authority: Authority, how: str) -> None:
    response = TAMPERED[how](authority.answer(timestamp.request(DATA, 5)))
    trusted = timestamp.certificates(authority.ca.read_text())
    with pytest.raises((errors.ProofError, errors.FormatError)):
        timestamp.verify(response, DATA, trusted, nonce=5)
    assert not judged_by_client(response, DATA, authority)
    if how != "longer":  # openssl reads no further than the token
        assert not judged_by_openssl(tmp_path, response, DATA, authority)


def test_a_token_of_another_request_or_authority_is_refused(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    response = authority.answer(timestamp.request(DATA, 5))
    trusted = timestamp.certificates(authority.ca.read_text())
    with pytest.raises(errors.ProofError, match="another request"):
        timestamp.verify(response, DATA, trusted, nonce=6)
    with pytest.raises(errors.ProofError, match="other bytes"):
        timestamp.verify(response, DATA + b"x", trusted)
    with pytest.raises(errors.ProofError, match="no trusted one"):
        timestamp.verify(response, DATA, timestamp.certificates(stranger.ca.read_text()))
    web = time_authority.make(tmp_path / "web", purpose="stamper")
    openssl(
        *("x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-extfile", "extensions.cnf", "-extensions", "web", "-out", "web.pem"),
        cwd=web.folder,
    )
    with pytest.raises(errors.ProofError, match="not one for time stamping"):
        timestamp._check_purpose(load_pem_x509_certificate((web.folder / "web.pem").read_bytes()))
    with pytest.raises(errors.InvalidInputError, match="PEM"):
        timestamp.certificates("nonsense")


def test_a_certificate_whose_key_may_not_sign_is_refused(tmp_path: Path) -> None:
    authority = time_authority.make(tmp_path)
    for usage, accepted in (("keyEncipherment", False), ("digitalSignature", True), ("nonRepudiation", True)):
        (tmp_path / "usage.cnf").write_text(f"keyUsage=critical,{usage}\nextendedKeyUsage=critical,timeStamping\n")
        openssl(
            *("x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-extfile", "usage.cnf", "-out", "usage.pem"),
            cwd=authority.folder,
        )
        certificate = load_pem_x509_certificate((tmp_path / "usage.pem").read_bytes())
        if accepted:
            timestamp._check_purpose(certificate)
        else:
            with pytest.raises(errors.ProofError, match="may sign nothing"):
                timestamp._check_purpose(certificate)


def test_every_bit_flip_of_a_token_is_refused_or_changes_nothing(authority: Authority) -> None:
    response = authority.answer(timestamp.request(DATA, 5))
    trusted = timestamp.certificates(authority.ca.read_text())
    whole = timestamp.verify(response, DATA, trusted)
    for place in range(len(response)):
        flipped = response[:place] + bytes([response[place] ^ 1]) + response[place + 1 :]
        try:
            assert timestamp.verify(flipped, DATA, trusted) == whole
        except (errors.ProofError, errors.FormatError):
            continue


def test_a_certificate_of_an_unknown_version_is_no_certificate(authority: Authority) -> None:
    lines = [each for each in authority.ca.read_text().splitlines() if not each.startswith("-")]
    data = base64.b64decode("".join(lines)).replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x5f", 1)
    text = base64.encodebytes(data).decode()
    with pytest.raises(errors.InvalidInputError, match="PEM"):
        timestamp.certificates(f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n")


def test_an_object_identifier_without_an_end_is_refused_at_once() -> None:
    endless = der.read(der.write(der.OID, b"\x81" * 60_000))
    called: list[str] = []

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        called.append(event)
        return count

    sys.settrace(count)
    try:
        with pytest.raises(errors.FormatError):
            der.oid(endless)
    finally:
        sys.settrace(None)
    assert len(called) < 1000, "steps"


def test_der_reads_what_it_writes_and_nothing_that_is_written_otherwise() -> None:
    for number in (0, 1, 127, 128, 255, 256, 1 << 62):
        assert der.integer(der.read(der.write_integer(number))) == number
    for name in ("1.2.840.113549.1.9.16.1.4", "2.16.840.1.101.3.4.2.1", "0.9.2342"):
        assert der.oid(der.read(der.write_oid(name))) == name
    assert der.read(der.write(der.OCTETS, b"x" * 300)).body == b"x" * 300
    for wrong in (b"", b"\x30", b"\x30\x05a", b"\x30\x81\x01a", b"\x30\x80\0\0", b"\x1f\x81\0\0", b"\x04\x00x"):
        with pytest.raises(errors.FormatError):
            der.read(wrong)
    assert base64.b64encode(der.write(der.NULL)) == b"BQA="
