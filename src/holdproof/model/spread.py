"""How far apart the intent vectors of evaluations lie, without the model that made them; pure.

- Similarity is the cosine of the angle between two vectors; vectors of another length are left out and counted.
- A cluster is what is connected by similarities of at least `threshold`; an outlier is alone in its cluster, or on the
  whole less similar to the others than the mean by two standard deviations.
- The plot is the plane in which the vectors differ most (the first two principal components).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from operator import mul
from statistics import fmean, pstdev
from typing import Any

Vector = Sequence[float]

_WIDTH = 64
_HEIGHT = 16
_BINS = 10
_ROUNDS = 60  # more than a plot of 64 columns can show


@dataclass(frozen=True, slots=True)
class Spread:
    """The semantic spread of a set of evaluations."""

    count: int
    dim: int
    skipped: dict[str, int]
    mean: float
    low: float
    high: float
    histogram: list[int]
    """How many pairs lie in each tenth of -1 … 1."""
    clusters: list[list[str]]
    outliers: list[str]
    nearest: tuple[str, str] | None
    farthest: tuple[str, str] | None
    plot: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The spread as every client prints it."""
        return asdict(self)


def cosine(a: Vector, b: Vector) -> float:
    """The cosine between two vectors, 0 where one has no length."""
    size = sqrt(sum(map(mul, a, a)) * sum(map(mul, b, b)))
    return max(-1.0, min(1.0, sum(map(mul, a, b)) / size)) if size else 0.0


def measure(vectors: Mapping[str, Vector], *, threshold: float = 0.9) -> Spread:
    """The spread of named vectors."""
    dim = Counter(len(vector) for vector in vectors.values() if vector).most_common(1)
    width = dim[0][0] if dim else 0
    names = [name for name, vector in vectors.items() if width and len(vector) == width]
    units = [_unit(vectors[name]) for name in names]
    # Half of the symmetric matrix of all cosines; rounding can leave -1 … 1 by the last bit, hence the bounds.
    gram = [[max(-1.0, min(1.0, sum(map(mul, a, b)))) for b in units[: at + 1]] for at, a in enumerate(units)]
    pairs = [(gram[a][b], names[b], names[a]) for a in range(len(names)) for b in range(a)]
    values = [pair[0] for pair in pairs]
    groups = _clusters(names, gram, threshold)
    return Spread(
        count=len(names),
        dim=width,
        skipped=_skipped(vectors, width),
        mean=fmean(values) if values else 0.0,
        low=min(values, default=0.0),
        high=max(values, default=0.0),
        histogram=_histogram(values),
        clusters=groups,
        outliers=_outliers(names, gram, groups),
        nearest=max(pairs)[1:] if pairs else None,
        farthest=min(pairs)[1:] if pairs else None,
        plot=_plot(gram),
    )


def _unit(vector: Vector) -> list[float]:
    size = sqrt(sum(map(mul, vector, vector)))
    return [number / size for number in vector] if size else list(vector)


def _skipped(vectors: Mapping[str, Vector], width: int) -> dict[str, int]:
    counts = {"empty": 0, "other_length": 0}
    for vector in vectors.values():
        if len(vector) != width or not vector:
            counts["other_length" if vector else "empty"] += 1
    return counts


def _histogram(values: Sequence[float]) -> list[int]:
    bins = [0] * _BINS
    for value in values:
        bins[min(_BINS - 1, max(0, int((value + 1) / 2 * _BINS)))] += 1
    return bins


def _clusters(names: Sequence[str], gram: Sequence[Vector], threshold: float) -> list[list[str]]:
    """What is connected, the largest first."""
    parent = list(range(len(names)))

    def top(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]  # union-find with path halving
            at = parent[at]
        return at

    for a in range(len(names)):
        for b in range(a):
            if gram[a][b] >= threshold:
                parent[top(a)] = top(b)
    groups: dict[int, list[str]] = {}
    for at, name in enumerate(names):
        groups.setdefault(top(at), []).append(name)
    return sorted(groups.values(), key=lambda group: (-len(group), group))


def _outliers(names: Sequence[str], gram: Sequence[Vector], groups: Sequence[Sequence[str]]) -> list[str]:
    if len(names) < 3:
        return []
    count = len(names)
    means = [(sum(_row(gram, at)) - gram[at][at]) / (count - 1) for at in range(count)]
    border = fmean(means) - 2 * pstdev(means)
    # Where every vector is its own cluster, none is more of an outlier than the others.
    alone = {group[0] for group in groups if len(group) == 1 and len(groups) < count}
    return [name for name, mean in zip(names, means, strict=True) if mean < border or name in alone]


def _row(gram: Sequence[Vector], at: int) -> list[float]:
    """A whole row of the symmetric matrix of which only the lower half is kept."""
    return [*gram[at], *(gram[other][at] for other in range(at + 1, len(gram)))]


# --- the plot ----------------------------------------------------------------------------------------------------


def _plot(gram: Sequence[Vector]) -> list[str]:
    """The first two principal components as text: a digit says how many vectors share a place."""
    count = len(gram)
    if count < 3:
        return []
    whole = [_row(gram, at) for at in range(count)]
    means = [fmean(row) for row in whole]
    total = fmean(means)
    # Double centring turns cosines into inner products around the mean (classical multidimensional scaling).
    centred = [[value - means[a] - means[b] + total for b, value in enumerate(row)] for a, row in enumerate(whole)]
    first = _eigenvector(centred, [])
    second = _eigenvector(centred, [first])
    cells = Counter(zip(_places(first, _WIDTH), _places(second, _HEIGHT), strict=True))
    lines = []
    for y in range(_HEIGHT):
        marks = (cells.get((x, y), 0) for x in range(_WIDTH))
        lines.append("".join(" " if not many else str(many) if many < 10 else "#" for many in marks).rstrip())
    return lines


def _eigenvector(matrix: Sequence[Vector], others: Sequence[Vector]) -> list[float]:
    """The strongest direction of a symmetric matrix beside the others, by power iteration."""
    # A fixed start, uneven so that it is orthogonal to nothing likely: the same vectors give the same plot.
    vector = _unit([1.0 + at % 7 for at in range(len(matrix))])
    for _ in range(_ROUNDS):
        vector = [sum(map(mul, row, vector)) for row in matrix]
        # Removed in every round: rounding would bring the stronger direction back.
        for other in others:
            share = sum(map(mul, vector, other))
            vector = [a - share * b for a, b in zip(vector, other, strict=True)]
        vector = _unit(vector)
    return vector


def _places(values: Vector, size: int) -> list[int]:
    low = min(values)
    high = max(values)
    span = (high - low) or 1.0  # all at one place
    return [min(size - 1, int((value - low) / span * size)) for value in values]
