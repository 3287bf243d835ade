"""Time tokens of RFC 3161: an authority signs that some bytes, named by their hash, existed at a time.

    query = timestamp.request(head, nonce)          # sent to the authority, which answers with a response
    stamp = timestamp.verify(response, head, timestamp.certificates(pem), nonce=nonce)

Rules:
- A response is untrusted: bounded, DER only. A malformed one is a FormatError, a false one a ProofError.
- The token names the SHA-256 of exactly the bytes that were to be stamped, and the nonce where one was sent.
- It is signed over its attributes, which hold the hash of the token and the hash of the signer's certificate.
- The signer's certificate is for time stamping and nothing else, and is one of the trusted certificates or leads to one
  of them, each valid at the token's time: a token stays good when certificates expire, as long as they were not.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdproof.crypto import der
from holdproof.crypto.der import Element
from holdproof.errors import FormatError, InvalidInputError, ProofError

MOST_BYTES: Final = 64 << 10
QUERY_TYPE: Final = "application/timestamp-query"
_SIGNED_DATA: Final = "1.2.840.113549.1.7.2"
_TIME_INFO: Final = "1.2.840.113549.1.9.16.1.4"
_CONTENT_TYPE: Final = "1.2.840.113549.1.9.3"
_DIGEST: Final = "1.2.840.113549.1.9.4"
_SIGNER: Final = "1.2.840.113549.1.9.16.2.12"
_SIGNER_2: Final = "1.2.840.113549.1.9.16.2.47"
_SHA256: Final = "2.16.840.1.101.3.4.2.1"
_HASHES: Final[dict[str, hashes.HashAlgorithm]] = {
    _SHA256: hashes.SHA256(),
    "2.16.840.1.101.3.4.2.2": hashes.SHA384(),
    "2.16.840.1.101.3.4.2.3": hashes.SHA512(),
}
_MOST_CERTIFICATES: Final = 16
_MALFORMED: Final = (
    *(IndexError, ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)
"""What parts that are missing raise, and certificates and keys that are none."""


@dataclass(frozen=True, slots=True)
class TimeStamp:
    """What an authority signed: the time, under which number and policy, and who it is."""

    time: datetime
    serial: int
    policy: str
    authority: str
    fingerprint: str
    """SHA-256 of the trusted certificate that the signer is, or leads to."""


def request(data: bytes, nonce: int) -> bytes:
    """Return the query that asks an authority for a token on these bytes, with its certificate."""
    algorithm = der.write(der.SEQUENCE, der.write_oid(_SHA256), der.write(der.NULL))
    imprint = der.write(der.SEQUENCE, algorithm, der.write(der.OCTETS, hashlib.sha256(data).digest()))
    with_certificate = der.write(der.BOOLEAN, b"\xff")
    return der.write(der.SEQUENCE, der.write_integer(1), imprint, der.write_integer(nonce), with_certificate)


def certificates(pem: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM text; InvalidInputError if there are none."""
    try:
        listed = x509.load_pem_x509_certificates(pem.encode())
    except (ValueError, x509.InvalidVersion) as error:
        raise InvalidInputError(
            "not a certificate in PEM, as an authority publishes it", field="certificate"
        ) from error
    if len(listed) > _MOST_CERTIFICATES:
        raise InvalidInputError(f"at most {_MOST_CERTIFICATES} certificates", field="certificate")
    return listed


def fingerprints(pem: str) -> frozenset[str]:
    """Return the SHA-256 of each certificate of a PEM text, as people compare them."""
    return frozenset(each.fingerprint(hashes.SHA256()).hex() for each in certificates(pem))


def verify(response: bytes, data: bytes, trusted: Sequence[x509.Certificate], *, nonce: int | None = None) -> TimeStamp:
    """Check a response for these bytes; return what it says. ProofError or FormatError for any other."""
    if len(response) > MOST_BYTES:
        raise FormatError(f"a time token has at most {MOST_BYTES} bytes", length=len(response))
    try:
        return _verify(response, data, trusted, nonce)
    except _MALFORMED as error:
        raise FormatError(f"not a time token: {error}") from error


def _verify(response: bytes, data: bytes, trusted: Sequence[x509.Certificate], nonce: int | None) -> TimeStamp:
    signed = der.children(_signed_data(response))
    content_type, wrapped = der.children(signed[2])
    if der.oid(content_type) != _TIME_INFO:
        raise ProofError("the token is about something else than a time")
    [octets] = der.children(wrapped, 0xA0)
    token = der.expect(octets, der.OCTETS).body
    enclosed = _enclosed(signed[3]) if signed[3].tag == 0xA0 else []
    [signer] = der.children(signed[-1], der.SET)
    certificate = _check_signer(signer, token, [*enclosed, *trusted])
    info = der.children(der.read(token))
    _check_imprint(info, data, nonce)
    at = der.time(info[4])
    anchor = _check_chain(certificate, enclosed, trusted, at)
    name = certificate.subject.rfc4514_string()
    return TimeStamp(at, der.integer(info[3]), der.oid(info[1]), name, anchor.fingerprint(hashes.SHA256()).hex())


def _signed_data(response: bytes) -> Element:
    """Return the signed data in a response; ProofError where the authority refused."""
    status, *rest = der.children(der.read(response))
    granted = der.integer(der.children(status)[0])
    if granted not in (0, 1) or not rest:
        raise ProofError(f"the time authority refused: status {granted}", status=granted)
    kind, wrapped = der.children(rest[0])
    if der.oid(kind) != _SIGNED_DATA:
        raise FormatError("not a time token: no signed data")
    [inside] = der.children(wrapped, 0xA0)
    return inside


def _enclosed(element: Element) -> list[x509.Certificate]:
    """Return the certificates that came with the token."""
    parts = der.children(element, 0xA0)
    if len(parts) > _MOST_CERTIFICATES:
        raise FormatError(f"a time token has at most {_MOST_CERTIFICATES} certificates")
    return [x509.load_der_x509_certificate(part.raw) for part in parts]


def _check_imprint(info: list[Element], data: bytes, nonce: int | None) -> None:
    """Refuse a token on other bytes, or one for another request."""
    algorithm, imprint = der.children(info[2])
    if der.oid(der.children(algorithm)[0]) != _SHA256 or imprint.body != hashlib.sha256(data).digest():
        raise ProofError("the time token is about other bytes")
    if nonce is not None and nonce not in [der.integer(each) for each in info[5:] if each.tag == der.INTEGER]:
        raise ProofError("the time token answers another request")


# --- the signature -----------------------------------------------------------------------------------------------


def _check_signer(signer: Element, token: bytes, candidates: Sequence[x509.Certificate]) -> x509.Certificate:
    """Return the certificate of who signed the token; ProofError unless the signature holds."""
    fields = der.children(signer)
    digest = _HASHES.get(der.oid(der.children(fields[2])[0]))
    if digest is None:
        raise ProofError("the time token is hashed in a way that is not accepted: SHA-256, SHA-384 or SHA-512 are")
    attributes = _attributes(der.expect(fields[3], 0xA0))
    if der.oid(attributes[_CONTENT_TYPE]) != _TIME_INFO:
        raise ProofError("the signature is over something else than a time token")
    if der.expect(attributes[_DIGEST], der.OCTETS).body != _hash(digest, token):
        raise ProofError("the signature is over another time token")
    certificate = _named(attributes, candidates)
    # Signed as a SET, whatever tag it has inside the token.
    signed = bytes([der.SET]) + fields[3].raw[1:]
    signature = der.expect(fields[5], der.OCTETS).body
    try:
        _check_signature(certificate.public_key(), signature, signed, digest)
    except InvalidSignature as error:
        raise ProofError("the signature of the time token does not hold") from error
    return certificate


def _attributes(element: Element) -> dict[str, Element]:
    """Return the signed attributes, each with its only value."""
    attributes: dict[str, Element] = {}
    for each in der.children(element, 0xA0):
        kind, values = der.children(each)
        [value] = der.children(values, der.SET)
        if attributes.setdefault(der.oid(kind), value) is not value:
            raise FormatError("not a time token: a signed attribute twice")
    if not {_CONTENT_TYPE, _DIGEST} <= attributes.keys() or not {_SIGNER, _SIGNER_2} & attributes.keys():
        raise FormatError("not a time token: a signed attribute is missing")
    return attributes


def _named(attributes: dict[str, Element], candidates: Sequence[x509.Certificate]) -> x509.Certificate:
    """Return the certificate whose hash the signed attributes hold."""
    newer = attributes.get(_SIGNER_2)
    names = der.children(newer or attributes[_SIGNER])[0]
    fields = der.children(der.children(names)[0])
    # The first version has no choice of hash; the second names one, unless it is SHA-256. A hash of the certificate
    # only chooses among certificates, each of which has to lead to a trusted one.
    algorithm: hashes.HashAlgorithm | None = hashes.SHA256() if newer else hashes.SHA1()  # noqa: S303 (see above)
    if newer and fields[0].tag == der.SEQUENCE:
        algorithm = _HASHES.get(der.oid(der.children(fields.pop(0))[0]))
    for each in candidates:
        if algorithm is not None and each.fingerprint(algorithm) == der.expect(fields[0], der.OCTETS).body:
            return each
    raise ProofError("the certificate of the time token's signer is neither in it nor among the trusted ones")


def _check_signature(key: Any, signature: bytes, signed: bytes, digest: hashes.HashAlgorithm) -> None:
    match key:
        case rsa.RSAPublicKey():
            key.verify(signature, signed, padding.PKCS1v15(), digest)
        case ec.EllipticCurvePublicKey():
            key.verify(signature, signed, ec.ECDSA(digest))
        case ed25519.Ed25519PublicKey():
            key.verify(signature, signed)
        case _:
            raise ProofError("the time token is signed with a kind of key that is not accepted: RSA, EC, Ed25519 are")


def _hash(algorithm: hashes.HashAlgorithm, data: bytes) -> bytes:
    hasher = hashes.Hash(algorithm)
    hasher.update(data)
    return hasher.finalize()


# --- the certificates --------------------------------------------------------------------------------------------


def _check_chain(
    certificate: x509.Certificate,
    enclosed: Sequence[x509.Certificate],
    trusted: Sequence[x509.Certificate],
    at: datetime,
) -> x509.Certificate:
    """Return the trusted certificate that the signer's leads to, or is; ProofError if none."""
    _check_purpose(certificate)
    if certificate in trusted:
        if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
            raise ProofError("the certificate of the time authority was not valid at the token's time")
        return certificate
    any_purpose = verification.ExtensionPolicy.permit_all()
    builder = verification.PolicyBuilder().store(verification.Store([*trusted])).time(at)
    policy = builder.extension_policies(ca_policy=_ISSUERS, ee_policy=any_purpose)
    try:
        chain = policy.build_client_verifier().verify(certificate, [*enclosed]).chain
    except (verification.VerificationError, x509.InvalidVersion) as error:
        raise ProofError(f"the time authority's certificate leads to no trusted one: {error}") from error
    return chain[-1]


def _check_purpose(certificate: x509.Certificate) -> None:
    """Refuse a certificate that is not for time stamping alone (RFC 3161, 2.3)."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound as error:
        raise ProofError("the signer's certificate is not one for time stamping") from error
    if not usage.critical or [*usage.value] != [ExtendedKeyUsageOID.TIME_STAMPING]:
        raise ProofError("the signer's certificate is not one for time stamping alone")
    try:
        key = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not (key.digital_signature or key.content_commitment):
        raise ProofError("the key of the signer's certificate may sign nothing")


def _check_issuer(_: object, __: object, constraints: x509.BasicConstraints) -> None:
    if not constraints.ca:
        raise ValueError("a certificate that may issue no others")


def _check_key_usage(_: object, __: object, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("a key that may sign no certificates")


_ISSUERS: Final = (
    verification.ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, verification.Criticality.AGNOSTIC, _check_issuer)
    .may_be_present(x509.KeyUsage, verification.Criticality.AGNOSTIC, _check_key_usage)
)
