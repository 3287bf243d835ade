"""A sample of `python -m proof attacks` and `python -m proof flips`: the same code, fewer rounds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdproof.upkeep import kernel_tables
from proof import attacks, flips
from proof.attacks import rows
from proof.attacks.attacked_store import Lab
from proof.flips import checks

EVERY, FLIPS = 61, 40


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def test_a_sample_of_all_attacks_is_noticed_as_the_matrix_says(lab: Lab) -> None:
    found = [*attacks.tried(lab, attacks.chosen(lab, every=EVERY), print)]
    assert len(found) > 10
    assert [row for row in found if not row.holds] == []


def test_every_column_of_every_table_under_the_log_is_attacked(lab: Lab) -> None:
    names = {attack.name for attack in rows.attacks(lab.template.past)}
    missing = [
        f"{table.table}: {column} changed"
        for table in kernel_tables.LOGGED.values()
        for column in (*table.columns, "leaf_id", "leaf_ver", "leaf_salt")
        if f"{table.table}: {column} changed" not in names
    ]
    assert missing == []


def test_attacks_on_different_tables_are_told_apart_where_they_are_done_at_once(lab: Lab) -> None:
    deleted = [attack for attack in rows.attacks(lab.template.past) if attack.names and "deleted" in attack.name]
    with lab.copy() as place:
        found = attacks.together(deleted, place)
    assert [row.attack for row in found if row is not None and row.holds] == [attack.name for attack in deleted]


def test_what_cannot_be_noticed_says_why_and_who_does(lab: Lab) -> None:
    unseen = [attack for attack in attacks.catalogue(lab) if attack.expected == ("VALID",)]
    assert unseen
    assert all(attack.design for attack in unseen)
    assert any("witness" in attack.name for attack in attacks.catalogue(lab))


def test_random_damage_is_noticed_or_changes_no_answer(tmp_path: Path) -> None:
    found = flips.flips(tmp_path, 7, range(FLIPS), print)
    assert {each["outcome"] for each in found} <= {checks.DETECTED, checks.HARMLESS, checks.DESIGN}
    assert len({each["kind"] for each in found}) > 10
