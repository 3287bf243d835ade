"""Bring keys into the keyring: the first of a role, those of a further home, successors, replacements of lost ones.

Rules: those of `keys`. Where the keys that sign heads are lost, nothing can be logged until root has admitted their
successors, all of them in one transaction.
"""

from functools import partial

from holdproof.crypto.keys import Alg, Signer
from holdproof.db import Call, Read, Tx, Work, Write, ask
from holdproof.errors import ConflictError, InvalidInputError, UnknownKeyError
from holdproof.evidence import keys, statements
from holdproof.evidence.key_files import ROLES, check_alg
from holdproof.evidence.statements import KeyStatement
from holdproof.model.keys import Action, Key, Role
from holdproof.model.page import Page
from holdproof.store.context import Context


def create(context: Context, role: Role) -> Work[Key]:
    """Make the first key of a role and admit it, before its first use; ConflictError where the role has one.

    A key of the role `log-pq` (ML-DSA-44) signs every head from its own entry on, beside the log key.
    """
    keys.check_role(role)
    ring = yield from ask(Read(partial(keys.keyring, role=role)))
    valid = [each for each in ring if each.revoked_from is None]
    if valid:
        keyid = valid[-1].keyid
        raise ConflictError(f"there is a {role} key: `holdproof keys rotate {role}` replaces it", keyid=keyid)
    if role == "root":
        raise InvalidInputError("a root key follows another by rotation only: `holdproof keys rotate root`", role=role)
    signer: Signer = yield from ask(Call(partial(context.keys.ensure, role)))
    if signer.keyid in [each.keyid for each in ring]:
        # What was revoked signs nothing new: `rotate` puts it aside, and root admits its successor.
        return (yield from rotate(context, role))
    yield from keys.introduce(context, role, signer)
    return (yield from ask(Read(partial(keys.get, keyid=signer.keyid))))


def join(context: Context, *, recovery: str | None = None) -> Work[Page[Key]]:
    """Admit this machine's own keys to the store, signed by root; returns them, also those that were admitted before.

    For a further machine on the same server, whose home has keys of its own. Root is the key in this home, or that of
    the recovery code, which is not stored here; in a store without a root key, keys introduce themselves. Reading needs
    no key, and never admits one.
    """
    root = None if recovery is None else statements.from_recovery(recovery)
    has_root: bool = yield from ask(Read(lambda tx: bool(keys.keyring(tx, role="root"))))
    admitted = []
    second = yield from ask(Read(lambda tx: keys.head_roles(tx)[1:]))
    for role in (*keys.DAILY_ROLES, *second):
        signer: Signer = yield from ask(Call(partial(context.keys.ensure, role)))
        is_admitted = yield from ask(Read(partial(keys.is_registered, keyid=signer.keyid, role=role)))
        if not is_admitted and has_root:
            yield from _admit_by_root(context, role, signer, root)
        elif not is_admitted:
            yield from keys.introduce(context, role, signer)
        admitted.append((yield from ask(Read(partial(keys.get, keyid=signer.keyid)))))
    return Page(admitted, None)


def _admit_by_root(
    context: Context, role: Role, signer: Signer, root: Signer | None, *, previous: str | None = None
) -> Work[Key]:
    """Admit a key by root's statement; a log key signs the head above its own leaf where this home has no other.

    Where the other key that signs heads is lost too, its successor is admitted with it: no head is signed before.
    """
    by = root or (yield from keys.root_signer(context, signer.keyid))
    is_lost = role in keys.HEAD_ROLES and not context.log.signs
    # A key that introduced itself could do the same: only root's word replaces a lost key.
    if not (yield from ask(Read(lambda tx: bool(keys.keyring(tx, role="root"))))):
        raise UnknownKeyError(
            "the store has no root key, so nothing can admit this one: put back the key that is lost, or restore a"
            " backup made with --keys",
            keyid=signer.keyid,
        )
    signers: dict[Role, Signer] = {role: signer}
    if is_lost:
        signers |= yield from _lost_head_keys(context, role)
    if is_lost and "log" in signers:
        context.log.sign_own_admission(signers["log"].keyid)
    stated = yield from ask(Read(lambda tx: [_admission(tx, each, key, previous) for each, key in signers.items()]))
    texts: list[str] = yield from ask(Call(lambda: [statements.sign(each.encode(), by) for each in stated]))
    [key, *_] = yield from ask(Write(lambda tx: [keys.import_statement(tx, text) for text in texts]))
    # On PostgreSQL the leaf waits for a sequencer, which may be this process.
    if is_lost:
        for each in signers.values():
            context.log.use(each)
    return key


def _admission(tx: Tx, role: Role, signer: Signer, previous: str | None) -> KeyStatement:
    old = keys.find(tx, previous) if previous else None
    return keys.draft(tx, "admit", role, signer.public, previous=previous if old and old.role == role else None)


def _lost_head_keys(context: Context, role: Role) -> Work[dict[Role, Signer]]:
    """Return the other keys that sign heads and that the store does not know of this home."""
    roles: tuple[Role, ...] = yield from ask(Read(keys.head_roles))
    missing: dict[Role, Signer] = {}
    for other in roles:
        if other != role:
            signer: Signer = yield from ask(Call(partial(context.keys.ensure, other)))
            if not (yield from ask(Read(partial(keys.is_registered, keyid=signer.keyid, role=other)))):
                missing[other] = signer
    return missing


def _replace_lost(context: Context, role: Role, signer: Signer, ring: list[Key]) -> Work[Key]:
    """Let root admit a new key in place of the one that this home has lost; the statement names that one."""
    keyids = [each.keyid for each in ring if each.revoked_from is None]
    previous = keyids[-1] if keyids else None
    has_root: bool = yield from ask(Read(lambda tx: bool(keys.keyring(tx, role="root"))))
    if has_root or role in keys.HEAD_ROLES:
        yield from _admit_by_root(context, role, signer, None, previous=previous)
    else:
        yield from keys.introduce(context, role, signer)
    return (yield from ask(Read(partial(keys.get, keyid=signer.keyid))))


def rotate(context: Context, role: Role, *, algorithm: Alg | None = None) -> Work[Key]:
    """Replace the key of a role: the old one admits the new one and is kept aside; if it is revoked, root admits.

    The new key has the algorithm of the old one, unless `algorithm` names another: a judge's may be ecdsa-p256-sha256,
    ed25519 or rsa-pss-sha256. Where the key of this home is lost, root admits a new one in its place.
    """
    keys.check_role(role)
    if algorithm is not None:
        check_alg(role, algorithm)
    # A role that has signed nothing yet has no key: it gets its first one, and that is replaced.
    first_use = context.keys.load if role == "root" else context.keys.ensure
    old: Signer = yield from ask(Call(partial(first_use, role)))
    row = yield from ask(Read(partial(keys.find, keyid=old.keyid)))
    if row is None:
        ring = yield from ask(Read(partial(keys.keyring, role=role)))
        if ring:
            admitted: Key = yield from _replace_lost(context, role, old, ring)
            lost_alg = algorithm or keys.public(ring[-1]).alg
            if old.alg == lost_alg:
                return admitted
            # A key is made with the usual algorithm of its role; this one had another, or shall have.
            return (yield from rotate(context, role, algorithm=lost_alg))
        row = yield from keys.introduce(context, role, old)
    new_alg = algorithm or old.alg
    new: Signer = yield from ask(Call(partial(context.keys.prepare, role, new_alg)))
    if new.alg != new_alg:
        raise ConflictError(
            f"a rotation of the {role} key to {new.alg} has begun: `holdproof keys rotate {role} --algorithm {new.alg}`"
            " finishes it",
            keyid=new.keyid,
        )
    successor = yield from ask(Read(partial(keys.find, keyid=new.keyid)))
    if successor is None:  # else a crash came between the leaf and the file
        action: Action = "rotate" if row.revoked_from is None else "admit"
        # A revoked key cannot admit its successor.
        by = old if action == "rotate" else (yield from keys.root_signer(context, new.keyid))
        stated = yield from ask(Read(partial(keys.draft, action=action, role=role, key=new.public, previous=old.keyid)))
        text: str = yield from ask(Call(lambda: statements.sign(stated.encode(), by)))
        yield from ask(Write(partial(keys.import_statement, text=text)))
    yield from finish_rotations(context)
    return (
        yield from ask(Read(partial(keys.get, keyid=new.keyid)))
    )  # with the index of its leaf, if it is logged by now


def finish_rotations(context: Context) -> Work[list[str]]:
    """Promote successors whose leaf is in the log: the last step of a rotation, also after a crash."""
    done = []
    for role in ROLES:
        waiting: Signer | None = yield from ask(Call(partial(context.keys.prepared, role)))
        if waiting is None or (yield from ask(Read(partial(keys.find, keyid=waiting.keyid)))) is None:
            continue
        yield from ask(Call(partial(context.keys.promote, role)))
        # The next head is signed by the new key without reopening the store.
        if role in keys.HEAD_ROLES:
            context.log.use(waiting)
        done.append(f"{role} {waiting.keyid}")
    return done
