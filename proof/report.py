"""What a proof found, told and kept."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[1]
FIGURES: Final = _ROOT / "docs" / "internals" / "figures"
"""Summaries, which are committed: small, and what the pages are made from."""
RUNS: Final = _ROOT / "build" / "proof"
"""Raw results of the last run, which git ignores: as large as the run was."""

Say = Callable[[str], None]
"""Tells whoever waits how far a proof is."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was tried and what came of it; `broken` says what did not hold, one line each, with how to repeat it."""

    name: str
    claim: str
    seed: int
    counts: Mapping[str, int]
    broken: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """Details for a table, all with the same keys."""
    before_s: float = 0.0
    """How long earlier runs took whose findings are in here, for a proof whose runs add up."""

    @property
    def holds(self) -> bool:
        """Whether every claim held."""
        return not self.broken


def save(proof: Proof, took_s: float, where: Path = FIGURES) -> Path:
    """Keep what was found, as one JSON document a proof."""
    where.mkdir(parents=True, exist_ok=True)
    path = where / f"{proof.name}.json"
    found = asdict(proof)
    found["took_s"] = round(found.pop("before_s") + took_s)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return path


def told(proof: Proof) -> str:
    """The counts as lines for a terminal."""
    lines = [f"{proof.name}: {proof.claim}", f"  seed {proof.seed}"]
    lines += [f"  {count:>12,}  {what}" for what, count in proof.counts.items()]
    lines += [f"  BROKEN: {line}" for line in proof.broken]
    return "\n".join(lines)
