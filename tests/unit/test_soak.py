"""The soak proof on a few seconds of load, and its judgement on made-up lines; nothing here looks at a clock."""

import math
import random
from argparse import Namespace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from proof import plot, report, soak
from proof.soak import flat
from proof.soak.load import opened
from proof.soak.meter import Meter, Series

LEVEL = [10.0] * 10


@pytest.mark.parametrize(
    ("line", "last", "wrong"),
    [
        ("memory MB", 10.0, False),
        ("memory MB", 13.0, False),
        ("memory MB", 14.0, True),
        ("threads", 11.0, False),
        ("threads", 12.0, True),
        ("flow p50 ms", 15.9, False),
        ("flow p50 ms", 16.1, True),
        ("flow p99 ms", 39.0, False),
        ("leaves", 1e9, False),
    ],
)
def test_a_line_is_flat_if_its_last_third_is_no_higher_than_the_one_before(line: str, last: float, wrong: bool) -> None:
    found = flat.judge(line, [0.0] * 10 + LEVEL + [last] * 10)
    assert (found is not None) == wrong
    assert found is None or found.startswith(f"{line} is not flat: 10 in the middle third")


def test_warming_up_and_single_peaks_do_not_count() -> None:
    peaks = [500.0 if at % 5 == 0 else 10.0 for at in range(30)]
    assert flat.judge("memory MB", [float(at) for at in range(10)] + LEVEL + LEVEL) is None
    assert flat.judge("memory MB", peaks) is None


def test_a_slow_leak_is_seen() -> None:
    assert flat.judge("memory MB", [100 + at / 10 for at in range(360)]) is not None
    assert flat.judge("open files", [40 + at // 30 for at in range(360)]) is not None


def test_a_busy_machine_is_no_growth_of_ours() -> None:
    slower = LEVEL + LEVEL + [30.0] * 10
    assert flat.judge("flow p50 ms", slower) is not None
    assert flat.judge("flow p50 ms", slower, [1.0] * 20 + [3.0] * 10) is None
    assert flat.judge("memory MB", slower, [1.0] * 20 + [3.0] * 10) is not None


def test_too_few_samples_say_nothing() -> None:
    assert flat.judge("memory MB", [1.0, 2.0, 300.0]) is None


def test_samples_that_lack_a_line_are_left_out_of_it() -> None:
    series = Series()
    for sample in ({"at_s": 1.0, "a": 1.0}, {"at_s": 2.0, "b": 5.0}, {"at_s": 3.0, "a": 3.0}):
        series.add(sample)
    assert (series.values("a"), series.points("b"), series.values("c")) == ([1.0, 3.0], [(2.0, 5.0)], [])
    [whole] = series.groups(1)
    assert [math.isnan(each.get("a", math.nan)) for each in whole] == [False, True, False]


def test_every_line_is_drawn_in_a_panel_of_its_own() -> None:
    drawn = plot.panels("a & b", {"x < y": [[(0, 1), (1, 2)], [(0, 3)]], "empty": [[]], "zero": [[(0, 0), (1, 0)]]})
    root = ElementTree.fromstring(drawn)
    assert len(root.findall("{*}g")) == 3
    assert [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")][:2] == ["a & b", "x < y"]


def test_every_act_of_the_load_and_its_upkeep_can_be_done(tmp_path: Path) -> None:
    rng = random.Random(1)
    with opened(tmp_path / "home") as load:
        for act, _ in load.acts.values():
            act(rng)
        load.upkeep(lambda name, seconds: None)
        meter = Meter(load.store)
        meter.note("flow", 0.5)
        sample = meter.sample(1.0)
        meter.close()
        assert load.store.verify.run(full=True).ok
    assert sample["flow p50 ms"] == 500
    assert set(flat.LINES) <= set(sample)


def test_a_short_run_gives_counts_and_a_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "FIGURES", tmp_path)
    given = Namespace(seed=1, minutes=0.015, every=0.2, rate=60.0, workers=2)
    proof = soak.run(given, lambda line: None)
    assert not [line for line in proof.broken if "not flat" not in line]
    assert proof.counts["acts"] > 3
    assert proof.counts["acts that failed"] == 0
    assert "soak" in report.told(proof)
    assert ElementTree.parse(tmp_path / "soak.svg").getroot().tag.endswith("svg")
