"""Start the evidence of a store: its keys, its log, and the first leaves of a new store."""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from holdproof.content import disk, encryption
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import PrivateKey, PublicKey
from holdproof.db import Database, Migration, Tx, sql
from holdproof.db.migrate import TOPIC as MIGRATED
from holdproof.errors import CorruptError, FormatError, HistoryLostError, NotFoundError
from holdproof.evidence import erasures, leaves, logged_tables, statements, tree
from holdproof.evidence.key_files import KeyFolder, Keys
from holdproof.evidence.leaves import Projection
from holdproof.evidence.log import HEAD, Log, continuities, generation, head_keys_in_ring
from holdproof.evidence.sequencer import Sequencer
from holdproof.evidence.statements import KeyStatement
from holdproof.model.verdicts import Verdict, worst

_log = logging.getLogger("holdproof.evidence")

KEYRING = Projection("keyring", 1, ("keyid", "role", "alg", "public", "statement", "revoked_from", "added_at"))
SCHEMA = Projection("schema_migrations", 1, ("name", "sha256", "applied_at"))
LOGGED: Final = (
    logged_tables.describe(KEYRING, kinds=("key",), key="keyid"),
    logged_tables.describe(SCHEMA, kinds=("schema",), key="name"),
)


class RootKey(NamedTuple):
    """The root key of a new store, and the statement by which it introduces itself."""

    public: PublicKey
    statement: str
    is_new: bool


def start(
    database: Database,
    keys: Keys,
    store_id: str,
    listeners: Sequence[Callable[[str], None]],
    heads: Collection[SignedCheckpoint] = (),
    *,
    restored_here: Collection[str] = (),
    is_familiar: Callable[[Database], bool] = lambda _: True,
) -> Log:
    """Register the log's hooks; a new store's first leaves are its log key, its root key and its schema.

    `heads` are those that this home kept: if the log does not continue them, nothing is written and `continuity` says
    so; `restored_here` are the origins that this home restored the log to. A log that is gone altogether is a
    CorruptError: begun anew under its old name it would be a second history.
    `is_familiar` tells whether this home knows the log; it is asked where the home has no key that signs for it.
    """
    signer = keys.ensure("log")
    origin = f"holdproof/{store_id}"
    log = Log(signer, listeners, keys)
    log.restored_here = restored_here
    log.on_lost = partial(_report_lost, database)
    own_heads = [each.checkpoint for each in heads if generation(each.checkpoint.origin)[0] == origin]
    if own_heads and not database.read(tree.exists).result():
        size = max(each.size for each in own_heads)
        raise CorruptError(f"the log of this store is gone; a head of size {size} was kept here", origin=origin)
    database.hooks.on_note |= {encryption.TOPIC: erasures.log_subjects, MIGRATED: _log_migrations}
    if database.dialect == "sqlite":
        database.hooks.before_commit.append(log.integrate)
    # Heads are published only after the commit that made them durable.
    database.hooks.after_commit.append(log.publish)
    log.continuity = _continuity(database, heads, restored_here)
    # The caller locks the store; nothing may be appended to a log that is in doubt.
    if not log.continuity.sound:
        return log
    root = _new_root(database, keys, origin)
    database.write(partial(_begin, log=log, key=signer.public, origin=origin, root=root), ungated=True).result()
    if root is not None:
        _drop_unused_root(database, keys, root)
    if not log.signs:
        _log.warning(
            "the log key of this home is not in the store's keyring: this process signs no heads; `holdproof keys join`"
            " on a further machine, `holdproof keys rotate log` where the key was lost"
        )
    head = database.read(log.observe).result()
    # The head of a strange log is not kept beside those of the one that was here: it would look familiar next time.
    log.familiar = log.signs or is_familiar(database)
    # The newest head may have been signed by a process that died before it kept it.
    if head is not None and head not in [each.encode().decode() for each in heads]:
        log.publish({HEAD: [head]})
    if database.dialect == "postgres":
        sequencer = Sequencer(database, log)
        sequencer.start()
        log.stop = sequencer.close
    return log


def _report_lost(database: Database, error: HistoryLostError) -> None:
    for hook in database.hooks.history_lost:
        hook(error)


def _continuity(database: Database, heads: Collection[SignedCheckpoint], restored_here: Collection[str]) -> Verdict:
    return worst(database.read(lambda tx: continuities(tx, [*heads], restored_here)).result())


def read_only(database: Database, heads: Collection[SignedCheckpoint], restored_here: Collection[str]) -> Log:
    """Return the log of a store that is only read: it signs nothing, and knows whether it continues the kept heads."""
    log = Log(None, ())
    log.continuity = _continuity(database, heads, restored_here)
    return log


_UNLOGGED = sql("SELECT name, sha256, applied_at FROM schema_migrations WHERE leaf_id IS NULL ORDER BY name")


def _new_root(database: Database, keys: Keys, origin: str) -> RootKey | None:
    """Return the root key of a store whose log is about to begin; None for a log that exists.

    Made now, while nobody needs it: a store that was locked before it had one could be unlocked by nobody else than
    the holder of its log key. Keys of one's own (a KMS) may have no root: they raise NotFoundError.
    """
    if database.read(tree.exists).result():
        return None
    is_new = True
    with suppress(NotFoundError):
        keys.load("root")
        is_new = False  # of an earlier store in this home, which still needs it
    with suppress(NotFoundError):
        signer = keys.ensure("root")
        statement = KeyStatement("introduce", "root", signer.public, origin, database.read(lambda tx: tx.now).result())
        if isinstance(keys, KeyFolder) and isinstance(signer, PrivateKey) and not keys.encrypted:
            _write_recovery(keys.recovery, statements.to_recovery(signer))
        return RootKey(signer.public, statements.sign(statement.encode(), signer), is_new)
    return None


_IN_RING = sql("SELECT 1 FROM keyring WHERE keyid = :keyid")


def _drop_unused_root(database: Database, keys: Keys, root: RootKey) -> None:
    """Remove our root key if another home began the log of this database at the same moment: theirs counts."""
    registered = database.read(lambda tx: tx.one(_IN_RING, keyid=root.public.keyid)).result()
    if registered is None and root.is_new and isinstance(keys, KeyFolder):
        keys.remove("root")
        keys.recovery.unlink(missing_ok=True)


def _write_recovery(path: Path, text: str) -> None:
    if path.exists():
        old = path.read_bytes()
        if old == text.encode():
            return
        # The code of another root key, which may be the only one that somebody has: kept beside the new one.
        path.rename(path.with_name(f"{path.stem}-{sha256(old).hexdigest()[:8]}{path.suffix}"))
    with disk.translated(path):
        disk.exchange(path, text.encode())


def _begin(tx: Tx, log: Log, key: PublicKey, origin: str, root: RootKey | None) -> None:
    """Create the log if it is new, choose its signer, and log migrations that have no leaf yet."""
    tree.begin(tx, origin)
    tree.lock(tx)  # two processes may open a new store at once: the second must see the first one's key
    if not head_keys_in_ring(tx):
        if tree.state(tx).size:
            raise FormatError("the log has leaves, and the keyring no key that signed them", tables=(KEYRING.table,))
        add_key(tx, "log", key, statement="first")
        if root is not None:
            add_key(tx, "root", root.public, statement=root.statement)
    log.look(tx)
    for name, digest, moment in tx.all(_UNLOGGED):
        _log_migration(tx, name, digest, moment)


_ADD_KEY = sql(
    "INSERT INTO keyring (keyid, role, alg, public, statement, added_at, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:keyid, :role, :alg, :public, :statement, :added_at, :leaf_id, :leaf_ver, :leaf_salt)"
    " ON CONFLICT (keyid) DO NOTHING"
)


def add_key(tx: Tx, role: str, key: PublicKey, *, statement: str) -> None:
    """Add a public key to the keyring, with its leaf."""
    row = {
        "keyid": key.keyid,
        "role": role,
        "alg": key.alg,
        "public": key.to_pem().decode(),
        "statement": statement,
        "revoked_from": None,
        "added_at": tx.now,
    }
    mark = leaves.stamp(tx, "key", KEYRING, row)
    del row["revoked_from"]
    tx.execute(_ADD_KEY, **row, **mark._asdict(), expect=1)


_STAMP = sql(
    "UPDATE schema_migrations SET leaf_id = :leaf_id, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt WHERE name = :name"
)


def _log_migration(tx: Tx, name: str, digest: str, moment: str) -> None:
    mark = leaves.stamp(tx, "schema", SCHEMA, {"name": name, "sha256": digest, "applied_at": moment})
    tx.execute(_STAMP, name=name, **mark._asdict(), expect=1)


def _log_migrations(tx: Tx, migrations: list[Migration]) -> None:
    """Log migrations applied while the log is running, in the same transaction."""
    for migration in migrations:
        _log_migration(tx, migration.name, migration.sha256, tx.now)
