"""How results are shown: tables for people, one JSON document for programs."""

import json
import os
import platform
import sqlite3  # noqa: TID251 -- a peer, not the product
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
from rich.console import Console
from rich.table import Table

from bench.goals import Verdict
from bench.measurement import Options, Result, Spread

KEPT: Final = Path(__file__).resolve().parents[1] / "docs" / "internals" / "figures" / "bench.json"


def machine() -> dict[str, Any]:
    """What the figures depend on; nothing that names the machine or its user."""
    return {
        "cpus": os.cpu_count(),
        "arch": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "sqlite": {"apsw": apsw.sqlite_lib_version(), "stdlib": sqlite3.sqlite_version},
    }


def document(name: str, results: Sequence[Result], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """One benchmark as JSON."""
    return {
        "name": name,
        "results": [result.to_dict() for result in results],
        "goals": [verdict.to_dict() for verdict in verdicts],
    }


def whole(benchmarks: Sequence[dict[str, Any]], options: Options, commit_ms: dict[str, float]) -> dict[str, Any]:
    """The one document `--json` prints."""
    facts = {**machine(), "durable_commit_ms": commit_ms}
    return {"machine": facts, "options": options.facts(), "benchmarks": list(benchmarks)}


def keep(content: Mapping[str, Any], path: Path = KEPT) -> None:
    """Take a run into the file of results: races that were run replace what was known of them, others stay."""
    known = json.loads(path.read_text()) if path.exists() else {"benchmarks": {}}
    options = content["options"]
    disk = f" +{options['fsync_ms']:g} ms" if options["fsync_ms"] else ""
    for each in content["benchmarks"]:
        name = each["name"] + disk
        old = known["benchmarks"].get(name, {"results": [], "goals": []})
        rows = [{**row, "seconds": options["seconds"]} for row in each["results"]]
        run = {row["race"] for row in rows}
        judged = {goal["text"]: goal for goal in old["goals"]}
        goals = [judged.get(goal["text"], goal) if goal["got"] is None else goal for goal in each["goals"]]
        known["benchmarks"][name] = {
            "results": [*(row for row in old["results"] if row["race"] not in run), *rows],
            "goals": goals,
        }
    known["machine"] = content["machine"]
    known["benchmarks"] = dict(sorted(known["benchmarks"].items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_lines(known))


def _lines(known: Mapping[str, Any]) -> str:
    """The file of results: a result or a goal on a line, numbers to eight digits, so that it stays small in git."""
    parts = [f'{{"machine": {_line(known["machine"])},', '"benchmarks": {']
    for at, (name, content) in enumerate(known["benchmarks"].items(), 1):
        ending = "," if at < len(known["benchmarks"]) else ""
        results = ",\n".join(map(_line, content["results"]))
        goals = ",\n".join(map(_line, content["goals"]))
        parts.append(f'{json.dumps(name)}: {{"results": [\n{results}\n], "goals": [\n{goals}\n]}}{ending}')
    return "\n".join([*parts, "}}"]) + "\n"


def _line(value: Any) -> str:
    return json.dumps(_rounded(value), ensure_ascii=False)


def _rounded(value: Any) -> Any:
    """More digits than a measurement has would only make every run differ from the last one."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


def show(console: Console, results: Sequence[Result], verdicts: Sequence[Verdict]) -> None:
    """A table for each race, then the goals."""
    if not results:
        console.print("no race was run")
    for race in dict.fromkeys(result.race for result in results):
        console.print(_race_table(race, [result for result in results if result.race == race]))
    console.print(_goal_table(verdicts))


def _race_table(race: str, results: Sequence[Result]) -> Table:
    references = list(results[0].ratios)
    table = Table(title=race, title_justify="left")
    table.add_column("contestant")
    for heading in ("callers", "per second", "min - max", "CPU µs", *(f"x {label}" for label in references)):
        table.add_column(heading, justify="right")
    for result in results:
        spread = Spread.of(result.rates)
        ratios = [f"{result.ratios[label].median:.2f}" for label in references]
        span = f"{spread.low:,.0f} - {spread.high:,.0f}"
        row = [result.name, str(result.callers), f"{spread.median:,.0f}", span, f"{result.cpu_us:.0f}"]
        table.add_row(*row, *ratios)
    return table


def _goal_table(verdicts: Sequence[Verdict]) -> Table:
    table = Table(title="goals", title_justify="left")
    table.add_column("goal")
    for heading in ("kind", "required", "got", "met"):
        table.add_column(heading, justify="right")
    for verdict in verdicts:
        got = "not measured" if verdict.got is None else f"{verdict.got:.2f}"
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[verdict.met]
        kind = "aim" if verdict.goal.aim else "goal"
        table.add_row(verdict.goal.text, kind, f"{verdict.goal.at_least:g}", got, met)
    return table
