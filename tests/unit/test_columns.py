"""Lists fit the terminal, at every width, whatever is in them; ids and times are short there, and whole in a pipe."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from holdproof.api.catalogue import methods
from holdproof.cli import columns, draw, times

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FLOW = "0198a7c2-9c1e-7a3b-8d4e-5f60718293{:02}"


@pytest.fixture(autouse=True)
def _present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "now", lambda: NOW)


def _drawn(monkeypatch: pytest.MonkeyPatch, width: int | None, names: tuple[str, ...], items: list[Any]) -> list[str]:
    monkeypatch.setattr(columns, "terminal_width", lambda: width)
    return draw.table(names, items).plain.splitlines()


LISTS = [spec.exposure.columns for spec in methods().values() if spec.exposure.columns]


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("names", LISTS, ids=" ".join)
def test_no_row_of_any_list_is_wrapped(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], width: int) -> None:
    long = {name: f"{name} with a long value of {'many ' * 40}" for name in names}
    ids = {name: FLOW.format(7) if name.endswith("_id") else "2026-03-01T11:00:00.000000Z" for name in names}
    for items in ([long, ids], [ids], [long]):
        lines = _drawn(monkeypatch, width, names, items)
        assert max(map(cell_len, lines)) <= width
        assert lines[0].split("  ")[0] in names[0].upper(), "the first column is always there"


@given(st.lists(st.lists(st.text(max_size=60), min_size=4, max_size=4), max_size=4), st.integers(40, 220))
def test_no_text_is_wider_than_the_terminal(lines: list[list[str]], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shown = _drawn(patch, width, ("a", "b", "c", "d"), [dict(zip("abcd", line, strict=True)) for line in lines])
    assert all(cell_len(line) <= width for line in shown)


def test_ids_and_times_are_short_on_a_terminal_and_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [{"flow_id": FLOW.format(at), "at": f"2026-03-01T{11 - at}:59:00.000000Z"} for at in range(2)]
    assert _drawn(monkeypatch, 80, ("flow_id", "at"), items) == [
        "FLOW_ID   AT",
        "71829300  1 min ago",
        "71829301  1 h ago",
    ]
    assert FLOW.format(0) in _drawn(monkeypatch, None, ("flow_id", "at"), items)[1]
    # Ends that do not tell them apart help nobody.
    alike = [{"flow_id": FLOW.format(0)}, {"flow_id": f"1{FLOW.format(0)[1:]}"}]
    assert FLOW.format(0) in _drawn(monkeypatch, 80, ("flow_id",), alike)[1]


def test_what_is_left_out_is_named_unless_it_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("first", "second", "third", "fourth")
    wide = {name: name * 9 for name in names}
    lines = _drawn(monkeypatch, 40, names, [{**wide, "second": None}])
    assert lines[0].split() == ["FIRST", "THIRD"]
    assert lines[-1] == "not shown: fourth (--json, or a wider t…"


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("2026-03-01T12:00:00.000000Z", "now"),
        ("2026-03-01T11:59:30.000000Z", "30 s ago"),
        ("2026-03-01T10:30:00.000000Z", "1 h ago"),
        ("2026-03-08T12:00:00.000000Z", "in 7 d"),
        ("soon", "soon"),
    ],
)
def test_a_time_is_seen_from_now(at: str, shown: str) -> None:
    assert times.relative(at, NOW) == shown


def test_every_page_of_a_list_fits_what_json_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list whose declaration names no columns takes its fields."""
    page = {"items": [{"name": "n" * 60, "data": {"a": 1}, "rev": 1}], "next_cursor": json.dumps("x")}
    monkeypatch.setattr(columns, "terminal_width", lambda: 40)
    lines = draw.answer((), page).plain.splitlines()
    assert cell_len(lines[1]) <= 40


def test_an_empty_page_that_goes_on_does_not_say_that_there_is_none() -> None:
    assert draw.answer(("name",), {"items": [], "next_cursor": "x"}).plain == "none so far\nmore: --cursor x\n"
    assert draw.answer(("name",), {"items": [], "next_cursor": None}).plain == "none\n"
