"""LangGraph's own tests on `HoldproofSaver`: `python -m harness.langgraph_suites`, or `make adapters`.

Each suite is fetched as the source distribution of the installed version and run with a plugin that puts ours in the
place of the official saver. A failure that `EXPECTED` does not name with its reason ends this with an error; so does a
suite that ran fewer tests than it should. Nothing of the suites is part of this project.
"""

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
_RUN_S: Final = 3_600
_LOCAL: Final = "its type is local to the test, and nobody allowed it: we refuse it when it is written, by design"
_ORDER: Final = "expects an order of what parallel tasks put out, which depends on how long a write takes"
_TABLES: Final = "about the tables, statements or files of their saver"

EXPECTED: Final = {
    "test_in_one_fan_out_state_graph_waiting_edge_custom_state_class_pydantic_input": _LOCAL,
    "test_stream_messages_dedupe_pydantic_subgraph_interrupt": _LOCAL,
    "test_imp_nested": _ORDER,
    "test_stream_subgraphs_during_execution": _ORDER,
    "test_informative_async_errors": "expects that a sync saver cannot be awaited; ours can",
    "test_checkpoint_search_sql_injection_prevention": "expects a ValueError for a hostile key; we find nothing",
    "test_delta_channel_conformance": "fails with their saver too: it needs a newer conformance package",
    "test_walk_step_looks_up_the_parent_by_primary_key": _TABLES,
    "test_setup_migrates_legacy_writes_table_repeatably": _TABLES,
    "test_put_writes_persists_task_path": _TABLES,
    "test_async_setup_migrates_legacy_writes_table_repeatably": _TABLES,
    "test_read_only_legacy_database_still_reads_delta_history": _TABLES,
    "test_async_read_only_legacy_database_still_reads_delta_history": _TABLES,
    "test_setup_does_not_wait_on_another_writer": _TABLES,
    "test_async_setup_does_not_wait_on_another_writer": _TABLES,
}
"""Tests that may fail, and why; everything else must pass."""


class Suite(NamedTuple):
    """A distribution whose tests are run: which of them, and how many there are at least."""

    package: str
    words: tuple[str, ...]
    least: int


SUITES: Final = (
    Suite("langgraph", ("-k", "sqlite", "tests"), 1_000),
    Suite("langgraph-prebuilt", ("-k", "sqlite", "tests"), 45),
    Suite(
        "langgraph-checkpoint-sqlite",
        ("tests", "--ignore=tests/test_store.py", "--ignore=tests/test_async_store.py", "--ignore=tests/test_ttl.py"),
        25,
    ),
)


def fetch(package: str, folder: Path) -> Path:
    """Return the unpacked source distribution of the installed version of a package."""
    version = importlib.metadata.version(package)
    archive = folder / f"{package.replace('-', '_')}-{version}.tar.gz"
    # What is there from the last run is taken: the download is the slowest part of a suite.
    if not archive.is_file():
        quiet = ["-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--disable-pip-version-check"]
        wanted = f"{package}=={version}"
        subprocess.run([sys.executable, "-m", "pip", "download", *quiet, "-d", str(folder), wanted], check=True)
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def run(suite: Suite, folder: Path, *, theirs: bool) -> str:
    """Run a suite and return what pytest printed."""
    sources = fetch(suite.package, folder)
    path = os.pathsep.join([str(sources), str(ROOT / "tests" / "interop"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "NO_DOCKER": "true", "LANGGRAPH_TEST_FAST": "false"}
    if theirs:
        env["HOLDPROOF_TEST_THEIRS"] = "1"
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(sources)]
    command += ["-q", "-p", "saver_redirect", "-o", "asyncio_mode=auto"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest", "-p", "no:schemathesis"]
    command += ["--tb=line", "-rfE", *suite.words]
    done = subprocess.run(command, cwd=sources, env=env, capture_output=True, text=True, timeout=_RUN_S, check=False)
    return done.stdout or done.stderr


def judge(suite: Suite, output: str) -> list[str]:
    """Return what is wrong with the outcome of a suite; nothing where each failure is expected."""
    passed = re.search(r"(\d+) passed", output)
    count = 0 if passed is None else int(passed[1])
    wrong: list[str] = []
    if count < suite.least:
        wrong.append(f"{count} tests passed, and there should be {suite.least}: {output[-500:]}")
    for line in re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE):
        name = line.rpartition("::")[2].partition("[")[0]
        if name not in EXPECTED:
            wrong.append(f"not expected: {line}")
    return wrong


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the suites; 1 if any failed in a way that is not expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[suite.package for suite in SUITES])
    parser.add_argument("--theirs", action="store_true", help="on the official saver, to compare with")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "suites")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    for suite in SUITES:
        if chosen.only not in (None, suite.package):
            continue
        output = run(suite, chosen.folder, theirs=chosen.theirs)
        _say(f"{suite.package}: {output.strip().splitlines()[-1]}")
        for name in sorted({each for each in EXPECTED if re.search(rf"^(?:FAILED|ERROR) .*::{each}\b", output, re.M)}):
            _say(f"  {name}: {EXPECTED[name]}")
        wrong += judge(suite, output)
    for each in wrong:
        _say(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
