"""The restore ceremony, on a copy that is not live yet: new origin, keys of subjects, later erasures.

Rules:
- The first leaf under the new origin is the restore's own; whatever waited in the copy comes after it.
- A log key that the restored keyring does not know comes in by itself, or where there is a root by root.
- Keys of subjects are taken over before erasures are made again: who was erased since stays erased.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdproof.content import encryption
from holdproof.crypto.keys import Signer
from holdproof.db import Database, Tx
from holdproof.db.sql import sql_postgres
from holdproof.errors import NotFoundError, UnknownKeyError
from holdproof.evidence import keys as ring
from holdproof.evidence import restores, statements
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.leaves import Leaf
from holdproof.evidence.log import HEAD, Log
from holdproof.evidence.sequencer import sequence
from holdproof.evidence.statements import KeyStatement
from holdproof.evidence.tree import Grower
from holdproof.model.backup import Ceremony
from holdproof.model.erasure import Erasure
from holdproof.upkeep import erase
from holdproof.upkeep.verification.log_check import LogKey


@dataclass(slots=True)
class Current:
    """What the store that is to be replaced can still tell."""

    store_id: str | None = None
    head: str = ""
    keys: list[LogKey] = field(default_factory=list)
    """Its log keys, as far as this home vouches for them."""
    here: set[str] = field(default_factory=set)
    """The ids of the log keys in the key folder."""
    seen: set[str] = field(default_factory=set)
    """The origins of heads that were kept here."""
    sealed: encryption.SubjectKeys = field(default_factory=lambda: encryption.SubjectKeys(None, []))
    erasures: list[Erasure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Staged(NamedTuple):
    """A verified copy, not live yet."""

    store_id: str
    size: int
    as_of: str | None
    trust: str
    source: str


class Held(NamedTuple):
    """What the ceremony did."""

    ceremony: Ceremony
    erasures: list[Erasure]
    keyless: int
    head: str


def hold(database: Database, keys: KeyFolder, staged: Staged, *, current: Current, known: Iterable[Erasure]) -> Held:
    """Hold it on an open copy whose log nobody else grows."""
    signer, heads, grower = keys.ensure("log"), list[str](), Grower(moves=True)
    log = Log(signer, heads.append, grower=grower)
    if database.dialect == "sqlite":
        database.hooks.before_commit.append(log.integrate)
    database.hooks.after_commit.append(log.publish)

    def act(tx: Tx) -> tuple[Ceremony, list[Erasure], int]:
        ceremony = restores.record(tx, staged.store_id, abandoned=current.head, source=staged.source)
        if tx.dialect == "postgres":
            _first(tx, log, grower)
        _admit(tx, signer, keys, ceremony.origin)
        encryption.take_over(tx, current.sealed)
        made = erase.reapply(tx, known)
        return ceremony, made, encryption.keyless(tx)

    ceremony, made, keyless = database.write(act, ungated=True).result()
    while (
        database.dialect == "postgres" and database.write(lambda tx: sequence(tx, log, grower), ungated=True).result()
    ):
        pass
    return Held(ceremony, made, keyless, heads[-1])


_TAKE = sql_postgres(
    "DELETE FROM log_pending WHERE id = (SELECT leaf_id FROM restores ORDER BY n DESC LIMIT 1) RETURNING id, ver, leaf"
)


def _first(tx: Tx, log: Log, grower: Grower) -> None:
    """Put the restore's leaf into the tree here and now, before leaves that were pending in the copy."""
    row = tx.one(_TAKE)
    assert row is not None, "it was appended in this transaction"
    leaf: Leaf = (row[0], row[1], row[2])
    tx.note(HEAD, grower.integrate(tx, [leaf], log.sign))


def _admit(tx: Tx, signer: Signer, keys: KeyFolder, origin: str) -> None:
    if ring.standing(tx, signer.keyid, "log"):
        return
    by: Signer = signer
    rooted = bool(ring.list(tx, role="root"))
    if rooted:
        try:
            by = keys.load("root")
        except NotFoundError as error:
            raise UnknownKeyError(
                "this home has no log key of the restored store, and its root key is not here to admit one: put the"
                " store's keys in place, or restore a backup made with keys",
                keyid=signer.keyid,
            ) from error
    said = KeyStatement("admit" if rooted else "introduce", "log", signer.public, origin, tx.now)
    ring.import_statement(tx, statements.sign(said.encode(), by))
