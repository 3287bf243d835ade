"""The keyring: which public keys count, for what, and up to where in the log.

Rules:
- A key comes in by a signed statement, logged with its row: the first of a role by itself, a successor by its
  predecessor, any key by root.
- Once there is a root key nothing introduces itself any more: a new key needs its predecessor or root.
- A private key is durable before its leaf; one without a leaf is registered at its next use.
- Revocation is by position: from leaf N on the key does not count, what stands before stays good. Only root revokes,
  and a revocation can be moved earlier, never later or taken back.
- No revocation leaves a key behind that nobody brought in any more, such as the successor that the revoked key named
  after that leaf: root first says whether it counts (re-admits it) or not (revokes it from its own leaf on).
- A key belongs to one role.
- A revoked key signs nothing new.
"""

import builtins
from dataclasses import replace
from functools import partial
from typing import Final

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
from holdproof.store.context import Context

_PREFIX_DIGITS: Final = 8

_ALL = sql(
    "SELECT k.keyid, k.role, k.alg, k.public, k.statement, k.revoked_from, k.added_at, k.leaf_id, k.leaf_ver, l.idx"
    " FROM keyring k LEFT JOIN log_leaves l ON l.id = k.leaf_id AND l.ver = 1 ORDER BY k.added_at, k.keyid"
)


def list(tx: Tx, *, role: Role | None = None) -> builtins.list[Key]:
    """Every key, the oldest first; of one role if that is given."""
    return [key for key in (Key(*row) for row in tx.all(_ALL)) if role in (None, key.role)]


def get(tx: Tx, keyid: str) -> Key:
    """A key by its id, or by the start of it if that is unmistakable."""
    matches = [key for key in list(tx) if key.keyid.startswith(keyid)] if len(keyid) >= _PREFIX_DIGITS else []
    if len(matches) != 1:
        raise NotFoundError(f"no key, or more than one, begins with {keyid!r}; give {_PREFIX_DIGITS} digits or more")
    return matches[0]


def find(tx: Tx, keyid: str) -> Key | None:
    """A key by its whole id, None where the keyring has no such key."""
    return next((key for key in list(tx) if key.keyid == keyid), None)


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
    """The key itself, loaded strictly."""
    return keys.load_public_pem(key.public.encode())


_ORIGINS = sql("SELECT previous FROM restores ORDER BY n")


def origins(tx: Tx) -> builtins.list[str]:
    """Every name this log has had, the current one last."""
    return [*(previous for (previous,) in tx.all(_ORIGINS)), tree.state(tx).origin]


def flaws(tx: Tx) -> dict[str, str]:
    """Keys that nobody who may do so brought in (or revoked), by id, with the reason; empty for an honest keyring."""
    return key_audit.flaws(list(tx), origins(tx), _places(tx))


def active_keys(tx: Tx, role: Role) -> builtins.list[PublicKey]:
    """The keys of a role whose word counts now: not revoked, and brought in by whoever may do so."""
    flawed = flaws(tx)
    return [public(key) for key in list(tx, role=role) if key.revoked_from is None and key.keyid not in flawed]


_PLACES = sql("SELECT l.id, l.ver, l.idx FROM keyring k JOIN log_leaves l ON l.id = k.leaf_id")
_COMING = sql_postgres(
    "SELECT w.id, w.ver, s.size + w.n FROM (SELECT size FROM log_state WHERE id = 1) s,"
    " (SELECT id, ver, row_number() OVER (ORDER BY seq) - 1 AS n FROM log_pending) w"
    " JOIN keyring k ON k.leaf_id = w.id"
)


def _places(tx: Tx) -> LeafIndexes:
    """Where the leaves of keys stand, or will stand; those on their way are read first, lest one is missed."""
    if tx.dialect == "postgres":
        coming = tx.all(_COMING)
    else:
        size = tree.state(tx).size
        coming = [(each[0], each[1], at) for at, each in enumerate(tx.notes.get(leaves.TOPIC, ()), size)]
    return {(handle, ver): index for handle, ver, index in (*coming, *tx.all(_PLACES))}


# --- coming in ---------------------------------------------------------------------------------------------------


def use(context: Context, role: Role) -> Work[Signer]:
    """The current signer of a role: made at its first use, and in the keyring when this returns."""
    signer: Signer = yield from ask(Call(partial(context.keys.ensure, role)))
    if not (yield from ask(Read(partial(is_registered, keyid=signer.keyid, role=role)))):
        yield from introduce(context, role, signer)
    return signer


def introduce(context: Context, role: Role, signer: Signer) -> Work[Key]:
    """Bring a key into the keyring: by itself, or by root where there is one."""
    rooted: bool = yield from ask(Read(lambda tx: bool(list(tx, role="root"))))
    action: Action = "admit" if rooted else "introduce"
    by = (yield from _root(context, signer.keyid)) if rooted else signer
    stated: KeyStatement = yield from ask(Read(partial(_say, action=action, role=role, key=signer.public)))
    text: str = yield from ask(Call(lambda: statements.sign(stated.encode(), by)))
    try:
        return (yield from ask(Write(partial(import_statement, text=text))))
    except ConflictError:  # perhaps another process was faster
        known_key = yield from ask(Read(partial(find, keyid=signer.keyid)))
        if known_key is None:
            raise
        return known_key


def rotate(context: Context, role: Role) -> Work[Key]:
    """Replace the key of a role: the old one signs the new one in, and is kept aside; a revoked one needs root."""
    _check_role(role)
    old: Signer = yield from ask(Call(partial(context.keys.load, role)))
    current = yield from ask(Read(partial(find, keyid=old.keyid)))
    if current is None:
        current = yield from introduce(context, role, old)
    new: Signer = yield from ask(Call(partial(context.keys.prepare, role)))
    successor = yield from ask(Read(partial(find, keyid=new.keyid)))
    if successor is None:  # else a crash came between the leaf and the file
        action: Action = "rotate" if current.revoked_from is None else "admit"
        by = old if action == "rotate" else (yield from _root(context, new.keyid))
        stated = yield from ask(Read(partial(_say, action=action, role=role, key=new.public, previous=old.keyid)))
        text: str = yield from ask(Call(lambda: statements.sign(stated.encode(), by)))
        yield from ask(Write(partial(import_statement, text=text)))
    yield from finish_rotations(context)
    return (yield from ask(Read(partial(get, keyid=new.keyid))))  # with the index of its leaf, if it is logged by now


def finish_rotations(context: Context) -> Work[builtins.list[str]]:
    """Make successors current whose leaf is in the log: the last step of a rotation, also after a crash."""
    done = []
    for role in ROLES:
        waiting: Signer | None = yield from ask(Call(partial(context.keys.prepared, role)))
        if waiting is None or (yield from ask(Read(partial(find, keyid=waiting.keyid)))) is None:
            continue
        yield from ask(Call(partial(context.keys.promote, role)))
        if role == "log":
            context.log.use(waiting)
        done.append(f"{role} {waiting.keyid}")
    return done


# --- going out ---------------------------------------------------------------------------------------------------


def revoke(
    context: Context, keyid: str, *, from_index: int | None = None, successors: Successors | None = None
) -> Work[Key]:
    """Do not trust a key for leaves from that index on (from here on, if none is given); needs the root key.

    Keys that would be left without anybody's word make it a ConflictError, unless `successors` says what becomes of
    them in the same act: "readmit" them, or "revoke" them as well, from their own leaf on.
    """
    planned = yield from ask(Read(partial(_plan, keyid=keyid, from_index=from_index, successors=successors)))
    root = yield from _root(context, keyid)
    texts: builtins.list[str] = yield from ask(Call(lambda: [statements.sign(each.encode(), root) for each in planned]))
    return (yield from ask(Write(lambda tx: [import_statement(tx, text) for text in texts][-1])))


def revocation(tx: Tx, keyid: str, *, from_index: int | None = None) -> Signed:
    """The statement that revokes a key, not signed yet: for a root key that is kept elsewhere."""
    [stated] = _plan(tx, keyid, from_index, None)
    return Signed(stated.encode().decode(), "statement", "")


def readmission(tx: Tx, keyid: str) -> Signed:
    """The statement that lets a key count however it came in, not signed yet: for a root key kept elsewhere."""
    key = get(tx, keyid)
    return Signed(_say(tx, "readmit", key.role, public(key)).encode().decode(), "statement", "")


def _plan(tx: Tx, keyid: str, from_index: int | None, successors: Successors | None) -> builtins.list[KeyStatement]:
    """What root has to say to revoke a key: first of the keys that would be orphaned, the youngest first."""
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
    stated = [_say(tx, "revoke", key.role, public(key), revoked_from=since)]
    places = _places(tx)
    for each in sorted(orphans, key=lambda each: places[each.leaf_id, 1]):
        from_leaf = places[each.leaf_id, 1] if successors == "revoke" else None
        stated.insert(0, _say(tx, successors or "revoke", each.role, public(each), revoked_from=from_leaf))
    return stated


def _orphans(tx: Tx, changed: Key) -> builtins.list[Key]:
    """The keys that would not count any more if a key of the ring were like this."""
    ring = [changed if each.keyid == changed.keyid else each for each in list(tx)]
    orphaned = key_audit.flaws(ring, origins(tx), _places(tx)).keys() - flaws(tx).keys()
    return [each for each in ring if each.keyid in orphaned]


def _refuse(key: Key, orphans: builtins.list[Key]) -> None:
    if orphans:
        named = [f"{each.role} {each.keyid}" for each in orphans]
        raise ConflictError(
            f"without this key nobody would have brought in {', '.join(named)}: let root re-admit or revoke it first,"
            " or in the same act (`--successors readmit` or `revoke`)",
            keyid=key.keyid,
            orphans=named,
        )


def statement(context: Context, role: Role) -> Work[Signed]:
    """The statement that admits this machine's key of a role, not signed yet: for a root key kept elsewhere."""
    _check_role(role)
    if role == "root":
        raise InvalidInputError("a root key follows another by rotation only: `holdproof keys rotate root`", role=role)
    signer: Signer = yield from ask(Call(partial(context.keys.ensure, role)))
    stated = yield from ask(Read(partial(_say, action="admit", role=role, key=signer.public)))
    return Signed(stated.encode().decode(), "statement", "")


def import_statement(tx: Tx, text: str) -> Key:
    """Carry out a signed statement about a key: admit, re-admit or revoke it; refuses what its signer may not say."""
    stated, envelope = statements.parse(text.strip())
    tree.lock(tx)  # or a key names its successor while it is being revoked
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
    """Whether the signature is one that may say this; the rules of the module, in one place."""
    if stated.origin != tree.state(tx).origin:
        raise ProofError("the statement is for another log", found=stated.origin, expected=tree.state(tx).origin)
    roots = [key for key in list(tx, role="root") if key.revoked_from is None]
    if stated.action == "introduce":
        if list(tx, role="root"):
            raise UnknownKeyError("root is in charge: a key cannot introduce itself", keyid=stated.public.keyid)
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
    if key.role == "log" and not [each for each in list(tx, role="log") if _other(each, key)]:
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
    """The key's next version, with one more statement."""
    text = f"{key.statement}\n{line}"
    return replace(key, revoked_from=revoked_from, statement=text, leaf_ver=key.leaf_ver + 1)


_RESTATE = sql(
    "UPDATE keyring SET revoked_from = :revoked_from, statement = :statement, leaf_ver = :leaf_ver,"
    " leaf_salt = :leaf_salt WHERE keyid = :keyid AND leaf_ver = :seen"
)


def _restate(tx: Tx, key: Key) -> Key:
    """Put the next version of a key in the place of the one before, with its leaf."""
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
    """The index of the next leaf, those counted in that wait for the sequencer or for the commit of their group."""
    waiting = len(tx.notes.get(leaves.TOPIC, ())) if tx.dialect == "sqlite" else 0
    return int(tx.all(_END)[0][0]) + waiting


def _other(each: Key, key: Key) -> bool:
    return each.keyid != key.keyid and each.revoked_from is None


def _say(
    tx: Tx, action: Action, role: Role, key: PublicKey, *, previous: str | None = None, revoked_from: int | None = None
) -> KeyStatement:
    return KeyStatement(action, role, key, tree.state(tx).origin, tx.now, previous, revoked_from)


def _root(context: Context, keyid: str) -> Work[Signer]:
    try:
        root: Signer = yield from ask(Call(partial(context.keys.load, "root")))
    except NotFoundError as error:
        raise UnknownKeyError(
            "this needs the root key, which is not here: `holdproof keys init-root` makes one; if it is kept"
            " elsewhere, sign the output of `holdproof keys statement` there and import it",
            keyid=keyid,
        ) from error
    return root


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise InvalidInputError(f"there is no role {role!r}; roles are {', '.join(ROLES)}", role=role)
