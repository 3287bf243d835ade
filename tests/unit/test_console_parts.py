"""The pure parts of the console: differences, proposals in parts, charts, words, and long work."""

import asyncio
import json
import re
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof import errors
from holdproof.adapters.otel.receiver import receive
from holdproof.model import differences as diffs
from holdproof.model.log import StoreSize
from holdproof.model.progress import Progress
from holdproof.model.storage import TelemetryEvent
from holdproof.server.console import charts, growth_chart, page_filters, template_filters
from holdproof.server.console.telemetry import spans
from holdproof.server.jobs import MAX_ENDED, MOST, Jobs
from holdproof.server.metrics import Metrics
from holdproof.server.samples import MOST as MOST_SAMPLES
from holdproof.server.samples import Samples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

# --- differences -------------------------------------------------------------------------------------------------


def test_what_differs_is_named_by_its_place() -> None:
    found = diffs.compare({"a": {"b": 1, "c": 2}, "gone": 0}, {"a": {"b": 1, "c": 3}, "new": [1]})
    assert [(each.path, each.kind, each.old, each.new) for each in found] == [
        ("a.b", "same", 1, 1),
        ("a.c", "changed", 2, 3),
        ("new", "added", None, [1]),
        ("gone", "removed", 0, None),
    ]


def test_true_is_not_one() -> None:
    assert not diffs.equal(True, 1)
    assert not diffs.equal([1], [True])
    assert not diffs.equal(1, 1.0)
    assert diffs.equal({"a": [1]}, {"a": [1]})


@given(JSON)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert {each.kind for each in diffs.compare(value, value)} <= {"same"}


@given(JSON)
def test_all_parts_as_they_are_make_the_proposal_again(proposal: Any) -> None:
    parts = diffs.parts(proposal, [])
    again = diffs.assembled([(part, part.edited(part.text)) for part in parts])
    assert diffs.equal(again, proposal)


@given(st.dictionaries(st.text(min_size=1), JSON, min_size=1, max_size=4), st.sets(st.integers(0, 20)))
def test_nothing_gets_in_that_was_not_ticked(proposal: dict[str, Any], ticked: set[int]) -> None:
    parts = diffs.parts(proposal, [])
    chosen = [part for part in parts if part.number in ticked]
    made = diffs.assembled([(part, part.proposed) for part in chosen])
    kept = {part.path for part in diffs.parts(made, [])} if chosen else set()
    assert kept == {part.path for part in chosen}


def test_a_part_is_shown_beside_the_first_that_has_its_place() -> None:
    known = [("context", {"limit": 1, "deep": {"x": True}}), ("state", {"limit": 2, "other": 3})]
    found = {part.name: part for part in diffs.parts({"limit": 1, "deep": {"x": 1}, "other": 4, "new": 5}, known)}
    assert {name: (part.kind, part.source) for name, part in found.items()} == {
        "limit": ("same", "context"),
        "deep.x": ("changed", "context"),
        "other": ("changed", "state"),
        "new": ("added", ""),
    }


@pytest.mark.parametrize(
    ("proposed", "text", "value"),
    [("1", "2", "2"), ("a\nb", "a\r\nb", "a\nb"), (1, "2.5", 2.5), (None, "2", 2), ([1], "[1, 2]", [1, 2])],
)
def test_an_edited_value_stays_what_it_was_a_text_or_json(proposed: Any, text: str, value: Any) -> None:
    [part] = diffs.parts(proposed, [])
    assert diffs.equal(part.edited(text), value)


@pytest.mark.parametrize(
    ("proposed", "text"), [(1, "[1]"), (1, "true"), (1, "1,200"), (True, "1"), ([1], "1"), (1.5, '"1.5"'), ({}, "[]")]
)
def test_a_value_stays_of_the_type_that_was_proposed(proposed: Any, text: str) -> None:
    [part] = diffs.parts(proposed, [])
    with pytest.raises(errors.InvalidInputError, match="is no"):
        part.edited(text)


@pytest.mark.parametrize("text", ["", "{", "NaN", "Infinity", "1 2", "'x'", "[" * 100_000])
def test_a_value_that_is_no_json_is_refused(text: str) -> None:
    [part] = diffs.parts({"limit": 1}, [])
    with pytest.raises(errors.InvalidInputError, match="limit"):
        part.edited(text)


# --- charts ------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=40))
def test_a_line_stays_in_its_frame(values: list[float]) -> None:
    made = charts.line("x", [(str(at), value) for at, value in enumerate(values)])
    for dot in made.dots:
        assert charts.LEFT - 0.1 <= dot.x <= made.width
        assert -0.1 <= dot.y <= made.height
    assert "nan" not in made.path


def test_spans_stand_below_their_parents_and_rings_end() -> None:
    made = charts.waterfall(
        [
            charts.TraceSpan("c", "b", "third", 20, 30),
            charts.TraceSpan("a", None, "first", 0, 100),
            charts.TraceSpan("b", "a", "second", 10, 50),
            charts.TraceSpan("x", "y", "ring", 5, 6),
            charts.TraceSpan("y", "x", "ring", 5, 6),
            charts.TraceSpan("z", "z", "itself", 7, 8),
            charts.TraceSpan("o", "gone", "orphan", 90, 95),
        ]
    )
    assert [strip.span.id for strip in made.strips[:3]] == ["a", "b", "c"]
    assert [strip.indent for strip in made.strips[:3]] == [0, 12, 24]
    assert sorted(strip.span.id for strip in made.strips) == sorted("abcxyzo")
    assert charts.waterfall([]).strips == ()


def test_a_trace_may_be_as_deep_as_it_has_spans() -> None:
    chain = [charts.TraceSpan(str(n), str(n - 1), "call", n, 9_999) for n in range(5_000)]
    assert [strip.span.id for strip in charts.waterfall(chain).strips] == [span.id for span in chain]


def test_a_span_is_all_that_events_tell_of_it() -> None:
    at = "2026-01-31T12:00:00Z"
    found = spans(
        [
            TelemetryEvent("span", at, {"name": "work", "duration_ms": 5, "parent_span_id": "p"}, span_id="a"),
            TelemetryEvent("tool.call", "2026-01-31T12:00:00.002Z", {"error": "boom"}, span_id="a"),
            TelemetryEvent("note", at, {"duration_s": True}),
        ]
    )
    [work, note] = found
    assert (work.name, work.parent, work.end - work.start, work.failed) == ("work", "p", 5000, True)
    assert (note.name, note.end - note.start) == ("note", 0)


def test_a_span_of_otlp_lasts_as_long_as_its_times_say_and_fails_by_its_code() -> None:
    span = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "work", "status": {"code": 2}}
    span |= {"startTimeUnixNano": str(10**18), "endTimeUnixNano": str(10**18 + 5_000_000)}
    sent = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    [work] = spans(receive(json.dumps(sent).encode(), content_type="application/json").events)
    assert (work.name, work.end - work.start, work.failed) == ("work", 5000, True)


# --- words -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ("2026-01-31T12:00:00Z", "now"),
        ("2026-01-31T11:59:30Z", "30 s ago"),
        ("2026-01-31T11:00:00Z", "1 h ago"),
        ("2026-01-31T14:30:00Z", "in 2 h"),
        ("2026-02-03T12:00:00Z", "in 3 d"),
    ],
)
def test_a_moment_is_told_as_people_do(at: str, text: str) -> None:
    assert template_filters.ago(at, "2026-01-31T12:00:00Z") == text


def test_everything_that_is_shown_is_escaped() -> None:
    for made in (
        template_filters.ident('<b>"x"'),
        template_filters.ident("x", '"><b>'),
        template_filters.badge("<b>"),
        template_filters.clock("<b>" * 9),
    ):
        assert "<b>" not in made
    assert template_filters.short("0123456789abcdefghij") == "012345…efghij"
    assert (template_filters.size(10), template_filters.size(2048), template_filters.size(5 << 30)) == (
        "10 B",
        "2.0 KiB",
        "5.0 GiB",
    )
    assert (template_filters.duration(0.0025), template_filters.duration(2), template_filters.duration(None)) == (
        "2.5 ms",
        "2.00 s",
        "—",
    )
    assert template_filters.brief({"a": "x" * 200}, 20).endswith("…")


# --- long work ---------------------------------------------------------------------------------------------------


def test_a_job_tells_how_far_it_is_and_what_came_of_it() -> None:
    async def main() -> None:
        jobs, status_after = Jobs(lambda: "now"), asyncio.Event()

        async def work(progress: Progress) -> str:
            progress("first", 1, 2)
            progress("second", 0, 0)
            await status_after.wait()
            return "done"

        async def broken(progress: Progress) -> None:
            del progress
            raise errors.NotFoundError("nothing there")

        async def defect(progress: Progress) -> None:
            del progress
            raise RuntimeError("secret")

        job, bad, worse = (
            jobs.start("x", "Ada", None, work),
            jobs.start("x", "Ada", None, broken),
            jobs.start("x", "Ada", None, defect),
        )
        await asyncio.sleep(0)
        assert (job.running, job.stage, job.stages) == (True, "second", ["first", "second"])
        status_after.set()
        await asyncio.sleep(0.01)
        assert (job.running, job.result, bad.error) == (False, "done", "nothing there")
        assert "secret" not in worse.error
        assert jobs.list() == (worse, bad, job)

    asyncio.run(main())


def test_only_so_many_jobs_run_and_only_so_many_are_kept() -> None:
    async def main() -> None:
        jobs = Jobs(lambda: "now")

        async def forever(progress: Progress) -> None:
            del progress
            await asyncio.Event().wait()

        async def nothing(progress: Progress) -> None:
            del progress

        first = jobs.start("x", "Ada", None, nothing)
        for _ in range(MAX_ENDED + 1):
            jobs.start("x", "Ada", None, nothing)
            await asyncio.sleep(0.001)
        with pytest.raises(errors.NotFoundError):
            jobs.get(first.number)
        running = [jobs.start("x", "Ada", None, forever) for _ in range(MOST)]
        with pytest.raises(errors.RateLimitedError):
            jobs.start("x", "Ada", None, forever)
        await jobs.stop()
        assert not any(job.running for job in running)

    asyncio.run(main())


def test_a_job_is_known_where_it_was_begun_and_to_whoever_is_bound_nowhere() -> None:
    async def main() -> None:
        jobs = Jobs(lambda: "now")

        async def nothing(progress: Progress) -> None:
            del progress

        ours, whole = jobs.start("x", "Ada", "ours", nothing), jobs.start("x", "Ada", None, nothing)
        assert (jobs.list(), jobs.list("ours"), jobs.list("theirs")) == ((whole, ours), (ours,), ())
        assert jobs.get(ours.number, "ours") is jobs.get(ours.number) is ours
        for job, ns in ((ours, "theirs"), (whole, "ours")):
            with pytest.raises(errors.NotFoundError):
                jobs.get(job.number, ns)
        await jobs.stop()

    asyncio.run(main())


def test_quantiles_are_the_bounds_that_enough_requests_met() -> None:
    metrics = Metrics()
    for seconds in (0.0005,) * 60 + (0.04,) * 39 + (20.0,):
        metrics.observe("GET", "/inbox", 200, seconds)
    [(method, route, count, half, most)] = metrics.quantiles()
    assert (method, route, count, half, most) == ("GET", "/inbox", 100, 0.001, 0.05)
    metrics.observe("GET", "/slow", 200, 20.0)
    assert [each[3:] for each in metrics.quantiles()][1] == (None, None)


def test_the_longer_a_store_is_watched_the_further_apart_it_is_looked_at() -> None:
    samples = Samples()
    for number in range(MOST_SAMPLES + 1):
        samples.keep(StoreSize(str(number), number, 0))
    assert len(samples.history) <= MOST_SAMPLES // 2 + 1
    assert samples.history[0].at == "0"


def test_a_line_begins_at_nothing_or_below_where_a_value_is() -> None:
    assert charts.line("x", [("a", 0.004), ("b", 0.004)]).ticks[0].says == "0"
    assert [tick.says for tick in charts.line("x", [("a", 8.0), ("b", 9.0)]).ticks] == ["0", "4.5", "9"]
    assert [tick.says for tick in charts.line("x", [("a", -1.0), ("b", 1.0)]).ticks] == ["-1", "0", "1"]


_MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31))  # noqa: DTZ001 (drawn without a zone)


@given(st.lists(st.tuples(_MOMENTS, st.floats(0, 1e12)), min_size=1, max_size=80))
def test_growth_is_drawn_from_nothing_inside_its_frame(points: list[tuple[datetime, float]]) -> None:
    measured = sorted((at.isoformat() + "Z", value) for at, value in points)
    chart = growth_chart.lay_out("x", measured, begin=measured[0][0], end=measured[-1][0], unit="entries")
    assert chart is not None
    assert chart.ticks[0].text == "0"
    numbers = [float(each) for each in re.findall(r"[\d.]+", chart.line)]
    assert max(numbers) <= chart.width
    assert min(numbers) >= 0
    assert all(chart.left_edge <= dot.x <= chart.width and 0 <= dot.y <= chart.height for dot in chart.dots)
    assert len({each.text for each in chart.labels}) == len(chart.labels)


def test_without_a_measurement_there_is_no_chart_of_growth() -> None:
    assert growth_chart.lay_out("x", [], begin="2026-01-01T00:00:00Z", end="2026-01-02T00:00:00Z", unit="x") is None


def test_amounts_are_told_in_words_and_bytes_in_their_unit() -> None:
    assert page_filters.amounts({"blobs": 1_200, "bytes": 3 << 20}) == "1\u202f200 blobs · 3.0 MiB"
    assert page_filters.amounts({}) == ""


@pytest.mark.parametrize(("old", "new"), [({}, {"a": 1}), ({"x": {}}, {"x": {"a": {"b": 1}}})])
def test_what_fills_an_empty_object_is_added_and_the_emptiness_is_no_difference(old: Any, new: Any) -> None:
    assert {each.kind for each in diffs.compare(old, new)} == {"added"}
    assert {each.kind for each in diffs.compare(new, old)} == {"removed"}
    assert [each.kind for each in diffs.compare({}, {})] == ["same"]
