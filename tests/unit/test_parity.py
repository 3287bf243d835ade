"""The list of what DBOS's public tests show, and what Holdproof does in each case: whole, and true.

docs/internals/dbos-parity.tsv is the list, a behaviour on a line; docs/internals/dbos-parity.md is made from it.
`HOLDPROOF_UPDATE_DOCS=1` writes the page anew instead of comparing it.
"""

import csv
import os
import re
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "docs" / "internals" / "dbos-parity.tsv"
PAGE = ROOT / "docs" / "internals" / "dbos-parity.md"

_HEAD = """# What DBOS does, and Holdproof

For people who come from DBOS, and for those who change flows. Each line is one behaviour that the public tests of
[dbos-transact-py](https://github.com/dbos-inc/dbos-transact-py) show, in our words, with the call that does it here.
`planned` is being built, `done` has a test that proves it, `left out` has a reason. The page is made from
[the list](dbos-parity.tsv), which also names the tests of DBOS behind each line.

The list covers the 1,011 tests of commit `6bc3032f` (August 2026, six commits after 2.30.0), the later tests of
rewinding and of the enterprise package, and what the public names of 3.3.0 add to those. Other tests that were added
since then are not in it.
"""


class Behaviour(NamedTuple):
    """One line of the list; `evidence` are our tests where it is done, the reason where it is left out."""

    area: str
    behaviour: str
    call: str
    status: str
    evidence: str
    dbos_tests: str


def behaviours() -> list[Behaviour]:
    with LIST.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    assert tuple(header) == Behaviour._fields
    return [Behaviour(*row) for row in rows]


def page() -> str:
    """The page, from the list."""
    lines = [_HEAD, *_counts(), ""]
    for area, group in groupby(behaviours(), lambda each: each.area):
        lines += [f"## {area.capitalize()}", "", "| behaviour | Holdproof | status |", "|---|---|---|"]
        lines += [f"| {each.behaviour} | {each.call} | {_status(each)} |" for each in group]
        lines.append("")
    return "\n".join(lines)


def _counts() -> list[str]:
    statuses = [each.status for each in behaviours()]
    shares = (f"{status} {statuses.count(status)}" for status in ("done", "planned", "left out"))
    return [f"{len(statuses)} behaviours: {', '.join(shares)}."]


def _status(each: Behaviour) -> str:
    return f"left out: {each.evidence}" if each.status == "left out" else each.status


def test_the_page_of_parity_is_current() -> None:
    if os.environ.get("HOLDPROOF_UPDATE_DOCS") == "1":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: HOLDPROOF_UPDATE_DOCS=1"


def test_the_list_is_sorted_by_area_and_names_each_behaviour_once() -> None:
    listed = behaviours()
    areas = [each.area for each in listed]
    texts = [each.behaviour for each in listed]
    assert areas == sorted(areas)
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("each", behaviours(), ids=lambda each: each.behaviour[:60])
def test_a_behaviour_is_planned_or_proven_or_left_out_with_a_reason(each: Behaviour) -> None:
    assert each.dbos_tests
    assert "|" not in each.behaviour + each.call + each.evidence
    match each.status:
        case "planned":
            assert not each.evidence
        case "left out":
            assert each.evidence
        case "done":
            assert each.evidence
            for test in each.evidence.split():
                _assert_exists(test)
        case other:
            pytest.fail(f"no status: {other}")


def _assert_exists(test: str) -> None:
    """A test is named as pytest names it, without parameters: `tests/unit/test_parity.py::test_…`."""
    path, _, function = test.partition("::")
    name = function.rpartition("::")[2]
    assert re.search(rf"def {re.escape(name)}\(", (ROOT / path).read_text(encoding="utf-8")), test
