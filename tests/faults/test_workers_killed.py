"""kill -9 over four workers of a mixed load: a thin sample of `python -m proof kills`, and proof that it can fail."""

import random
from pathlib import Path

import pytest

from proof.workflows.chronicle import Chronicle
from proof.workflows.kills import RATE, FlowRow, judge_leases, judge_limits, sitting
from proof.workflows.mixed_worker import EACH, RATED, SHARED
from proof.workflows.sittings import Place

KILLS = 8
SEED = 18


def kill(place: Place) -> None:
    counts = sitting(place, KILLS, random.Random(SEED))
    assert counts["flows"] > KILLS
    assert counts["steps confirmed"] > KILLS
    assert counts["instants fired"] > 0


@pytest.mark.timeout(600)
def test_a_mixed_load_in_a_file_survives_kills_of_its_workers(tmp_path: Path, sqlite_home: Path) -> None:
    assert sqlite_home == tmp_path / "home"
    kill(Place(tmp_path))


@pytest.mark.timeout(600)
def test_a_mixed_load_on_a_server_survives_kills_of_its_workers(
    tmp_path: Path, postgres_store: tuple[str, Path]
) -> None:
    url, home = postgres_store
    assert home == tmp_path / "home"
    kill(Place(tmp_path, url))


# --- the judges can fail ---------------------------------------------------------------------------------------------


def chronicle_of(folder: Path, *lines: str) -> Chronicle:
    (folder / "log").write_text("".join(f"{line}\n" for line in lines))
    chronicle = Chronicle(folder / "log")
    chronicle.read()
    return chronicle


def test_a_confirmed_step_that_runs_again_is_noticed(tmp_path: Path) -> None:
    chronicle = chronicle_of(tmp_path, "1 7 f ran pay a", "2 7 f confirmed pay a", "3 8 f ran pay b")
    assert chronicle.repeated == ["3 8 f ran pay b"]
    assert chronicle.runs["f", "pay"] == ["a", "b"]


def test_flows_that_run_at_once_are_counted_until_their_process_is_gone(tmp_path: Path) -> None:
    chronicle = chronicle_of(tmp_path, "1 7 f begins", "2 8 g begins", "3 8 g ends", "5 8 h begins", "6 8 h ends")
    assert chronicle.most_at_once({"f", "g", "h"}, {"7": [0.5, 4.0, 9.0]}, each=False) == 2
    assert chronicle.most_at_once({"f", "h"}, {"7": [0.5, 4.0, 9.0]}, each=False) == 1
    assert chronicle.most_at_once({"f", "g", "h"}, {"7": [0.5, 4.0, 9.0]}, each=True) == 1


@pytest.mark.parametrize(
    "leases", [[(SHARED, "a", 2), (SHARED, "b", 2)], [(EACH, "a", 3)]], ids=["over all workers", "of one worker"]
)
def test_a_lease_too_many_is_noticed(leases: list[tuple[str, str, int]]) -> None:
    with pytest.raises(AssertionError):
        judge_leases(leases)


def test_a_start_too_many_is_noticed(tmp_path: Path) -> None:
    moments = [f"2026-01-01T00:00:00.{number:06}Z" for number in range(RATE + 1)]
    rows = [FlowRow(moment, "mail", "COMPLETED", moment, None, RATED) for moment in moments]
    with pytest.raises(AssertionError, match="more than 10 starts"):
        judge_limits(rows, chronicle_of(tmp_path), {})
    judge_limits(rows[:RATE], chronicle_of(tmp_path), {})
