"""What was decided and can be proved, and keeping the store whole: the nouns of evidence and upkeep."""

from typing import Generic

from holdproof.evidence import audit, dbom, evaluations, keys, log, trust, witness_client
from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith, Writes
from holdproof.importers import dir, green_agent, import_records
from holdproof.upkeep import bundle, erase, intent_spread, lockdown, retention, watch
from holdproof.upkeep.backups import backup
from holdproof.upkeep.verification import verify


class Verify(Resource[Executor]):
    """Everything the store holds, against its log and the heads kept elsewhere."""

    run = RunsWith(verify.run)


class Watch(Resource[Executor]):
    """The store as it lives: flows, questions, the log, what is wrong."""

    look = RunsWith(watch.look, reads=True)
    follow = StreamsWith(watch.follow, reads=True)


class Bundle(Resource[Executor]):
    """Records with all that a stranger needs to check them."""

    export = RunsWith(bundle.export, reads=True)


class Lockdown(Resource[Executor]):
    """The state that refuses writes after tampering was found."""

    status = RunsWith(lockdown.status, reads=True)
    lock = RunsWith(lockdown.lock)
    statement = RunsWith(lockdown.statement)
    unlock = RunsWith(lockdown.unlock)


class Backup(Resource[Executor]):
    """Copies of the whole store, made while it is in use."""

    create = RunsWith(backup.create)
    check = Runs(backup.check)
    list = Runs(backup.list)


class Erase(Resource[Executor]):
    """Persons and records, for good; every proof stays whole."""

    subject = RunsWith(erase.subject)
    record = RunsWith(erase.record)
    list = Reads(erase.list)


class Retention(Resource[Executor]):
    """What has had its time, removed; every proof stays whole."""

    prune = RunsWith(retention.prune)
    gc = RunsWith(retention.gc)
    compact = RunsWith(retention.compact)
    list = Reads(retention.list)


class Evaluations(Resource[Executor]):
    """Evaluations, each with its signed DBOM."""

    submit = RunsWith(evaluations.submit)
    list = Reads(evaluations.list)

    get = Reads(evaluations.get)
    reveal = Reads(evaluations.reveal)


class Dbom(Resource[Executor]):
    """The signed decision records, as evidence."""

    get = Reads(dbom.get)
    envelope = Reads(dbom.envelope)
    verify = Runs(dbom.verify, reads=True)
    repair = RunsWith(dbom.repair)
    check_intent = Runs(intent_spread.check_intent)
    spread = Reads(intent_spread.spread)


class Keys(Resource[Executor]):
    """Who signs, for what, and up to where in the log."""

    list = Reads(keys.list)
    get = Reads(keys.get)
    rotate = RunsWith(keys.rotate)
    revoke = RunsWith(keys.revoke)
    revocation = Reads(keys.revocation)
    readmission = Reads(keys.readmission)
    statement = RunsWith(keys.statement)
    import_statement = Writes(keys.import_statement)
    init_root = RunsWith(trust.init_root)
    recover_root = RunsWith(trust.recover_root)
    export_root = RunsWith(trust.export_root)
    trust = RunsWith(trust.trust)


class Imports(Resource[Executor]):
    """Data of other programs, taken over as it is."""

    green_agent = RunsWith(green_agent.run)
    dir = RunsWith(dir.run)
    list = Reads(import_records.list)


class Log(Resource[Executor]):
    """The append-only log: its head, proofs out of it, audits of it, and who else keeps it."""

    head = Reads(log.head)
    get_entry = Reads(log.get_entry)
    prove = Reads(log.prove)
    prove_consistency = Reads(log.prove_consistency)
    tile = Reads(log.tile)
    pending = Reads(log.pending)
    audit = RunsWith(audit.audit, reads=True)
    level = RunsWith(witness_client.level, reads=True)
    witness = RunsWith(witness_client.witness)


class EvidenceResources(Generic[Executor]):
    """The nouns of evidence and upkeep, shown by a face."""

    def __init__(self, face: Executor) -> None:
        self.evaluations = Evaluations(face)
        self.dbom = Dbom(face)
        self.keys = Keys(face)
        self.log = Log(face)
        self.verify = Verify(face)
        self.watch = Watch(face)
        self.bundle = Bundle(face)
        self.lockdown = Lockdown(face)
        self.backup = Backup(face)
        self.erase = Erase(face)
        self.retention = Retention(face)
        self.imports = Imports(face)
