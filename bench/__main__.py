"""`python -m bench [NAME] [--json] [--minutes M] …`: measure, compare, judge.

Several benchmarks run in a process each (whole_run.py), so that one which fails, hangs or dies costs its own results
only. With `--keep` results are kept race by race: what is stopped has kept what it measured.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from bench import BENCHMARKS, page, report, slowsync, whole_run
from bench.goals import judge
from bench.journal import Journal
from bench.measurement import Options


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        "python -m bench", description="Benchmarks, always beside a peer or a ceiling.", allow_abbrev=False
    )
    parse.add_argument("name", nargs="?", choices=sorted(BENCHMARKS), help="one benchmark; all without it")
    parse.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    parse.add_argument("--fsync-ms", type=float, default=0.0, metavar="X", help="add X ms to every fsync")
    parse.add_argument("--callers", type=_counts, default=Options.callers, metavar="1,8,64,512")
    parse.add_argument("--repeats", type=_rounds, default=Options.repeats, metavar="N", help="interleaved rounds")
    parse.add_argument("--seconds", type=float, default=Options.seconds, metavar="S", help="length of each sample")
    parse.add_argument(
        "--minutes", type=_minutes, metavar="M", help="have done after so long: fewer rounds, at least one of each race"
    )
    parse.add_argument("--backend", choices=("sqlite", "postgres", "all"), default="all")
    parse.add_argument("--keep", action="store_true", help="take the results into docs/internals/")
    parse.add_argument("--race", default="", metavar="TEXT", help="only races with this in their title")
    return parse


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(sorted({int(part) for part in text.split(",")}))
    if counts[0] < 1:
        raise argparse.ArgumentTypeError("callers are counted from 1")
    return counts


def _rounds(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("there is at least one round")
    return count


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError("minutes are more than none")
    return minutes


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; the exit code, 1 where something failed."""
    asked = parser().parse_args(arguments)
    until = None if asked.minutes is None else time.monotonic() + 60 * asked.minutes
    options = Options(asked.callers, asked.repeats, asked.seconds, asked.backend, asked.fsync_ms, asked.race, until)
    try:
        if options.fsync_ms > 0 and not slowsync.active():
            return slowsync.run_again(arguments, options.fsync_ms)
        commit_ms = slowsync.check(options.fsync_ms)
    except slowsync.SlowSyncError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if asked.name:
        journal, measured = _measure(asked.name, options, commit_ms, as_json=asked.json, keep=asked.keep)
        documents = [measured]
        failures = journal.failures
    else:
        run = whole_run.run(list(BENCHMARKS), arguments, until)
        documents = run.documents
        failures = run.failures
    if asked.json:
        print(json.dumps(report.whole(documents, options, commit_ms), indent=2, ensure_ascii=False))
    for failure in failures:
        print(f"bench: failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _measure(
    name: str, options: Options, commit_ms: dict[str, float], *, as_json: bool, keep: bool
) -> tuple[Journal, dict[str, Any]]:
    """Run one benchmark; its journal, and what it measured as JSON."""
    module = importlib.import_module(BENCHMARKS[name])

    def measured() -> dict[str, Any]:
        return report.document(name, journal.results, judge(module.goals(options), journal.results))

    def heard() -> None:
        if keep:
            report.keep(report.whole([measured()], options, commit_ms))

    journal = Journal(heard)
    try:
        with journal.attempt(name):
            module.run(options.with_journal(journal))
    finally:  # also where Ctrl-C ends it
        if keep and journal.results:
            page.main()
    if not as_json:
        console = Console(width=None if sys.stdout.isatty() else 140)
        report.show(console, journal.results, judge(module.goals(options), journal.results))
    return journal, measured()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
