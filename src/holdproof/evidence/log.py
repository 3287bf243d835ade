"""The log: one append-only Merkle tree over everything that matters, its head signed once a commit.

Rules:
- On SQLite leaves are integrated and one head signed inside the group's own commit (`Log.integrate`).
- A head is shown to anybody only once it is durable (`Log.publish`).
- On PostgreSQL leaves wait in `log_pending`; the elected sequencer integrates every committed one (sequencer.py).
- Without a log key of the store's keyring no head is signed: SQLite refuses to log, PostgreSQL leaves it to others.
- From the entry of the first ML-DSA-44 key (role `log-pq`) on, every head has a second signature by such a key; without
  one no head is signed either.
- Every process notices at its next head that the keyring has changed (`Log.look`): a successor signs from there on, a
  revoked key signs nothing.
- A log that does not contain a head kept outside the database is never continued as the same log (`continuity`).
- A running process remembers the newest head it has seen, and signs nothing that does not continue it: a standby that
  was promoted without the end of the log, or a tail that was cut, would otherwise become a second history.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from holdproof.crypto import checkpoint, frontier, merkle, note, tiles, tlog_proof
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.keys import Signer
from holdproof.crypto.note import NoteSignature
from holdproof.crypto.tiles import EntryBundle
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.db import Notes, Tx, sql
from holdproof.db.sql import sql_postgres, sql_sqlite
from holdproof.errors import BadKeyError, FormatError, HistoryLostError, NotFoundError
from holdproof.evidence import leaves, numbering, restores
from holdproof.evidence import tree as trees
from holdproof.evidence.key_files import Keys
from holdproof.evidence.restores import Reach
from holdproof.evidence.tree import LogState, TreeWriter
from holdproof.model import times
from holdproof.model.keys import Role
from holdproof.model.verdicts import Verdict

HEAD: Final = "head"
verifiers = trees.verifiers
generation = restores.generation


class RingKey(NamedTuple):
    """What the keyring says of a key that signs heads: from which leaf on it is revoked, and its own leaf's handle."""

    role: Role
    revoked_from: int | None
    leaf_id: str


_HELD = sql("SELECT keyid, role, revoked_from, leaf_id FROM keyring WHERE role IN ('log', 'log-pq')")


def head_keys_in_ring(tx: Tx) -> dict[str, RingKey]:
    """Return the keys of the keyring that sign heads, of both roles, by key id."""
    return {keyid: RingKey(role, revoked_from, leaf_id) for keyid, role, revoked_from, leaf_id in tx.all(_HELD)}


# State and keyring in one statement, because every commit reads both.
_BEFORE = sql_sqlite(
    "SELECT origin, size, frontier, head,"
    " (SELECT group_concat(keyid || ' ' || coalesce(revoked_from, '') || ' ' || leaf_id)"
    " FROM keyring WHERE role IN ('log', 'log-pq'))"
    " FROM log_state WHERE id = 1"
)


class Log:
    """Signs heads: the hooks of one open store. Without `keys` it always uses the signer it was given."""

    def __init__(
        self,
        signer: Signer | None,
        listeners: Sequence[Callable[[str], None]],
        keys: Keys | None = None,
        *,
        tree_writer: TreeWriter | None = None,
        pq_signer: Signer | None = None,
    ) -> None:
        self._signer = signer
        self._pq_signer = pq_signer
        self._needs_pq = pq_signer is not None
        self.listeners = [*listeners]
        """Called with each durable head, in this order."""
        self._keys = keys
        self._keyring: dict[str, RingKey] = {}
        # The same as `_BEFORE` returns it; empty while the keyring must be looked at again.
        self._keyring_text: str | None = ""
        self._name: VerifierKey | None = None
        self._tree_writer = tree_writer or TreeWriter()
        self.continuity = Verdict.VALID
        """Whether the log continues the heads kept outside the database, as the opening found."""
        self.stop: Callable[[], None] = lambda: None
        """Stops the background sequencer; called before the database closes."""
        self.on_lost: Callable[[HistoryLostError], None] = lambda _: None
        """Called before every refusal of a log that does not continue the newest head seen here."""
        self.restored_here: Collection[str] = ()
        """The origins that this home restored the log to: only their restores give up heads that were seen here."""
        self._self_signed = ""
        self.familiar = True
        """Whether this home vouches for the log; the heads of any other are kept only if they were signed here."""
        self._seen = ""

    @property
    def signs(self) -> bool:
        """Whether this process holds the keys of the store that sign heads."""
        return self._signer is not None and (self._pq_signer is not None or not self._needs_pq)

    def use(self, signer: Signer | None) -> None:
        """Sign with this log key, or this ML-DSA-44 key, from the next head on."""
        if signer is not None and signer.alg == "ml-dsa-44":
            self._pq_signer = signer
        else:
            self._signer = signer

    def look(self, tx: Tx) -> None:
        """If the keyring has changed, choose this home's newest keys that count there as the signers, or none.

        A log key admitted by a leaf under this very head does not sign it, unless it is the first key of the log or
        root admits it in place of keys that are lost: a head must be signed by a key that was trusted before it.
        """
        if self._keys is None or (now := head_keys_in_ring(tx)) == self._keyring:
            return
        fresh = {handle for handle, ver, *_ in tx.notes.get(leaves.TOPIC, ()) if ver == 1}
        self._signer = self._choose("log", now, fresh, self._signer)
        self._pq_signer = self._choose("log-pq", now, fresh, self._pq_signer)
        self._needs_pq = any(key.role == "log-pq" and key.revoked_from is None for key in now.values())
        # One that was passed over is looked at again at the next head.
        self._keyring = {} if any(key.leaf_id in fresh for key in now.values()) else now

    def _choose(
        self, role: Role, now: Mapping[str, RingKey], fresh: Collection[str], current: Signer | None
    ) -> Signer | None:
        """Return this home's newest key of a role that counts, of log keys only those that counted before this head."""
        assert self._keys is not None, "asked by `look` only"
        ring = {keyid: key for keyid, key in now.items() if key.role == role}
        if role == "log":
            older = {each for each, key in ring.items() if key.leaf_id not in fresh or each == self._self_signed}
            ring = {keyid: ring[keyid] for keyid in older or ring}
        able = {keyid for keyid, key in ring.items() if key.revoked_from is None}
        candidates = [*_newest(self._keys, role), *([current] if current else [])]
        return next((key for key in candidates if key.keyid in able), None)

    def sign_own_admission(self, keyid: str) -> None:
        """Let a log key sign the head above its own leaf, where this home holds no other: root vouches for it.

        To be called before root admits the key; one that is not in the keyring still signs nothing.
        """
        self._self_signed = keyid

    def sign(self, head: LogCheckpoint, at: str) -> str:
        """Return a head as a signed note: equal to `checkpoint.sign`, with the key's id computed once.

        Where the keyring has an ML-DSA-44 key that counts, that signs too, and says the time `at`.
        """
        signer = self._signer
        name = self._name
        if signer is None:
            raise BadKeyError(
                "this home holds no log key of this store, so nothing can be logged here",
                remedy="Put config/keys back from the home that has them, or from a backup made with --keys; where they"
                " are lost, root admits a new one: `holdproof keys rotate log`; on a further machine `keys join`.",
            )
        # The key id is a hash over name and key: recomputed only when one of them changes.
        if name is None or name.name != head.origin or name.public != signer.public:
            name = self._name = VerifierKey(head.origin, ED25519, signer.public)
        text = head.text()
        line = NoteSignature(name.name, name.key_id, signer.sign(text.encode())).line()
        second = self._sign_pq(text, head.origin, at) if self._needs_pq else ""
        return f"{text}\n{line}{second}"

    def _sign_pq(self, text: str, origin: str, at: str) -> str:
        """Return the line of the ML-DSA-44 signature."""
        if self._pq_signer is None:
            raise BadKeyError(
                "heads of this store are signed with ML-DSA-44 too, and this home holds no such key of it",
                remedy="Put config/keys/log-pq.pem back; where it is lost, root admits a new one: `holdproof keys"
                " rotate log-pq`; on a further machine `holdproof keys join`. To end the second signature,"
                " `holdproof keys revoke` every key of this role, the oldest first.",
            )
        return note.cosign(text, origin, self._pq_signer, seconds=times.to_micros(at) // 1_000_000).line()

    def integrate(self, tx: Tx) -> None:
        """Before commit: append the group's leaves to the tree, under one signed head."""
        fresh = tx.notes.get(leaves.TOPIC)
        if fresh:
            row = tx.one(_BEFORE)
            assert row is not None, "a log is begun when its store is opened"
            *state, keyring = row
            before = trees.LogState(*state)
            if before.head != self._seen:
                self.refuse_lost(tx, before)
            if keyring != self._keyring_text:
                self.look(tx)
                self._keyring_text = keyring if self._keyring else ""
            tx.note(HEAD, self._tree_writer.integrate(tx, before, numbering.number(tx, fresh), self.sign))

    def publish(self, notes: Notes) -> None:
        """After commit: publish the head, which is durable now."""
        for head in notes.get(HEAD, ()):
            self._seen = head
            if self.familiar or self.signs:
                for listener in self.listeners:
                    listener(head)

    def refuse_lost(self, tx: Tx, now: LogState) -> None:
        """Raise HistoryLostError if the log does not continue the newest head that this process has seen."""
        if not self._seen or now.head == self._seen:
            return
        last_head = checkpoint.parse(self._seen.encode())
        verdict = continuity(tx, last_head, self.restored_here)
        if not verdict.sound:
            size = last_head.checkpoint.size
            what = f"the log has {now.size} entries and does not continue the head of size {size} that was seen here"
            error = HistoryLostError(what, verdict=verdict.word, seen=size, size=now.size)
            self.on_lost(error)
            raise error

    def observe(self, tx: Tx) -> str | None:
        """Remember the newest head, also one of another process, and return it; HistoryLostError as `refuse_lost`.

        None while there is no head that a log key signed.
        """
        now = trees.state(tx)
        if now.head == self._seen:
            return self._seen
        self.refuse_lost(tx, now)
        head = newest_valid_head(tx)
        # A head that no key signed is not remembered: a forged one would make the true ones look like a fork.
        if head is not None:
            self._seen = head
        return head

    def restored_elsewhere(self, tx: Tx) -> bool:
        """Whether a restore has moved the log to another origin since, and it continues what was seen here."""
        if not self._seen:
            return False
        last_head = checkpoint.parse(self._seen.encode())
        # Whoever made them: an opening decides whether this home accepts them.
        origins = {each.origin for each in restores.history(tx)}
        return last_head.checkpoint.origin != trees.state(tx).origin and continuity(tx, last_head, origins).sound


def verifier_keys(tx: Tx) -> list[str]:
    """Return the keys that the newest head is checked with, as witnesses and other verifiers take them."""
    return [key.encode() for key in verifiers(tx)]


def _newest(keys: Keys, role: Role) -> Iterator[Signer]:
    """Yield the keys of a role of this home: a waiting successor first, since it may be promoted meanwhile."""
    for find in (keys.prepared, keys.load):
        with suppress(NotFoundError):
            if (key := find(role)) is not None:
                yield key


def head(tx: Tx) -> SignedCheckpoint:
    """Return the newest signed head; NotFoundError while the log is empty."""
    text = trees.state(tx).head
    if not text:
        raise NotFoundError("nothing has been logged yet")
    return checkpoint.parse(text.encode())


def newest_valid_head(tx: Tx) -> str | None:
    """Return the newest head if a log key signed it, for a client to keep; None otherwise."""
    if not trees.exists(tx):
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


def get_entry(tx: Tx, leaf_id: str, version: int | None = None) -> tuple[int, str]:
    """Return index and text of a record's entry (leaf) in the log: of that version, or of the newest.

    NotFoundError if it is not under a signed head; its field `pending` says whether it will be in a moment.
    """
    row = tx.one(_NEWEST, id=leaf_id) if version is None else tx.one(_FIND, id=leaf_id, ver=version)
    if row is None:
        waits = tx.dialect == "postgres" and tx.one(_WAITS, id=leaf_id) is not None
        state = "is committed, but not yet" if waits else "is not"
        raise NotFoundError(f"the leaf {state} under a signed head", leaf_id=leaf_id, version=version, pending=waits)
    index, text = row
    return index, text


_WAITS = sql_postgres("SELECT 1 FROM log_pending WHERE id = :id LIMIT 1")
_PENDING = sql_postgres("SELECT count(*) FROM log_pending")


def pending(tx: Tx) -> int:
    """Count the leaves that are committed and not yet under a signed head; always 0 on SQLite."""
    if tx.dialect == "sqlite":
        return 0
    row = tx.one(_PENDING)
    assert row is not None, "an aggregate always has a row"
    return int(*row)


def prove(tx: Tx, leaf_id: str, version: int | None = None) -> TlogProof:
    """Return the proof that an entry is in the log under the newest head: checkable offline with the log's key."""
    index, text = get_entry(tx, leaf_id, version)
    newest = head(tx)
    path = trees.prove_inclusion(tx, index, newest.checkpoint.size)
    return TlogProof(index=index, proof=path, head=newest, extra=text.encode())


_WAITING = sql_postgres("SELECT leaf FROM log_pending WHERE id = :id AND ver = :ver")


def prove_entry(tx: Tx, leaf_id: str, version: int) -> str:
    """Return the text of an entry once it is proven against the signed head of the log.

    On PostgreSQL an entry that waits for its head is returned as it is: whoever can write it there can append to the
    log. Raises NotFoundError where there is none, and ProofError where the tree or the head does not vouch for it.
    """
    waiting = None if tx.dialect == "sqlite" else tx.one(_WAITING, id=leaf_id, ver=version)
    if waiting is not None:
        (text,) = waiting
        return str(text)
    proof = prove(tx, leaf_id, version)
    origin = proof.head.checkpoint.origin
    keys = trees.verifiers(tx, size=proof.head.checkpoint.size, origin=origin)
    tlog_proof.verify(proof, merkle.leaf_hash(proof.extra), origin=origin, log_keys=keys)
    return proof.extra.decode()


def prove_consistency(tx: Tx, old: int, new: int | None = None) -> tuple[bytes, ...]:
    """Return the proof that the tree of size `new` (by default the newest) continues the one of size `old`."""
    return trees.prove_consistency(tx, old, trees.state(tx).size if new is None else new)


def tile(tx: Tx, path: str) -> bytes:
    """Return a tile or a bundle of entries, by its tlog-tiles path."""
    named = tiles.parse_path(path)
    return tiles.encode_bundle(trees.entries(tx, named)) if isinstance(named, EntryBundle) else trees.fetch(tx, named)


def continuity(tx: Tx, kept_head: SignedCheckpoint, restored_here: Collection[str] = ()) -> Verdict:
    """Check whether this log continues a head that was kept outside the database, by size and tiles only.

    ROLLED_BACK if it is shorter or does not contain a later restore, FORKED if it is intact and had another root at
    that size, TAMPERED if it is not even intact. A head of another log, or of a history that a restore to one of the
    origins `restored_here` abandoned, proves nothing: VALID.
    """
    [verdict] = continuities(tx, [kept_head], restored_here)
    return verdict


def continuities(tx: Tx, kept_heads: Sequence[SignedCheckpoint], restored_here: Collection[str] = ()) -> list[Verdict]:
    """Check the same for many heads; each tile is read once."""
    if not trees.exists(tx):
        return [Verdict.VALID] * len(kept_heads)
    now = trees.state(tx)
    root_at = trees.roots(tx)
    pairs = zip(kept_heads, relevances(tx, kept_heads, restored_here), strict=True)
    return [_continuity(head, counts, now, root_at) for head, counts in pairs]


def _continuity(
    kept_head: SignedCheckpoint, counts: Verdict | None, now: LogState, root_at: Callable[[int], bytes]
) -> Verdict:
    if counts is not Verdict.VALID:
        return counts or Verdict.VALID
    then = kept_head.checkpoint
    if then.size > now.size:
        return Verdict.ROLLED_BACK
    try:
        if root_at(then.size) == then.root:
            return Verdict.VALID
        whole = root_at(now.size) == frontier.from_bytes(now.frontier).root()
    except (NotFoundError, FormatError):
        return Verdict.TAMPERED
    return Verdict.FORKED if whole else Verdict.TAMPERED


def relevances(
    tx: Tx, kept_heads: Sequence[SignedCheckpoint], restored_here: Collection[str] = ()
) -> list[Verdict | None]:
    """Return for each kept head VALID if it must be one of this tree, None if it proves nothing, else ROLLED_BACK."""
    reach = restores.reach(tx, restored_here)
    store, _ = generation(trees.state(tx).origin)
    return [_relevance(head.checkpoint, reach, store) for head in kept_heads]


def _relevance(then: LogCheckpoint, reach: Reach, store: str) -> Verdict | None:
    if then.origin in reach.sizes:
        end = reach.sizes[then.origin]
        if end is None or then.size <= end:
            return Verdict.VALID
    elif generation(then.origin)[0] != store:
        return None
    # A head of this store that is not in its log: of a history that this home gave up, or lost.
    return None if reach.gives_up(then.origin) else Verdict.ROLLED_BACK
