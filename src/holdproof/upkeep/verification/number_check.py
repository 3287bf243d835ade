"""Check the numbers of entries: in every stream of the log they follow one another from 1 to its newest.

An entry is of the kind, the namespace and, as far as its record is still there, the agent of its stream
(stream_check.py).
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from holdproof.db import Row, Tx, Work, sql
from holdproof.evidence import leaves, numbering
from holdproof.evidence.numbering import StreamKey
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.store.context import Context
from holdproof.upkeep.verification import stream_check
from holdproof.upkeep.verification.findings import RESTORE, Findings, read

_PAGE = 8192
_LEAVES = sql("SELECT idx, leaf FROM log_leaves WHERE idx >= :first ORDER BY idx LIMIT :limit")
_STREAMS = sql("SELECT stream, salt, agent_id, kind, ns, n FROM log_streams ORDER BY stream")
_UPDATE = "stop processes of older versions that still write to this store; their entries have no number"


class _NumberPage(NamedTuple):
    """Some entries, and the streams as they are in the same snapshot."""

    entries: list[Row]
    streams: list[Row]


def check(context: Context, findings: Findings) -> Work[None]:
    """Walk the whole log and count every stream; a gap, a repetition or a wrong count is TAMPERED."""
    counts: Counter[str] = Counter()
    unnumbered: list[int] = []
    at = 0
    while True:
        page = yield from read(context, partial(_page, first=at))
        keys = {stream: StreamKey(agent_id, kind, ns) for stream, _, agent_id, kind, ns, _ in page.streams}
        for index, text in page.entries:
            _count(findings, counts, unnumbered, index, str(text))
            _compare(findings, keys, index, str(text))
        at += len(page.entries)
        # Writers go on: the streams are compared in the snapshot of the last page.
        if len(page.entries) < _PAGE:
            break
    for stream, salt, agent_id, kind, ns, newest in page.streams:
        if counts[stream] != newest or not _is_named(salt, StreamKey(agent_id, kind, ns), stream):
            _flaw(findings, f"the stream says {newest} entries of its agent, the log has {counts[stream]}", stream)
    for stream in counts.keys() - {stream for stream, *_ in page.streams}:
        _flaw(findings, f"the log has {counts[stream]} entries of a stream that is not there", stream)
    findings.checked["numbered entries"] = counts.total()
    if unnumbered:
        what = f"{len(unnumbered)} entries have no number, the first at {unnumbered[0]}: no range proof covers them"
        findings.add(Finding(Verdict.INCOMPLETE, what, _UPDATE, table="log_leaves", row=str(unnumbered[0])))
    yield from stream_check.check(context, findings)


def _page(tx: Tx, first: int) -> _NumberPage:
    return _NumberPage(tx.all(_LEAVES, first=first, limit=_PAGE), tx.all(_STREAMS))


def _count(findings: Findings, counts: Counter[str], unnumbered: list[int], index: int, text: str) -> None:
    number = numbering.number_of(text)
    if number is None:
        # Before the first number there was no migration that gives any.
        if counts and numbering.kind_of(text) not in leaves.UNNUMBERED:
            unnumbered.append(index)
        return
    expected = counts[number.stream] + 1
    if number.n != expected:
        what = f"where number {expected} of stream {number.stream} is due, the entry says {number.n}"
        findings.add(Finding(Verdict.TAMPERED, what, RESTORE, table="log_leaves", row=str(index)))
    counts[number.stream] = max(number.n, expected)


def _compare(findings: Findings, keys: Mapping[str, StreamKey], index: int, text: str) -> None:
    """Compare kind and namespace of an entry with those of its stream."""
    number = numbering.number_of(text)
    if number is not None and number.stream in keys and not numbering.is_of(text, keys[number.stream]):
        what = f"the entry is of another kind or namespace than its stream {number.stream}"
        findings.add(Finding(Verdict.TAMPERED, what, RESTORE, table="log_leaves", row=str(index)))


def _is_named(salt: str, key: StreamKey, stream: str) -> bool:
    try:
        return numbering.name_of(salt, key) == stream
    except ValueError:
        return False


def _flaw(findings: Findings, what: str, stream: str) -> None:
    findings.add(Finding(Verdict.TAMPERED, what, RESTORE, table="log_streams", row=stream))
