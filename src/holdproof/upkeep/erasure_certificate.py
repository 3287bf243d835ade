"""The certificate of an erasure: what went, what was derived, what is left and why, and which restores erase again.

The document is a DSSE envelope with one more member, `log`, which readers of DSSE ignore:
  payload   an in-toto statement: subject `erasure <id>`, SHA-256 of the predicate
            predicateType  urn:holdproof:erasure:v1
            predicate      what the row of the erasure says in its column `certificate`
  log       the row, its salt, its entry, the proof that a signed head covers it, and the trust file

Rules:
- What it says is made in the transaction that erases, and stands in the row under the log: it cannot be written later.
- It has handles, ids of objects, numbers of rows and counts; no content, no name, and no key of the person.
- The judge key signs it, as it signs decisions. It is checked without the store (verification/certificate_check.py).
"""

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from holdproof.crypto import canonical, dsse, statement
from holdproof.crypto.keys import Signer
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor, Statement
from holdproof.db import Call, Read, Tx, Wait, Work, ask, sql
from holdproof.db.sql import sql_postgres
from holdproof.errors import NotFoundError
from holdproof.evidence import key_use, tree, trust
from holdproof.model.erasure import Erasure, ErasureCertificate
from holdproof.model.times import later
from holdproof.store.context import Context
from holdproof.upkeep import bundle
from holdproof.upkeep.derived_removal import NOTHING, FollowedUse

PREDICATE_TYPE: Final = "urn:holdproof:erasure:v1"
_TOPIC: Final = "head"
_WAITS_S: Final = 10.0
_IS_PENDING = sql_postgres("SELECT 1 FROM log_pending p JOIN erasures e ON e.leaf_id = p.id WHERE e.id = :id LIMIT 1")
_CERTIFIED = sql("SELECT certificate FROM erasures WHERE id = :id")


def facts(
    tx: Tx,
    erasure: Erasure,
    *,
    ns: str,
    mode: str = "list",
    outcome: FollowedUse = NOTHING,
    sealed: Mapping[str, int] = MappingProxyType({}),
    services: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Return what the certificate of an erasure says, as canonical JSON, in the transaction that erases."""
    state = tree.state(tx)
    removals = [each for each in outcome.items if each.reason is None]
    remainder = [each for each in outcome.items if each.reason is not None]
    return canonical.dump_text(
        {
            "v": 1,
            "erasure": erasure.id,
            "subject": erasure.target,
            "ns": ns,
            "origin": state.origin,
            "erased_at": erasure.erased_at,
            "who": erasure.who,
            "erased": {
                "records": erasure.count,
                "entries": list(erasure.leaf_ids),
                "unreadable": dict(sealed),
                "services": dict(services),
            },
            "derived": {
                "mode": mode,
                "erased": [{"kind": each.kind, "id": each.id, "ns": each.ns} for each in removals],
                "counts": dict(sorted(Counter(each.kind for each in removals).items())),
                "entries": sorted(outcome.leaf_ids),
            },
            "left": [{"kind": each.kind, "id": each.id, "ns": each.ns, "why": each.reason} for each in remainder],
            # A backup with fewer entries has not heard of the erasure: whoever restores it erases again.
            "restores": {"erase_again_below": state.size, "before": erasure.erased_at},
        }
    )


def certificate(context: Context, id: str) -> Work[ErasureCertificate]:
    """Return the signed certificate of a subject's erasure, to be verified without the store (`holdproof verify FILE`).

    NotFoundError where there is no such erasure, or it has none; and while its entry is not under a signed head yet.
    """
    signer: Signer = yield from key_use.use(context, "judge")
    until = yield from ask(Read(lambda tx: later(tx.now, _WAITS_S)))
    # On a server the head that covers the entry of an erasure comes a moment after it.
    while (yield from ask(Read(partial(_is_pending, id=id, until=until)))):
        yield Wait(_TOPIC, until)
    text, log = yield from ask(Read(partial(_proven, id=id)))
    # After the row: the trust file must not be older than the head.
    signed = yield from trust.trust(context)
    payload = encode(id, text)
    envelope: dsse.Envelope = yield from ask(Call(partial(dsse.sign, PAYLOAD_TYPE, payload, signer)))
    document = {**json.loads(dsse.encode(envelope)), "log": {**log, "trust": signed.text}}
    return ErasureCertificate(id, json.dumps(document, indent=1, sort_keys=True) + "\n")


def encode(id: str, text: str) -> bytes:
    """Return the statement that is signed, given what the row of the erasure says."""
    predicate: dict[str, Any] = json.loads(text)
    subject = ResourceDescriptor({"sha256": canonical.sha256_hex(text.encode())}, f"erasure {id}")
    return statement.encode(Statement((subject,), PREDICATE_TYPE, predicate))


def _is_pending(tx: Tx, *, id: str, until: str) -> bool:
    return tx.dialect == "postgres" and tx.now < until and tx.one(_IS_PENDING, id=id) is not None


def _proven(tx: Tx, *, id: str) -> tuple[str, dict[str, str]]:
    """Return what the certificate says, and the parts that prove it."""
    row = tx.one(_CERTIFIED, id=id)
    (text,) = (None,) if row is None else row
    if text is None:
        raise NotFoundError(f"no erasure {id} of a subject has a certificate: `holdproof erase list` shows them", id=id)
    entry, files, _ = bundle.prove_row(tx, "erasures", id, "main")
    return str(text), {
        "row": files[".json"].decode(),
        "salt": str(entry["salt"]),
        "entry": files[".leaf.json"].decode(),
        "proof": files[".tlog-proof"].decode(),
    }
