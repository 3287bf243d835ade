"""DBOMs as evidence: get one, export it, and verify what can be proven of it.

Rules:
- A verdict follows from the signature, the row and the log together; the first check that fails decides.
- VALID: a judge of the keyring signed exactly these fields, the row holds the same DBOM and the result it hashes, and
  the row's leaf stands in the log under a head of a log key.
- A legacy signature is never valid: UNSIGNED where it was imported (its `legacy_import` leaf says so), and a downgrade,
  TAMPERED, where it has no such leaf or belongs to an evaluation that was signed.
- A good signature without a row here is UNLOGGED; a key that does not count at the leaf's index is REVOKED_KEY.
- A foreign DBOM is parsed strictly: exactly seven fields, each of its type, or refused.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from holdproof.crypto import attest, canonical, dbom, dsse, merkle, sigstore, tlog_proof
from holdproof.crypto.attest import LegacySigma
from holdproof.crypto.dbom import SignedDbom
from holdproof.db import Call, Read, Tx, Work, ask, sql
from holdproof.errors import FormatError, InvalidInputError, NotFoundError, ProofError, UnavailableError
from holdproof.evidence import evaluations, keys, log
from holdproof.evidence.dbom_files import MAIN
from holdproof.evidence.evaluations import EVALUATIONS
from holdproof.model.evaluations import Bom, DbomChecked, Evaluation
from holdproof.model.keys import Key
from holdproof.model.verdicts import Verdict

_MOST_BYTES: Final = 4 << 20

DbomSource = bytes | str | Path | Mapping[str, Any] | Bom
"""A DBOM: what `dbom.get` returned, its text, its bytes, its fields, (a Path) its file, or the id of its evaluation."""


def get(tx: Tx, evaluation_id: str, *, id: int | None = None, ns: str = MAIN) -> Bom:
    """Return the newest DBOM of an evaluation, or the one of that row, as its exact text."""
    evaluation = evaluations.get(tx, evaluation_id, id=id, ns=ns)
    if evaluation.dbom is None:
        raise NotFoundError(
            f"evaluation {evaluation_id!r} was imported without a DBOM", evaluation_id=evaluation_id, id=evaluation.id
        )
    return Bom(evaluation.id, evaluation.evaluation_id, evaluation.dbom)


_FORMATS: Final = {"dsse": dsse.encode, "sigstore": sigstore.encode}


def envelope(
    tx: Tx, evaluation_id: str, *, id: int | None = None, ns: str = MAIN, format: Literal["dsse", "sigstore"] = "dsse"
) -> str:
    """Return a signed DBOM as a DSSE envelope (an in-toto attestation) or a Sigstore bundle; needs no private key."""
    if format not in _FORMATS:
        raise InvalidInputError(f"no format {format!r}; there are {', '.join(_FORMATS)}", format=format)
    signed = attest.to_envelope(dbom.parse(get(tx, evaluation_id, id=id, ns=ns).text.encode()))
    return _FORMATS[format](signed).decode()


def verify(document: DbomSource, *, ns: str = MAIN) -> Work[DbomChecked]:
    """Verify a DBOM against this store; returns one verdict and the reason, also for a text that is no DBOM.

    A text that does not begin as JSON is the id of an evaluation; NotFoundError where there is none.
    """
    if isinstance(document, str) and not document.lstrip().startswith("{"):
        document = yield from ask(Read(partial(get, evaluation_id=document, ns=ns)))
    data: bytes = yield from ask(Call(partial(read, document)))
    try:
        parsed = dbom.parse(data)
    except FormatError as error:
        return DbomChecked(Verdict.TAMPERED, f"no DBOM: {error.message}")
    return (yield from ask(Read(partial(check, parsed=parsed, ns=ns))))


def read(document: DbomSource) -> bytes:
    """Return the bytes of a DBOM given as text, bytes, fields or the path of its file."""
    if isinstance(document, Bom):
        return document.text.encode()
    if isinstance(document, Mapping):
        return canonical.dumps(dict(document))
    if isinstance(document, str):
        # Lone surrogates pass here and fail to parse as a DBOM, which is a verdict; encoding would be an error.
        return document.encode("utf-8", "surrogatepass")
    if isinstance(document, bytes):
        return document
    try:
        with document.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"{document}: no such file", path=str(document)) from error
    except OSError as error:
        raise UnavailableError(f"cannot read {document}: {error.strerror}", path=str(document)) from error
    if len(data) > _MOST_BYTES:
        raise InvalidInputError(f"{document} is larger than any DBOM", path=str(document))
    return data


# --- the verdict -------------------------------------------------------------------------------------------------

_ROWS = sql("SELECT id FROM battles WHERE ns = :ns AND battle_id = :battle_id AND dbom IS NOT NULL ORDER BY id DESC")


def check(tx: Tx, parsed: SignedDbom, *, ns: str = MAIN) -> DbomChecked:
    """Return the verdict on a parsed DBOM."""
    evaluation_id = parsed.fields.evaluation_id
    rows = [evaluations.get(tx, evaluation_id, id=id, ns=ns) for (id,) in tx.all(_ROWS, ns=ns, battle_id=evaluation_id)]
    row = next((each for each in rows if _parsed(each) == parsed), None)
    try:
        sigma = attest.parse_sigma(parsed.sigma_judge)
    except FormatError as error:
        return _say(Verdict.TAMPERED, error.message, parsed, row)
    if isinstance(sigma, LegacySigma):
        return _legacy(tx, parsed, row)
    key = keys.find(tx, sigma.keyid)
    if key is None or key.role != "judge":
        verdict = Verdict.TAMPERED if rows else Verdict.UNSIGNED
        return _say(verdict, "signed by a key that is no judge of this store", parsed, row, sigma.keyid)
    if wrong := _wrong(tx, parsed, key):
        return _say(Verdict.TAMPERED, wrong, parsed, row, sigma.keyid)
    if row is None:
        what = "other than the one recorded here" if rows else "not recorded here"
        return _say(Verdict.UNLOGGED, f"well signed, but {what}", parsed, None, sigma.keyid)
    return _recorded(tx, parsed, row, key, sigma.keyid)


def _wrong(tx: Tx, parsed: SignedDbom, key: Key) -> str:
    """Say why the signature proves nothing; empty if it holds."""
    if flaw := keys.flaws(tx).get(key.keyid):
        return f"signed by a key that does not belong here: {flaw}"
    try:
        attest.verify(parsed, keys.public(key))
    except FormatError as error:
        return error.message
    return ""


def _parsed(row: Evaluation) -> SignedDbom | None:
    try:
        return dbom.parse((row.dbom or "").encode())
    except FormatError:
        return None


def _recorded(tx: Tx, parsed: SignedDbom, row: Evaluation, key: Key, keyid: str) -> DbomChecked:
    """Return the verdict on a correctly signed DBOM that a row holds: row, then log, then the key's validity."""
    if wrong := differs(row, parsed):
        return _say(Verdict.TAMPERED, wrong, parsed, row, keyid)
    verdict, why, index = logged(tx, row, "dbom")
    # Position decides: what the key signed before its revocation stays valid.
    if verdict.sound and not key.trusted_at(index):
        verdict = Verdict.REVOKED_KEY
        why = f"the judge's key does not count from leaf {key.revoked_from} on"
    return _say(verdict, why, parsed, row, keyid, index)


def _legacy(tx: Tx, parsed: SignedDbom, row: Evaluation | None) -> DbomChecked:
    if row is None or row.legacy is None:
        return _say(
            Verdict.TAMPERED, "a simulated signature where no imported record has one: a downgrade", parsed, row
        )
    if wrong := differs(row, parsed):
        return _say(Verdict.TAMPERED, wrong, parsed, row)
    verdict, why, index = logged(tx, row, "legacy_import")
    if verdict.sound:
        verdict = Verdict.UNSIGNED
        why = "imported with a simulated signature, which proves nothing"
    return _say(verdict, why, parsed, row, index=index)


def differs(row: Evaluation, parsed: SignedDbom) -> str:
    """Say how a row contradicts its DBOM; empty if it does not."""
    # The stored text is hashed as it is: serialised again it could differ in a byte.
    if canonical.sha256_hex((row.raw_result or "").encode()) != parsed.fields.h_delta:
        return "the stored result is not the one the DBOM hashes"
    if row.dbom_hash != parsed.fields.h_delta:
        return "the row names another hash than its DBOM"
    if row.score != parsed.fields.score_cis:
        return "the row has another score than its DBOM"
    return ""


_SALT = sql("SELECT leaf_salt FROM battles WHERE id = :id")


def logged(tx: Tx, row: Evaluation, kind: str) -> tuple[Verdict, str, int | None]:
    """Check that a row's leaf of that kind is in the log under a head of a log key; verdict, reason and index."""
    try:
        proof = log.prove(tx, row.leaf_id, row.leaf_ver)
    except NotFoundError as error:
        if not error.fields.get("pending"):
            return Verdict.TAMPERED, "the row names a leaf that the log does not have", None
        return Verdict.PENDING, "recorded, and not under a signed head yet", None
    leaf: Any = canonical.loads(proof.extra)
    salt = tx.one(_SALT, id=row.id)
    assert salt is not None, "the row was just read"
    content = evaluations.columns_of(row)
    if leaf["t"] != kind or leaf["h"] != EVALUATIONS.projection.commit(bytes(salt[0] or b""), content):
        return Verdict.TAMPERED, "the row is not the one its leaf commits to", proof.index
    head = proof.head.checkpoint
    able = log.verifiers(tx, size=head.size, origin=head.origin)
    try:
        tlog_proof.verify(proof, merkle.leaf_hash(proof.extra), origin=head.origin, log_keys=able)
    except ProofError as error:
        return Verdict.TAMPERED, f"the log does not hold: {error.message}", proof.index
    return Verdict.VALID, "signed by a judge, recorded, and in the log", proof.index


def _say(  # noqa: PLR0917
    verdict: Verdict, why: str, parsed: SignedDbom, row: Evaluation | None, signer: str = "", index: int | None = None
) -> DbomChecked:
    fields = parsed.fields
    return DbomChecked(verdict, why, fields.evaluation_id, fields.h_delta, signer, row.id if row else None, index)
