"""Audit: what we stand on. Licences of all that is installed with Holdproof, and known vulnerabilities of what the lock
pins, by pip-audit.

pip-audit asks a service on the network. Where that cannot be reached nothing is known, and that is what is said: every
dependency that was not looked up is counted, and the claim does not hold.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proof.report import Proof, Say

CLAIM: Final = "No pinned dependency has a known vulnerability, and no licence stands in the way."
ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements-dev.lock"
PERMISSIVE: Final = re.compile(r"\b(apache|mit|0?bsd|isc|iscl|psf|python software foundation|zlib|any-osi)\b")
EXCEPTIONS: Final[Mapping[str, str]] = {
    "cedarpy": "Apache-2.0, as its LICENSE file says; its metadata names none",
    "certifi": "MPL-2.0: a list of certificates, used as it is",
    "psycopg": "LGPL-3.0: only with the extra `postgres`, as a library of its own that anybody can exchange",
    "psycopg-binary": "LGPL-3.0, as psycopg",
    "tqdm": "MPL-2.0 and MIT: only with a framework's extra",
}
"""Dependencies whose licence asks for something, and why that is no burden."""
_NOT_SHIPPED: Final = frozenset({"dev", "site", "audit"})


def arguments(parser: argparse._ArgumentGroup) -> None:
    """The options of this proof."""
    parser.add_argument("--offline", action="store_true", help="licences only; do not ask for vulnerabilities")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Look at licences, then ask about vulnerabilities."""
    known = dict(licences())
    broken = [f"{name} has the licence {text!r}" for name, text in known.items() if not acceptable(name, text)]
    looked = skipped = 0
    holes: list[dict[str, Any]] = []
    if not given.offline:
        looked, skipped, holes = _vulnerabilities(say)
        broken += [f"{hole['name']} {hole['version']}: {hole['id']}" for hole in holes]
        if skipped or not looked:
            broken.append(f"{skipped} dependencies were not looked up: the advisory service was not reached")
    counts = {
        "licences read": len(known),
        "of these not permissive, and explained": sum(name in EXCEPTIONS for name in known),
        "dependencies looked up": looked,
        "not looked up": skipped,
        "known vulnerabilities": len(holes),
    }
    return Proof("audit", CLAIM, given.seed, counts, tuple(broken), tuple(holes))


def licences() -> Iterator[tuple[str, str]]:
    """Name and licence of everything that Holdproof or one of its extras brings along, as far as it is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    waiting = [Requirement(each) for each in project["dependencies"]]
    waiting += [Requirement(each) for name, group in extras.items() if name not in _NOT_SHIPPED for each in group]
    seen = {"holdproof"}
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        if name in seen or (asked.marker is not None and not asked.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        yield name, licence(found.metadata)
        waiting += [Requirement(each) for each in found.requires or ()]


def licence(about: Any) -> str:
    """What a distribution says of its licence, shortly: the expression, else classifiers, else the first line."""
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    named = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or () if each.startswith("License ::")]
    text = next((line.strip() for line in str(about.get("License") or "").splitlines() if line.strip()), "")
    return ", ".join(each for each in named if each != "OSI Approved") or text


def acceptable(name: str, text: str) -> bool:
    """Whether a licence asks for nothing but to be named, or is an exception that is explained."""
    return name in EXCEPTIONS or PERMISSIVE.search(text.lower()) is not None


def _vulnerabilities(say: Say) -> tuple[int, int, list[dict[str, Any]]]:
    """How many were looked up, how many were not, and what is known of them."""
    words = [sys.executable, "-m", "pip_audit", "-r", str(LOCK), "--disable-pip", "--require-hashes", "-f", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        told = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        say((done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1])
        pinned = sum(not line.startswith((" ", "#")) for line in LOCK.read_text(encoding="utf-8").splitlines())
        return 0, pinned, []
    skipped = [each for each in told if "skip_reason" in each]
    holes = [
        {
            "name": each["name"],
            "version": each["version"],
            "id": hole["id"],
            "fixed": ", ".join(hole["fix_versions"]),
        }
        for each in told
        for hole in each.get("vulns", ())
    ]
    return len(told) - len(skipped), len(skipped), holes
