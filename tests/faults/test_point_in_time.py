"""A store comes back at heads drawn by chance, after everything was killed: a thin sample of `proof restores`."""

import random
from pathlib import Path

from harness import litestream
from proof import restores
from proof.workflows.sittings import Place

HEADS = 2
LOAD_S = 1.5


def test_a_replicated_file_comes_back_at_drawn_heads(tmp_path: Path) -> None:
    litestream.program()  # skips where there is none
    counts = restores.sitting(Place(tmp_path), HEADS, random.Random(22), load_s=LOAD_S)
    assert counts["heads restored"] == HEADS
    assert counts["flows acknowledged"] > 0


def test_a_server_with_a_copied_log_comes_back_at_drawn_heads(tmp_path: Path) -> None:
    counts = restores.sitting(Place(tmp_path, "a server of its own"), HEADS, random.Random(22), load_s=LOAD_S)
    assert counts["heads restored"] == HEADS
    assert counts["flows acknowledged"] > 0
