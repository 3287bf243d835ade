"""C2SP tlog-policy: which logs count, which witnesses, and which of them have to cosign a head; no I/O.

- One line each: `log VKEY [URL]`, `witness NAME VKEY [URL]`, `group NAME all|any|K MEMBER…`, and exactly one
  `quorum NAME`; empty lines and lines that begin with `#` are comments. Spaces and tabs separate words.
- A name is defined before it is used, once, and is a member of one group at most: no witness counts in two ways.
- No public key twice among the logs, nor among the witnesses: one witness under two names is one.
- A log's key is Ed25519 or ML-DSA-44, a witness's a cosignature/v1 or ML-DSA-44. Any one of the listed keys of a log is
  enough, as the specification says: a policy cannot ask for two signatures of one log. So our own policies name the
  Ed25519 key only, and what a log with both kinds signs is judged by its keyring, which demands both.
- `quorum none` needs no witness. A policy without logs is for readers that know the log from elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdproof.crypto import checkpoint, vkey
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.vkey import COSIGNING, ED25519, ML_DSA_44, Kind, VerifierKey
from holdproof.errors import FormatError, HoldproofError, ProofError

NONE: Final = "none"
MAX_BYTES: Final = 1 << 20
_MOST_LINES: Final = 1024
_LOG_KINDS: Final[tuple[Kind, ...]] = (ED25519, ML_DSA_44)
_CONTROLS: Final = frozenset(range(0x20)) - {0x09, 0x0A} | {0x7F}


class WitnessGroup(NamedTuple):
    """Some members, of which at least so many have to cosign."""

    threshold: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TlogPolicy:
    """A parsed policy: keys by name, groups by name, and the name that has to be satisfied."""

    logs: tuple[VerifierKey, ...]
    witnesses: Mapping[str, VerifierKey]
    groups: Mapping[str, WitnessGroup]
    quorum: str

    def satisfied_by(self, cosigners: Iterable[VerifierKey]) -> bool:
        """Whether cosignatures of these keys are enough."""
        keys = {key.public for key in cosigners}
        return self.quorum == NONE or self._holds(self.quorum, keys)

    def _holds(self, name: str, keys: set[PublicKey]) -> bool:
        # A group names only what stands before it, so that this ends.
        if name in self.witnesses:
            return self.witnesses[name].public in keys
        group = self.groups[name]
        return sum(self._holds(member, keys) for member in group.members) >= group.threshold


def parse(text: str) -> TlogPolicy:
    """Parse a policy from untrusted text; FormatError names the line."""
    data = text.encode(errors="surrogateescape")
    if len(data) > MAX_BYTES or _CONTROLS.intersection(data):
        raise FormatError(f"tlog-policy: more than {MAX_BYTES} bytes, or control characters in it")
    rows = text.split("\n")
    if len(rows) > _MOST_LINES:
        raise FormatError(f"tlog-policy: more than {_MOST_LINES} lines", count=len(rows))
    reader = _Reader()
    for number, row in enumerate(rows, 1):
        words = row.replace("\t", " ").split(" ")
        items = [word for word in words if word]
        if items and not items[0].startswith("#"):
            try:
                reader.read(items)
            except HoldproofError as error:
                raise FormatError(f"tlog-policy, line {number}: {error.message}", line=number) from error
    return reader.policy()


class _Reader:
    """What the lines so far have defined."""

    def __init__(self) -> None:
        self._logs: list[VerifierKey] = []
        self._witnesses: dict[str, VerifierKey] = {}
        self._groups: dict[str, WitnessGroup] = {}
        self._members: set[str] = set()
        self._quorum: str | None = None

    def read(self, items: list[str]) -> None:
        """Take one line, by its words."""
        kind, *rest = items
        if kind == "log" and len(rest) in (1, 2):
            self._logs.append(_key(rest[0], _LOG_KINDS, "a log", self._logs))
        elif kind == "witness" and len(rest) in (2, 3):
            name = self._new(rest[0])
            self._witnesses[name] = _key(rest[1], COSIGNING, "a witness", self._witnesses.values())
        elif kind == "group" and len(rest) >= 3:
            self._group(*rest)
        elif kind == "quorum" and len(rest) == 1:
            if self._quorum is not None:
                raise FormatError("a second quorum")
            self._quorum = rest[0] if rest[0] == NONE else self._known(rest[0])
        else:
            raise FormatError("neither log, witness, group nor quorum with what belongs to it")

    def policy(self) -> TlogPolicy:
        """Return what all lines say."""
        if self._quorum is None:
            raise FormatError("tlog-policy: no quorum line")
        return TlogPolicy(tuple(self._logs), self._witnesses, self._groups, self._quorum)

    def _group(self, name: str, count: str, *members: str) -> None:
        self._new(name)
        for member in members:
            if self._known(member) in self._members:
                raise FormatError(f"{member} is a member already")
            self._members.add(member)
        decimal = count.isascii() and count.isdecimal() and len(count) <= 4
        threshold = {"all": len(members), "any": 1}.get(count, int(count) if decimal else 0)
        if not 1 <= threshold <= len(members):
            raise FormatError(f"a group needs 1 to {len(members)} of its members")
        self._groups[name] = WitnessGroup(threshold, members)

    def _new(self, name: str) -> str:
        if name == NONE or name in self._witnesses or name in self._groups:
            raise FormatError(f"the name {name} is taken")
        return name

    def _known(self, name: str) -> str:
        if name not in self._witnesses and name not in self._groups:
            raise FormatError(f"no witness or group {name} before this line")
        return name


def _key(text: str, kinds: tuple[Kind, ...], of: str, others: Iterable[VerifierKey]) -> VerifierKey:
    key = vkey.parse(text)
    if key.kind not in kinds:
        raise FormatError(f"not the key of {of}")
    if any(each.public == key.public for each in others):
        raise FormatError("a key that another line has")
    return key


def encode(logs: Iterable[VerifierKey], witnesses: Mapping[str, tuple[VerifierKey, str]], quorum: int) -> str:
    """Return a policy of these logs and of witnesses, each with its URL, of which so many have to cosign."""
    lines = [f"log {key.encode()}" for key in logs]
    lines += [f"witness {name} {key.encode()} {url}" for name, (key, url) in witnesses.items()]
    if quorum:
        group = "witnesses"
        while group in witnesses:
            group += "-all"
        lines += [f"group {group} {quorum} {' '.join(witnesses)}", f"quorum {group}"]
    else:
        lines.append(f"quorum {NONE}")
    return "".join(f"{line}\n" for line in lines)


def verify(policy: TlogPolicy, head: SignedCheckpoint, log_keys: Iterable[VerifierKey] = ()) -> list[str]:
    """Return the names of the witnesses that cosigned a head; ProofError unless it satisfies the policy.

    The log's keys are those of the policy; where that names no log, `log_keys`.
    """
    origin = head.checkpoint.origin
    keys = [key for key in policy.logs or log_keys if key.name == origin]
    if not keys:
        raise ProofError("the policy does not name this log", origin=origin)
    witnesses = policy.witnesses.values()
    cosigned = checkpoint.verify(head, origin=origin, log_keys=keys, witnesses=witnesses, each_type=not policy.logs)
    cosigners = {each.key for each in cosigned}
    if not policy.satisfied_by(cosigners):
        raise ProofError(
            f"too few witnesses: the quorum {policy.quorum} of the policy is not met",
            origin=origin,
            size=head.checkpoint.size,
            count=len(cosigners),
        )
    return [name for name, key in policy.witnesses.items() if key in cosigners]
