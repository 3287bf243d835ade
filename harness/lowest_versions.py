"""The tests of each adapter on the lowest version its extra allows: `python -m harness.lowest_versions`.

Each extra gets an environment of its own, with the framework at its bound and what the tests need beside it; everything
else is as new as the resolver takes it. A skipped test is an error here: a framework that lacks what a test imports
would skip that test, and the bound would look true. PostgreSQL is left out: a framework does not see which database it
is.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement

from harness.agent_loops import FRAMEWORKS

ROOT: Final = Path(__file__).parent.parent
_INSTALL_S: Final = 1_800
_RUN_S: Final = 1_800
_NO_POSTGRES: Final = "no PostgreSQL package for this platform"
_TESTS_NEED: Final = ("pytest", "pytest-timeout", "hypothesis")


class Case(NamedTuple):
    """An extra, the tests of its adapter, how many there are at least, and what they need beside it.

    `loop` is the name of its framework among the durable loops, where it is one of them. `pins` are the lowest versions
    that the tests hold for, where a part of the adapter needs more than its extra, and says so.
    """

    extra: str
    tests: tuple[str, ...]
    least: int
    loop: str = ""
    beside: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()


_CONFORMANCE: Final = "tests/conformance/test_"
_LOOPS: Final = f"{_CONFORMANCE}agent_loops.py"
_INTEROP: Final = "tests/interop/test_"

CASES: Final = (
    Case(
        "langgraph",
        (
            *(f"{_INTEROP}langgraph{name}.py" for name in ("", "_saver", "_durable", "_interrupts", "_stores")),
            *(f"{_CONFORMANCE}langgraph_{name}.py" for name in ("store", "cache")),
        ),
        125,
        "langgraph",
        ("langchain", "langgraph-checkpoint-conformance", "langgraph-checkpoint-sqlite", "pip", "hatchling"),
    ),
    Case(
        "openai",
        tuple(f"{_CONFORMANCE}openai_{name}.py" for name in ("agents", "compaction", "tracing")),
        30,
        "openai_agents",
    ),
    Case("adk", (f"{_CONFORMANCE}google_adk.py", f"{_CONFORMANCE}google_adk_services.py"), 30, "google_adk"),
    Case(
        "agent-framework",
        tuple(f"{_CONFORMANCE}agent_framework{name}.py" for name in ("", "_history", "_memory")),
        35,
        "agent_framework",
    ),
    Case("pydantic-ai", (f"{_CONFORMANCE}pydantic_ai.py",), 15, "pydantic_ai"),
    Case("pydantic-ai", (f"{_CONFORMANCE}pydantic_conversations.py",), 4, pins=("pydantic-ai-slim==2.66",)),
    Case("pydantic-ai-steps", (f"{_CONFORMANCE}pydantic_steps.py",), 5),
    Case("a2a", (f"{_CONFORMANCE}a2a.py",), 5),
    Case("strands", (f"{_CONFORMANCE}strands.py",), 5),
    Case("claude-agent", (f"{_CONFORMANCE}claude_agent.py",), 5),
    Case("crewai", (f"{_CONFORMANCE}crewai.py",), 15),
    Case("mcp", tuple(f"tests/e2e/test_mcp{name}.py" for name in ("", "_resources", "_tasks")), 30),
    Case("otel", (f"{_CONFORMANCE}otel.py",), 5, beside=("opentelemetry-proto",)),
)


def bounds(extra: str) -> list[str]:
    """Return the requirements of an extra, each pinned to its lower bound; what names our own extras is left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(text) for text in project["optional-dependencies"][extra]]
    pins: list[str] = []
    for requirement in wanted:
        if requirement.name == project["name"]:
            continue
        [lower] = [each.version for each in requirement.specifier if each.operator == ">="]
        pins.append(f"{requirement.name}=={lower}")
    return pins


def pinned(case: Case) -> tuple[str, ...]:
    """Return the versions that a case is about."""
    return case.pins or tuple(bounds(case.extra))


def install(case: Case, folder: Path) -> Path:
    """Make the environment of a case anew and return its interpreter."""
    venv.create(folder, clear=True, with_pip=not shutil.which("uv"))
    python = folder / "bin" / "python"
    wanted = [*pinned(case), *_TESTS_NEED, *case.beside, "-e", f"{ROOT}[{case.extra},server,postgres]"]
    uv = shutil.which("uv")
    pip = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    subprocess.run([*pip, "-q", *wanted], check=True, timeout=_INSTALL_S)
    return python


def run(case: Case, python: Path) -> str:
    """Run the tests of a case and return what pytest printed."""
    others = [f"not {framework}" for framework in FRAMEWORKS if framework != case.loop]
    tests = [*case.tests, *([_LOOPS] if case.loop else [])]
    command = [str(python), "-m", "pytest", "-rsfE", "--tb=short", "-k", " and ".join(["not ostgres", *others]), *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_RUN_S, check=False)
    return done.stdout + done.stderr


def judge(case: Case, output: str) -> list[str]:
    """Return what is wrong with the outcome of a case: failures, skips, fewer tests than there should be."""
    wrong = re.findall(r"^(?:FAILED|ERROR|INTERNALERROR).*", output, re.MULTILINE)
    wrong += [line for line in re.findall(r"^SKIPPED.*", output, re.MULTILINE) if not line.endswith(_NO_POSTGRES)]
    passed = re.search(r"(\d+) passed", output)
    count = 0 if passed is None else int(passed[1])
    if count < case.least:
        wrong.append(f"{count} passed, and there should be {case.least}")
    return wrong


def main() -> int:
    """Run the cases one after another and print a line for each; 1 if anything is wrong with any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[case.extra for case in CASES], action="append")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "lowest")
    chosen = parser.parse_args()
    failed = False
    for case in CASES:
        if chosen.only and case.extra not in chosen.only:
            continue
        output = run(case, install(case, chosen.folder / case.extra))
        wrong = judge(case, output)
        summary = output.strip().splitlines()[-1].strip("= ")
        sys.stdout.write(f"{case.extra}: {' '.join(pinned(case))}: {summary}\n")
        if wrong:
            failed = True
            sys.stdout.write(f"{output}\n{case.extra}: {'; '.join(wrong)}\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
