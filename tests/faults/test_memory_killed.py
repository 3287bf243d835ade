"""kill -9 while objects are put, snapshots taken, images dumped, archives taken over and garbage is collected.

What was acknowledged is there, and whole; nothing half-done is.
"""

import os
import random
from pathlib import Path

from holdproof import sync
from holdproof.model.verdicts import Verdict
from tests.conformance.memories import flaws
from tests.faults.children import child, kill_after

ROUNDS = max(4, int(os.environ.get("HOLDPROOF_KILLS", "40")) // 25)


def _inspect(home: Path, said: list[str]) -> None:
    words = [line.split(" ") for line in said]
    with sync.open(home) as store:
        for id in (word[1] for word in words if word[0] == "put"):
            found = store.objects.get(id)
            assert found.content == found.meta["seen"] == int(id.rpartition("-")[2])
        for cid in (word[1] for word in words if word[0] == "snapshot"):
            assert store.snapshots.get(cid).cid == cid
        taken = [word[1] for word in words if word[0] == "archive"]
        if taken:
            assert store.snapshots.get(taken[-1], ns="other").cid == taken[-1]
            state = store.objects.list(limit=1000, ns="other").items
            assert all(each.content == int(each.id.rpartition("-")[2]) for each in state)
        dumped = [word[1] for word in words if word[0] == "image"]
        if dumped:
            with store.image.open(verify="full") as image:
                line = [each.cid for each in store.snapshots.list(limit=1000).items]
                assert line.index(image.manifest.head) <= line.index(dumped[-1]), "the newest image is not older"
            assert store.image.load(force=True).degraded == ()
        assert flaws(store) == []
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID


def test_what_was_acknowledged_survives_kill_9_and_images_are_whole(tmp_path: Path) -> None:
    home, chance = tmp_path / "home", random.Random(1)
    count = 0
    for number in range(ROUNDS):
        with child("memory_writer", str(home), f"w{number}") as process:
            said = kill_after(process, chance.uniform(0.05, 0.6))
        _inspect(home, said)
        count += len(said)
    assert count > ROUNDS
