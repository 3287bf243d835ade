"""`python -m proof [NAME] [--seed N] …`: try what is claimed, count, and fail if it does not hold.

Each proof has options of its own, which go with its name; all of them together run with their defaults.
"""

import argparse
import importlib
import sys
import time

from proof import PROOFS, report


def parser(name: str | None) -> argparse.ArgumentParser:
    """The command line, with the options of that proof."""
    parse = argparse.ArgumentParser("python -m proof", description="What is claimed, tried; one seed repeats a run.")
    parse.add_argument("name", nargs="?", choices=sorted(PROOFS), help="one proof; all without it")
    parse.add_argument("--seed", type=int, default=1, metavar="N", help="of everything random (default 1)")
    if name is not None:
        importlib.import_module(PROOFS[name]).arguments(parse.add_argument_group(name))
    return parse


def main(arguments: list[str]) -> int:
    """Run what is asked for; the exit code."""
    named = arguments[:1] if arguments[:1] and arguments[0] in PROOFS else []
    if not named:
        parser(None).parse_args(arguments)
    held = True
    for name in named or PROOFS:
        given = parser(name).parse_args(arguments)
        began = time.monotonic()
        proof = importlib.import_module(PROOFS[name]).run(given, lambda line: print(line, file=sys.stderr, flush=True))
        report.save(proof, time.monotonic() - began)
        print(report.told(proof), flush=True)
        held = held and proof.holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
