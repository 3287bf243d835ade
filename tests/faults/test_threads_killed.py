"""kill -9 while checkpoints are written and pruned: the newest that was acknowledged is there, and whole."""

import os
import random
from pathlib import Path

from holdproof import sync
from holdproof.model.verdicts import Verdict
from tests.faults.children import child, kill_after
from tests.faults.thread_writer import element

ROUNDS = max(3, int(os.environ.get("HOLDPROOF_KILLS", "40")) // 30)


def test_the_newest_checkpoint_survives_kill_9_whole(tmp_path: Path) -> None:
    home, chance = tmp_path / "home", random.Random(1)
    for number in range(ROUNDS):
        name = f"w{number}"
        with child("thread_writer", str(home), name) as process:
            said = kill_after(process, chance.uniform(0.05, 0.4))
        count = int(said[-1].split(" ")[1])
        with sync.open(home) as store:
            found = store.threads.get_checkpoint(name)
            assert found is not None
            elements = found.channels["list"].elements
            assert count <= len(elements) <= count + 1, "what was not acknowledged may have come through, no more"
            assert elements == [element(name, place) for place in range(len(elements))]
            assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID
