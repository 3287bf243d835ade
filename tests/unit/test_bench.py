"""The benchmark harness on made-up numbers; nothing here looks at a clock."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import BENCHMARKS, decision_unit, growth, long_agent, page, plot, report, sleepers, whole_run
from bench.__main__ import main, parser
from bench.goals import Goal, judge
from bench.journal import Journal
from bench.measurement import Contestant, Meter, Options, Race, Result, Sample, Spread, compare, rate, rounds, run_race
from bench.workload import SCHEMA, Statements, plain, positional
from holdproof.runtime import checks


def result(name: str, *rates: float, callers: int = 1) -> Result:
    return Result("race", name, callers, rates)


def idle(_: Meter) -> None:
    raise AssertionError("nothing is run here")


def test_the_rate_counts_whole_groups_between_warm_up_and_deadline() -> None:
    stamps = [moment for moment in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0) for _ in range(64)]
    assert rate(stamps, warm=0.9, deadline=2.9) == pytest.approx(128)


def test_the_rate_does_not_depend_on_the_order_threads_report_in() -> None:
    assert rate([3.0, 1.0, 2.0, 0.0], warm=0.5, deadline=2.5) == pytest.approx(1)


def test_a_unit_may_be_longer_than_the_window() -> None:
    assert rate([4.0, 8.0, 12.0], warm=0.5, deadline=1.5) == pytest.approx(0.25)


def test_what_is_done_aside_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.0, 10.0, 11.0, 11.0, 20.0, 22.0, 22.0, 22.0, 24.0])
    monkeypatch.setattr("bench.measurement.time.perf_counter", lambda: next(now))
    monkeypatch.setattr("bench.measurement.time.process_time", lambda: 0.0)
    meter = Meter(2.0)
    meter.start()
    going = True
    while going:
        with meter.aside():
            pass
        going = meter.done()
    assert meter.finish().rate == pytest.approx(0.5)


@pytest.mark.parametrize("stamps", [[], [0.1], [0.1, 0.2], [2.0], [2.0, 2.0]])
def test_too_few_units_are_an_error_not_a_number(stamps: list[float]) -> None:
    with pytest.raises(ValueError, match="--seconds"):
        rate(stamps, warm=0.5, deadline=1.5)


def test_a_spread_is_median_and_extremes() -> None:
    assert Spread.of([5, 1, 100]) == Spread(5, 1, 100)
    assert Spread.of([4, 2]) == Spread(3, 2, 4)


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was ten times slower in the last round, for both: the ratio does not move.
    ours, peer = result("ours", 20, 22, 2), result("peer", 10, 11, 1)
    assert ours.over(peer) == Spread(2, 2, 2)


def test_every_result_has_its_ratio_to_each_reference() -> None:
    race = Race("race", [Contestant(name, 1, idle) for name in ("peer", "ours")], ("peer @1", "absent @1"))
    results = compare(race, {"peer @1": [Sample(10, 1)] * 3, "ours @1": [Sample(30, 7), Sample(40, 9), Sample(20, 8)]})
    assert [r.label for r in results] == ["peer @1", "ours @1"]
    assert results[0].ratios == {"peer @1": Spread(1, 1, 1)}
    assert results[1].ratios == {"peer @1": Spread(3, 2, 4)}
    assert results[1].cpu_us == 8


def test_contestants_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(Meter, "finish", lambda _: Sample(1, 1))

    def contestant(name: str) -> Contestant:
        return Contestant(name, 1, lambda _: order.append(name))

    race = Race("race", [contestant(name) for name in "abc"], ())
    run_race(race, Options(repeats=2))
    assert "".join(order) == "abcabc"


def test_a_contestant_that_fails_leaves_its_race_and_loses_nobody_elses_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Meter, "finish", lambda _: Sample(1, 1))

    def fail(_: Meter) -> None:
        raise RuntimeError("no server")

    heard: list[int] = []
    options = Options(repeats=2, journal=Journal(lambda: heard.append(1)))
    contestants = [Contestant("peer", 1, lambda _: None), Contestant("broken", 1, fail)]
    results = run_race(Race("race", contestants, ("peer @1", "broken @1")), options)
    assert [(each.label, len(each.rates)) for each in results] == [("peer @1", 2)]
    assert options.journal.results == results
    assert options.journal.failures == ["broken @1 in race: RuntimeError: no server"]
    assert heard == [1], "kept after each race"
    assert "no server" in capsys.readouterr().err


def test_a_sample_with_too_few_units_is_measured_longer() -> None:
    lengths: list[float] = []

    def slow(meter: Meter) -> None:
        lengths.append(meter._seconds)
        meter._stamps = [] if len(lengths) < 3 else [5.0, 10.0, 20.0]

    (slow_result,) = run_race(Race("race", [Contestant("slow", 1, slow)], ()), Options(repeats=1, seconds=1.0))
    assert lengths == [1.0, 4.0, 16.0]
    assert slow_result.rates == (0.2,)


def test_a_race_has_one_round_at_least_and_others_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("bench.measurement.time.monotonic", lambda: now)

    def taken(until: float | None, seconds: float) -> int:
        nonlocal now
        now = 0.0
        count = 0
        for _ in rounds(Options(repeats=5, until=until)):
            now += seconds
            count += 1
        return count

    assert taken(None, 1_000) == 5
    assert taken(40.0, 1_000) == 1
    assert taken(40.0, 4) == 2, "a quarter of what is left"
    assert taken(400.0, 4) == 5


def test_time_that_is_left_is_shared_by_weight() -> None:
    names = list(BENCHMARKS)
    assert set(whole_run._WEIGHTS) <= set(names)
    left = 2_700.0
    shares = []
    for at in range(len(names)):
        shares.append(whole_run.share(names[at:], left))
        left -= shares[-1]
    assert left == pytest.approx(0)
    assert max(shares) == shares[names.index("workflows")]


def test_a_benchmark_that_fails_or_hangs_is_named_and_ends() -> None:
    whole = whole_run.WholeRun()
    assert whole_run._run_one("dies", [sys.executable, "-c", "raise SystemExit(3)"], None, whole) == ""
    hanging = [sys.executable, "-c", "import time; print('{}', flush=True); time.sleep(600)", "--json"]
    whole_run._run_one("hangs", hanging, 0.5, whole)
    assert [failure.partition(":")[0] for failure in whole.failures] == ["dies", "hangs"]


def test_options_but_the_minutes_are_handed_on() -> None:
    assert whole_run._without_minutes(["--keep", "--minutes", "45", "--repeats", "2"]) == ["--keep", "--repeats", "2"]
    assert whole_run._without_minutes(["--minutes=45", "--json"]) == ["--json"]


@pytest.mark.parametrize("option", [["--minutes", "0"], ["--repeats", "0"], ["--minutes", "soon"]])
def test_there_is_time_for_at_least_one_round(option: list[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        parser().parse_args(option)
    assert refusal.value.code == 2


def test_sleeping_flows_have_a_result_for_each_of_their_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleepers, "fill", lambda *_, **__: None)
    monkeypatch.setattr(sleepers, "measured", lambda *_: {"seconds": 1.0, "bytes": 100e6})
    results = sleepers.run(Options(repeats=2))
    goals = [Goal("?", sleepers.wakes_race(), "holdproof @1", "", 1)]
    goals.append(Goal("?", sleepers.memory_race(), "holdproof @1", f"{sleepers.ALLOWED} @1", 1))
    assert [verdict.met for verdict in judge(goals, results)] == [True, True]


def test_goals_are_judged_by_the_median_ratio() -> None:
    results = [result("ours", 70, 80, 90, callers=64), result("peer", 100, 100, 100)]
    goals = [
        Goal("met", "race", "ours @64", "peer @1", 0.8),
        Goal("missed", "race", "ours @64", "peer @1", 0.81),
    ]
    met, missed = judge(goals, results)
    assert (met.got, met.met) == (0.8, True)
    assert (missed.got, missed.met) == (0.8, False)


def test_a_goal_without_a_peer_is_judged_by_the_rate_itself() -> None:
    met, missed = judge([Goal("?", "race", "ours @1", "", least) for least in (4, 5)], [result("ours", 2, 4, 6)])
    assert (met.got, met.met, missed.met) == (4, True, False)


def test_a_goal_without_its_contestants_is_neither_met_nor_missed() -> None:
    (verdict,) = judge([Goal("?", "race", "ours @64", "peer @1", 1)], [result("peer", 1)])
    assert verdict.met is None
    assert verdict.to_dict()["got"] is None


def test_the_document_is_json_and_names_no_machine() -> None:
    results = [result("ours", 2, 4, 6)]
    verdicts = judge([Goal("?", "race", "ours @1", "ours @1", 1, aim=True)], results)
    content = report.whole([report.document("made up", results, verdicts)], Options(), {"apsw": 0.1})
    read = json.loads(json.dumps(content))
    assert set(read["machine"]) == {"cpus", "arch", "system", "python", "sqlite", "durable_commit_ms"}
    assert read["benchmarks"][0]["results"][0]["per_second"] == {"median": 4, "low": 2, "high": 6}
    assert read["benchmarks"][0]["goals"][0]["kind"] == "aim"


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_the_registry_finds_its_benchmarks(name: str) -> None:
    assert importlib.util.find_spec(BENCHMARKS[name]) is not None


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_benchmark_can_be_run_and_has_goals(name: str) -> None:
    module = importlib.import_module(BENCHMARKS[name])
    assert callable(module.run)
    assert all(goal.at_least > 0 for goal in module.goals(Options()))


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(["nonsense"])
    assert refusal.value.code == 2
    assert "durable" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0,8", "many", ""])
def test_callers_must_be_counts(text: str) -> None:
    with pytest.raises(SystemExit) as refusal:
        parser().parse_args(["--callers", text])
    assert refusal.value.code == 2


def test_peers_bind_every_parameter_of_every_statement() -> None:
    made = Statements()
    for text, parameters in (*made.txn(7), *made.unit(7), *made.logged(7)):
        assert ":" not in text
        assert text.count("?") == len(parameters)
    assert len(made.unit(7)) == len(made.logged(7)) == 8


def test_the_ceiling_of_a_whole_decision_replays_what_the_runtime_asks() -> None:
    first, second, *_ = decision_unit.record(1)
    assert [text for text, _ in first] == [text for text, _ in second]
    assert len(first) == 21
    assert not any(re.search(r"(INTO|UPDATE|FROM) log_(state|pending|tiles)|INTO log_", text) for text, _ in first)
    assert all(len(set(re.findall(r"\?\d+", text))) == len(parameters) for text, parameters in first)


def test_bars_are_as_long_as_their_rates_and_ours_are_told_apart() -> None:
    drawn = ElementTree.fromstring(plot.bars("a < b", [("peer", 50.0, False), ("holdproof", 100.0, True)]))
    _, peer, ours = drawn.iter("{http://www.w3.org/2000/svg}rect")
    assert float(ours.attrib["width"]) == pytest.approx(2 * float(peer.attrib["width"]), rel=0.01)
    assert (peer.attrib["fill"], ours.attrib["fill"]) == (plot.OTHERS, plot.OURS)


def test_lines_show_every_point_and_name_every_series() -> None:
    series = {"a < b": [(1_000.0, 1.0), (1_000_000.0, 1.2)], "flat": [(1_000.0, 1.0), (10_000.0, 1.0)]}
    drawn = ElementTree.fromstring(plot.lines("growth", "size", "cost", series))
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 4
    words = [each.text or "" for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert any("a < b" in each for each in words)


def _told(race: str, rate: float, got: float | None) -> dict[str, Any]:
    spread = {"median": rate, "low": rate, "high": rate}
    row = {"race": race, "contestant": "holdproof", "callers": 1, "label": "holdproof @1", "per_second": spread}
    goal = {"text": f"goal of {race}", "race": race, "contestant": "holdproof @1", "over": "", "kind": "goal"}
    judged = {"required": 2.0, "got": got, "met": None if got is None else got >= 2.0}
    rows = [] if got is None else [{**row, "cpu_us": 1.0, "repeats": 1, "ratios": {"holdproof @1": spread}}]
    return {"results": rows, "goals": [{**goal, **judged}]}


def test_a_run_replaces_only_the_races_it_ran_and_the_page_tells_what_was_missed(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    first, second = _told("one", 10.0, 1.5), _told("two", 20.0, 3.0)
    both = {"results": first["results"] + second["results"], "goals": first["goals"] + second["goals"]}
    facts = {**report.machine(), "durable_commit_ms": {"fdatasync": 0.1}}
    whole_run = {"machine": facts, "options": Options().facts(), "benchmarks": [{"name": "log", **both}]}
    report.keep(whole_run, path)
    later, skipped = _told("one", 11.0, 1.6), _told("two", 0.0, None)
    partly = {"results": later["results"], "goals": later["goals"] + skipped["goals"]}
    report.keep({**whole_run, "benchmarks": [{"name": "log", **partly}]}, path)
    kept = json.loads(path.read_text())["benchmarks"]["log"]
    assert {row["race"]: row["per_second"]["median"] for row in kept["results"]} == {"one": 11.0, "two": 20.0}
    assert [goal["got"] for goal in kept["goals"]] == [1.6, 3.0]
    shown = page.page(json.loads(path.read_text()))
    assert "- goal of one: 1.60 of 2 (log)" in shown
    assert "- goal of two" not in shown
    assert set(page.plots(json.loads(path.read_text()))) == {"log-one.svg", "log-two.svg"}


def test_the_page_of_benchmarks_is_what_the_kept_results_say() -> None:
    found = json.loads(report.KEPT.read_text())
    assert page.PAGE.read_text() == page.page(found), "python -m bench.page writes it anew"
    for name, drawn in page.plots(found).items():
        assert (page.PLOTS / name).read_text() == drawn, name


def test_a_store_is_given_a_past_with_a_whole_log(tmp_path: Path) -> None:
    growth.fill(str(tmp_path), 300)
    with decision_unit.opened(str(tmp_path)) as store:
        assert store.log.audit(full=True).findings == []
        assert store.log.head().checkpoint.size >= 1_500
        store.write(lambda tx: decision_unit.decide(tx, 1))
        assert store.read(lambda tx: checks.flows(tx))[0] == []


def test_peers_get_the_same_tables() -> None:
    for dialect in ("sqlite", "postgres"):
        assert "@" not in plain(dialect)
        assert plain(dialect).count("CREATE") == SCHEMA.count("CREATE")
    assert positional("a = :a AND b = :b", "%s") == "a = %s AND b = %s"


def test_the_long_conversation_is_as_large_as_it_is_said_to_be_and_mostly_of_small_messages() -> None:
    sizes = [len(message["content"]) for message in long_agent.conversation()]
    assert sum(sizes) / 3.9 == pytest.approx(long_agent.TOKENS, rel=0.01)
    assert sum(size < 4096 for size in sizes) > len(sizes) / 2
    assert long_agent.conversation() == long_agent.conversation()
