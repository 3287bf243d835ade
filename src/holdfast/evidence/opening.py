"""Starting the evidence of a store: its log key, its log, the leaves that a new store begins with."""

from collections.abc import Callable

from holdfast.crypto.keys import PublicKey, Signer
from holdfast.db import Database, Tx, sql
from holdfast.db.migrate import TOPIC as MIGRATED
from holdfast.evidence import leaves, tree
from holdfast.evidence.leaves import Projection
from holdfast.evidence.log import Log

KEYRING = Projection("keyring", 1, ("keyid", "role", "alg", "public", "statement", "revoked_from", "added_at"))
SCHEMA = Projection("schema_migrations", 1, ("name", "sha256", "applied_at"))


def start(database: Database, signer: Signer, store_id: str, publish: Callable[[str], None]) -> Log:
    """Register the log's hooks; a new store's first leaves are its log key and its schema."""
    log = Log(signer, publish)
    if database.dialect == "sqlite":
        database.hooks.before_commit += [_log_migrations, log.integrate]
        database.hooks.after_commit.append(log.publish)
    database.write(lambda tx: _begin(tx, signer.public, f"holdfast/{store_id}"), ungated=True).result()
    return log


_KNOWN = sql("SELECT 1 FROM keyring WHERE role = 'log'")
_UNLOGGED = sql("SELECT name, sha256, applied_at FROM schema_migrations WHERE leaf_id IS NULL ORDER BY name")


def _begin(tx: Tx, key: PublicKey, origin: str) -> None:
    tree.begin(tx, origin)
    if not tx.all(_KNOWN):
        add_key(tx, "log", key, statement="first")
    for name, digest, moment in tx.all(_UNLOGGED):
        _log_migration(tx, name, digest, moment)


_ADD_KEY = sql(
    "INSERT INTO keyring (keyid, role, alg, public, statement, added_at, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:keyid, :role, :alg, :public, :statement, :added_at, :leaf_id, :leaf_ver, :leaf_salt)"
    " ON CONFLICT (keyid) DO NOTHING"
)


def add_key(tx: Tx, role: str, key: PublicKey, *, statement: str) -> None:
    """Bring a public key into the keyring, with its leaf."""
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


def _log_migrations(tx: Tx) -> None:
    """Before commit: a migration applied while the log is running gets its leaf in the same transaction."""
    for migration in tx.notes.get(MIGRATED, ()):
        _log_migration(tx, migration.name, migration.sha256, tx.now)
