"""Whether every key of the keyring came in, and went out, by a statement of somebody who may say so; pure.

The operations refuse anything else. This is for rows that somebody wrote past them, log key in hand: once there is a
root key, such a key counts for nothing.

Rules:
- The first log key needs no statement: it signs the head above its own leaf.
- A key that introduced itself counts only if it did so before there was a root key.
- A successor counts if its predecessor, of the same role, counted where the successor's leaf stands.
- What root admitted counts if that root key did, there.
- `revoked_from` is what root's statements say, no more and no less.
"""

from collections.abc import Collection, Sequence
from typing import Final

from holdfast.crypto import dsse, keys
from holdfast.crypto.dsse import Envelope
from holdfast.crypto.statement import PAYLOAD_TYPE
from holdfast.errors import FormatError
from holdfast.evidence import statements
from holdfast.evidence.statements import KeyStatement
from holdfast.model.keys import Key

_FIRST: Final = "first"
_PENDING: Final = 1 << 62


def flaws(ring: Sequence[Key], origins: Collection[str]) -> dict[str, str]:
    """The keys that do not count, by id, each with the reason; empty for an honest keyring."""
    found: dict[str, str] = {}
    for key in sorted(ring, key=_place):  # a key is judged after those that could have brought it in
        good = [each for each in ring if each.keyid not in found and _place(each) < _place(key)]
        try:
            _check_entry(key, good, origins)
        except FormatError as error:  # ProofError and BadKeyError are kinds of it
            found[key.keyid] = error.message
    roots = [each for each in ring if each.role == "root" and each.keyid not in found]
    for key in ring:
        try:
            _check_exit(key, roots, origins)
        except FormatError as error:
            found.setdefault(key.keyid, error.message)
    return found


def _place(key: Key) -> int:
    return _PENDING if key.index is None else key.index


def _check_entry(key: Key, good: Sequence[Key], origins: Collection[str]) -> None:
    text = key.statement.split("\n")[0]
    if text == _FIRST:
        if key.role != "log" or any(each.role == "log" for each in good):
            raise FormatError("it came in without a statement")
        return
    said, envelope = _parse(text, key, origins)
    roots = [each for each in good if each.role == "root"]
    if said.action == "introduce":
        signers = [] if roots else [key]
    elif said.action == "rotate":
        signers = [each for each in good if (each.keyid, each.role) == (said.previous, key.role)]
    else:
        signers = roots if said.action == "admit" and key.role != "root" else []
    _verify(envelope, [each for each in signers if each is key or each.trusted_at(_place(key))])


def _check_exit(key: Key, roots: Sequence[Key], origins: Collection[str]) -> None:
    """Root's word against a key counts even if that root key was revoked later: it can only take trust away."""
    stated = []
    for text in key.statement.split("\n")[1:]:
        said, envelope = _parse(text, key, origins)
        _verify(envelope, roots)
        if said.action != "revoke" or said.revoked_from is None:
            raise FormatError("it came in twice")
        stated.append(said.revoked_from)
    if key.revoked_from != min(stated, default=None):
        raise FormatError("its revocation is not what root stated")


def _parse(text: str, key: Key, origins: Collection[str]) -> tuple[KeyStatement, Envelope]:
    said, envelope = statements.parse(text)
    if (said.public.keyid, said.role) != (key.keyid, key.role) or said.origin not in origins:
        raise FormatError("its statement is about another key, role or log")
    return said, envelope


def _verify(envelope: Envelope, signers: Sequence[Key]) -> None:
    dsse.verify(envelope, [keys.load_public_pem(each.public.encode()) for each in signers], payload_type=PAYLOAD_TYPE)
