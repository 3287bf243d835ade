"""Ask witnesses to cosign the log's newest head (C2SP tlog-witness), and tell how well a rewrite would be noticed.

Rules:
- A witness's answer is verified under the key that was given for it before it is stored.
- It gets a consistency proof from the head it cosigned last; where it reports another size (409), from that one.
- A witness that has cosigned more of this log than there is, or another history, proves a rollback or a fork:
  ProofError, never a retry, and an entry in the log (witness_disputes.py).
- No network call inside a transaction; answers are bounded in time and size, redirects refused.
"""

from functools import partial
from urllib.parse import urlsplit

from holdproof.content.credentials import Credentials, split_credentials
from holdproof.crypto import checkpoint, vkey
from holdproof.crypto import witness as protocol
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.vkey import COSIGNING, VerifierKey
from holdproof.crypto.witness import SIZE_TYPE, AddCheckpoint
from holdproof.db import Call, Read, Tx, Work, Write, ask, sql
from holdproof.errors import (
    CorruptError,
    FormatError,
    HoldproofError,
    InvalidInputError,
    NotFoundError,
    ProofError,
    UnreachableError,
)
from holdproof.evidence import bounded_http, log, tree, witness_disputes
from holdproof.evidence.bounded_http import Reply
from holdproof.evidence.witnesses import Peer
from holdproof.model.log import Level
from holdproof.model.verdicts import Verdict
from holdproof.model.witnesses import CosignedHead
from holdproof.store.context import Context

_TRIES = 3


def cosign(peer: Peer, head: SignedCheckpoint, *, opens: Credentials | None, timeout_s: float) -> Work[CosignedHead]:
    """Have a head cosigned; repeated while the witness names another size to prove from.

    A witness that has seen a later head of this log gets the newest one. ProofError where it contradicts the log, with
    `disputes` in its fields; UnreachableError where it does not answer.
    """
    size: int | None = None
    for _ in range(_TRIES):
        request = yield from ask(Read(partial(_request, url=peer.url, head=head, size=size)))
        answer: Reply = yield from ask(Call(partial(_post, peer.url, request, timeout_s, opens)))
        if answer.status == 200:
            cosigned = protocol.accept(request.head, answer.body, [peer.key])
            return (yield from ask(Write(partial(_record_cosignature, url=peer.url, key=peer.key, head=cosigned))))
        size = _other_size(peer.url, request, answer)
    raise UnreachableError(f"the witness {peer.url} keeps changing its mind about the size of the log", url=peer.url)


def address(url: str) -> tuple[str, Credentials | None]:
    """Return a witness's address without credentials, which are neither stored nor shown, and the credentials."""
    bare, opens = split_credentials(url.strip())
    try:
        parts = urlsplit(bare)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # brackets that are not closed, a port that is none
        is_address = False
    if not is_address or parts.query or parts.fragment or not bare.isprintable() or " " in bare:
        raise InvalidInputError("a witness has an address like https://witness.example/log", url=bare)
    return bare.rstrip("/"), opens


def offered_key(url: str, opens: Credentials | None, timeout_s: float) -> str | None:
    """Return the key that a witness shows at its address, to be compared with what its operator says; None without."""
    try:
        answer = bounded_http.send("GET", f"{url}/key", f"the witness {url}", timeout_s=timeout_s, opens=opens)
        key = vkey.parse(answer.body.decode().strip())
    except (HoldproofError, UnicodeDecodeError):
        return None
    return key.encode() if answer.status == 200 and key.kind in COSIGNING else None


_LAST = sql("SELECT size FROM log_cosignatures WHERE url = :url AND origin = :origin")


def _request(tx: Tx, url: str, head: SignedCheckpoint, size: int | None) -> AddCheckpoint:
    """Return the request for a head, with the consistency proof from the size that the witness has."""
    newest = head.checkpoint
    if size is None:
        row = tx.one(_LAST, url=url, origin=newest.origin)
        (size,) = row or (0,)
    if size > newest.size:
        head = log.head(tx)
        newest = head.checkpoint
    if size > newest.size:
        raise _rewritten(url, Verdict.ROLLED_BACK, f"has cosigned {size} leaves, the log has {newest.size}")
    # From size 0, or to the same size, there is nothing to prove.
    proof = tree.prove_consistency(tx, size, newest.size) if 0 < size < newest.size else ()
    return AddCheckpoint(size, proof, head)


def _post(url: str, request: AddCheckpoint, timeout_s: float, opens: Credentials | None) -> Reply:
    return bounded_http.send(
        "POST",
        f"{url}/add-checkpoint",
        f"the witness {url}",
        timeout_s=timeout_s,
        opens=opens,
        body=protocol.encode_request(request),
    )


def _other_size(url: str, request: AddCheckpoint, answer: Reply) -> int:
    """Return the size to prove from at the next attempt; raises where the answer is final."""
    status, kind, body = answer
    # They are shown on terminals and stored: no control characters, which PostgreSQL does not take either.
    words = "".join(each if each.isprintable() else " " for each in body[:200].decode(errors="replace")).strip()
    head = request.head.checkpoint
    # 409 with this content type carries the witness's size; another 409 is a refusal.
    if status == 409 and kind.partition(";")[0].strip() == SIZE_TYPE:
        return protocol.parse_size(body)
    if status in (409, 422):
        raise _rewritten(url, Verdict.FORKED, f"has seen another history of this log ({words})")
    if status == 404:
        raise NotFoundError(f"the witness {url} does not know {head.origin}: have it added there", url=url)
    if status == 403:
        raise ProofError(f"the witness {url} does not trust the key of this log ({words})", url=url)
    raise UnreachableError(f"the witness {url} answered {status} ({words})", url=url, status=status)


def _rewritten(url: str, verdict: Verdict, what: str) -> ProofError:
    return ProofError(f"{verdict}: the witness {url} {what}", url=url, verdict=verdict.word, disputes=what)


_KEEP = sql(
    "INSERT INTO log_cosignatures (url, origin, size, head, cosigned_at) VALUES (:url, :origin, :size, :head, :now)"
    " ON CONFLICT (url) DO UPDATE SET origin = excluded.origin, size = excluded.size, head = excluded.head,"
    " cosigned_at = excluded.cosigned_at"
    " WHERE log_cosignatures.origin <> excluded.origin OR log_cosignatures.size <= excluded.size"
)


def _record_cosignature(tx: Tx, url: str, key: VerifierKey, head: SignedCheckpoint) -> CosignedHead:
    cosigned = head.checkpoint
    text = head.encode().decode()
    tx.execute(_KEEP, url=url, origin=cosigned.origin, size=cosigned.size, head=text, now=tx.now)
    return CosignedHead(url, key.name, cosigned.origin, cosigned.size, text)


def level(context: Context) -> Work[Level]:
    """Return who could notice if the log were rewritten: LOCAL (nobody) < KEPT (head file) < WITNESSED n/m."""
    head_file = context.head_file
    largest: dict[str, SignedCheckpoint] = yield from ask(Call(head_file.largest if head_file else dict))
    return (yield from ask(Read(partial(level_of, largest=largest))))


_COSIGNED = sql(
    "SELECT w.vkey, c.size, c.head FROM log_witnesses w LEFT JOIN log_cosignatures c ON c.url = w.url"
    " WHERE w.removed_at IS NULL ORDER BY w.url"
)


def level_of(tx: Tx, largest: dict[str, SignedCheckpoint]) -> Level:
    """Return the level, given the largest kept heads; a witness counts if the head it cosigned is one of this tree."""
    if not tree.exists(tx):
        return Level("LOCAL", 0)
    state = tree.state(tx)
    rows = tx.all(_COSIGNED)
    sizes = [size for key, size, head in rows if head is not None and _is_head_of_tree(tx, key, head)]
    mark = largest.get(state.origin)
    kept_size = mark.checkpoint.size if mark is not None else 0
    name = "WITNESSED" if sizes else "KEPT" if kept_size else "LOCAL"
    disputed = len({each.url for each in witness_disputes.open_disputes(tx)})
    return Level(name, state.size, kept_size, len(sizes), len(rows), max(sizes, default=0), disputed)


def _is_head_of_tree(tx: Tx, key: str, head: str) -> bool:
    try:
        signed = checkpoint.parse(head.encode())
        by = vkey.parse(key)
        cosigned = signed.checkpoint
        keys = log.verifiers(tx, size=cosigned.size, origin=cosigned.origin)
        checkpoint.verify(signed, origin=tree.state(tx).origin, log_keys=keys, witnesses=[by], quorum=1)
        return tree.root_at(tx, cosigned.size) == cosigned.root
    except (CorruptError, FormatError, InvalidInputError, NotFoundError):
        return False
