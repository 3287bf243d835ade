"""The key that signs for a role: found, made at its very first use, or said to be lost.

Rules:
- A role's first key is generated when it is first needed, and introduced by itself or by root.
- Where the store knows keys of the role, a use brings in no further one: a home that has lost its key, or has another,
  is told so, with the command that replaces it. A key that changed in silence would hide that one was deleted.
"""

from functools import partial
from typing import Final

from holdproof.crypto.keys import Signer
from holdproof.db import Call, Read, Work, ask
from holdproof.errors import NotFoundError, UnknownKeyError
from holdproof.evidence import keys
from holdproof.model.keys import Key, Role
from holdproof.store.context import Context

_SHOWN_DIGITS: Final = 16


def use(context: Context, role: Role) -> Work[Signer]:
    """Return the current signer of a role: generated at its first use, and in the keyring when this returns.

    UnknownKeyError where the store knows keys of the role and this home has none of them.
    """
    signer = yield from current(context, role)
    if not (yield from ask(Read(partial(keys.is_registered, keyid=signer.keyid, role=role)))):
        yield from introduce_first(context, role, signer)
    return signer


def current(context: Context, role: Role) -> Work[Signer]:
    """Return the signer of a role, which may not be registered yet; UnknownKeyError where this home has lost it."""
    try:
        return (yield from ask(Call(partial(context.keys.load, role))))
    except NotFoundError:
        # Asked before a key is generated: once there is a file, it looks like any other key of this home.
        ring_keys: list[Key] = yield from ask(Read(partial(keys.keyring, role=role)))
    try:  # another process may have generated and registered it meanwhile
        return (yield from ask(Call(partial(context.keys.load, role))))
    except NotFoundError as error:
        if ring_keys:
            raise _lost(role, ring_keys) from error
    return (yield from ask(Call(partial(context.keys.ensure, role))))


def introduce_first(context: Context, role: Role, signer: Signer) -> Work[None]:
    """Admit the first key of a role; UnknownKeyError if the store knows others: a use does not replace those."""
    ring_keys: list[Key] = yield from ask(Read(partial(keys.keyring, role=role)))
    if signer.keyid in [each.keyid for each in ring_keys]:
        return
    if ring_keys:
        raise _lost(role, ring_keys)
    yield from keys.introduce(context, role, signer)


def _lost(role: Role, ring_keys: list[Key]) -> UnknownKeyError:
    keyid = ring_keys[-1].keyid
    return UnknownKeyError(
        f"the {role} key of this home is lost or was never admitted; the newest one of the store is"
        f" {keyid[:_SHOWN_DIGITS]}…: put its file back, or replace it with `holdproof keys rotate {role}`, which root"
        " signs; on a further machine, `holdproof keys join`",
        keyid=keyid,
        role=role,
    )
