"""The resources of evidence and upkeep: evaluations, DBOMs, keys, the log, verification, backups, erasure."""

from typing import TYPE_CHECKING, Generic

from holdproof.api.limits import LimitsResource
from holdproof.api.materials import MaterialsResource
from holdproof.api.retention import RetentionResource
from holdproof.api.tenants import TenantsResource
from holdproof.api.words import BUNDLE_KINDS
from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith, Writes
from holdproof.executors.exit_codes import exit_unsound, exit_verdict
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.evidence import (
        anchors,
        audit,
        dbom,
        dbom_files,
        evaluations,
        growth,
        import_records,
        key_admission,
        keys,
        known_heads,
        log,
        range_proof,
        receipts,
        timestamps,
        trust,
        witness_client,
    )
    from holdproof.importers import dir, green_agent
    from holdproof.model.backup import Backup
    from holdproof.upkeep import (
        anchoring,
        attestation,
        bundle,
        erase,
        erasure_certificate,
        intent_spread,
        lockdown,
        person_file,
        time_stamping,
        watch,
        witness_ring,
    )
    from holdproof.upkeep.backups import backup, rotation
    from holdproof.upkeep.publishing import publish
    from holdproof.upkeep.trail import finding, reading
    from holdproof.upkeep.verification import verify
else:
    globals().update(
        lazy_functions(
            "holdproof.evidence",
            "anchors audit dbom dbom_files evaluations growth import_records key_admission keys known_heads log"
            " range_proof receipts timestamps trust witness_client",
        )
    )
    globals().update(lazy_functions("holdproof.importers", "dir green_agent"))
    globals().update(
        lazy_functions(
            "holdproof.upkeep",
            "anchoring attestation bundle erase erasure_certificate intent_spread lockdown person_file "
            "time_stamping watch witness_ring",
        )
    )
    globals().update(lazy_functions("holdproof.upkeep.backups", "backup rotation"))
    globals().update(lazy_functions("holdproof.upkeep.publishing", "publish"))
    globals().update(lazy_functions("holdproof.upkeep.trail", "finding reading"))
    globals().update(lazy_functions("holdproof.upkeep.verification", "verify"))


def _missing_parts(copy: "Backup") -> str:
    """Say what is not in a backup: parts that lie elsewhere, and the keys of encrypted content."""
    notes = [f"not in the backup: {each}" for each in copy.outside]
    # No error: leaving the keys out is the default, and most backups are right without them.
    if not copy.keys:
        notes.append(
            "restoring it on another machine needs the recovery code of the root key; keep it elsewhere:"
            " `holdproof keys export-root --recovery FILE`"
        )
    if copy.sealed and not copy.keys:
        notes.append(
            f"the keys of {copy.sealed} subjects are not in it: what is encrypted opens only with this store,"
            " or with a backup made with --keys and stored apart"
        )
    return "\nnote: ".join(notes)


class Verify(Resource[Executor]):
    """Everything the store holds, against its log and the heads kept elsewhere."""

    group = "Prove"

    # With `lock` finding tampering locks the store; auditors and read-only tools may call it without that.
    run = RunsWith(
        verify.run, tool="prove", read_only_with={"lock": False}, exit_code=exit_verdict, draw="verification"
    )


class Watch(Resource[Executor]):
    """A live view of the store: flows, escalations, the log, and what is wrong."""

    group = "Inspect"

    look = RunsWith(watch.look, reads=True, draw="frame")
    follow = StreamsWith(watch.follow, reads=True, draw="frame")


class BundleResource(Resource[Executor]):
    """Records with everything needed to check them offline."""

    group = "Prove"

    export = RunsWith(
        bundle.export,
        reads=True,
        exports=True,
        tool="prove",
        uri="bundles/{kind}/{subject}",
        media_type="application/zip",
        alias="export bundle",
        example="evaluation-1 --out evaluation-1.zip",
        parameters={
            "subject": "The id of an evaluation or a flow, or THREAD/CHECKPOINT.",
            "kind": "What that id names.",
        },
        words={"kind": BUNDLE_KINDS},
    )
    # Decrypts what belongs to a person: not for auditors.
    person = RunsWith(
        person_file.export,
        reads=True,
        reveals=True,
        alias="export person",
        parameters={"subject": "The name of the person, as it was given to `subject=`."},
        example="'Ada Lovelace' --out ada.zip",
    )
    attest = RunsWith(attestation.attest, exports=True, example="order-1 --out order-1.intoto.json")
    prov = RunsWith(attestation.prov, reads=True, exports=True, example="order-1 --out order-1.prov.json")


class Lockdown(Resource[Executor]):
    """The state that refuses writes after tampering was found."""

    group = "Prove"

    status = RunsWith(lockdown.status, reads=True)
    lock = RunsWith(lockdown.lock, example="--reason 'keys were stolen'", creates=True)
    statement = RunsWith(
        lockdown.statement,
        example="--reason fixed --out draft.json",
        note=lambda _: "root signs it: holdproof lockdown sign draft.json --key root.pem --out unlock.json",
    )
    unlock = RunsWith(lockdown.unlock, alias="unlock", files=("envelope",), example="unlock.json")


class BackupResource(Resource[Executor]):
    """Copies of the whole store, made while it is in use."""

    group = "Operate"

    create = RunsWith(backup.create, alias="backup", example="/mnt/backups/monday", note=_missing_parts)
    rotate = RunsWith(
        rotation.rotate,
        example="/mnt/backups --keep 24",
        parameters={
            "folder": "The folder of backups, created if it is not there, or s3://bucket/folder.",
            "keep": "How many backups of this store stay.",
            "every_s": "Do nothing while the newest is younger than this.",
        },
    )
    beat = RunsWith(rotation.beat)
    check = Runs(backup.check, storeless=True, example="/mnt/backups/monday", note=_missing_parts)
    list = Runs(
        backup.list,
        storeless=True,
        columns=("path", "created_at", "size", "backend", "keys", "trust"),
        example="/mnt/backups",
    )


class Erase(Resource[Executor]):
    """Persons and records, for good; every proof stays whole."""

    group = "Operate"

    subject = RunsWith(
        erase.subject,
        example="'Ada Lovelace' --dry-run --who dpo",
        confirm="Erase everything of {name!r} for good?",
        confirm_unless="dry_run",
        parameters={
            "derived": "What becomes of what used the content and carries no label.",
            "dry_run": "Say what would go and what would be left; erase nothing.",
        },
    )
    # The table is named as in the schema, where evaluations are `battles`.
    record = RunsWith(erase.record, example="battles 17 --yes", confirm="Erase record {id} of {table} for good?")
    list = Reads(erase.list, columns=("id", "what", "count", "who", "erased_at"))
    certificate = RunsWith(
        erasure_certificate.certificate,
        exports=True,
        document="text",
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --out certificate.json",
    )


class Evaluations(Resource[Executor]):
    """Evaluations, each with its signed DBOM."""

    group = "Inspect"

    submit = RunsWith(
        evaluations.submit,
        example="result.json --evaluation-id b-1 --score 0.87",
        files=("result", "intent"),
        creates=True,
    )
    list = Reads(
        evaluations.list,
        tool="prove",
        columns=("id", "evaluation_id", "timestamp", "score"),
        parameters={"text": "A part of the id, in any case."},
        example="--since 2026-01-01 --min-score 0.5 --json",
    )
    get = Reads(evaluations.get, tool="prove", uri="evaluations/{evaluation_id}", example="b-1")
    # Decrypts what belongs to a person: not for auditors.
    reveal = Reads(evaluations.reveal, reveals=True)


class Dbom(Resource[Executor]):
    """The signed decision records, as evidence."""

    group = "Prove"

    get = Reads(dbom.get, document="text", example="b-1 --json")
    envelope = Reads(dbom.envelope, exports=True, alias="export dbom", example="b-1 --format sigstore --out b.json")
    verify = Runs(dbom.verify, reads=True, example="dboms/dbom_b-1.json", exit_code=exit_verdict, files=("document",))
    repair = RunsWith(dbom_files.repair, example="--full")
    # Calls a function of the caller's machine, so it is not offered to remote clients.
    check_intent = Runs(intent_spread.check_intent, local=True, example="my_models:embed", exit_code=exit_unsound)
    spread = Reads(intent_spread.spread, bounds={"limit": (1, 2_000)}, example="--threshold 0.85")


class KeysResource(Resource[Executor]):
    """Who signs, for what, and up to where in the log."""

    group = "Prove"

    list = Reads(keys.list, columns=("keyid", "role", "alg", "index", "revoked_from", "added_at"))
    get = Reads(keys.get)
    create = RunsWith(key_admission.create, example="log-pq", creates=True)
    rotate = RunsWith(
        key_admission.rotate,
        example="judge",
        creates=True,
        parameters={"algorithm": "The algorithm of the new key; without it that of the old one."},
    )
    revoke = RunsWith(keys.revoke, example="3f1c9a02 --from-index 4711")
    revocation = Reads(keys.revocation, document="text")
    readmission = Reads(keys.readmission, document="text")
    statement = RunsWith(keys.statement, document="text")
    import_statement = Writes(keys.import_statement, files=("text",), creates=True)
    # The root key and its recovery never cross a wire: these three work on files of the store's machine.
    join = RunsWith(
        key_admission.join,
        local=True,
        files=("recovery",),
        columns=("keyid", "role", "alg", "index", "added_at"),
        creates=True,
    )
    recover_root = RunsWith(trust.recover_root, local=True, files=("recovery",), creates=True)
    export_root = RunsWith(trust.export_root, local=True)
    trust = RunsWith(trust.trust, document="text")


class Imports(Resource[Executor]):
    """Data of other programs, imported as it is."""

    group = "Operate"

    green_agent = RunsWith(
        green_agent.run, alias="import green-agent", example="battles.db --dboms data/dboms --dry-run", creates=True
    )
    dir = RunsWith(dir.run, alias="import dir", example="dir.db --dry-run", creates=True)
    list = Reads(
        import_records.list, columns=("id", "source_table", "source_id", "verdict", "note"), example="--verdict KEPT"
    )


class LogResource(Resource[Executor]):
    """The append-only log: its head, proofs out of it, audits of it, and who else keeps it."""

    group = "Prove"

    head = Reads(log.head, tool="prove", uri="log/head", media_type="text/plain", document="file")
    heads = Reads(
        known_heads.list,
        columns=("at", "size", "kind", "by", "verdict", "entry"),
        bounds={"limit": (1, 500)},
        parameters={"limit": "At most so many of each kind."},
    )
    growth = Reads(
        growth.growth,
        columns=("at", "entries", "bytes"),
        words={"by": ("hour", "day")},
        parameters={"by": "Every hour that was measured, or the last measurement of each day."},
        example="--by day --since 2026-01-01T00:00:00Z",
    )
    verifier_keys = Reads(log.verifier_keys)
    list = Reads(
        reading.list,
        columns=("index", "at", "kind", "entry", "version", "what"),
        parameters={"kind": "Only entries of this kind."},
        example="--kind escalation",
    )
    get = Reads(
        reading.get,
        alias="log show",
        parameters={"entry": "Its index in the log, or the handle of a record."},
        example="4711",
    )
    find = Reads(
        finding.find,
        columns=("index", "at", "kind", "entry", "what"),
        parameters={"text": "An id: of a flow, a step, an escalation, an evaluation, a record's handle, an entry."},
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304",
    )
    get_entry = Reads(log.get_entry)
    prove = Reads(
        log.prove,
        tool="prove",
        uri="log/proofs/{leaf_id}",
        media_type="text/plain",
        document="file",
        example="0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97 --out b-1.proof",
    )
    publish = RunsWith(
        publish.publish,
        grantable=False,
        parameters={"target": "A folder of its own, or s3://bucket/prefix."},
        example="/srv/www/log",
    )
    # Signs, and writes nothing.
    receipt = RunsWith(
        receipts.receipt, reads=True, document="file", example="0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97 --out b-1.cose"
    )
    prove_range = Reads(
        range_proof.prove_range,
        document="text",
        parameters={
            "kind": "The kind of entries, as decision, step or escalation.",
            "agent_id": "Whose entries; without it those that no agent is behind.",
            "first": "The first number.",
            "last": "The last number; without it the newest.",
        },
        example="decision --agent-id trader --out decisions.json",
    )
    check_range = Runs(
        range_proof.check_range,
        storeless=True,
        reads=True,
        files=("document",),
        parameters={"document": "What `prove_range` wrote", "key": "The log's key, from somebody you trust."},
        example="decisions.json --key KEY",
    )
    prove_consistency = Reads(log.prove_consistency, example="1000 2000")
    tile = Reads(log.tile)
    # On PostgreSQL a leaf gets its place after its commit, so that some may wait for the next signed head.
    pending = Reads(log.pending)
    audit = RunsWith(audit.audit, reads=True, example="--full", exit_code=exit_verdict)
    level = RunsWith(witness_client.level, reads=True)


class WitnessResource(Resource[Executor]):
    """Witnesses: others who cosign this log's heads, each only if it continues the one before; and to run one."""

    group = "Prove"

    add = RunsWith(
        witness_ring.add,
        parameters={
            "key": "Its verifier key, as its operator tells you; without it nothing is added.",
            "locks": "Lock this store when it says that the log is forked or rolled back.",
        },
        example="https://witness.example --key KEY",
        note=lambda _: "it is asked by `holdproof witness ask`, and by every `holdproof up`",
    )
    list = Reads(witness_ring.list, columns=("url", "name", "size", "cosigned_at", "locks", "dispute"))
    remove = Writes(witness_ring.remove, example="https://witness.example --reason 'closed down'")
    ask = RunsWith(
        witness_ring.ask_all,
        columns=("url", "witness", "size"),
        parameters={"witness": "The address of one witness; all are asked without it."},
    )
    policy = Reads(
        witness_ring.policy,
        document="text",
        parameters={"quorum": "How many of the witnesses have to cosign; without it all."},
        example="--quorum 2 --out log.policy",
    )
    check = Reads(
        witness_ring.check,
        files=("policy",),
        parameters={"policy": "A tlog-policy file"},
        example="log.policy",
    )


class TimestampsResource(Resource[Executor]):
    """Time tokens (RFC 3161) on heads: an authority says when everything under a head existed at the latest."""

    group = "Prove"

    create = RunsWith(time_stamping.create, columns=("size", "stamped_at", "authority"))
    beat = RunsWith(time_stamping.beat)
    list = Reads(timestamps.list, columns=("id", "size", "stamped_at", "authority", "url"))
    get = Reads(timestamps.get, example="0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97 --json")


class AnchorsResource(Resource[Executor]):
    """Anchors: heads that stand as entries in a log of others (Rekor v2, any C2SP log), whose watchers see them."""

    group = "Prove"

    create = RunsWith(anchoring.create, columns=("size", "log", "log_index"))
    beat = RunsWith(anchoring.beat)
    put = RunsWith(
        anchoring.put,
        files=("head", "proof"),
        parameters={"head": "A head, as `log head` writes it", "proof": "The tlog-proof of its entry in the other log"},
        example="head.note head.tlog-proof",
        columns=("size", "log", "log_index"),
    )
    list = Reads(anchors.list, columns=("id", "size", "log", "log_index", "created_at", "url"))
    get = Reads(anchors.get, example="0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97 --json")


class EvidenceResources(Generic[Executor]):
    """The resources of evidence and upkeep, bound to an executor."""

    def __init__(self, executor: Executor) -> None:
        self.evaluations = Evaluations(executor)
        self.dbom = Dbom(executor)
        self.materials = MaterialsResource(executor)
        self.keys = KeysResource(executor)
        self.log = LogResource(executor)
        self.witness = WitnessResource(executor)
        self.timestamps = TimestampsResource(executor)
        self.anchors = AnchorsResource(executor)
        self.verify = Verify(executor)
        self.watch = Watch(executor)
        self.bundle = BundleResource(executor)
        self.lockdown = Lockdown(executor)
        self.backup = BackupResource(executor)
        self.erase = Erase(executor)
        self.retention = RetentionResource(executor)
        self.limits = LimitsResource(executor)
        self.tenants = TenantsResource(executor)
        self.imports = Imports(executor)
