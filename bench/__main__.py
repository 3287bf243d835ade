"""`python -m bench [NAME] [--json] …`: measure, compare, judge."""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from bench import BENCHMARKS, page, report, slowsync
from bench.goals import judge
from bench.measurement import Options


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser("python -m bench", description="Benchmarks, always beside a peer or a ceiling.")
    parse.add_argument("name", nargs="?", choices=sorted(BENCHMARKS), help="one benchmark; all without it")
    parse.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    parse.add_argument("--fsync-ms", type=float, default=0.0, metavar="X", help="add X ms to every fsync")
    parse.add_argument("--callers", type=_counts, default=Options.callers, metavar="1,8,64,512")
    parse.add_argument("--repeats", type=int, default=Options.repeats, metavar="N", help="interleaved rounds")
    parse.add_argument("--seconds", type=float, default=Options.seconds, metavar="S", help="length of each sample")
    parse.add_argument("--backend", choices=("sqlite", "postgres", "all"), default="all")
    parse.add_argument("--keep", action="store_true", help="take the results into docs/internals/")
    parse.add_argument("--race", default="", metavar="TEXT", help="only races with this in their title")
    return parse


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(sorted({int(part) for part in text.split(",")}))
    if counts[0] < 1:
        raise argparse.ArgumentTypeError("callers are counted from 1")
    return counts


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; the exit code."""
    given = parser().parse_args(arguments)
    options = Options(given.callers, given.repeats, given.seconds, given.backend, given.fsync_ms, given.race)
    try:
        if options.fsync_ms > 0 and not slowsync.active():
            return slowsync.run_again(arguments, options.fsync_ms)
        commit_ms = slowsync.check(options.fsync_ms)
    except slowsync.SlowSyncError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    console = Console(stderr=given.json, width=None if sys.stdout.isatty() else 140, quiet=given.json)
    names = [given.name] if given.name else list(BENCHMARKS)
    measured = []
    for name in names:
        measured.append(_measure(name, options, console))
        if given.keep:  # one by one: a run that is stopped keeps what it measured
            report.keep(report.whole(measured[-1:], options, commit_ms))
            page.main()
    if given.json:
        print(json.dumps(report.whole(measured, options, commit_ms), indent=2, ensure_ascii=False))
    return 0


def _measure(name: str, options: Options, console: Console) -> dict[str, Any]:
    module = importlib.import_module(BENCHMARKS[name])
    results = module.run(options)
    verdicts = judge(module.goals(options), results)
    report.show(console, results, verdicts)
    return report.document(name, results, verdicts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
