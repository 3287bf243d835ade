"""Analyse intent vectors: how evaluations spread, and whether an embedder still gives what was recorded.

Rules:
- Vectors come from the stored DBOMs, so neither the model nor the task texts are needed for `spread`.
- `check_intent` calls the embedder with the task text of the stored result, and never writes.
- An evaluation whose result holds no task text, or whose vector is empty, is counted as skipped.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isclose
from typing import Any, Final

from holdproof.db import Call, Read, Tx, Work, ask
from holdproof.errors import InvalidInputError
from holdproof.evidence import evaluations, submissions
from holdproof.evidence.dbom_files import MAIN
from holdproof.model import spread as geometry
from holdproof.model.evaluations import Evaluation
from holdproof.model.spread import Spread
from holdproof.store.context import Embedder

MOST: Final = 2_000
_PAGE: Final = 200
_CLOSE: Final = 1e-6


def spread(tx: Tx, *, ns: str = MAIN, threshold: float = 0.9, limit: int = MOST) -> Spread:
    """Return pairwise cosines, clusters, outliers and a plot of the newest DBOM of each evaluation."""
    if not -1 <= threshold <= 1 or not 1 <= limit <= MOST:
        raise InvalidInputError(f"threshold is a cosine, limit 1 to {MOST}", threshold=threshold, limit=limit)
    newest = {
        evaluation.evaluation_id: json.loads(evaluation.dbom)["v_intent"]
        for evaluation in _walk(tx, ns)
        if evaluation.dbom
    }
    # dict keeps the order of first appearance; the last ones are the newest evaluations.
    names = list(newest)[-limit:]
    return geometry.measure({name: newest[name] for name in names}, threshold=threshold)


def _walk(tx: Tx, ns: str) -> Iterator[Evaluation]:
    after = 0
    while page := evaluations.walk(tx, ns=ns, after=after, limit=_PAGE):
        yield from page
        after = page[-1].id


@dataclass(frozen=True, slots=True)
class IntentCheck:
    """How an embedder's vectors compare with the recorded ones."""

    checked: int
    same: int
    skipped: int
    lowest: float
    drifted: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every vector that could be checked is the same."""
        return not self.drifted

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {"ok": self.ok, **asdict(self)}


def check_intent(
    embedder: Embedder, *, evaluation_id: str | None = None, ns: str = MAIN, at_least: float = 0.999
) -> Work[IntentCheck]:
    """Embed every stored task again and compare; `drifted` are those below that cosine or of another length."""
    same = 0
    skipped = 0
    cosines: list[float] = []
    drifted: list[dict[str, Any]] = []
    after = 0
    while True:
        walk = partial(evaluations.walk, evaluation_id=evaluation_id, ns=ns, after=after, limit=_PAGE)
        page: list[Evaluation] = yield from ask(Read(walk))
        if not page:
            break
        for evaluation in page:
            task = _task(evaluation)
            recorded = json.loads(evaluation.dbom)["v_intent"] if evaluation.dbom else []
            if task is None or not recorded:
                skipped += 1
                continue
            embedding: Any = yield from ask(Call(partial(embedder, task)))
            vector = submissions.to_vector(embedding)
            fits = len(vector) == len(recorded)
            cosines.append(geometry.cosine(recorded, vector) if fits else -1.0)
            # Equal within rounding counts as the same; drift is decided by the cosine below.
            same += fits and all(map(_equal, vector, recorded))
            if cosines[-1] < at_least:
                drifted.append(
                    {
                        "id": evaluation.id,
                        "evaluation_id": evaluation.evaluation_id,
                        "cosine": cosines[-1],
                        "dim": len(vector),
                    }
                )
        after = page[-1].id
    return IntentCheck(len(cosines), same, skipped, min(cosines, default=0.0), drifted)


def _equal(a: float, b: float) -> bool:
    return isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE)


def _task(evaluation: Evaluation) -> str | None:
    try:
        return submissions.task_of(evaluation.result)
    except ValueError:  # sealed, or imported as something else than JSON
        return None
