"""Proofs of two paths: an entry is under a tenant's head, and that head is under the parent's. Checked without a store.

    {"v": 1, "tenant", "entry", "record", "salt", "proof"}      canonical JSON

    entry     the C2SP tlog-proof of the tenant's entry, under a head that the parent recorded
    record    the parent's row about that head, as its entry commits to it, with the `salt`
    proof     the C2SP tlog-proof of that entry, under the parent's newest head

Rules:
- Who trusts the parent's log key needs nothing else: the record names the tenant's head, and the keys it holds under.
- Every byte counts: a document that is not in canonical form, or has other fields, is refused.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar

from holdproof.crypto import canonical, checkpoint, merkle, tlog_proof, vkey
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import Call, Read, Tx, Work, ask, call
from holdproof.errors import FormatError, NotFoundError, ProofError
from holdproof.evidence import log, tenants, tree
from holdproof.evidence.tenants import TenantRow
from holdproof.model.tenants import CheckedTenantProof, TenantHead, TenantProof
from holdproof.store.context import Context
from holdproof.store.tenants.places import Parent, TenantPlace, open_to_read
from holdproof.upkeep import bundle

T = TypeVar("T")

VERSION: Final = 1
MOST_BYTES: Final = 1 << 20
_FIELDS: Final = ("entry", "proof", "record", "salt", "tenant")
_PROJECTION: Final = tenants.HEADS.name


class _Entry(NamedTuple):
    """An entry of a tenant, and the origin of its log."""

    place: int
    text: str
    origin: str


# --- proving -----------------------------------------------------------------------------------------------------


def prove(context: Context, tenant: str, leaf_id: str, version: int | None = None) -> Work[TenantProof]:
    """Return the proof that an entry of a tenant is under a head that this store recorded, and so under its own.

    `leaf_id` is the handle of the record, as in `log prove`. NotFoundError where no head was recorded since.
    """
    place, row = yield from _place(context, tenant)
    entry: _Entry = yield from ask(Call(partial(_entry, place, leaf_id, version)))
    covering = partial(tenants.covering, tenant_id=row.id, origin=entry.origin, index=entry.place)
    covering_heads: Sequence[TenantHead] = yield from ask(Read(covering))
    if not covering_heads:
        raise NotFoundError(
            f"no head of the tenant {tenant} was recorded since that entry: `holdproof tenants record-heads {tenant}`",
            leaf_id=leaf_id,
        )
    proven: tuple[TenantHead, TlogProof] = yield from ask(Call(partial(_proven, place, entry, covering_heads)))
    head, below = proven
    return (yield from ask(Read(partial(_document, tenant=tenant, leaf_id=leaf_id, head=head, below=below))))


def _place(context: Context, tenant: str) -> Work[tuple[TenantPlace, TenantRow]]:
    row: TenantRow = yield from ask(Read(partial(tenants.require, tenant=tenant)))
    return Parent(context.paths, context.settings).place_of(row), row


def _read(place: TenantPlace, fn: Callable[[Tx], T]) -> T:
    with closing(open_to_read(place.session_target)) as database:
        return database.read(fn).result()


def _entry(place: TenantPlace, leaf_id: str, version: int | None) -> _Entry:
    def read(tx: Tx) -> _Entry:
        return _Entry(*log.get_entry(tx, leaf_id, version), tree.state(tx).origin)

    return _read(place, read)


def _proven(place: TenantPlace, entry: _Entry, covering_heads: Sequence[TenantHead]) -> tuple[TenantHead, TlogProof]:
    """Prove the entry under the first of these heads that the log continues, and return both."""
    *earlier, newest = covering_heads
    for head in earlier:
        # One of a history that was given up; an entry of it that the log no longer has is proven by nothing else.
        with suppress(ProofError):
            return head, _below(place, entry, head)
    return newest, _below(place, entry, newest)


def _below(place: TenantPlace, entry: _Entry, head: TenantHead) -> TlogProof:
    """Prove the entry under the recorded head; ProofError where the tenant's log does not contain it any more."""
    signed = checkpoint.parse(head.head.encode())
    size = signed.checkpoint.size
    path = _read(place, lambda tx: tree.prove_inclusion(tx, entry.place, size))
    leaf = entry.text.encode()
    merkle.verify_inclusion(merkle.leaf_hash(leaf), entry.place, size, path, signed.checkpoint.root)
    return TlogProof(entry.place, path, signed, leaf)


def _document(tx: Tx, tenant: str, leaf_id: str, head: TenantHead, below: TlogProof) -> TenantProof:
    entry, files, _ = bundle.prove_row(tx, tenants.HEADS.table, head.id, "main")
    above = files[".tlog-proof"]
    fields: dict[str, canonical.Json] = {
        "v": VERSION,
        "tenant": tenant,
        "entry": tlog_proof.encode(below).decode(),
        "record": files[".json"].decode(),
        "salt": entry["salt"],
        "proof": above.decode(),
    }
    size = tlog_proof.parse(above).head.checkpoint.size
    text = canonical.dumps(fields).decode()
    return TenantProof(tenant, leaf_id, below.index, below.head.checkpoint.size, size, text)


# --- checking ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Document:
    tenant: str
    entry: str
    record: str
    salt: str
    proof: str


def check_proof(document: str, *, key: str) -> Work[CheckedTenantProof]:
    """Check what `tenants prove` wrote, without a store; `key` is the parent's, as `log verifier-keys` prints it.

    ProofError where it does not hold, FormatError for what is no such proof.
    """
    return (yield from call(partial(verify, document.strip(), vkey.parse(key))))


def verify(document: str, key: VerifierKey) -> CheckedTenantProof:
    """Check a proof of two paths under the parent's key, and return what it proves."""
    fields = _parse(document)
    above = tlog_proof.parse(fields.proof.encode())
    tlog_proof.verify(above, merkle.leaf_hash(above.extra), origin=key.name, log_keys=[key])
    head = _recorded(fields, above.extra)
    if head.name != fields.tenant:
        raise ProofError("the record is about another tenant than the document names")
    below = tlog_proof.parse(fields.entry.encode())
    if below.head.encode() != head.head.encode():
        raise ProofError("the entry is proven under another head than the one that was recorded")
    keys = [vkey.parse(line) for line in head.keys.split("\n")]
    tlog_proof.verify(below, merkle.leaf_hash(below.extra), origin=head.origin, log_keys=keys)
    if (head.origin, head.size) != (below.head.checkpoint.origin, below.head.checkpoint.size):
        raise ProofError("the record says another origin or size than its head")
    parent = above.head.checkpoint
    return CheckedTenantProof(
        head.name,
        _text(below.extra),
        below.index,
        head.origin,
        head.size,
        head.recorded_at,
        parent.origin,
        parent.size,
    )


def _parse(document: str) -> _Document:
    data = document.encode(errors="surrogatepass")
    if len(data) > MOST_BYTES:
        raise FormatError(f"a proof of two paths has at most {MOST_BYTES} bytes", length=len(data))
    value = canonical.loads(data)
    if not isinstance(value, dict) or sorted(value) != sorted((*_FIELDS, "v")) or value["v"] != VERSION:
        raise FormatError("not a proof of two paths: other fields, or another version")
    texts = {name: value[name] for name in _FIELDS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise FormatError("not a proof of two paths: a field is no text")
    if canonical.dumps(value) != data:
        raise FormatError("not a proof of two paths: not in canonical form")
    return _Document(**{name: str(text) for name, text in texts.items()})


def _recorded(fields: _Document, leaf: bytes) -> TenantHead:
    """Return the parent's record; ProofError unless its entry commits to it, and is of a tenant's head."""
    entry = _object(leaf)
    try:
        salt = bytes.fromhex(fields.salt)
    except ValueError as error:
        raise FormatError("the salt is not hex") from error
    if salt.hex() != fields.salt:
        raise FormatError("the salt is not written as Holdproof writes it")
    digest = sha256(salt + fields.record.encode()).hexdigest()
    if entry.get("p") != _PROJECTION or entry.get("h") != digest:
        raise ProofError("the parent's entry is not the one of this record")
    record = _object(fields.record.encode())
    try:
        return TenantHead(**record)
    except TypeError as error:
        raise FormatError("the record is none of a tenant's head") from error


def _object(data: bytes) -> dict[str, Any]:
    value = canonical.loads(data)
    if not isinstance(value, dict):
        raise FormatError("not a proof of two paths: a part is no object")
    return value


def _text(data: bytes) -> str:
    try:
        text = data.decode()
        json.loads(text)
    except ValueError as error:
        raise FormatError("the tenant's entry is no entry") from error
    return text
