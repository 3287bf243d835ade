"""The resources of evidence and upkeep: evaluations, DBOMs, keys, the log, verification, backups, erasure."""

from typing import Generic

from holdproof.evidence import audit, dbom, evaluations, import_records, keys, log, trust, witness_client
from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith, Writes
from holdproof.executors.exit_codes import exit_unsound, exit_verdict
from holdproof.importers import dir, green_agent
from holdproof.upkeep import bundle, erase, intent_spread, lockdown, retention, watch
from holdproof.upkeep.backups import backup
from holdproof.upkeep.verification import verify


class Verify(Resource[Executor]):
    """Everything the store holds, against its log and the heads kept elsewhere."""

    group = "Prove"

    # Finding tampering locks the store; auditors and read-only tools may call it without that.
    run = RunsWith(verify.run, tool=True, read_only_with={"lock": False}, exit_code=exit_verdict)


class Watch(Resource[Executor]):
    """A live view of the store: flows, escalations, the log, and what is wrong."""

    group = "Inspect"

    look = RunsWith(watch.look, reads=True, draw="frame")
    follow = StreamsWith(watch.follow, reads=True, draw="frame")


class BundleResource(Resource[Executor]):
    """Records with everything needed to check them offline."""

    group = "Prove"

    export = RunsWith(bundle.export, reads=True, tool=True)


class Lockdown(Resource[Executor]):
    """The state that refuses writes after tampering was found."""

    group = "Prove"

    status = RunsWith(lockdown.status, reads=True)
    lock = RunsWith(lockdown.lock, example="--reason 'keys were stolen'")
    statement = RunsWith(lockdown.statement)
    unlock = RunsWith(lockdown.unlock, files=("envelope",))


class BackupResource(Resource[Executor]):
    """Copies of the whole store, made while it is in use."""

    group = "Operate"

    create = RunsWith(backup.create, example="/mnt/backups/monday")
    check = Runs(backup.check, example="/mnt/backups/monday")
    list = Runs(backup.list, example="/mnt/backups")


class Erase(Resource[Executor]):
    """Persons and records, for good; every proof stays whole."""

    group = "Operate"

    subject = RunsWith(
        erase.subject, example="'Ada Lovelace' --who dpo --yes", confirm="Erase everything of {name!r} for good?"
    )
    # The table is named as in the schema, where evaluations are `battles`.
    record = RunsWith(erase.record, example="battles 17 --yes", confirm="Erase record {id} of {table} for good?")
    list = Reads(erase.list, columns=("id", "what", "count", "who", "erased_at"))


class Retention(Resource[Executor]):
    """What has had its time, removed; every proof stays whole."""

    group = "Operate"

    prune = RunsWith(retention.prune, example="flows --older-than-days 90 --keep 1000 --dry-run")
    gc = RunsWith(retention.gc, example="--dry-run")
    compact = RunsWith(retention.compact)
    list = Reads(retention.list, columns=("pruned_at", "what", "count", "who", "rule"))


class Evaluations(Resource[Executor]):
    """Evaluations, each with its signed DBOM."""

    group = "Inspect"

    submit = RunsWith(
        evaluations.submit, example="result.json --evaluation-id b-1 --score 0.87", files=("result", "intent")
    )
    list = Reads(
        evaluations.list,
        tool=True,
        columns=("id", "evaluation_id", "timestamp", "score"),
        example="--since 2026-01-01 --min-score 0.5 --json",
    )
    get = Reads(evaluations.get, tool=True, example="b-1")
    # Decrypts what belongs to a person: not for auditors.
    reveal = Reads(evaluations.reveal, reveals=True)


class Dbom(Resource[Executor]):
    """The signed decision records, as evidence."""

    group = "Prove"

    get = Reads(dbom.get, document="text", example="b-1 --json")
    envelope = Reads(dbom.envelope, example="b-1 --format sigstore")
    verify = Runs(dbom.verify, reads=True, example="dboms/dbom_b-1.json", exit_code=exit_verdict, files=("document",))
    repair = RunsWith(dbom.repair, example="--full")
    # Calls a function of the caller's machine, so it is not offered to remote clients.
    check_intent = Runs(intent_spread.check_intent, local=True, example="my_models:embed", exit_code=exit_unsound)
    spread = Reads(intent_spread.spread, example="--threshold 0.85")


class KeysResource(Resource[Executor]):
    """Who signs, for what, and up to where in the log."""

    group = "Prove"

    list = Reads(keys.list, columns=("keyid", "role", "alg", "index", "revoked_from", "added_at"))
    get = Reads(keys.get)
    rotate = RunsWith(keys.rotate, example="judge")
    revoke = RunsWith(keys.revoke, example="3f1c9a02 --from-index 4711")
    revocation = Reads(keys.revocation, document="text")
    readmission = Reads(keys.readmission, document="text")
    statement = RunsWith(keys.statement, document="text")
    import_statement = Writes(keys.import_statement, files=("text",))
    # The root key and its recovery never cross a wire: these two work on files of the store's machine.
    init_root = RunsWith(trust.init_root, local=True)
    recover_root = RunsWith(trust.recover_root, local=True, files=("recovery",))
    export_root = RunsWith(trust.export_root)
    trust = RunsWith(trust.trust, document="text")


class Imports(Resource[Executor]):
    """Data of other programs, imported as it is."""

    group = "Operate"

    green_agent = RunsWith(green_agent.run, example="battles.db --dboms data/dboms --dry-run")
    dir = RunsWith(dir.run, example="dir.db --dry-run")
    list = Reads(
        import_records.list, columns=("id", "source_table", "source_id", "verdict", "note"), example="--verdict KEPT"
    )


class LogResource(Resource[Executor]):
    """The append-only log: its head, proofs out of it, audits of it, and who else keeps it."""

    group = "Prove"

    head = Reads(log.head, tool=True)
    get_entry = Reads(log.get_entry)
    prove = Reads(log.prove, tool=True, example="0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97")
    prove_consistency = Reads(log.prove_consistency, example="1000 2000")
    tile = Reads(log.tile)
    # On PostgreSQL a leaf gets its place after its commit, so that some may wait for the next signed head.
    pending = Reads(log.pending)
    audit = RunsWith(audit.audit, reads=True, example="--full", exit_code=exit_verdict)
    level = RunsWith(witness_client.level, reads=True)
    witness = RunsWith(witness_client.witness, example="https://witness.example --key KEY")


class EvidenceResources(Generic[Executor]):
    """The resources of evidence and upkeep, bound to an executor."""

    def __init__(self, executor: Executor) -> None:
        self.evaluations = Evaluations(executor)
        self.dbom = Dbom(executor)
        self.keys = KeysResource(executor)
        self.log = LogResource(executor)
        self.verify = Verify(executor)
        self.watch = Watch(executor)
        self.bundle = BundleResource(executor)
        self.lockdown = Lockdown(executor)
        self.backup = BackupResource(executor)
        self.erase = Erase(executor)
        self.retention = Retention(executor)
        self.imports = Imports(executor)
