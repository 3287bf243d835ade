"""A migration of legacy data that is killed at each of its steps in turn, and run again.

python -m tests.faults.legacy_killer FOLDER EVERY

Kills at each EVERY-th step that changes something, and says how many kills there were. Forks before anything is
opened, so that many kills do not cost many starts.
"""

import itertools
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from holdproof import sync
from holdproof.model.legacy import Outcome
from tests import kgents

TABLES = ("agent_state", "cli_sessions", "cli_session_events", "prompt_checkpoints", "shapes")


def prepare(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    kgents.legacy(folder / ".kgents")
    kgents.xdg(folder / ".local" / "share" / "kgents")
    for path in (folder / ".kgents").rglob("*.json"):
        os.utime(path, (1_700_000_000, 1_700_000_000))  # a state is as old as its file
    kgents.write(folder / "home" / "config" / "config.yaml", "providers: {vector: {dimensions: 2}}\n")


def state(folder: Path) -> dict[str, Any]:
    """Everything that services can see, and what lies at the old places."""
    with closing(sync.storage(folder / "home")) as stores:
        tables = stores.open("relational")
        blobs, vectors = stores.open("blobs"), stores.open("vectors")
        assert blobs.check() == []
        moved = tables.fetch_all("SELECT kind FROM legacy_moves WHERE verified_at IS NOT NULL ORDER BY source")
        return {
            "rows": {table: tables.fetch_all(f"SELECT * FROM {table} ORDER BY 1") for table in TABLES},
            "blobs": {key: blobs.get(key) for key in blobs.list(limit=1_000)},
            "vectors": [each.to_dict() for each in vectors.export()],
            "events": [each.to_dict() for each in stores.open("telemetry").query()],
            "moved": moved,
            "old": sorted(str(path.relative_to(folder)) for path in (folder / ".kgents").rglob("*")),
        }


def migrate(folder: Path, kill_at: int = 0) -> None:
    steps = itertools.count(1)

    def tell(step: str, done: int, total: int) -> None:
        del done, total
        if not step.startswith("read") and next(steps) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    report = sync.migrate_legacy(home=folder / "home", progress=tell)
    assert {each.outcome for each in report.sources} <= {Outcome.MOVED, Outcome.MOVED_BEFORE}, report


def apart(work: Callable[[], None]) -> int:
    """Do something in a child; how it ended, negative if it was killed."""
    if (pid := os.fork()) == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, every: int) -> int:
    """Kill at one step, at a later one, … until there is none left; how many that were."""
    os.environ["HOME"] = str(folder)
    expected = folder.with_name("expected")

    def compare() -> None:
        migrate(folder)
        found = state(folder)
        assert repr(found) == expected.read_text(), found

    def remember() -> None:
        migrate(folder)
        expected.write_text(repr(state(folder)))

    prepare(folder)
    assert apart(remember) == 0
    for kills, number in enumerate(itertools.count(1, every)):
        prepare(folder)
        ended = apart(lambda: migrate(folder, number))  # noqa: B023
        assert ended in (0, -signal.SIGKILL), ended
        assert apart(compare) == 0, f"killed at step {number}"
        if ended == 0:
            return kills
    raise AssertionError("there is a last step")


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2])))
