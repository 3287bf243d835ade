"""`python -m proof [NAME] [--seed N] …`: try what is claimed, count, and fail if it does not hold."""

import argparse
import importlib
import sys
import time
from collections.abc import Sequence

from proof import PROOFS, report


def parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """The command line; every proof adds its own options."""
    parse = argparse.ArgumentParser("python -m proof", description="What is claimed, tried; one seed repeats a run.")
    parse.add_argument("name", nargs="?", choices=sorted(PROOFS), help="one proof; all without it")
    parse.add_argument("--seed", type=int, default=1, metavar="N", help="of everything random (default 1)")
    for name in names:
        importlib.import_module(PROOFS[name]).arguments(parse.add_argument_group(name))
    return parse


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; the exit code."""
    asked = [word for word in arguments[:1] if word in PROOFS]
    names = asked or list(PROOFS)
    given = parser(names).parse_args(arguments)
    held = True
    for name in names:
        began = time.monotonic()
        proof = importlib.import_module(PROOFS[name]).run(given, lambda line: print(line, file=sys.stderr, flush=True))
        report.save(proof, time.monotonic() - began)
        print(report.told(proof), flush=True)
        held = held and proof.holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
