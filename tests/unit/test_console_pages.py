"""What the pages of the console are made of, each without a server: differences, similar requests, charts, files."""

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.model.activity import ActivityCount
from holdproof.model.coordination import Escalation
from holdproof.server import static_files
from holdproof.server.console import charts, similar, text_diff, today_charts
from holdproof.server.console.queue import InboxFacets
from holdproof.server.login import inside
from holdproof.server.presence import Presence

TEXT = st.text(alphabet="ab \n.é", max_size=60)


@given(TEXT, TEXT)
def test_the_pieces_of_a_comparison_are_both_texts_again(old: str, new: str) -> None:
    pieces = text_diff.words(old, new)
    assert "".join(each.text for each in pieces if each.kind != "add") == old
    assert "".join(each.text for each in pieces if each.kind != "cut") == new


@given(TEXT, TEXT)
def test_the_lines_of_a_comparison_are_both_texts_but_what_stayed_the_same(old: str, new: str) -> None:
    pieces = text_diff.lines(old, new)
    if all(each.kind != "gap" for each in pieces):
        assert "\n".join(each.text for each in pieces if each.kind != "add") == old
        assert "\n".join(each.text for each in pieces if each.kind != "cut") == new


def test_only_lines_near_a_change_are_shown_and_the_others_counted() -> None:
    old = "\n".join(map(str, range(40)))
    pieces = text_diff.lines(old, old.replace("20", "twenty"))
    assert [each.text for each in pieces if each.kind == "gap"] == [
        "17 lines without a change",
        "16 lines without a change",
    ]
    assert [each.text for each in pieces if each.kind == "same"] == ["17", "18", "19", "21", "22", "23"]


def test_a_text_however_long_is_compared_in_bounded_time() -> None:
    old = "a b " * 50_000
    assert text_diff.words(old, old + "c") == [("cut", old), ("add", old + "c")]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (25_000, 42_000, "+17,000 (\u00d7 1.68)"),
        (0, 5, "+5"),
        (-1, 1, "+2"),
        (2, 2, ""),
        ("a", 2, ""),
        (True, 2, ""),
        (1.5, 0.75, "-0.75 (\u00d7 0.5)"),
    ],
)
def test_a_number_says_by_how_much_it_changes(old: Any, new: Any, says: str) -> None:
    assert text_diff.factor(old, new) == says


def test_a_list_of_objects_is_a_table() -> None:
    table = text_diff.table([{"id": "o-1", "eur": 2}, {"id": "o-2", "item": "leg"}])
    assert table is not None
    assert table.columns == ("id", "eur", "item")
    assert table.rows == (("o-1", 2, None), ("o-2", None, "leg"))
    values: list[Any] = [[], [1], {"a": 1}, "text", [{}], [{str(each): 1 for each in range(20)}]]
    for value in values:
        assert text_diff.table(value) is None


def test_a_list_of_objects_that_changed_is_shown_row_by_row() -> None:
    old = [{"id": number, "count": 1} for number in range(20)]
    new = [{**row, "count": 2} if row["id"] == 9 else row for row in old if row["id"] != 19] + [{"id": 30, "count": 4}]
    change = text_diff.rows(old, new)
    assert change is not None
    assert change.columns == ("id", "count")
    told = [
        (row.kind, *(f"{cell.was}>{cell.text}" if cell.was else cell.text for cell in row.cells)) for row in change.rows
    ]
    assert told == [
        ("gap", "6 rows without a change"),
        *(("same", str(number), "1") for number in (6, 7, 8)),
        ("changed", "9", "1>2"),
        *(("same", str(number), "1") for number in (10, 11, 12)),
        ("gap", "3 rows without a change"),
        *(("same", str(number), "1") for number in (16, 17, 18)),
        ("cut", "19", "1"),
        ("add", "30", "4"),
    ]


def test_a_cell_that_only_looks_the_same_is_a_change_that_is_seen() -> None:
    change = text_diff.rows([{"id": 1, "n": "5"}, {"id": 2, "n": None}], [{"id": 1, "n": 5}, {"id": 2}])
    assert change is not None
    assert [row.cells[1] for row in change.rows] == [("5", '"5"'), ("—", "null")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([], [{"id": 1}]),
        ([1, 2], [{"id": 1}]),
        ("text", [{"id": 1}]),
        ([{"id": 1}], [{"id": number} for number in range(300)]),
        ([{f"a{number}": 1 for number in range(5)}], [{f"b{number}": 1 for number in range(5)}]),
    ],
)
def test_what_is_no_short_table_on_both_sides_is_shown_whole(old: object, new: object) -> None:
    assert text_diff.rows(old, new) is None


def escalation(id: int, reason: str, proposal: Any = None, **more: Any) -> Escalation:
    given: dict[str, Any] = {
        "id": id,
        "flow_id": "f",
        "root_flow_id": "f",
        "agent_id": "clerk",
        "kind": "approval",
        "reason": reason,
        "context": None,
        "proposal": proposal if proposal is not None else {"amount": id},
        "impact": "LOW_IMPACT",
        "status": "PENDING",
        "human_decision": None,
        "created_at": "2026-01-01T00:00:00Z",
        "resolved_at": None,
        "deadline": None,
        "on_deadline": "reject",
        "opened_by": "agent",
        "resolved_by": None,
        "comment": None,
        "answer": None,
        "ns": "main",
    }
    return Escalation(**{**given, **more})


def test_alike_are_requests_that_differ_in_their_numbers_only() -> None:
    one = escalation(1, "Refund of 1,200.50 EUR")
    others = [
        escalation(2, "Refund of 7 EUR"),
        escalation(3, "Refund of 7 USD"),
        escalation(4, "Refund of 9 EUR", {"amount": 1, "to": "Ada"}),
        escalation(5, "Refund of 9 EUR", impact="HIGH_IMPACT"),
        escalation(6, "Refund of 9 EUR", agent_id="other"),
    ]
    assert [each.id for each in similar.alike(one, [one, *others])] == [2]


def test_how_alike_ones_ended_is_counted_without_those_that_wait() -> None:
    ended: dict[str, Any] = {"resolved_at": "2026-01-01T00:01:00Z", "resolved_by": "operator:Ada"}
    past = similar.history(
        [
            escalation(1, "a", status="APPROVED", human_decision="OVERRIDE", **ended),
            escalation(2, "a", status="APPROVED", human_decision="MODIFY", **ended),
            escalation(3, "a", status="REJECTED", **{**ended, "resolved_by": "deadline"}),
            escalation(4, "a"),
        ]
    )
    assert past == similar.PastOutcomes(3, 1, 1, 1, 60.0)


COUNTS = st.builds(
    ActivityCount,
    bucket=st.just("2026-01-01T10"),
    agent_id=st.sampled_from(["a", "b"]),
    **dict.fromkeys(
        ("started", "completed", "failed", "cancelled", "escalations", "answers", "expired"), st.integers(0, 10**6)
    ),
)


@given(COUNTS)
def test_columns_stand_on_one_another_and_inside_the_picture(count: ActivityCount) -> None:
    chart = today_charts.stacked("ended", ["2026-01-01T09", "2026-01-01T10"], {count.bucket: count})
    assert all(each.y >= 0 and each.y + each.height <= chart.height for each in chart.segments)
    assert all(chart.x <= each.x and each.x + each.width <= chart.width for each in chart.segments)
    assert len({each.says for each in chart.ticks}) == len(chart.ticks)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=5))
def test_the_numbers_of_an_axis_differ_and_stand_inside(values: list[float]) -> None:
    chart = charts.line("x", [(str(number), value) for number, value in enumerate(values)])
    ticks = [tick.says for tick in chart.ticks]
    # Where the values hardly differ no few digits tell them apart.
    if max(values) - min(values) > 1e-3 * max(map(abs, values)):
        assert len(set(ticks)) == len(ticks), ticks
    assert all(len(each) <= 8 for each in ticks), ticks


def test_an_agent_is_a_strip_of_hours_and_the_busiest_come_first() -> None:
    counts = [
        ActivityCount("2026-01-01T09", "idle", 1, 1, 0, 0, 0, 0, 0),
        ActivityCount("2026-01-01T09", "busy", 8, 7, 1, 0, 0, 0, 0),
        ActivityCount("2026-01-01T10", "busy", 2, 2, 0, 0, 1, 0, 0),
    ]
    busy, idle = today_charts.strips(["2026-01-01T09", "2026-01-01T10"], counts, 5)
    assert (busy.agent_id, busy.started, busy.failed, busy.escalations) == ("busy", 10, 1, 1)
    assert [each.level for each in busy.cells] == ["hbad", "h1"]
    assert idle.agent_id == "idle"
    assert [each.agent_id for each in today_charts.strips(["2026-01-01T09"], counts, 1)] == ["busy"]


def test_static_files_have_their_hash_in_their_address_and_are_packed_once() -> None:
    for name, file in static_files.files().items():
        assert static_files.address(name) == f"/static/{name}?v={file.version}"
        assert gzip.decompress(file.packed) == file.body
    scripts = sum(len(file.packed) for name, file in static_files.files().items() if name.endswith(".js"))
    assert scripts < 25 * 1024


@pytest.mark.parametrize(
    "address", ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\nb", "inbox", "javascript:x"]
)
def test_a_login_leads_to_no_other_server(address: str) -> None:
    assert inside(address) == ""


def test_a_login_leads_back_to_the_page() -> None:
    assert inside("/inbox/17?agent=a") == "/inbox/17?agent=a"


def test_who_looks_is_told_of_the_others_and_not_of_themselves() -> None:
    presence = Presence()
    assert presence.look("17", "Ada") == []
    assert presence.look("17", "Bob") == ["Ada"]
    assert presence.look("18", "Ada") == []


def test_a_facet_is_a_link_that_chooses_it_or_lets_it_go() -> None:
    facets = InboxFacets.of({"agent": "clerk", "cursor": "x", "nonsense": "y"})
    assert facets.query == "?agent=clerk&cursor=x"
    assert facets.toggled("impact", "HIGH_IMPACT") == "?agent=clerk&impact=HIGH_IMPACT"
    assert facets.toggled("agent", "clerk") == "?"
