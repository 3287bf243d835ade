"""Plain `openssl` checks what we sign, and refuses a tampered twin."""

import math
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdproof.crypto import attest, b64, dbom, keys
from holdproof.crypto.attest import Sigma
from holdproof.crypto.dbom import Fields, SignedDbom
from holdproof.crypto.keys import Alg

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on the path")

FIELDS = Fields("battle-1", "ab" * 32, tuple(at / 384 for at in range(384)), 0.875, "2026-01-14T21:05:51Z")
PSS = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:32", "-sigopt", "rsa_mgf1_md:sha256"]


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)


def verdict(folder: Path, key: keys.PublicKey, dbom: SignedDbom, options: list[str]) -> bool:
    """Whether `openssl dgst -sha256 -verify` accepts the DBOM's signature over its PAE bytes."""
    sigma = attest.parse_sigma(dbom.sigma_judge)
    assert isinstance(sigma, Sigma)
    public, signature, message = folder / "judge.pem", folder / "dbom.sig", folder / "dbom.pae"
    public.write_bytes(key.to_pem())
    signature.write_bytes(sigma.signature)
    message.write_bytes(attest.signed_bytes(dbom.fields, sigma.alg, sigma.keyid))
    done = openssl("dgst", "-sha256", *options, "-verify", public, "-signature", signature, message)
    assert done.stdout.strip() in ("Verified OK", "Verification failure", "Verification Failure"), done
    return done.returncode == 0


def _resigned(signed: SignedDbom, at: int) -> SignedDbom:
    """The same with another byte in its signature."""
    sigma = attest.parse_sigma(signed.sigma_judge)
    assert isinstance(sigma, Sigma)
    raw = bytearray(sigma.signature)
    raw[at] ^= 1
    head, _, _ = signed.sigma_judge.rpartition(":")
    return replace(signed, sigma_judge=f"{head}:{b64.encode_url(bytes(raw))}")


TWINS: dict[str, Callable[[SignedDbom], SignedDbom]] = {
    "another score": lambda signed: replace(signed, fields=replace(FIELDS, score_cis=0.876)),
    "a score that is hardly another": lambda signed: replace(
        signed, fields=replace(FIELDS, score_cis=math.nextafter(0.875, 1))
    ),
    "another battle": lambda signed: replace(signed, fields=replace(FIELDS, evaluation_id="battle-2")),
    "another result": lambda signed: replace(signed, fields=replace(FIELDS, h_delta="ac" + FIELDS.h_delta[2:])),
    "another time": lambda signed: replace(signed, fields=replace(FIELDS, timestamp="2026-01-14T21:05:52Z")),
    "an intent in another order": lambda signed: replace(
        signed, fields=replace(FIELDS, v_intent=FIELDS.v_intent[::-1])
    ),
    "an intent cut short": lambda signed: replace(signed, fields=replace(FIELDS, v_intent=FIELDS.v_intent[:-1])),
    "no intent": lambda signed: replace(signed, fields=replace(FIELDS, v_intent=())),
    "a flipped bit at the end of the signature": lambda signed: _resigned(signed, -1),
    "a flipped bit in the signature": lambda signed: _resigned(signed, 20),
}


@pytest.mark.parametrize(("alg", "options"), [("ecdsa-p256-sha256", []), ("rsa-pss-sha256", PSS)])
def test_openssl_accepts_our_dbom_and_refuses_ten_tampered_twins(tmp_path: Path, alg: Alg, options: list[str]) -> None:
    key = keys.generate(alg, rsa_bits=2048)
    signed = attest.sign(FIELDS, key)
    assert verdict(tmp_path, key.public, signed, options)
    accepted = [name for name, tamper in TWINS.items() if verdict(tmp_path, key.public, tamper(signed), options)]
    assert (len(TWINS), accepted) == (10, [])
    assert not verdict(tmp_path, keys.generate(alg, rsa_bits=2048).public, signed, options)


def test_openssl_accepts_our_ed25519_signature_and_refuses_another_message(tmp_path: Path) -> None:
    key = keys.generate("ed25519")
    public, signature, message = tmp_path / "k.pem", tmp_path / "m.sig", tmp_path / "m"
    public.write_bytes(key.public.to_pem())
    signature.write_bytes(key.sign(b"a signed head\n"))
    for text, good in ((b"a signed head\n", True), (b"a signed heap\n", False)):
        message.write_bytes(text)
        done = openssl(
            "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", message, "-sigfile", signature
        )
        assert (done.returncode == 0) == good, done


def test_we_accept_what_openssl_signs(tmp_path: Path) -> None:
    private, message, signature = tmp_path / "k.pem", tmp_path / "m", tmp_path / "m.sig"
    message.write_bytes(b"signed elsewhere")
    made = openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", private)
    assert made.returncode == 0, made
    assert openssl("dgst", "-sha256", "-sign", private, "-out", signature, message).returncode == 0
    keys.load_private(private.read_bytes()).public.verify(b"signed elsewhere", signature.read_bytes())


@pytest.mark.parametrize("alg", keys.ALGS)
def test_openssl_reads_our_key_files(tmp_path: Path, alg: Alg) -> None:
    if alg == "ml-dsa-44" and "ML-DSA-44" not in openssl("list", "-public-key-algorithms").stdout:
        pytest.skip("this openssl has no ML-DSA: 3.5 has")
    key = keys.generate(alg, rsa_bits=2048)
    path = tmp_path / "key.pem"
    for passphrase in (None, b"open sesame"):
        path.write_bytes(key.to_pem(passphrase))
        done = openssl("pkey", "-in", path, "-pubout", "-passin", f"pass:{(passphrase or b'').decode()}")
        assert keys.load_public_pem(done.stdout.encode()) == key.public, done


def test_the_key_id_is_what_openssl_and_sha256sum_say(tmp_path: Path) -> None:
    key = keys.generate()
    (tmp_path / "k.pem").write_bytes(key.public.to_pem())
    openssl("pkey", "-pubin", "-in", tmp_path / "k.pem", "-outform", "DER", "-out", tmp_path / "k.der")
    done = openssl("dgst", "-sha256", "-r", tmp_path / "k.der")
    assert done.stdout.split()[0] == key.keyid


def test_a_dbom_file_carries_all_that_openssl_needs(tmp_path: Path) -> None:
    key = keys.generate()
    path = tmp_path / "dbom_battle-1.json"
    path.write_bytes(dbom.encode(attest.sign(FIELDS, key)))
    assert verdict(tmp_path, key.public, dbom.parse(path.read_bytes()), [])
