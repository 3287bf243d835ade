"""A time authority of RFC 3161 on a port of its own: `openssl ts` answers, under a certificate of its own."""

import hashlib
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from harness import http_service
from harness.http_service import Answer, Request
from holdproof.crypto import der
from holdproof.crypto.der import write

_CONFIG = """\
[tsa]
default_tsa = tsa_config
[tsa_config]
serial = serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
ordering = no
tsa_name = no
ess_cert_id_chain = no
ess_cert_id_alg = sha256
"""
_EXTENSIONS = """\
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[stamper]
basicConstraints = CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[web]
basicConstraints = CA:FALSE
extendedKeyUsage = critical,serverAuth
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True)
class Authority:
    """An authority: its folder, the certificate that it is trusted by, and its own."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.folder / "tsa.pem"

    def answer(self, query: bytes) -> bytes:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            asked = Path(name, "query.tsq")
            answered = Path(name, "answer.tsr")
            asked.write_bytes(query)
            openssl(
                *("ts", "-reply", "-config", "tsa.cnf", "-section", "tsa_config", "-queryfile", str(asked)),
                *("-signer", "tsa.pem", "-inkey", "tsa.key", "-out", str(answered)),
                cwd=self.folder,
            )
            return answered.read_bytes()


def openssl(*args: str, cwd: Path | None = None) -> str:
    done = subprocess.run(["openssl", *args], cwd=cwd, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout + done.stderr


def make(folder: Path, *, kind: str = "ec", purpose: str = "stamper") -> Authority:
    """Make an authority with keys of this kind, `ec` or `rsa`; its certificate is for this purpose."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tsa.cnf").write_text(_CONFIG)
    (folder / "serial").write_text("01")
    (folder / "extensions.cnf").write_text(_EXTENSIONS)
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else ["-newkey", "rsa:2048"]
    openssl("req", *new, "-nodes", "-keyout", "ca.key", "-out", "ca.csr", "-subj", "/CN=Time CA", cwd=folder)
    openssl("req", *new, "-nodes", "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=Time Authority", cwd=folder)
    signing = ("x509", "-req", "-days", "3650", "-extfile", "extensions.cnf", "-sha256")
    openssl(*signing, "-in", "ca.csr", "-key", "ca.key", "-extensions", "ca", "-out", "ca.pem", cwd=folder)
    issued_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(*signing, "-in", "tsa.csr", *issued_by, "-extensions", purpose, "-out", "tsa.pem", cwd=folder)
    return Authority(folder)


@contextmanager
def serving(authority: Authority) -> Iterator[str]:
    """The address of an authority while it answers."""
    # One at a time: `openssl ts` counts its answers in a file.
    answering = threading.Lock()

    def respond(request: Request) -> Answer:
        with answering:
            return Answer(200, "application/timestamp-reply", authority.answer(request.body))

    with http_service.serving(respond) as url:
        yield url


# --- without a process -------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _own() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Time Authority")])
    begins = datetime(2020, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    stamping = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
    builder = builder.not_valid_before(begins).not_valid_after(begins + timedelta(days=36_500))
    builder = builder.add_extension(stamping, critical=True)
    return key, builder.sign(key, hashes.SHA256())


def own_certificate() -> str:
    """The certificate of the authority that `stamped` plays, in PEM."""
    return _own()[1].public_bytes(serialization.Encoding.PEM).decode()


def stamped(data: bytes, at: datetime) -> bytes:
    """A response on these bytes, made here: for stores that need a token, whoever signed it."""
    key, certificate = _own()
    sha256 = write(der.SEQUENCE, der.write_oid("2.16.840.1.101.3.4.2.1"), write(der.NULL))
    imprint = write(der.SEQUENCE, sha256, write(der.OCTETS, hashlib.sha256(data).digest()))
    moment = write(der.TIME, f"{at:%Y%m%d%H%M%SZ}".encode())
    one, three = der.write_integer(1), der.write_integer(3)
    info = write(der.SEQUENCE, one, der.write_oid("1.2.3.4.1"), imprint, der.write_integer(7), moment)
    kind = der.write_oid("1.2.840.113549.1.9.16.1.4")
    named = write(der.SEQUENCE, write(der.OCTETS, certificate.fingerprint(hashes.SHA256())))
    attributes = [
        _attribute("1.2.840.113549.1.9.3", kind),
        _attribute("1.2.840.113549.1.9.4", write(der.OCTETS, hashlib.sha256(info).digest())),
        _attribute("1.2.840.113549.1.9.16.2.47", write(der.SEQUENCE, write(der.SEQUENCE, named))),
    ]
    signature = key.sign(write(der.SET, *attributes), ec.ECDSA(hashes.SHA256()))
    issuer = write(der.SEQUENCE, certificate.issuer.public_bytes(), der.write_integer(certificate.serial_number))
    with_sha256 = write(der.SEQUENCE, der.write_oid("1.2.840.10045.4.3.2"))
    signer = write(
        der.SEQUENCE, one, issuer, sha256, write(0xA0, *attributes), with_sha256, write(der.OCTETS, signature)
    )
    content = write(der.SEQUENCE, kind, write(0xA0, write(der.OCTETS, info)))
    enclosed = write(0xA0, certificate.public_bytes(serialization.Encoding.DER))
    signed = write(der.SEQUENCE, three, write(der.SET, sha256), content, enclosed, write(der.SET, signer))
    token = write(der.SEQUENCE, der.write_oid("1.2.840.113549.1.7.2"), write(0xA0, signed))
    return write(der.SEQUENCE, write(der.SEQUENCE, der.write_integer(0)), token)


def _attribute(kind: str, value: bytes) -> bytes:
    return write(der.SEQUENCE, der.write_oid(kind), write(der.SET, value))
