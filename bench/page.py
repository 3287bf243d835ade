"""`python -m bench.page`: docs/internals/benchmarks.md and its plots, from the one file of results that is kept.

Nothing on the page is typed in by hand but the words around the figures; a test holds the page against the file.
"""

import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench import BENCHMARKS, plot
from bench.report import KEPT

PAGE: Final = KEPT.parents[1] / "benchmarks.md"
PLOTS: Final = KEPT.parent / "bench"

_HEAD: Final = """# Benchmarks

Every figure here is a ratio against a peer, or against a ceiling (the least that anybody would have to pay), measured
in the same run, interleaved, on two shared cores: the ratios travel, the rates do not. Blue is Holdproof, grey is
everybody else. The page is made from [one file](figures/bench.json) by `python -m bench.page`.

To measure again, on any machine:

```console
$ make bench                                  # everything; an hour or so; writes the file and this page
$ make bench MINUTES=45                       # the same within 45 minutes: fewer rounds, at least one of each race
$ .venv/bin/python -m bench durable           # one benchmark, as tables, nothing kept
$ .venv/bin/python -m bench durable --fsync-ms 5   # on a disk that takes 5 ms to sync
$ .venv/bin/python -m bench --help
```

A goal is a promise to ourselves; an aim is what the best we can think of would do. Both are listed whether they were
reached or not. "not measured" means exactly that.
"""
_GROWTH: Final = (
    ("a whole decision, by flows", "decisions", r"growth of the store: ([\d,]+) flows"),
    ("putting an object, by objects", "memory", r"one object, durable: put, ([\d,]+)"),
    ("dump after 100 changes, by objects", "memory", r"dump after \d+ changes: delta, ([\d,]+)"),
    ("lazy open of an image, by objects", "memory", r"lazy open and one object: image, ([\d,]+)"),
    ("ten nearest vectors, by vectors", "vectors", r"ten nearest of ([\d,]+): holdproof"),
    ("inclusion proof, by leaves", "log", r"inclusion proof of ([\d,]+): holdproof"),
    ("putting a checkpoint, by turns", "checkpoints", r"one put: holdproof, turn ([\d,]+)"),
    ("putting a checkpoint, by checkpoints", "checkpoints", r"a put among others: ([\d,]+) checkpoints"),
)
"""What grows: its name, its benchmark, and where the size stands in `race: contestant`."""


def main() -> None:
    """Write the page and its plots."""
    found = json.loads(KEPT.read_text())
    PLOTS.mkdir(parents=True, exist_ok=True)
    for name, drawn in plots(found).items():
        (PLOTS / name).write_text(drawn)
    PAGE.write_text(page(found))


def page(found: Mapping[str, Any]) -> str:
    """The page."""
    missed = [
        f"- {goal['text']}: {goal['got']:.2f} of {goal['required']:g} ({name})"
        for name, each in found["benchmarks"].items()
        for goal in each["goals"]
        if goal["met"] is False and goal["kind"] == "goal"
    ]
    parts = [_HEAD, _machine(found["machine"]), "## What is not fast (goals that were missed)\n"]
    parts.append("\n".join(missed or ["None of those measured."]) + "\n")
    if growth(found):
        parts.append("## What grows\n\nCost as a multiple of the cost at the smallest size, both axes logarithmic.\n")
        parts.append("![growth](figures/bench/growth.svg)\n")
    if puts(found):
        parts.append("Milliseconds of one put into a chat of LangGraph, by its turn:\n")
        parts.append("![puts](figures/bench/puts.svg)\n")
    for name, each in found["benchmarks"].items():
        parts.append("\n".join(_benchmark(name, each)))
    return "\n".join(parts)


def plots(found: Mapping[str, Any]) -> dict[str, str]:
    """Every plot by the name of its file."""
    made = {}
    for name, each in found["benchmarks"].items():
        ours = {(goal["race"], goal["contestant"]) for goal in each["goals"]}
        for race, results in _races(each["results"]):
            ours_here = {label for at, label in ours if at == race}
            rows = [(row["label"], row["per_second"]["median"], _ours(row, ours_here)) for row in results]
            made[_file(name, race)] = plot.bars(f"{race} (per second)", rows)
    if growth(found):
        what, up = "Cost as things grow", "x the cost when small"
        made["growth.svg"] = plot.lines(what, "size", up, growth(found), reach=10.0)
    if puts(found):
        made["puts.svg"] = plot.lines("A put as a chat grows", "turn", "milliseconds", puts(found))
    return made


def puts(found: Mapping[str, Any]) -> dict[str, list[plot.Point]]:
    """Milliseconds of a put by the turn of a chat, for each saver of LangGraph."""
    series: dict[str, list[plot.Point]] = {}
    for row in found["benchmarks"].get("checkpoints", {}).get("results", ()):
        if row["race"] == "one put" and (match := re.fullmatch(r"(.+), turn ([\d,]+)", row["contestant"])):
            point = float(match[2].replace(",", "")), 1e3 / row["per_second"]["median"]
            series.setdefault(match[1], []).append(point)
    return {name: sorted(points) for name, points in series.items() if len(points) > 1}


def growth(found: Mapping[str, Any]) -> dict[str, list[plot.Point]]:
    """What each thing that grows costs at each size, as a multiple of the cost at its smallest."""
    series = {}
    for title, name, pattern in _GROWTH:
        sizes = {}
        for row in found["benchmarks"].get(name, {}).get("results", ()):
            if match := re.fullmatch(pattern, f"{row['race']}: {row['contestant']}"):
                sizes[int(match[1].replace(",", ""))] = row["per_second"]["median"]
        if len(sizes) > 1:
            first = sizes[min(sizes)]
            series[title] = [(float(size), first / sizes[size]) for size in sorted(sizes)]
    return series


def _machine(facts: Mapping[str, Any]) -> str:
    disk = facts["durable_commit_ms"]["fdatasync"]
    return (
        f"Measured on {facts['cpus']} cores ({facts['arch']}), {facts['system']}, Python {facts['python']}, SQLite"
        f" {facts['sqlite']['apsw']}; a durable write takes {disk:g} ms on this disk.\n"
    )


def _benchmark(name: str, each: Mapping[str, Any]) -> Iterator[str]:
    told = importlib.import_module(BENCHMARKS[name.partition(" ")[0]]).__doc__ or ""
    yield f"## {name}\n"
    yield f"{told.strip().splitlines()[0]}\n"
    for race, results in _races(each["results"]):
        references = list(results[0]["ratios"])
        rounds = f"{results[0]['repeats']} rounds of {results[0]['seconds']:g} s"
        yield f"### {race}\n\n![{race}](figures/bench/{_file(name, race)})\n"
        yield "| " + " | ".join(["contestant", "per second", *(f"x {label}" for label in references)]) + " |"
        yield "|---" + "|---:" * (1 + len(references)) + "|"
        for row in results:
            ratios = [f"{row['ratios'][label]['median']:.2f}" for label in references]
            yield "| " + " | ".join([row["label"], f"{row['per_second']['median']:,.4g}", *ratios]) + " |"
        # Bytes are the same in every round.
        yield f"\n{rounds}.\n" if results[0]["seconds"] else ""
    yield "| goal | required | got | reached |\n|---|---:|---:|---|"
    for goal in each["goals"]:
        got = "not measured" if goal["got"] is None else f"{goal['got']:.2f}"
        met = {True: "yes", False: "**no**", None: ""}[goal["met"]]
        text = goal["text"] + (" (aim)" if goal["kind"] == "aim" else "")
        yield f"| {text} | {goal['required']:.3g} | {got} | {met} |"
    yield ""


def _races(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for race in dict.fromkeys(row["race"] for row in results):
        yield race, [row for row in results if row["race"] == race]


def _ours(row: Mapping[str, Any], ours: set[str]) -> bool:
    """Whether a contestant is ours: a goal is set for it, at this or another number of callers."""
    names = {label.rpartition(" @")[0] for label in ours}
    return row["contestant"] in names or "holdproof" in row["contestant"].lower()


def _file(name: str, race: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{name} {race}".lower()).strip("-") + ".svg"


if __name__ == "__main__":
    main()
