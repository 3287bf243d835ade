"""Heads over time: how the log grew, and who vouched for it when; laid out here, pure.

Rules:
- A lane for each kind; marks that would cover each other are one, which counts them and keeps the gravest verdict.
- Every mark leads to a proof: of the entry that says so, or of the last entry under the head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from holdproof.model.keys import Key
from holdproof.model.log import KnownHead
from holdproof.model.verdicts import Verdict
from holdproof.server.console import axes, histogram

WIDTH: Final = 1000.0
_LEFT: Final = 92.0
_RIGHT: Final = 16.0
_TOP: Final = 10.0
_FLOOR: Final = 110.0
_LANE: Final = 24.0
_APART: Final = 12.0
_MOST_LABELS: Final = 6
LANES: Final = {"verified": "verified", "stamped": "time tokens", "anchored": "anchors", "cosigned": "witnesses"}
"""The kinds of heads that have marks, in the order of their lanes, as the chart names them."""
SOUND: Final = frozenset(each.word for each in Verdict if each.sound)


@dataclass(frozen=True, slots=True)
class HeadPoint:
    """One mark: a head, or several that stand too close together."""

    x: float
    y: float
    tone: str
    says: str
    href: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class HeadRow:
    """A head in the table: what of it is known, which key had signed it, and where its proof is."""

    head: KnownHead
    signed_by: str
    href: str


@dataclass(frozen=True, slots=True)
class HeadLine:
    """What is drawn, and the table behind it."""

    line: str
    lanes: tuple[tuple[str, float], ...]
    points: tuple[HeadPoint, ...]
    ticks: tuple[histogram.HistogramTick, ...]
    labels: tuple[histogram.HistogramLabel, ...]
    rows: tuple[HeadRow, ...]
    says: str
    height: float
    left_edge: float = _LEFT
    right_edge: float = WIDTH - _RIGHT
    width: float = WIDTH


def lay_out(heads: Sequence[KnownHead], keys: Sequence[Key], now: str) -> HeadLine | None:
    """Return the time line of heads, which come oldest first; None where there is none."""
    if not heads:
        return None
    begin = _seconds(heads[0].at)
    # A log of this very moment still needs some width; clocks of authorities may be ahead of ours.
    span = max(_seconds(now) - begin, _seconds(heads[-1].at) - begin, 1.0)
    scale = axes.counts(max(each.size for each in heads))

    def x_of(at: str) -> float:
        return _LEFT + (_seconds(at) - begin) / span * (WIDTH - _LEFT - _RIGHT)

    def y_of(size: float) -> float:
        return _FLOOR - size / scale.top * (_FLOOR - _TOP)

    kinds = [kind for kind in LANES if any(each.kind == kind for each in heads)]
    lanes = {kind: _FLOOR + 18.0 + place * _LANE for place, kind in enumerate(kinds)}
    points = [
        point
        for kind, y in lanes.items()
        for point in _merged([each for each in heads if each.kind == kind], [*map(x_of, _times(heads, kind))], y)
    ]
    ticks = tuple(histogram.HistogramTick(y_of(mark.at * scale.top), mark.text) for mark in scale.marks)
    return HeadLine(
        line=_path([(x_of(each.at), y_of(each.size)) for each in heads], x_of(now)),
        lanes=tuple((LANES[kind], y) for kind, y in lanes.items()),
        points=tuple(points),
        ticks=ticks,
        labels=_labels(begin, span),
        rows=tuple(HeadRow(each, _signer(keys, each.size), proof_of(each)) for each in reversed(heads)),
        says=f"{len(heads)} heads that are known, the newest with {heads[-1].size:,} entries",
        height=_FLOOR + 14.0 + len(lanes) * _LANE + 22.0,
    )


def proof_of(head: KnownHead) -> str:
    """Return the page that proves what is known of a head."""
    return "/evidence/proof?" + urlencode({"entry": head.entry or str(max(head.size - 1, 0))})


def _times(heads: Sequence[KnownHead], kind: str) -> list[str]:
    return [each.at for each in heads if each.kind == kind]


def _merged(heads: Sequence[KnownHead], places: Sequence[float], y: float) -> list[HeadPoint]:
    points: list[HeadPoint] = []
    leading = ""
    for head, x in zip(heads, places, strict=True):
        tone = "bad" if head.verdict and head.verdict not in SOUND else "good"
        says = f"{head.at[:19].replace('T', ' ')}: {head.kind} {head.verdict} at {head.size:,} entries, {head.by}"
        last = points[-1] if points else None
        if last is None or x - last.x >= _APART:
            leading = says
            points.append(HeadPoint(x, y, tone, says, proof_of(head)))
            continue
        # The gravest leads: of a hundred good ones and one that found tampering, the mark tells of the latter.
        grave = last.tone == "bad" and tone == "good"
        leading = leading if grave else says
        href = last.href if grave else proof_of(head)
        tone = last.tone if grave else tone
        count = last.count + 1
        words = f"{count} {head.kind}, {'gravest' if tone == 'bad' else 'last'} {leading}"
        points[-1] = HeadPoint(last.x, y, tone, words, href, count)
    return points


def _path(points: Sequence[tuple[float, float]], end: float) -> str:
    """Return the log's growth as steps: between two known heads nothing is known."""
    x, y = points[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for x, y in points[1:]:
        parts.append(f"H{x:.1f}V{y:.1f}")
    return "".join([*parts, f"H{max(end, x):.1f}"])


def _labels(begin: float, span: float) -> tuple[histogram.HistogramLabel, ...]:
    step = span / _MOST_LABELS
    times = [datetime.fromtimestamp(begin + place * step, tz=UTC).isoformat() for place in range(_MOST_LABELS)]
    texts = [histogram.moment(each, step) for each in times]
    width = WIDTH - _LEFT - _RIGHT
    return tuple(
        histogram.HistogramLabel(_LEFT + place * width / _MOST_LABELS, text, "start")
        for place, text in axes.thin(texts, most=_MOST_LABELS).items()
    )


def _signer(keys: Sequence[Key], size: int) -> str:
    """Return the log's key that signed heads of a size: the newest that had its entry by then."""
    signers = [each for each in keys if each.role == "log" and each.index is not None and each.index < size]
    return max(signers, key=lambda each: each.index or 0).keyid if signers else ""


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
