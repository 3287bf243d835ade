"""Fuzzing: every decoder, and every door that strangers write to, given damaged inputs.

Seeds come from our own encoders, so no corpus is kept. atheris is not used: it has no wheel for every platform that
Holdproof has and cannot be built without clang. What it would give is here in plain Python: inputs that reach new lines
are kept and damaged further (child.py). `--input HEX --target NAME` tries one input again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from proof.fuzz.child import CPU_S, HELD
from proof.fuzz.targets import MODULES, find
from proof.report import Proof, Say

CLAIM: Final = "No input makes a decoder or a door fail with anything but a typed error, hang, or eat the memory."
FOUND: Final = Path(tempfile.gettempdir()) / f"holdproof-fuzz-found-{os.getuid()}"
"""Where inputs are kept that broke something."""
_MOST: Final = 10**9
_TOLD: Final = ("inputs", "read", "refused")


def arguments(parser: "argparse._ArgumentGroup") -> None:
    """The options of this proof."""
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="for each target (default 60)")
    parser.add_argument("--target", choices=sorted(MODULES), help="one of them; all without it")
    parser.add_argument("--input", metavar="HEX", help="try this one input, and nothing else")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Fuzz one target after the other, each in a process of its own."""
    names = [given.target] if given.target else list(MODULES)
    if given.input:
        target = find(names[0])
        target.ready()
        target.run(bytes.fromhex(given.input))
        return Proof("fuzz", CLAIM, given.seed, {"inputs": 1})
    say(f"fuzz: seed {given.seed}")
    total: Counter[str] = Counter()
    rows, broken = [], list[str]()
    for name in names:
        outcome = attempt(name, given.seed, given.seconds)
        counts = outcome["counts"]
        say(f"  {name}: {counts.get('inputs', 0):,} inputs, {len(outcome['found'])} troubles")
        total.update({kind: counts.get(kind, 0) for kind in _TOLD})
        total.update(kind.partition(":")[0] for kind in (one["trouble"] for one in outcome["found"]))
        broken += [told(one) for one in outcome["found"]]
        rows.append({"target": name, **{kind: counts.get(kind, 0) for kind in (*_TOLD, "lines reached", "corpus")}})
    zeros = dict.fromkeys(("crash", "hang", "blow-up"), 0)
    return Proof("fuzz", CLAIM, given.seed, {"targets": len(names), **zeros, **total}, broken, rows)


def told(one: dict[str, str]) -> str:
    """A trouble in one line, with how to try it again; its input is kept in a file."""
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{one['target']}-{abs(hash(one['input'])):x}.bin"
    path.write_bytes(bytes.fromhex(one["input"]))
    again = f"python -m proof fuzz --target {one['target']} --input {one['input'][:4000]}"
    return f"{one['target']}: {one['trouble']}; kept in {path}; again: {again}"


def attempt(name: str, seed: int, seconds: float, most: int = _MOST) -> dict[str, Any]:
    """Fuzz a target in a process of its own; if that dies, or does not end, the input at hand is what did it."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(8 + HELD)
        command = [sys.executable, "-m", "proof.fuzz.child", name, str(seed), str(seconds), str(most), file.name]
        patience = seconds + 20 * CPU_S + 120
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
            if done.returncode == 0:
                outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
                return outcome
            trouble = f"crash: the process ended with {done.returncode}: {done.stderr[-300:]}"
        except subprocess.TimeoutExpired:
            trouble = "hang: the process did not end"
        data = Path(file.name).read_bytes()
        at_hand = data[8 : 8 + int.from_bytes(data[:8], "big")].hex()
    return {"counts": {}, "found": [{"target": name, "input": at_hand, "trouble": trouble}]}
