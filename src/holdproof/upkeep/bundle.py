"""Bundles: one zip with which an outsider checks a record, offline, without Holdproof if need be.

    report.html                 what was decided, by whom, on what; checks itself in a browser, offline
    VERIFY.md                   how to check it with openssl and a page of Python
    bundle.json                 kind, subject, and for each record its projection, leaf and salt
    records/0001.json           the record: the canonical bytes that its leaf commits to
    records/0001.leaf.json      its leaf, exactly as it stands in the log
    records/0001.tlog-proof     C2SP tlog-proof: that the leaf stands under the head
    time/, anchor/              where a head over all of it was stamped, or anchored in another log (bundle_heads.py)
    values/CID                  of a flow: a large part of what it recorded, named by its hash, which the record holds
    head.note                   the signed head that all proofs lead to
    trust.json                  which keys count, for what, up to where
    dbom.json, dbom.dsse.json   of an evaluation: its DBOM, and the same signature as a DSSE envelope

Rules:
- Records, proofs and head are read in one snapshot, so they belong together.
- A record that does not match its leaf, or is not under a signed head yet, is not exported.
- A record that is too large to be checked (offline.py) is not exported either.
- Members are in a fixed order with fixed zip fields; only trust.json carries a time.
"""

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdproof.content import blocks
from holdproof.crypto import attest, canonical, dbom, dsse, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.db import Read, Row, Tx, Work, ask, sql
from holdproof.errors import InvalidInputError, NotFoundError, ProofError
from holdproof.evidence import anchors, evaluations, log, logged_tables, timestamps, tree, trust
from holdproof.evidence.logged_tables import COLUMNS, LoggedTable
from holdproof.memory.threads import thread_entries
from holdproof.model.namespaces import MAIN
from holdproof.model.verdicts import Verdict
from holdproof.store.context import Context
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification import bundle_heads, bundle_values, offline, report_page
from holdproof.upkeep.verification.row_check import judge

VERSION: Final = 1
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Material:
    """The content of a bundle: logged rows by table and key in one namespace, and further files."""

    kind: str
    records: list[tuple[str, str | int]]
    files: Mapping[str, bytes] = field(default_factory=dict)
    ns: str = MAIN


def _evaluation(tx: Tx, evaluation_id: str, ns: str) -> Material:
    """Gather the newest row of an evaluation; an imported one has no signature of this store."""
    # A DBOM does not name its namespace: that of another could pass for one of main with the same id.
    if ns != MAIN:
        raise InvalidInputError(f"bundles of evaluations are made in the namespace {MAIN} only", field="ns", ns=ns)
    evaluation = evaluations.get(tx, evaluation_id)
    records: list[tuple[str, str | int]] = [("battles", evaluation.id)]
    # Imported rows carry no signature of a judge of this store.
    if evaluation.legacy is not None or evaluation.dbom is None:
        return Material("imported", records)
    envelope = dsse.encode(attest.to_envelope(dbom.parse(evaluation.dbom.encode())))
    return Material("evaluation", records, {"dbom.json": evaluation.dbom.encode(), "dbom.dsse.json": envelope})


_OF_FLOW: Final = {
    "flow_calls": sql("SELECT dfid FROM flow_calls WHERE dfid = :dfid AND ns = :ns LIMIT :limit"),
    "flow_transitions": sql("SELECT id FROM flow_transitions WHERE dfid = :dfid AND ns = :ns ORDER BY id LIMIT :limit"),
    "flow_steps": sql("SELECT step_id FROM flow_steps WHERE dfid = :dfid AND ns = :ns ORDER BY step_id LIMIT :limit"),
    "escalation_requests": sql(
        "SELECT id FROM escalation_requests WHERE dfid = :dfid AND ns = :ns ORDER BY id LIMIT :limit"
    ),
    "escalation_answers": sql(
        "SELECT id FROM escalation_answers WHERE dfid = :dfid AND ns = :ns ORDER BY id LIMIT :limit"
    ),
    "escalation_messages": sql(
        "SELECT id FROM escalation_messages WHERE dfid = :dfid AND ns = :ns ORDER BY id LIMIT :limit"
    ),
    "flow_messages": sql(
        "SELECT message_id FROM flow_messages WHERE dfid = :dfid AND ns = :ns ORDER BY n LIMIT :limit"
    ),
    "flow_promises": sql(
        "SELECT promise_id FROM flow_promises WHERE dfid = :dfid AND ns = :ns ORDER BY promise_id LIMIT :limit"
    ),
    "flow_values": sql("SELECT value_id FROM flow_values WHERE dfid = :dfid AND ns = :ns ORDER BY key LIMIT :limit"),
    "flow_stream_items": sql(
        "SELECT item_id FROM flow_stream_items WHERE dfid = :dfid AND ns = :ns ORDER BY item_id LIMIT :limit"
    ),
    "policy_decisions": sql("SELECT id FROM policy_decisions WHERE dfid = :dfid AND ns = :ns ORDER BY id LIMIT :limit"),
    "flow_context": sql("SELECT dfid FROM flow_context WHERE dfid = :dfid AND ns = :ns LIMIT :limit"),
    "decision_ledger_entries": sql(
        "SELECT id FROM decision_ledger_entries WHERE dfid = :dfid AND ns = :ns LIMIT :limit"
    ),
    "decision_audit_events": sql(
        "SELECT id FROM decision_audit_events WHERE dfid = :dfid AND ns = :ns ORDER BY id LIMIT :limit"
    ),
}


def _flow(tx: Tx, flow_id: str, ns: str) -> Material:
    """Gather a flow with everything recorded of it; its child flows have bundles of their own."""
    records: list[tuple[str, str | int]] = [("decision_flows", flow_id)]
    for table, query in _OF_FLOW.items():
        # One more than a bundle may hold, so that too many are noticed without reading all of them.
        rows = tx.all(query, dfid=flow_id, ns=ns, limit=offline.MOST_RECORDS + 1)
        records += [(table, key) for (key,) in rows]
    if len(records) > offline.MOST_RECORDS:
        raise InvalidInputError(f"a bundle has at most {offline.MOST_RECORDS} records", flow_id=flow_id)
    return Material("flow", records, ns=ns)


def _checkpoint(tx: Tx, subject: str, ns: str) -> Material:
    """Gather the entry of a checkpoint, named `thread/checkpoint`."""
    thread_id, _, checkpoint_id = subject.rpartition("/")
    entry = thread_entries.find(tx, thread_id, checkpoint_id, ns=ns)
    if entry is None:
        raise NotFoundError(
            f"no entry of a checkpoint {subject}: name THREAD/CHECKPOINT of one that was put to be provable",
            subject=subject,
        )
    return Material("checkpoint", [(thread_entries.TABLE, entry)], ns=ns)


Gather = Callable[[Tx, str, str], Material]
KINDS: Final[dict[str, Gather]] = {"checkpoint": _checkpoint, "evaluation": _evaluation, "flow": _flow}
"""How each kind of subject is gathered."""


def export(context: Context, subject: str, *, kind: str = "evaluation", ns: str = MAIN) -> Work[bytes]:
    """Return the bundle of an evaluation or of another kind of subject, as the bytes of a zip file.

    NotFoundError while a record is not under a signed head yet, ProofError for one that does not match its leaf.
    """
    gather = KINDS.get(kind)
    if gather is None:
        raise InvalidInputError(f"no bundle is made of a {kind}; kinds are {', '.join(sorted(KINDS))}", kind=kind)
    members: dict[str, bytes] = yield from ask(Read(lambda tx: _collect(tx, gather(tx, subject, ns), subject)))
    # After the records: trust.json must not be older than the head.
    signed = yield from trust.trust(context)
    members["trust.json"] = signed.text.encode()
    members[report_page.NAME] = report_page.make(members)
    packed = pack(members)
    offline.refuse_large(members, packed)
    return packed


def _collect(tx: Tx, material: Material, subject: str) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    listed: list[canonical.Json] = []
    named: set[str] = set()
    last_index = 0
    for number, (table, key) in enumerate(material.records, 1):
        name = f"records/{number:04}"
        entry, files, index = prove_row(tx, table, key, material.ns)
        listed.append({"name": name, **entry})
        last_index = max(last_index, index)
        members |= {f"{name}{suffix}": data for suffix, data in files.items()}
        named |= bundle_values.named(table, _object(files[".json"]))
    values = bundle_values.closure(blocks.getter(tx), named)
    about: dict[str, canonical.Json] = {"v": VERSION, "kind": material.kind, "subject": subject, "records": listed}
    if values:
        about["values"] = [*sorted(values)]
        members |= {f"{bundle_values.FOLDER}{cid}": values[cid] for cid in sorted(values)}
    head = log.head(tx)
    for name, size, parts in _attestations(tx, last_index, head):
        about[name] = [each.hex() for each in tree.prove_consistency(tx, size, head.checkpoint.size)]
        members |= parts
    return {
        "VERIFY.md": offline.instructions(),
        "bundle.json": canonical.dumps(about),
        **members,
        **material.files,
        "head.note": head.encode(),
    }


def _attestations(tx: Tx, index: int, head: SignedCheckpoint) -> Iterator[tuple[str, int, dict[str, bytes]]]:
    """Yield the earliest stamped and the earliest anchored head that all records are under; a false one is an error."""
    stamped = timestamps.covering(tx, index, head)
    if stamped is not None:
        timestamps.verify(stamped)
        _refuse_edited(tx, "time_tokens", stamped.timestamp.id)
        yield "time", stamped.timestamp.size, bundle_heads.time_members(stamped)
    anchored = anchors.covering(tx, index, head)
    if anchored is not None:
        anchors.verify(anchored)
        _refuse_edited(tx, "head_anchors", anchored.anchor.id)
        yield "anchor", anchored.anchor.size, bundle_heads.anchor_members(anchored)


def _refuse_edited(tx: Tx, table: str, key: str) -> None:
    """Raise for an attestation that differs from its entry, or has none: it holds only under a key that it brings."""
    logged = kernel_tables.LOGGED[table]
    row = tx.one(logged.current, key=key)
    finding = None if row is None else judge(logged, row)
    # One whose entry waits for the sequencer is the row that was written: nothing of it was edited.
    if finding is not None and finding.verdict is not Verdict.PENDING:
        raise ProofError(f"{finding.place}: {finding.what}", table=table, verdict=finding.verdict.word)


def prove_row(tx: Tx, table: str, key: str | int, ns: str) -> tuple[dict[str, canonical.Json], dict[str, bytes], int]:
    """Return a record's entry in bundle.json, its files, and its place in the log; ProofError where they disagree.

    Its files are its content, its leaf and the proof.
    """
    logged = kernel_tables.LOGGED[table]
    row = tx.one(logged.one, key=key, ns=ns) if logged.per_namespace else tx.one(logged.one, key=key)
    if row is None:
        raise NotFoundError(f"{table} has no row {key}", table=table, key=key)
    _refuse(logged, row)
    _, leaf_id, leaf_ver, salt, _, text, _, _ = logged_tables.logged_row(row)
    leaf = str(text)
    projection = logged.projections[str(_object(leaf.encode())["p"])]
    content = projection.content(dict(zip(logged.columns, row[COLUMNS:], strict=True)))
    proof = log.prove(tx, leaf_id, leaf_ver)
    entry: dict[str, canonical.Json] = {
        "projection": projection.name,
        "leaf_id": leaf_id,
        "leaf_ver": leaf_ver,
        "salt": bytes(salt).hex(),
    }
    return entry, {".json": content, ".leaf.json": leaf.encode(), ".tlog-proof": tlog_proof.encode(proof)}, proof.index


def _refuse(logged: LoggedTable, row: Row) -> None:
    """Raise for a row that cannot be proven: it does not match its leaf, or has no index in the log yet."""
    finding = judge(logged, row)
    if finding is not None:
        raise ProofError(f"{finding.place}: {finding.what}", table=logged.table, verdict=finding.verdict.word)
    if logged_tables.logged_row(row).leaf_index is None:
        raise NotFoundError("the record is committed, but not yet under a signed head; try again", table=logged.table)


def _object(data: bytes) -> dict[str, canonical.Json]:
    value = canonical.loads(data)
    assert isinstance(value, dict), "judged already"
    return value


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return a zip of these members, in this order, the same bytes every time."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            # A fixed time and mode: zipfile would otherwise store the clock and the umask.
            about = zipfile.ZipInfo(name, _EPOCH)
            about.compress_type = zipfile.ZIP_DEFLATED
            about.external_attr = 0o644 << 16
            archive.writestr(about, data)
    return target.getvalue()
