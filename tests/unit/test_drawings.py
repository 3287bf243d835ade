"""Drawings of the console: labels are distinct and inside, whatever is drawn."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.model.flows import Flow, FlowTree, LeaseTakeover, Step
from holdproof.model.timelines import TimelineEvent
from holdproof.model.times import to_text
from holdproof.server.console import axes, gantt, graph, histogram

START = 1_790_000_000_000_000
LETTER = 6.2


def at(seconds: float) -> str:
    return to_text(START + round(seconds * 1_000_000))


def flow(id: str, parent: str | None = None, *, start: float = 0.0, end: float | None = 10.0) -> Flow:
    status = "RUNNING" if end is None else "COMPLETED"
    ended = None if end is None else at(end)
    moments = (at(start), ended, at(start), ended or at(start))
    return Flow(id, "root", parent, "agent", "kind", "1.0", status, None, None, 0, *moments, "main")


def step(name: str, start: float, end: float | None, **facts: object) -> Step:
    values = {
        "step_id": f"s-{name}",
        "flow_id": "root",
        "name": name,
        "n": 1,
        "position": 1,
        "state": "DONE" if end is not None else "STARTED",
        "compensates": None,
        "arguments": None,
        "arguments_hash": None,
        "result": None,
        "error": None,
        "undo": False,
        "attempts": 1,
        "retry_at": None,
        "worker": "w",
        "started_at": at(start),
        "finished_at": None if end is None else at(end),
        "ns": "main",
    }
    return Step(**{**values, **facts})  # type: ignore[arg-type]


@given(st.floats(min_value=0.0005, max_value=1e9))
def test_marks_of_time_are_distinct_and_inside(total: float) -> None:
    marks = axes.seconds(total)
    assert len({mark.text for mark in marks}) == len(marks)
    assert all(0.0 <= mark.at <= 1.0 for mark in marks)
    assert len(marks) <= 10


@given(st.floats(min_value=0.001, max_value=1e13))
def test_marks_of_counts_are_distinct_and_reach_over_the_highest(highest: float) -> None:
    scale = axes.counts(highest)
    assert len({mark.text for mark in scale.marks}) == len(scale.marks)
    assert scale.top >= highest * 0.998
    assert scale.marks[0].text == "0"


@given(
    st.lists(st.dictionaries(st.sampled_from(["COMPLETED", "FAILED"]), st.integers(0, 10**7)), max_size=60),
    st.sampled_from([1, 60, 3_600, 86_400]),
)
def test_columns_stand_inside_and_their_labels_do_not_touch(amounts: list[dict[str, int]], width_s: int) -> None:
    points = [(at(place * width_s), each) for place, each in enumerate(amounts)]
    chart = histogram.lay_out(points, ("COMPLETED", "FAILED"), bucket_s=width_s, unit="flows")
    for column in chart.columns:
        assert chart.left_edge <= column.x <= chart.width - column.width + 0.01
        assert all(0 <= part.y <= chart.floor and part.height >= 1.5 for part in column.parts)
    ends = [(label.x, label.x + len(label.text) * LETTER) for label in chart.labels]
    assert all(end <= chart.width for _, end in ends)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert len({label.text for label in chart.labels}) == len(chart.labels)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0 ms"), (0.0001, "<1 ms"), (0.25, "250 ms"), (2.35, "2.4 s")),
        *((65, "1 min 5 s"), (3_600, "1 h"), (90_000, "1 d 1 h")),
    ],
)
def test_lengths_of_time_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert axes.length(seconds) == text


def test_every_bar_and_text_of_a_gantt_is_inside() -> None:
    tree = FlowTree(flow("root", end=None), (FlowTree(flow("child", "root", start=2.0, end=9.99)),))
    steps = [step("a" * 60, 0.0, 0.0), step("b", 9.999, 10.0), step("c", 3.0, None), step("d", 0.0, 10.0)]
    steps.append(step("e", 5.0, 6.0, compensates="b 1", attempts=3))
    takeovers = {
        "root": [LeaseTakeover(at(9.0), "lost", at(1.0), "next", 2), LeaseTakeover(at(10.0), "x", at(9.99), "y", 1)]
    }
    drawing = gantt.lay_out(tree, steps, [], takeovers, at(10.0))
    assert [row.is_flow for row in drawing.rows] == [True, False, False, False, False, False, True]
    for row in drawing.rows:
        for bar in row.bars:
            assert bar.x >= gantt.NAMES
            assert bar.x + bar.width <= gantt.WIDTH
        length = len(row.text) * LETTER
        left = row.text_x - length if row.anchor == "end" else row.text_x
        assert left >= gantt.NAMES
        assert left + length <= gantt.WIDTH + 1
        assert row.indent + len(row.name) * LETTER <= gantt.NAMES
    for cut in drawing.cuts:
        assert "lost" in cut.text
        assert "taken" in cut.text
        assert gantt.NAMES <= cut.x <= gantt.WIDTH
    assert "2 steps replayed" in drawing.cuts[0].says


def test_a_gantt_of_many_steps_says_what_it_leaves_out() -> None:
    steps = [step(f"s{number}", number / 100, number / 100) for number in range(500)]
    drawing = gantt.lay_out(FlowTree(flow("root")), steps, [], {}, at(10.0))
    assert len(drawing.rows) == gantt.MOST_ROWS
    assert drawing.left_out == 501 - gantt.MOST_ROWS


def test_a_graph_places_every_flow_once_and_parents_left_of_their_children() -> None:
    children = tuple(FlowTree(flow(f"c{at}", "root")) for at in range(4))
    drawing = graph.lay_out(FlowTree(flow("root"), children), "root")
    places = {(node.x, node.y) for node in drawing.nodes}
    assert len(places) == len(drawing.nodes) == 5
    assert len(drawing.edges) == 4
    assert all(
        node.y + node.height <= drawing.height and node.x + node.width <= drawing.width for node in drawing.nodes
    )
    many = FlowTree(flow("root"), tuple(FlowTree(flow(f"c{at}", "root")) for at in range(200)))
    assert graph.lay_out(many, "root").left_out == 201 - graph.MOST


def audited(what: str, at_s: float) -> TimelineEvent:
    return TimelineEvent(at(at_s), "audit", "root", what, "INFO", what)


def test_a_wait_for_a_lock_is_drawn_from_its_beginning_to_its_end() -> None:
    events = [
        audited("lock.awaited hangar 3", 1.0),
        audited("lock.acquired hangar 3", 3.0),
        audited("lock.awaited ledger", 4.0),
        audited("flow.taken_over", 5.0),
        audited("lock.awaited ledger", 6.0),
        audited("lock.given_up ledger", 7.0),
        audited("lock.awaited api", 8.0),
    ]
    drawn = gantt.lay_out(FlowTree(flow("root", end=None), ()), [], events, {}, at(10.0))
    waits = [bar for bar in drawn.rows[0].bars if bar.kind.startswith("waits")]
    assert [bar.says for bar in waits] == [
        "waited for the lock hangar 3, and acquired it",
        "waited for the lock ledger, until its worker was lost",
        "waited for the lock ledger, and gave up",
        "waits for the lock api",
    ]
    second = (gantt.WIDTH - gantt.NAMES - 14.0) / 10.0
    widths = [round(bar.width / second) for bar in waits]
    assert widths == [2, 1, 1, 2]
    assert [bar.kind for bar in waits] == ["waits", "waits", "waits", "waits open"]


def test_waits_of_one_flow_for_several_locks_end_each_by_itself() -> None:
    events = [
        audited("lock.awaited api", 1.0),
        audited("lock.awaited ledger", 2.0),
        audited("lock.acquired api", 3.0),
        audited("lock.awaited hangar 3", 4.0),
        audited("lock.given_up ledger", 5.0),
        audited("flow.taken_over", 6.0),
    ]
    drawn = gantt.lay_out(FlowTree(flow("root", end=None), ()), [], events, {}, at(10.0))
    assert [bar.says for bar in drawn.rows[0].bars if bar.kind.startswith("waits")] == [
        "waited for the lock api, and acquired it",
        "waited for the lock ledger, and gave up",
        "waited for the lock hangar 3, until its worker was lost",
    ]
