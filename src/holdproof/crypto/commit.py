"""Signed commits of the AT Protocol repository format, version 3: author, tree, revision, previous commit.

- A commit is the DAG-CBOR map `{did, version: 3, data, rev, prev, sig}`, exactly these fields; `prev` may be null.
- `data` and `prev` are dag-cbor CIDs, `rev` is a TID, `did` a DID.
- `sig` is a raw P-256 signature (r || s, 64 bytes, low s) over the DAG-CBOR of the other five; a high s, DER
  and every other kind of key are refused.
"""

import re
from dataclasses import dataclass, replace
from typing import TypeGuard

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor, signatures, tid
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import Value
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.errors import BadKeyError, FormatError, InvalidInputError, ProofError

VERSION = 3

_ALG = "ecdsa-p256-sha256"
_DID = re.compile(r"did:[a-z]+:[A-Za-z0-9._:%-]{0,2000}[A-Za-z0-9._-]")
_FIELDS = frozenset({"did", "version", "data", "rev", "prev", "sig"})


@dataclass(frozen=True, slots=True)
class Commit:
    """One state of a repository; unsigned while `sig` is empty."""

    did: str
    data: CID
    rev: str
    prev: CID | None = None
    sig: bytes = b""


def signed_bytes(commit: Commit) -> bytes:
    """Return the bytes that are signed: the commit without its signature; InvalidInputError for invalid fields."""
    if not _DID.fullmatch(commit.did):
        raise InvalidInputError("a commit names a DID", did=commit.did[:100])
    if not _is_block(commit.data) or not (commit.prev is None or _is_block(commit.prev)):
        raise InvalidInputError("a commit cites dag-cbor blocks", data=str(commit.data))
    try:
        tid.parse(commit.rev)
    except FormatError as error:
        raise InvalidInputError("the rev of a commit is a TID", rev=commit.rev[:100]) from error
    return dagcbor.encode(_fields(commit))


def sign(commit: Commit, signer: Signer) -> Commit:
    """Return the commit with its signature; BadKeyError unless the key is P-256."""
    if signer.alg != _ALG:
        raise BadKeyError("commits are signed with P-256", alg=signer.alg, keyid=signer.keyid)
    # A high s is valid ECDSA too, but would give the same commit a second CID.
    raw = signatures.to_raw(signer.sign(signed_bytes(commit)))
    return replace(commit, sig=signatures.lower_s(raw))


def verify(commit: Commit, key: PublicKey) -> None:
    """Return if the key's signature on the commit is valid, else raise ProofError."""
    if key.alg != _ALG:
        raise ProofError("commits are signed with P-256", alg=key.alg, keyid=key.keyid)
    try:
        is_low_s = signatures.is_low_s(commit.sig)
        message = signed_bytes(commit)
    except (FormatError, InvalidInputError) as error:
        raise ProofError(f"no signature of a commit: {error}", **error.fields) from error
    if not is_low_s:
        raise ProofError("the signature is the high twin of a valid one", keyid=key.keyid)
    key.verify(message, signatures.from_raw(commit.sig))


def encode(commit: Commit) -> bytes:
    """Encode a signed commit as a block; InvalidInputError for invalid fields or without a signature."""
    signed_bytes(commit)  # for its checks
    if len(commit.sig) != 64:
        raise InvalidInputError("the commit is not signed", length=len(commit.sig))
    return dagcbor.encode({**_fields(commit), "sig": commit.sig})


def parse(data: bytes) -> Commit:
    """Parse a commit from untrusted bytes; does not verify its signature."""
    value = dagcbor.decode(data)
    if not isinstance(value, dict) or value.keys() != _FIELDS:
        raise FormatError("commit: not exactly the six fields of version 3")
    did, root, rev, prev, sig = (value[name] for name in ("did", "data", "rev", "prev", "sig"))
    # type() and not isinstance(): DAG-CBOR keeps 3 and 3.0 apart, Python's equality does not.
    if value["version"] != VERSION or type(value["version"]) is not int:
        raise FormatError("commit: not of version 3", version=value["version"])
    if not isinstance(did, str) or not _DID.fullmatch(did) or not isinstance(rev, str):
        raise FormatError("commit: no DID, or a rev that is not a text")
    if not _is_block(root) or not (prev is None or _is_block(prev)):
        raise FormatError("commit: data or prev is not a link to dag-cbor")
    if not isinstance(sig, bytes) or len(sig) != 64:
        raise FormatError("commit: no raw signature of 64 bytes")
    tid.parse(rev)
    return Commit(did, root, rev, prev, sig)


def _fields(commit: Commit) -> dict[str, Value]:
    return {
        "did": commit.did,
        "version": VERSION,
        "data": commit.data,
        "rev": commit.rev,
        "prev": commit.prev,
    }


def _is_block(value: object) -> TypeGuard[CID]:
    return isinstance(value, CID) and value.raw.startswith(cids.CBOR_PREFIX)
