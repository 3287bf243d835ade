"""What was decided and can be proved, and keeping the store whole: the nouns of evidence and upkeep."""

from typing import Generic

from holdproof.evidence import audit, battles, dbom, keys, log, trust, witness
from holdproof.faces import Face, Noun, Reads, Runs, RunsWith, StreamsWith, Writes
from holdproof.upkeep import backup, bundle, erase, lockdown, retention, spread, verify, watch
from holdproof.upkeep.importers import dir, green_agent, kept


class Verify(Noun[Face]):
    """Everything the store holds, against its log and the heads kept elsewhere."""

    run = RunsWith(verify.run)


class Watch(Noun[Face]):
    """The store as it lives: flows, questions, the log, what is wrong."""

    look = RunsWith(watch.look, reads=True)
    follow = StreamsWith(watch.follow, reads=True)


class Bundle(Noun[Face]):
    """Records with all that a stranger needs to check them."""

    export = RunsWith(bundle.export, reads=True)


class Lockdown(Noun[Face]):
    """The state that refuses writes after tampering was found."""

    status = RunsWith(lockdown.status, reads=True)
    lock = RunsWith(lockdown.lock)
    statement = RunsWith(lockdown.statement)
    unlock = RunsWith(lockdown.unlock)


class Backup(Noun[Face]):
    """Copies of the whole store, made while it is in use."""

    create = RunsWith(backup.create)
    check = Runs(backup.check)
    list = Runs(backup.list)


class Erase(Noun[Face]):
    """Persons and records, for good; every proof stays whole."""

    subject = RunsWith(erase.subject)
    record = RunsWith(erase.record)
    list = Reads(erase.list)


class Retention(Noun[Face]):
    """What has had its time, removed; every proof stays whole."""

    prune = RunsWith(retention.prune)
    gc = RunsWith(retention.gc)
    compact = RunsWith(retention.compact)
    list = Reads(retention.list)


class Battles(Noun[Face]):
    """Evaluations, each with its signed DBOM."""

    submit = RunsWith(battles.submit)
    list = Reads(battles.list)
    recent = Reads(battles.recent)
    get = Reads(battles.get)
    reveal = Reads(battles.reveal)


class Dbom(Noun[Face]):
    """The signed decision records, as evidence."""

    get = Reads(dbom.get)
    envelope = Reads(dbom.envelope)
    verify = Runs(dbom.verify, reads=True)
    repair = RunsWith(dbom.repair)
    check_intent = Runs(spread.check_intent)
    spread = Reads(spread.spread)


class Keys(Noun[Face]):
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


class Imports(Noun[Face]):
    """Data of other programs, taken over as it is."""

    green_agent = RunsWith(green_agent.run)
    dir = RunsWith(dir.run)
    list = Reads(kept.list)


class Log(Noun[Face]):
    """The append-only log: its head, proofs out of it, audits of it, and who else keeps it."""

    head = Reads(log.head)
    find = Reads(log.find)
    prove = Reads(log.prove)
    prove_consistency = Reads(log.prove_consistency)
    tile = Reads(log.tile)
    pending = Reads(log.pending)
    audit = RunsWith(audit.audit, reads=True)
    level = RunsWith(witness.level, reads=True)
    witness = RunsWith(witness.witness)


class Evidence(Generic[Face]):
    """The nouns of evidence and upkeep, shown by a face."""

    def __init__(self, face: Face) -> None:
        self.battles = Battles(face)
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
