"""The log: one append-only Merkle tree over everything that matters, its head signed once a commit.

Rules:
- On SQLite leaves are integrated and one head signed inside the group's own commit (`Log.integrate`).
- A head is shown to anybody only once it is durable (`Log.publish`).
- On PostgreSQL leaves wait in `log_pending`; the elected sequencer integrates every committed one (sequencer.py).
- Without a log key of the store's keyring no head is signed: SQLite refuses to log, PostgreSQL leaves it to others.
- Every process notices at its next head that the keyring has changed (`Log.look`): a successor signs from there on, a
  revoked key signs nothing.
- A log that is behind, or beside, a head that was kept elsewhere is never taken for the same log (`continuity`).
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from holdproof.crypto import checkpoint, frontier, tiles
from holdproof.crypto.checkpoint import Checkpoint, SignedCheckpoint
from holdproof.crypto.keys import Signer
from holdproof.crypto.note import NoteSignature
from holdproof.crypto.tiles import EntryBundle
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.db import Notes, Tx, sql
from holdproof.db.sql import sql_postgres
from holdproof.errors import BadKeyError, FormatError, NotFoundError
from holdproof.evidence import leaves, restores
from holdproof.evidence import tree as trees
from holdproof.evidence.key_files import Keys
from holdproof.evidence.tree import Grower
from holdproof.model.verdicts import Verdict

HEAD: Final = "head"
verifiers = trees.verifiers

_HELD = sql("SELECT keyid, revoked_from, leaf_id FROM keyring WHERE role = 'log'")


def held(tx: Tx) -> dict[str, tuple[int | None, str]]:
    """The log keys of the keyring: from which leaf on each does not count, and the handle of its own leaf."""
    return {keyid: (revoked_from, leaf_id) for keyid, revoked_from, leaf_id in tx.all(_HELD)}


class Log:
    """What signs heads: the hooks of one open store. Without `keys` it keeps to the signer it was given."""

    def __init__(
        self,
        signer: Signer | None,
        publish: Callable[[str], None],
        keys: Keys | None = None,
        *,
        grower: Grower | None = None,
    ) -> None:
        self._signer, self._publish, self._keys = signer, publish, keys
        self._held: dict[str, tuple[int | None, str]] = {}
        self._name: VerifierKey | None = None
        self._grower = grower or Grower()
        self.continuity = Verdict.VALID
        """What opening the store found: VALID, or that the log is behind or beside the head kept elsewhere."""
        self.stop: Callable[[], None] = lambda: None
        """Ends what runs in the background; called before the database closes."""

    @property
    def signs(self) -> bool:
        """Whether this process holds a log key of the store."""
        return self._signer is not None

    def use(self, signer: Signer | None) -> None:
        """From the next head on, this key signs."""
        self._signer = signer

    def look(self, tx: Tx) -> None:
        """If the keyring has changed, let this home's newest key that counts there sign from here on, or none.

        A key that comes in with this very head does not sign it, unless it is the first: nobody admits himself.
        """
        if self._keys is None or (now := held(tx)) == self._held:
            return
        fresh = {handle for handle, ver, _ in tx.notes.get(leaves.TOPIC, ()) if ver == 1}
        older = {keyid: key for keyid, key in now.items() if key[1] not in fresh} or now
        known = [*_newest(self._keys), *([self._signer] if self._signer else [])]
        self._signer = next((key for key in known if older.get(key.keyid, (0,))[0] is None), None)
        self._held = now if older == now else {}  # else they are looked at again

    def sign(self, head: Checkpoint) -> str:
        """A head as a signed note: what `checkpoint.sign` makes, the key's id computed once."""
        signer, name = self._signer, self._name
        if signer is None:
            raise BadKeyError("this home holds no log key of this store, so nothing can be logged here")
        if name is None or name.name != head.origin or name.public != signer.public:
            name = self._name = VerifierKey(head.origin, ED25519, signer.public)
        text = head.text()
        return f"{text}\n{NoteSignature(name.name, name.key_id, signer.sign(text.encode())).line()}"

    def integrate(self, tx: Tx) -> None:
        """Before commit: the group's leaves become part of the tree, under one signed head."""
        fresh = tx.notes.get(leaves.TOPIC)
        if fresh:
            self.look(tx)
            tx.note(HEAD, self._grower.integrate(tx, fresh, self.sign))

    def publish(self, notes: Notes) -> None:
        """After commit: the head is durable and may be shown."""
        for head in notes.get(HEAD, ()):
            self._publish(head)


def _newest(keys: Keys) -> Iterator[Signer]:
    """The log keys of this home: a successor that waits first, since it may become the current one meanwhile."""
    for find in (keys.prepared, keys.load):
        with suppress(NotFoundError):
            if (key := find("log")) is not None:
                yield key


def head(tx: Tx) -> SignedCheckpoint:
    """The newest signed head."""
    text = trees.state(tx).head
    if not text:
        raise NotFoundError("nothing has been logged yet")
    return checkpoint.parse(text.encode())


def seen(tx: Tx) -> str | None:
    """The newest head, for a client that remembers what it saw; None if there is none that a log key signed."""
    if not trees.begun(tx):
        return None
    now = trees.state(tx)
    try:
        signed = checkpoint.parse(now.head.encode())
        checkpoint.verify(signed, origin=now.origin, log_keys=verifiers(tx))
    except FormatError:
        return None
    return now.head if signed.checkpoint.size == now.size else None


_FIND = sql("SELECT idx, leaf FROM log_leaves WHERE id = :id AND ver = :ver")
_NEWEST = sql("SELECT idx, leaf FROM log_leaves WHERE id = :id ORDER BY ver DESC LIMIT 1")


def find(tx: Tx, leaf_id: str, *, ver: int | None = None) -> tuple[int, str]:
    """Index and text of a record's leaf: of that version, or the newest."""
    row = tx.one(_NEWEST, id=leaf_id) if ver is None else tx.one(_FIND, id=leaf_id, ver=ver)
    if row is None:
        waits = tx.dialect == "postgres" and tx.one(_WAITS, id=leaf_id) is not None
        state = "is committed, but not yet" if waits else "is not"
        raise NotFoundError(f"the leaf {state} under a signed head", leaf_id=leaf_id, ver=ver, pending=waits)
    return row[0], row[1]


_WAITS = sql_postgres("SELECT 1 FROM log_pending WHERE id = :id LIMIT 1")
_PENDING = sql_postgres("SELECT count(*) FROM log_pending")


def pending(tx: Tx) -> int:
    """How many leaves are committed and not yet under a signed head: on PostgreSQL, for a fraction of a second."""
    if tx.dialect == "sqlite":
        return 0
    row = tx.one(_PENDING)
    assert row is not None
    return int(row[0])


def prove(tx: Tx, leaf_id: str, ver: int | None = None) -> TlogProof:
    """That a leaf stands in the tree under the newest head: checkable offline, with the log's public key."""
    index, text = find(tx, leaf_id, ver=ver)
    newest = head(tx)
    path = trees.prove_inclusion(tx, index, newest.checkpoint.size)
    return TlogProof(index=index, proof=path, head=newest, extra=text.encode())


def prove_consistency(tx: Tx, old: int, new: int | None = None) -> tuple[bytes, ...]:
    """That the tree of size `new` (the newest) continues the one of size `old`."""
    return trees.prove_consistency(tx, old, trees.state(tx).size if new is None else new)


def tile(tx: Tx, path: str) -> bytes:
    """A tile or a bundle of entries, by its tlog-tiles path."""
    named = tiles.parse_path(path)
    return tiles.encode_bundle(trees.entries(tx, named)) if isinstance(named, EntryBundle) else trees.fetch(tx, named)


def continuity(tx: Tx, kept: SignedCheckpoint) -> Verdict:
    """Whether this log continues a head that was kept elsewhere: a cheap look at size and root, by its tiles.

    ROLLED_BACK if it is shorter or knows nothing of a later restore, FORKED if it is whole and had another root at that
    size, TAMPERED if it is not even whole. A head of another log, or of a past that a restore gave up, says nothing.
    """
    if not trees.begun(tx):
        return Verdict.VALID
    then, counts = kept.checkpoint, counted(tx, kept)
    if counts is not Verdict.VALID:
        return counts or Verdict.VALID
    now = trees.state(tx)
    if then.size > now.size:
        return Verdict.ROLLED_BACK
    try:
        if trees.root_at(tx, then.size) == then.root:
            return Verdict.VALID
        whole = trees.root_at(tx, now.size) == frontier.from_bytes(now.frontier).root()
    except (NotFoundError, FormatError):
        return Verdict.TAMPERED
    return Verdict.FORKED if whole else Verdict.TAMPERED


def counted(tx: Tx, kept: SignedCheckpoint) -> Verdict | None:
    """VALID if a kept head has to be one of this tree, None if it says nothing of it, ROLLED_BACK by its origin."""
    then = kept.checkpoint
    reach, (store, restored) = restores.reach(tx), generation(trees.state(tx).origin)
    if then.origin in reach:
        end = reach[then.origin]
        return Verdict.VALID if end is None or then.size <= end else None
    theirs, number = generation(then.origin)
    return Verdict.ROLLED_BACK if theirs == store and number > restored else None


def generation(origin: str) -> tuple[str, int]:
    """Which store an origin names, and after how many restores."""
    *store, last = origin.split("/")
    return ("/".join(store), int(last)) if len(store) > 1 and last.isdecimal() else (origin, 0)
