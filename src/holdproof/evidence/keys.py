"""The keyring: which public keys count, for what, and up to where in the log.

Rules:
- A key is admitted by a signed statement, logged with its row: the first of a role by itself, a successor by its
  predecessor, any key by root.
- Once there is a root key no key introduces itself any more: a new key needs its predecessor or root.
- A private key is durable before its leaf; one without a leaf is registered at its next use.
- Revocation is by position: from leaf N on the key does not count, signatures before it stay valid. Only root revokes,
  and a revocation can be moved earlier, never later or taken back.
- No revocation leaves a key without a valid admission, such as the successor that the revoked key admitted after that
  leaf: root first re-admits it, or revokes it from its own leaf on.
- Only the first key of a role comes in at its first use (`key_use`); `rotate` or `join` bring in further ones.
- A lost log key is replaced by one that root admits, and that signs the head above its own leaf: nothing else could.
  The same holds for the key of the second signature under heads (`log-pq`).
- A key belongs to one role.
- A revoked key signs nothing new.
"""

import builtins
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from holdproof import paging
from holdproof.crypto import dsse, keys
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.crypto.statement import PAYLOAD_TYPE
from holdproof.db import Call, Read, Tx, Work, Write, ask, sql
from holdproof.db.sql import sql_postgres
from holdproof.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ProofError,
    RevokedKeyError,
    UnknownKeyError,
)
from holdproof.evidence import key_audit, leaves, statements, tree
from holdproof.evidence.key_audit import LeafIndexes
from holdproof.evidence.key_files import ROLES
from holdproof.evidence.startup import KEYRING, add_key
from holdproof.evidence.statements import KeyStatement
from holdproof.model.keys import Action, Key, Role, Signed, Successors
from holdproof.model.page import Page
from holdproof.store.context import Context

_PREFIX_DIGITS: Final = 8
DAILY_ROLES: Final[tuple[Role, ...]] = ("log", "judge", "memory")
"""The roles that sign in daily work."""
HEAD_ROLES: Final[tuple[Role, ...]] = ("log", "log-pq")
"""The roles that sign heads: the log key always, an ML-DSA-44 key from its own entry on."""

_ALL = sql(
    "SELECT k.keyid, k.role, k.alg, k.public, k.statement, k.revoked_from, k.added_at, k.leaf_id, k.leaf_ver, l.idx"
    " FROM keyring k LEFT JOIN log_leaves l ON l.id = k.leaf_id AND l.ver = 1 ORDER BY k.added_at, k.keyid"
)


def keyring(tx: Tx, *, role: Role | None = None) -> builtins.list[Key]:
    """Return every key, the oldest first; of one role if that is given."""
    return [key for key in (Key(*row) for row in tx.all(_ALL)) if role in (None, key.role)]


def list(tx: Tx, *, role: Role | None = None, cursor: str | None = None, limit: int = 100) -> Page[Key]:
    """List the keys of the keyring, the newest first; of one role if that is given."""
    newest_first = reversed(keyring(tx, role=role))
    if cursor is not None:
        last = paging.decode(cursor, "", "")
        newest_first = filter(lambda key: _sort_key(key) < last, newest_first)
    return paging.page(islice(newest_first, paging.fetch(limit)), limit, _sort_key)


def _sort_key(key: Key) -> tuple[str, str]:
    return key.added_at, key.keyid


def get(tx: Tx, keyid: str) -> Key:
    """Return a key by its id, or by the start of it if only one key begins so; NotFoundError otherwise."""
    matches = [key for key in keyring(tx) if key.keyid.startswith(keyid)] if len(keyid) >= _PREFIX_DIGITS else []
    if len(matches) != 1:
        raise NotFoundError(
            f"no key, or more than one, begins with {keyid!r}; give {_PREFIX_DIGITS} digits or more",
            listed_by="keys list",
        )
    return matches[0]


def find(tx: Tx, keyid: str) -> Key | None:
    """Return a key by its whole id; None where the keyring has no such key."""
    return next((key for key in keyring(tx) if key.keyid == keyid), None)


_STANDING = sql("SELECT role, revoked_from FROM keyring WHERE keyid = :keyid")


def is_registered(tx: Tx, keyid: str, role: Role) -> bool:
    """Whether a key is registered for its role; RevokedKeyError if it may not sign any more."""
    row = tx.one(_STANDING, keyid=keyid)
    if row is None:
        return False
    registered, revoked_from = row
    if registered != role:
        what = f"the key is registered as a {registered} key, not as a {role} key"
        raise UnknownKeyError(what, keyid=keyid, role=registered)
    if revoked_from is not None:
        what = f"the {role} key was revoked from leaf {revoked_from} on"
        raise RevokedKeyError(what, keyid=keyid, revoked_from=revoked_from)
    return True


def public(key: Key) -> PublicKey:
    """Return the public key of a row of the keyring; FormatError if it is not one."""
    return keys.load_public_pem(key.public.encode())


_ORIGINS = sql("SELECT previous FROM restores ORDER BY n")


def origins(tx: Tx) -> builtins.list[str]:
    """Return every origin this log has had, the current one last."""
    return [*(previous for (previous,) in tx.all(_ORIGINS)), tree.state(tx).origin]


_PQ = sql("SELECT 1 FROM keyring WHERE role = 'log-pq' AND revoked_from IS NULL LIMIT 1")


def head_roles(tx: Tx) -> tuple[Role, ...]:
    """Return the roles whose keys sign the heads of this store now."""
    return HEAD_ROLES if tx.one(_PQ) else HEAD_ROLES[:1]


def flaws(tx: Tx) -> dict[str, str]:
    """Return the keys that were not admitted or revoked by a valid statement, by id, with the reason."""
    return key_audit.flaws(keyring(tx), origins(tx), _places(tx))


def active_keys(tx: Tx, role: Role) -> builtins.list[PublicKey]:
    """Return the keys of a role that count now: not revoked, and admitted by a valid statement."""
    flawed = flaws(tx)
    return [public(key) for key in keyring(tx, role=role) if key.revoked_from is None and key.keyid not in flawed]


_PLACES = sql("SELECT l.id, l.ver, l.idx FROM keyring k JOIN log_leaves l ON l.id = k.leaf_id")
_COMING = sql_postgres(
    "SELECT w.id, w.ver, s.size + w.n FROM (SELECT size FROM log_state WHERE id = 1) s,"
    " (SELECT id, ver, row_number() OVER (ORDER BY seq) - 1 AS n FROM log_pending) w"
    " JOIN keyring k ON k.leaf_id = w.id"
)


def _places(tx: Tx) -> LeafIndexes:
    """Return the indexes of the keys' leaves, or those they will have."""
    # Pending leaves are read first: one that is sequenced in between is then found twice, never not at all.
    if tx.dialect == "postgres":
        coming = tx.all(_COMING)
    else:
        size = tree.state(tx).size
        coming = [(each[0], each[1], at) for at, each in enumerate(tx.notes.get(leaves.TOPIC, ()), size)]
    return {(handle, ver): index for handle, ver, index in (*coming, *tx.all(_PLACES))}


# --- coming in ---------------------------------------------------------------------------------------------------


def introduce(context: Context, role: Role, signer: Signer) -> Work[Key]:
    """Admit a key to the keyring: it introduces itself, or root admits it where there is a root key."""
    rooted: bool = yield from ask(Read(lambda tx: bool(keyring(tx, role="root"))))
    action: Action = "admit" if rooted else "introduce"
    by = (yield from root_signer(context, signer.keyid)) if rooted else signer
    stated: KeyStatement = yield from ask(Read(partial(draft, action=action, role=role, key=signer.public)))
    text: str = yield from ask(Call(lambda: statements.sign(stated.encode(), by)))
    try:
        return (yield from ask(Write(partial(import_statement, text=text))))
    except ConflictError:  # perhaps another process was faster
        known_key = yield from ask(Read(partial(find, keyid=signer.keyid)))
        if known_key is None:
            raise
        return known_key


# --- going out ---------------------------------------------------------------------------------------------------


def revoke(
    context: Context, keyid: str, *, from_index: int | None = None, successors: Successors | None = None
) -> Work[Key]:
    """Revoke a key for leaves from that index on (from now on, if none is given); needs the root key.

    Keys that would be left without a valid admission make it a ConflictError, unless `successors` says what becomes of
    them in the same transaction: "readmit" them, or "revoke" them as well, from their own leaf on.
    """
    planned = yield from ask(Read(partial(_plan, keyid=keyid, from_index=from_index, successors=successors)))
    root = yield from root_signer(context, keyid)
    texts: builtins.list[str] = yield from ask(Call(lambda: [statements.sign(each.encode(), root) for each in planned]))
    return (yield from ask(Write(lambda tx: [import_statement(tx, text) for text in texts][-1])))


def revocation(tx: Tx, keyid: str, *, from_index: int | None = None) -> Signed:
    """Return the statement that revokes a key, not signed yet: for a root key that is kept on another machine."""
    [stated] = _plan(tx, keyid, from_index, None)
    return Signed(stated.encode().decode(), "statement", "")


def readmission(tx: Tx, keyid: str) -> Signed:
    """Return the statement that re-admits a key, not signed yet: for a root key kept on another machine."""
    key = get(tx, keyid)
    return Signed(draft(tx, "readmit", key.role, public(key)).encode().decode(), "statement", "")


def _plan(tx: Tx, keyid: str, from_index: int | None, successors: Successors | None) -> builtins.list[KeyStatement]:
    """Return the statements that revoke a key: first those about keys it would orphan, the youngest first."""
    key = get(tx, keyid)
    size = _end(tx)
    if from_index is not None and not 0 <= from_index <= size:
        raise InvalidInputError(
            f"a key is revoked from one of 0 … {size} on, the size of the log", from_index=from_index
        )
    since = size if from_index is None else from_index
    orphans = [each for each in _orphans(tx, replace(key, revoked_from=since)) if each.keyid != key.keyid]
    if successors is None:
        _refuse(key, orphans)
    stated = [draft(tx, "revoke", key.role, public(key), revoked_from=since)]
    places = _places(tx)
    for each in sorted(orphans, key=lambda each: places[each.leaf_id, 1]):
        from_leaf = places[each.leaf_id, 1] if successors == "revoke" else None
        stated.insert(0, draft(tx, successors or "revoke", each.role, public(each), revoked_from=from_leaf))
    return stated


def _orphans(tx: Tx, changed: Key) -> builtins.list[Key]:
    """Return the keys that would no longer count if a key of the ring were changed like this."""
    ring = [changed if each.keyid == changed.keyid else each for each in keyring(tx)]
    orphaned = key_audit.flaws(ring, origins(tx), _places(tx)).keys() - flaws(tx).keys()
    return [each for each in ring if each.keyid in orphaned]


def _refuse(key: Key, orphans: builtins.list[Key]) -> None:
    if orphans:
        named = [f"{each.role} {each.keyid}" for each in orphans]
        raise ConflictError(
            f"this key admitted {', '.join(named)}: let root re-admit or revoke those first, or in the same command"
            " (`--successors readmit` or `revoke`)",
            keyid=key.keyid,
            orphans=named,
        )


def statement(context: Context, role: Role) -> Work[Signed]:
    """Return the statement that admits this machine's key of a role, not signed yet: for a root key kept elsewhere."""
    check_role(role)
    if role == "root":
        raise InvalidInputError("a root key follows another by rotation only: `holdproof keys rotate root`", role=role)
    signer: Signer = yield from ask(Call(partial(context.keys.ensure, role)))
    stated = yield from ask(Read(partial(draft, action="admit", role=role, key=signer.public)))
    return Signed(stated.encode().decode(), "statement", "")


def import_statement(tx: Tx, text: str) -> Key:
    """Apply a signed statement about a key: admit, re-admit or revoke it; refused if its signer may not do that."""
    stated, envelope = statements.parse(text.strip())
    tree.lock(tx)  # serialises statements: a key must not admit a successor while it is being revoked
    _authorise(tx, stated, envelope)
    line = dsse.encode(envelope).decode()
    if stated.action == "revoke":
        return _revoke(tx, stated, line)
    if stated.action == "readmit":
        return _readmit(tx, stated, line)
    if find(tx, stated.public.keyid) is not None:
        raise ConflictError("the key is in the keyring already", keyid=stated.public.keyid)
    add_key(tx, stated.role, stated.public, statement=line)
    return get(tx, stated.public.keyid)


def _authorise(tx: Tx, stated: KeyStatement, envelope: Envelope) -> None:
    """Check that the signer may make this statement: the rules of the module, in one place."""
    if stated.origin != tree.state(tx).origin:
        raise ProofError("the statement is for another log", found=stated.origin, expected=tree.state(tx).origin)
    roots = [key for key in keyring(tx, role="root") if key.revoked_from is None]
    if stated.action == "introduce":
        if keyring(tx, role="root"):
            what = "there is a root key: a key cannot introduce itself; `holdproof keys statement`, signed by root"
            raise UnknownKeyError(what, keyid=stated.public.keyid)
        signers = [stated.public]
    elif stated.action == "rotate":
        old = find(tx, stated.previous or "")
        if old is None or old.role != stated.role:
            raise ProofError("the predecessor is no key of that role here", keyid=stated.previous)
        if old.revoked_from is not None:
            raise RevokedKeyError("a revoked key cannot name its successor", keyid=old.keyid)
        signers = [public(old)]
    else:
        if stated.action != "revoke" and stated.role == "root":
            raise ProofError("a root key follows another by rotation only", keyid=stated.public.keyid)
        signers = [public(root) for root in roots]
    dsse.verify(envelope, signers, payload_type=PAYLOAD_TYPE)


def _revoke(tx: Tx, stated: KeyStatement, line: str) -> Key:
    key = get(tx, stated.public.keyid)
    since = stated.revoked_from
    if since is None or not 0 <= since <= _end(tx) or stated.role != key.role:
        raise InvalidInputError("the statement names no index of this log, or another role", revoked_from=since)
    if key.revoked_from is not None and key.revoked_from <= since:
        raise ConflictError(f"the key is revoked from leaf {key.revoked_from} on", keyid=key.keyid)
    if key.role == "log" and not [each for each in keyring(tx, role="log") if _other(each, key)]:
        raise ConflictError("the only log key cannot be revoked: rotate it first", keyid=key.keyid)
    revoked = _with(key, line, revoked_from=since)
    _refuse(key, _orphans(tx, revoked))
    return _restate(tx, revoked)


def _readmit(tx: Tx, stated: KeyStatement, line: str) -> Key:
    key = get(tx, stated.public.keyid)
    if stated.role != key.role:
        raise InvalidInputError("the statement names another role than the key has", role=stated.role)
    return _restate(tx, _with(key, line, revoked_from=key.revoked_from))


def _with(key: Key, line: str, *, revoked_from: int | None) -> Key:
    """Return the key's next version, with one more statement."""
    text = f"{key.statement}\n{line}"
    return replace(key, revoked_from=revoked_from, statement=text, leaf_ver=key.leaf_ver + 1)


_RESTATE = sql(
    "UPDATE keyring SET revoked_from = :revoked_from, statement = :statement, leaf_ver = :leaf_ver,"
    " leaf_salt = :leaf_salt WHERE keyid = :keyid AND leaf_ver = :seen"
)


def _restate(tx: Tx, key: Key) -> Key:
    """Replace a key's row by its next version, with its leaf."""
    row = {column: getattr(key, column) for column in KEYRING.columns}
    mark = leaves.stamp(tx, "key", KEYRING, row, leaf_id=key.leaf_id, leaf_ver=key.leaf_ver)
    tx.execute(
        _RESTATE,
        keyid=key.keyid,
        revoked_from=key.revoked_from,
        statement=key.statement,
        leaf_ver=mark.leaf_ver,
        leaf_salt=mark.leaf_salt,
        seen=key.leaf_ver - 1,
        expect=1,
    )
    return key


_END = sql(
    "SELECT size FROM log_state WHERE id = 1",
    postgres="SELECT size + (SELECT count(*) FROM log_pending) FROM log_state WHERE id = 1",
)


def _end(tx: Tx) -> int:
    """Return the index of the next leaf, counting those that wait for the sequencer or for their group's commit."""
    waiting = len(tx.notes.get(leaves.TOPIC, ())) if tx.dialect == "sqlite" else 0
    return int(tx.all(_END)[0][0]) + waiting


def _other(each: Key, key: Key) -> bool:
    return each.keyid != key.keyid and each.revoked_from is None


def draft(
    tx: Tx, action: Action, role: Role, key: PublicKey, *, previous: str | None = None, revoked_from: int | None = None
) -> KeyStatement:
    """Return a statement about a key for this log, at the time of the transaction; not signed yet."""
    return KeyStatement(action, role, key, tree.state(tx).origin, tx.now, previous, revoked_from)


def root_signer(context: Context, keyid: str) -> Work[Signer]:
    """Return the root key of this home; UnknownKeyError, naming the key that needs it, where it is elsewhere."""
    try:
        root: Signer = yield from ask(Call(partial(context.keys.load, "root")))
    except NotFoundError as error:
        raise UnknownKeyError(
            "this needs the root key, which is not here: bring it back from its recovery (`holdproof keys"
            " recover-root`), or sign the output of `holdproof keys statement` where it is, and import it",
            keyid=keyid,
        ) from error
    return root


def check_role(role: str) -> None:
    """Raise InvalidInputError where there is no such role."""
    if role not in ROLES:
        raise InvalidInputError(f"there is no role {role!r}; roles are {', '.join(ROLES)}", role=role)
