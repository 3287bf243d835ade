"""Check that every key of the keyring was admitted, and revoked, by a statement of a key that may do so; pure.

The operations refuse anything else. This finds rows that somebody with the log key wrote past them: once there is a
root key, such a key does not count.

Rules:
- The first log key needs no statement: it signs the head above its own leaf.
- A key that introduced itself counts only if it did so before there was a root key.
- A successor counts if its predecessor, of the same role, counted at the index of the successor's leaf.
- A key that root admitted counts if that root key counted at that index.
- A key that root re-admits counts however it was admitted: so a successor survives its predecessor's revocation.
- A key that is revoked from its own leaf on, or before, counts nowhere; how it was admitted does not matter then.
- `revoked_from` is exactly what root's statements say.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdproof.crypto import dsse, keys
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.statement import PAYLOAD_TYPE
from holdproof.errors import FormatError
from holdproof.evidence import statements
from holdproof.evidence.statements import KeyStatement
from holdproof.model.keys import Key

LeafIndexes = Mapping[tuple[str, int], int]
"""The index of each leaf by handle and version; a leaf that is only being written has none yet, and sorts last."""

_FIRST: Final = "first"
_LAST: Final = 1 << 62


def flaws(ring: Sequence[Key], origins: Collection[str], places: LeafIndexes) -> dict[str, str]:
    """Return the keys that do not count, by id, each with the reason; empty for an intact keyring."""
    log = _Log(origins, places)
    reasons: dict[str, str] = {}
    good: list[Key] = []
    for key in sorted(ring, key=lambda each: (each.role != "root", log.place(each))):  # judges before the judged
        try:
            if not log.counts_nowhere(key):
                _check_entry(key, good, log)
                good.append(key)
        except FormatError as error:  # ProofError and BadKeyError are kinds of it
            reasons[key.keyid] = error.message
    # Exits are checked after all entries: a root key may be younger than the key it revokes.
    roots = [each for each in good if each.role == "root"]
    for key in ring:
        try:
            _check_exit(key, roots, log)
        except FormatError as error:
            reasons.setdefault(key.keyid, error.message)
    return reasons


@dataclass(frozen=True, slots=True)
class _Log:
    """The origins the log has had, and the indexes of the keys' leaves."""

    origins: Collection[str]
    places: LeafIndexes

    def place(self, key: Key, ver: int = 1) -> int:
        return self.places.get((key.leaf_id, ver), _LAST)

    def counts_nowhere(self, key: Key) -> bool:
        return key.revoked_from is not None and key.revoked_from <= self.place(key)

    def later(self, key: Key) -> list[tuple[int, KeyStatement, Envelope]]:
        """Return the statements after a key's admission, each with the index of its leaf: one version a statement."""
        lines = key.statement.split("\n")[1:]
        return [(self.place(key, ver), *self.parse(text, key)) for ver, text in enumerate(lines, 2)]

    def parse(self, text: str, key: Key) -> tuple[KeyStatement, Envelope]:
        stated, envelope = statements.parse(text)
        if (stated.public.keyid, stated.role) != (key.keyid, key.role) or stated.origin not in self.origins:
            raise FormatError("its statement is about another key, role or log")
        return stated, envelope


def _check_entry(key: Key, good: Sequence[Key], log: _Log) -> None:
    if any(stated.action == "readmit" for _, stated, _ in log.later(key)):  # which _check_exit verifies
        return
    place = log.place(key)
    text = key.statement.split("\n")[0]
    before = [each for each in good if log.place(each) < place]
    # Only the first log key of a store: nothing existed yet that could have admitted it.
    if text == _FIRST:
        if key.role != "log" or any(each.role == "log" for each in before):
            raise FormatError("it came in without a statement")
        return
    stated, envelope = log.parse(text, key)
    roots = [each for each in before if each.role == "root"]
    if stated.action == "introduce":
        signers = [] if roots else [key]
    elif stated.action == "rotate":
        signers = [each for each in before if (each.keyid, each.role) == (stated.previous, key.role)]
    else:
        signers = roots if stated.action == "admit" and key.role != "root" else []
    _verify(envelope, [each for each in signers if each is key or each.trusted_at(place)])


def _check_exit(key: Key, roots: Sequence[Key], log: _Log) -> None:
    """Check revocations and re-admissions of a key, and that `revoked_from` is what they say."""
    revocations = []
    for place, stated, envelope in log.later(key):
        if stated.action == "revoke" and stated.revoked_from is not None:
            # Any root key may revoke, even one revoked later: a revocation can only take trust away.
            _verify(envelope, roots)
            revocations.append(stated.revoked_from)
        elif stated.action == "readmit" and key.role != "root":
            _verify(envelope, [root for root in roots if log.place(root) < place and root.trusted_at(place)])
        else:
            raise FormatError("it came in twice")
    if key.revoked_from != min(revocations, default=None):
        raise FormatError("its revocation is not what root stated")


def _verify(envelope: Envelope, signers: Sequence[Key]) -> None:
    dsse.verify(envelope, [keys.load_public_pem(each.public.encode()) for each in signers], payload_type=PAYLOAD_TYPE)
