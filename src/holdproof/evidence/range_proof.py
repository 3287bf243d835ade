"""Range proofs: that these are all entries of a stream from one number to another, and none is left out.

The proof is a small JSON document beside the entries themselves:

    {"v":1, "stream":…, "salt":…, "agent_id":…, "kind":…, "ns":…, "first":7, "last":12,
     "runs":[[index, count], …], "hashes":base64, "head":signed note}

Rules:
- The name of the stream is the hash of salt, agent, kind and namespace, so it is that agent's stream.
- The entries say the numbers `first` to `last` of that stream, each once, in this order; their kind and namespace are
  those of the stream.
- With the hashes of the proof, the entries at the indexes of the runs give the root of the head, which a log key
  signed: they stand in the log, in this order.
- Where entries follow one another in the log, the proof grows with the logarithm of the log only; each gap costs
  hashes.
- It does not prove that nothing comes after `last`, nor that a store keeps no second stream for the same agent: a later
  number shows the first, `verify --full` of the store both.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

from holdproof.crypto import canonical, checkpoint, merkle, vkey
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import Tx, Work, call, sql
from holdproof.errors import FormatError, InvalidInputError, NotFoundError, ProofError
from holdproof.evidence import numbering, tree
from holdproof.evidence.numbering import EntryNumber, StreamKey
from holdproof.model.log import RangeProof, VerifiedRange
from holdproof.model.namespaces import MAIN

_HASH: Final = 32
_MOST: Final = 1_000_000
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a document of strangers may raise."""

_STREAM = sql("SELECT stream, salt, n FROM log_streams WHERE agent_id = :agent_id AND kind = :kind AND ns = :ns")
_ENTRIES = sql("SELECT idx, leaf FROM log_leaves WHERE leaf LIKE :like ORDER BY idx")


def prove_range(
    tx: Tx, kind: str, *, agent_id: str = "", first: int = 1, last: int | None = None, ns: str = MAIN
) -> RangeProof:
    """Prove that these are all entries of a kind by an agent, from number `first` to `last`: none is left out.

    Without `last` up to the newest. Entries that no agent is behind, as keys and lockdowns, have the agent "".
    """
    key = StreamKey(agent_id, kind, ns)
    row = tx.one(_STREAM, **key._asdict())
    if row is None:
        raise NotFoundError(f"no entry of kind {kind} by agent {agent_id!r} has a number in {ns}", **key._asdict())
    stream, salt, newest = row
    end = newest if last is None else last
    if not 1 <= first <= end <= newest:
        raise InvalidInputError(f"the stream has the numbers 1 to {newest}", first=first, last=last, newest=newest)
    listed = [
        (index, text)
        for index, text in tx.all(_ENTRIES, like=f'%,"s":"{stream}/%')
        if (number := numbering.number_of(text)) is not None and first <= number.n <= end
    ]
    indexes = [index for index, _ in listed]
    head = tree.state(tx).head
    size = checkpoint.parse(head.encode()).checkpoint.size
    # A log that was edited gives no proof, rather than one that nobody can check.
    _refuse_gaps(stream, key, [text for _, text in listed], first, end)
    document = {
        "v": 1,
        "stream": stream,
        "salt": salt,
        **key._asdict(),
        "first": first,
        "last": end,
        "runs": _runs(indexes),
        "hashes": base64.b64encode(b"".join(tree.prove_many(tx, indexes, size))).decode(),
        "head": head,
    }
    return RangeProof(json.dumps(document, separators=(",", ":")), [text for _, text in listed])


def _runs(indexes: Sequence[int]) -> list[list[int]]:
    """Return ascending indexes as runs: where each begins, and how long it is."""
    runs: list[list[int]] = []
    for before, index in pairwise([-2, *indexes]):
        if index == before + 1:
            runs[-1][1] += 1
        else:
            runs.append([index, 1])
    return runs


@dataclass(frozen=True, slots=True)
class _Document:
    """A range proof, parsed."""

    key: StreamKey
    stream: str
    salt: str
    first: int
    last: int
    indexes: list[int]
    hashes: list[bytes]
    head: str


def _parse(text: str) -> _Document:
    try:
        value: dict[str, Any] = json.loads(text)
        if value["v"] != 1:
            raise ValueError("another version")
        counts = [(_count(index), _count(count)) for index, count in value["runs"]]
        total = sum(count for _, count in counts)
        if total > _MOST or any(count < 1 for _, count in counts):
            raise ValueError("impossible runs")
        first = _count(value["first"])
        last = _count(value["last"])
        if not 1 <= first <= last:
            raise ValueError("an impossible range")
        joined = base64.b64decode(_word(value["hashes"]), validate=True)
        return _Document(
            StreamKey(_word(value["agent_id"]), _word(value["kind"]), _word(value["ns"])),
            _word(value["stream"]),
            _word(value["salt"]),
            first,
            last,
            [index + step for index, count in counts for step in range(count)],
            [joined[at : at + _HASH] for at in range(0, len(joined), _HASH)],
            _word(value["head"]),
        )
    except _MALFORMED as error:
        raise FormatError(f"not a range proof: {error}") from error


def _count(value: object) -> int:
    """Return a number of a log; ValueError for anything else."""
    if type(value) is not int or not 0 <= value <= canonical.MAX_INT:
        raise ValueError("a number is none")
    return value


def _word(value: object) -> str:
    """Return a text that has bytes; TypeError or ValueError for anything else, as half a surrogate pair."""
    if not isinstance(value, str):
        raise TypeError("a text is none")
    value.encode()
    return value


def _refuse_gaps(stream: str, key: StreamKey, entries: Sequence[str], first: int, last: int) -> None:
    """Raise ProofError unless the entries have the numbers from first to last of the stream, in this order."""
    for at, text in enumerate(entries, first):
        number = numbering.number_of(text)
        if number != EntryNumber(stream, at):
            actual = "of another stream" if number is None or number.stream != stream else f"number {number.n}"
            raise ProofError(f"where number {at} is due stands an entry {actual}", expected=at)
        if not numbering.is_of(text, key):
            raise ProofError(f"number {at} is of another kind or namespace than its stream", number=at)
    if len(entries) != last - first + 1:
        raise ProofError(f"number {first + len(entries)} is due and not there", expected=first + len(entries))


def verify_range(proof: str, entries: Sequence[str], *, log_keys: Sequence[VerifierKey]) -> VerifiedRange:
    """Check a range proof offline, with the log's keys from elsewhere; return what it proves.

    Raises ProofError where it does not hold, and FormatError for what is no range proof.
    """
    document = _parse(proof)
    try:
        name = numbering.name_of(document.salt, document.key)
    except ValueError as error:
        raise FormatError("the salt is not hex") from error
    if name != document.stream:
        raise ProofError("the stream is not that of the agent, kind and namespace that the proof names")
    _refuse_gaps(document.stream, document.key, entries, document.first, document.last)
    head = checkpoint.parse(document.head.encode())
    checkpoint.verify(head, origin=head.checkpoint.origin, log_keys=log_keys)
    try:
        contents = [_word(text).encode() for text in entries]
        begins_at = _word(json.loads(entries[0])["ts"])
        ends_at = _word(json.loads(entries[-1])["ts"])
    except _MALFORMED as error:
        raise FormatError(f"an entry is none: {error}") from error
    hashes = merkle.leaf_hashes(contents)
    merkle.verify_many(hashes, document.indexes, head.checkpoint.size, document.hashes, head.checkpoint.root)
    return VerifiedRange(
        document.key.agent_id,
        document.key.kind,
        document.key.ns,
        document.first,
        document.last,
        begins_at,
        ends_at,
        head.checkpoint.origin,
        head.checkpoint.size,
    )


def check_range(document: str, *, key: str) -> Work[VerifiedRange]:
    """Check a file that `prove_range` wrote, without a store; `key` is the log's, as `log verifier-keys` prints it."""
    try:
        value = json.loads(document)
        proof = value["proof"]
        entries = value["entries"]
        if not isinstance(proof, str) or not isinstance(entries, list) or not all(isinstance(e, str) for e in entries):
            raise ValueError("other fields")
    except _MALFORMED as error:
        raise FormatError(f"not a range proof: {error}") from error
    return (yield from call(partial(verify_range, proof, entries, log_keys=[vkey.parse(key)])))
