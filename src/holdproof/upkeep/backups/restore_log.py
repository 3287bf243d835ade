"""Record a restore in the log of a copy that is not live yet: new origin, keys of subjects, later erasures.

Rules:
- The first leaf under the new origin is the restore's own; leaves that were pending in the copy come after it.
- A log key that the restored keyring does not know introduces itself, or where there is a root is admitted by root.
  With the root key's recovery code all roles get a key that root vouches for: then nothing needs root afterwards.
- Keys of subjects are copied before erasures are applied again: subjects erased since the backup stay erased.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from holdproof.content import encryption
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import PrivateKey, PublicKey, Signer
from holdproof.db import Database, Tx
from holdproof.db.sql import sql_postgres
from holdproof.errors import NotFoundError, UnknownKeyError
from holdproof.evidence import keys as ring
from holdproof.evidence import restores, statements
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.leaves import TOPIC, Leaf, StampedLeaf
from holdproof.evidence.log import HEAD, Log
from holdproof.evidence.sequencer import sequence
from holdproof.evidence.statements import KeyStatement
from holdproof.evidence.tree import TreeWriter, lock
from holdproof.model.backup import RestoreRecord
from holdproof.model.erasure import Erasure
from holdproof.model.keys import Role
from holdproof.upkeep import erase
from holdproof.upkeep.verification.log_check import LogKey
from holdproof.upkeep.verification.second_keys import SecondKey


@dataclass(slots=True)
class ReplacedStore:
    """What could be read of the store that is replaced."""

    store_id: str | None = None
    head: str = ""
    keys: list[LogKey] = field(default_factory=list)
    """Its log keys, as far as this home can prove them."""
    local_keys: set[str] = field(default_factory=set)
    """The ids of the log keys in the key folder."""
    second_keys: list[SecondKey] = field(default_factory=list)
    """Its ML-DSA-44 keys, as far as this home can prove them."""
    local_second_keys: list[PublicKey] = field(default_factory=list)
    """The ML-DSA-44 keys in the key folder."""
    heads: list[SignedCheckpoint] = field(default_factory=list)
    """The heads in this home's head file, of whichever store."""
    head_origins: set[str] = field(default_factory=set)
    """The origins of the heads in this home's head file."""
    stores_here: frozenset[str] = frozenset()
    """The names of the stores whose heads were kept for the database that is replaced."""
    restores: int = 0
    """The largest number of a restore under whose origin this home kept a head."""
    sealed: encryption.SubjectKeys = field(default_factory=partial(encryption.SubjectKeys, None, []))
    erasures: list[Erasure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class StagedCopy(NamedTuple):
    """A verified copy, not live yet."""

    store_id: str
    size: int
    as_of: str | None
    trust: str
    source: str
    by_log: bool = False
    """Whether only its log proves its rows, so that they are held against their entries."""


class RestoreOutcome(NamedTuple):
    """The record of a restore, the erasures it applied again, and the newest head."""

    record: RestoreRecord
    erasures: list[Erasure]
    keyless: int
    """How many subjects have sealed content here but no key."""
    head: str


def record_restore(
    database: Database,
    keys: KeyFolder,
    staged: StagedCopy,
    *,
    current: ReplacedStore,
    erasures: Iterable[Erasure],
    root: PrivateKey | None = None,
    pending: Sequence[StampedLeaf] = (),
    before_commit: Callable[[RestoreRecord], None] = lambda _: None,
) -> RestoreOutcome:
    """Record the restore in an open copy whose log nobody else writes to; return what was recorded.

    `root` is the store's root key, from its recovery code; it vouches for this home's keys of every role. `pending` are
    entries that no head covered in a server's copy; on SQLite they enter the tree here. `before_commit` gets the record
    before it is committed, perhaps more than once.
    """
    # Durable before the transaction that admits them, like every key.
    head_roles = database.read(ring.head_roles).result()
    roles = dict.fromkeys([*head_roles, *(ring.DAILY_ROLES if root is not None else ())])
    signers: dict[Role, Signer] = {role: keys.ensure(role) for role in roles}
    heads: list[str] = []
    tree_writer = TreeWriter(moves=True)
    log = Log(signers["log"], [heads.append], tree_writer=tree_writer, pq_signer=signers.get("log-pq"))
    if database.dialect == "sqlite":
        database.hooks.before_commit.append(log.integrate)
    database.hooks.after_commit.append(log.publish)

    def act(tx: Tx) -> tuple[RestoreRecord, list[Erasure], int]:
        record = restores.record(
            tx, staged.store_id, abandoned=current.head, source=staged.source, above=current.restores
        )
        if tx.dialect == "postgres":
            _log_restore_first(tx, log, tree_writer)
        for leaf in pending:
            tx.note(TOPIC, leaf)
        for role, key in signers.items():
            _admit(tx, role, key, root or partial(keys.load, "root"), record.origin)
        encryption.take_over(tx, current.sealed)
        erased = erase.reapply(tx, erasures)
        before_commit(record)
        return record, erased, encryption.keyless(tx)

    record, erased, keyless = database.write(act, ungated=True).result()
    if database.dialect == "postgres":
        # No sequencer runs over a copy: take the pending leaves into the tree here, until none is left.
        step = partial(sequence, log=log, tree_writer=tree_writer)
        while database.write(step, ungated=True).result():
            pass
    return RestoreOutcome(record, erased, keyless, heads[-1])


_TAKE = sql_postgres(
    "DELETE FROM log_pending WHERE id = (SELECT leaf_id FROM restores ORDER BY n DESC LIMIT 1) RETURNING id, ver, leaf"
)


def _log_restore_first(tx: Tx, log: Log, tree_writer: TreeWriter) -> None:
    """Put the restore's leaf into the tree now, before leaves that were pending in the copy."""
    row = tx.one(_TAKE)
    assert row is not None, "it was appended in this transaction"
    handle, version, text = row
    leaf: Leaf = (handle, version, text)
    tx.note(HEAD, tree_writer.integrate(tx, lock(tx), [leaf], log.sign))


def _admit(tx: Tx, role: Role, key: Signer, root: Signer | Callable[[], Signer], origin: str) -> None:
    """Bring a key of this home into the restored keyring, unless it is there; UnknownKeyError without the root key."""
    roots = {each.keyid for each in ring.keyring(tx, role="root") if each.revoked_from is None}
    if not callable(root) and root.keyid not in roots:
        raise UnknownKeyError("the recovery code is not that of the restored store's root key", keyid=root.keyid)
    if ring.is_registered(tx, key.keyid, role):
        return
    by = key
    if roots:
        try:
            by = root() if callable(root) else root
        except NotFoundError as error:
            raise UnknownKeyError(
                f"this home has no {role} key of the restored store, and its root key is not here to admit one: pass"
                " `--root-recovery FILE` with the recovery code of the root key, or put the store's keys in place",
                keyid=key.keyid,
            ) from error
    statement = KeyStatement("admit" if roots else "introduce", role, key.public, origin, tx.now)
    ring.import_statement(tx, statements.sign(statement.encode(), by))
