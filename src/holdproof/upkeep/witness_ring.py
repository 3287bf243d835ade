"""The witnesses of this log: add, list and remove them, ask them, and judge a head by a tlog-policy.

Rules:
- Without a key nobody is trusted: `add` then shows the key that the address offers, to be compared with what the
  witness's operator says, and adds nothing.
- All are asked for the same head, so that one head carries the cosignatures of a quorum. One that does not answer
  keeps nobody from asking the others; the gravest error is raised once all were asked.
- A witness that contradicts the log leaves an entry (evidence/witness_disputes.py); where it was added with `locks` it
  locks the store, as tampering that `verify` finds does.
- A home does not witness itself: whoever can rewrite its log has that key too.
"""

import builtins
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from holdproof.crypto import checkpoint, tlog_policy
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.db import Call, Read, Tx, Work, Write, ask, sql
from holdproof.errors import HoldproofError, InvalidInputError, NotFoundError, ProofError
from holdproof.evidence import log, witness_client, witness_disputes, witnesses
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.witnesses import Peer
from holdproof.model.page import Page
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding, Report
from holdproof.model.witnesses import CosignedHead, PolicyFile, Witness, WitnessedHead
from holdproof.store.context import Context
from holdproof.upkeep import lockdown

_log = logging.getLogger("holdproof.evidence")
_TABLE: Final = "witness_disputes"


def add(
    context: Context, url: str, *, key: str | None = None, locks: bool = False, timeout_s: float = 10.0
) -> Work[Witness]:
    """Add a witness that is asked to cosign this log's heads, by its verifier `key`, or change its key.

    With `locks` its word that the log is forked or rolled back locks the store. Without `key` nothing is added:
    InvalidInputError tells which key the address offers.
    """
    address, opens = witness_client.address(url)
    if key is None:
        offered: str | None = yield from ask(Call(partial(witness_client.offered_key, address, opens, timeout_s)))
        raise _keyless(address, offered)
    parsed = witnesses.parse_key(key)
    own: VerifierKey | None = yield from ask(Call(partial(_own_key, context, parsed)))
    if own is not None:
        raise InvalidInputError("that is the key of this home's own witness: it would notice nothing", field="key")
    yield from ask(Write(partial(witnesses.add, url=address, key=parsed, locks=locks)))
    listed = yield from ask(Read(partial(_listed, all=False)))
    return next(each for each in listed if each.url == address)


def _keyless(url: str, offered: str | None) -> InvalidInputError:
    if offered is None:
        return InvalidInputError(
            "a witness is trusted by its verifier key: give the one that its operator tells you with --key",
            url=url,
            field="key",
        )
    return InvalidInputError(
        f"a witness is trusted by its verifier key. The address offers one; compare it with what the witness's operator"
        f" tells you, then add it with --key '{offered}'",
        url=url,
        field="key",
    )


def _own_key(context: Context, key: VerifierKey) -> VerifierKey | None:
    """Return the key if it is that of the witness that runs from this home."""
    with suppress(HoldproofError):
        if KeyFolder(context.paths.config / "witness").load("log").public == key.public:
            return key
    return None


def list(tx: Tx, *, all: bool = False) -> Page[Witness]:
    """List the witnesses, newest first, each with the newest head that it cosigned; with `all` removed ones too."""
    return Page(_listed(tx, all=all), None)


def _listed(tx: Tx, *, all: bool) -> builtins.list[Witness]:
    disputes = {each.url: f"{each.verdict}: it {each.what}" for each in witness_disputes.open_disputes(tx)}
    return witnesses.every(tx, all=all, disputes=disputes)


def remove(tx: Tx, url: str, *, reason: str) -> Witness:
    """Ask a witness no longer; what it said against the log counts as settled, with this reason, in an entry."""
    address, _ = witness_client.address(url)
    return witnesses.remove(tx, address, reason=reason)


# --- asking ------------------------------------------------------------------------------------------------------


def ask_all(
    context: Context, witness: str | None = None, *, timeout_s: float = 10.0
) -> Work[builtins.list[CosignedHead]]:
    """Have the newest head cosigned by every witness, or by the one at this address; return what they cosigned.

    Raises the gravest error once all were asked: ProofError where a witness contradicts the log, which is an entry too.
    """
    address, opens = (None, None) if witness is None else witness_client.address(witness)
    peers, head = yield from ask(Read(partial(_peers, url=address)))
    cosigned: builtins.list[CosignedHead] = []
    errors: builtins.list[HoldproofError] = []
    locking: builtins.list[Finding] = []
    for peer in peers:
        try:
            cosigned.append((yield from witness_client.cosign(peer, head, opens=opens, timeout_s=timeout_s)))
        except HoldproofError as error:
            errors.append(error)
            if isinstance(error, ProofError) and "disputes" in error.fields:
                yield from _dispute(peer, error)
                if peer.locks:
                    verdict = Verdict[str(error.fields["verdict"])]
                    locking.append(Finding(verdict, error.message, lockdown.REMEDIES[verdict], table=_TABLE))
    if locking:
        # Once all were asked: a locked store records no further dispute.
        yield from _lock(context, locking)
    if errors:
        raise max(errors, key=lambda each: each.exit_code)
    return cosigned


def _peers(tx: Tx, *, url: str | None) -> tuple[builtins.list[Peer], SignedCheckpoint]:
    """Return whom to ask, and for which head; NotFoundError where there is nobody."""
    peers = witnesses.active(tx) if url is None else [witnesses.get(tx, url)]
    if not peers:
        raise NotFoundError("no witness was added: `holdproof witness add URL --key KEY`")
    return peers, log.head(tx)


def _dispute(peer: Peer, error: ProofError) -> Work[None]:
    """Record what a witness said; its error reaches the caller even where that fails."""
    verdict = Verdict[str(error.fields["verdict"])]
    what = str(error.fields["disputes"])
    record = partial(witness_disputes.record, url=peer.url, verdict=verdict.word, what=what)
    try:
        yield from ask(Write(record))
    except HoldproofError as trouble:
        _log.error("the answer of the witness %s could not be recorded: %s", peer.url, trouble)


def _lock(context: Context, findings: builtins.list[Finding]) -> Work[None]:
    """Lock the store by the word of witnesses that may; their error reaches the caller even where that fails."""
    try:
        yield from lockdown.respond(context, Report(findings[0].verdict, "witness", findings))
    except HoldproofError as trouble:
        _log.error("the store could not be locked: %s", trouble)


# --- tlog-policy -------------------------------------------------------------------------------------------------


def policy(tx: Tx, *, quorum: int | None = None) -> PolicyFile:
    """Return a tlog-policy file for verifiers: this log, its witnesses, and how many have to cosign, by default all."""
    peers = witnesses.active(tx)
    needed = len(peers) if quorum is None else quorum
    if isinstance(needed, bool) or not 0 <= needed <= len(peers):
        raise InvalidInputError(f"a quorum is of 0 to {len(peers)}, as many as there are witnesses", field="quorum")
    named: dict[str, tuple[VerifierKey, str]] = {}
    for peer in peers:
        name = peer.key.name
        while name in named or name == tlog_policy.NONE:
            name += "-2"
        named[name] = (peer.key, peer.url)
    # Readers of such a file take a head that any of its log keys signed: the one that has always signed is named.
    log_keys = [key for key in log.verifiers(tx) if key.kind == ED25519]
    return PolicyFile(tlog_policy.encode(log_keys, named, needed))


_COSIGNED: Final = sql("SELECT head FROM log_cosignatures WHERE origin = :origin ORDER BY size DESC, url")


def check(tx: Tx, policy: str) -> WitnessedHead:
    """Check the log against a tlog-policy file; return its largest head that the quorum of the file has cosigned.

    ProofError where no head of this log was cosigned by enough of them, or one was that is no head of this log.
    """
    parsed = tlog_policy.parse(policy)
    newest = log.head(tx)
    keys = log.verifiers(tx)
    heads = _merged(row for (row,) in tx.all(_COSIGNED, origin=newest.checkpoint.origin))
    refusal = ProofError("no head of this log is cosigned: `holdproof witness ask`", quorum=parsed.quorum)
    # Without witnesses the newest head is enough.
    for head in (*heads, newest):
        try:
            names = tlog_policy.verify(parsed, head, keys)
        except ProofError as error:
            refusal = error
            continue
        verdict = log.continuity(tx, head)
        if not verdict.sound:
            size = head.checkpoint.size
            raise ProofError(f"{verdict}: a quorum cosigned another history at size {size}", verdict=verdict.word)
        origin, size = head.checkpoint.origin, head.checkpoint.size
        return WitnessedHead(origin, size, parsed.quorum, names, head.encode().decode())
    raise refusal


def _merged(texts: Iterable[str]) -> builtins.list[SignedCheckpoint]:
    """Return the heads, the largest first, each once with the cosignatures of all that cosigned it."""
    heads: dict[str, SignedCheckpoint] = {}
    for text in texts:
        head = checkpoint.parse(text.encode())
        same = heads.setdefault(head.note.text, head)
        heads[head.note.text] = replace(same, note=same.note.add(*head.note.signatures))
    return [*heads.values()]
