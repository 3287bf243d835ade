"""How proofs are told and kept; the proofs themselves run in tests/faults."""

import json
from pathlib import Path

from proof import page, report

FOUND = report.Proof("faults", "nothing is lost", 7, {"faults": 12_000, "lost": 0}, rows=({"kind": "a|b", "n": 1_000},))


def test_what_a_proof_found_is_kept_and_told(tmp_path: Path) -> None:
    kept = json.loads(report.save(FOUND, 61.4, tmp_path).read_text())
    assert (kept["seed"], kept["took_s"], kept["counts"]) == (7, 61, {"faults": 12_000, "lost": 0})
    assert "12,000  faults" in report.told(FOUND)
    assert FOUND.holds
    broken = report.Proof("faults", "nothing is lost", 7, {"lost": 1}, ("row 3 of flows: --seed 7 --at 3",))
    assert not broken.holds
    assert "BROKEN: row 3" in report.told(broken)


def test_figures_are_written_between_their_marks_and_nowhere_else(tmp_path: Path) -> None:
    report.save(FOUND, 200, tmp_path)
    text = "words\n<!-- faults -->\nold\n<!-- /faults -->\nmore words\n"
    filled = page.filled(text, tmp_path)
    assert filled.startswith("words\n<!-- faults -->\nSeed 7, 3 minutes.\n")
    assert "| faults | 12,000 |" in filled
    assert "| a\\|b | 1,000 |" in filled
    assert "old" not in filled
    assert page.filled(filled, tmp_path) == filled


def test_the_page_of_reliability_is_what_the_kept_figures_say() -> None:
    assert page.PAGE.read_text() == page.filled(page.PAGE.read_text()), "python -m proof.page writes it anew"
