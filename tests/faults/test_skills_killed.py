"""kill -9 while skills are approved and locked: nothing acknowledged is lost, and nothing is half there."""

import os
import random
from pathlib import Path

from harness.filling import settled
from holdproof import sync
from holdproof.db import sql
from holdproof.model.skills import SkillState
from holdproof.model.verdicts import Verdict
from tests.faults.children import child, kill_after

_IDS = sql("SELECT id FROM skill_approvals")
KILLS = int(os.environ.get("HOLDPROOF_KILLS", "15"))


def rounds(home: Path, url: str, folder: Path, count: int) -> None:
    chance, acknowledged = random.Random(18), set[str]()
    folder.mkdir()
    for _ in range(count):
        with child("approver", str(home), url, str(folder)) as process:
            acknowledged.update(kill_after(process, chance.uniform(0, 0.3)))
        with sync.open(home, url or None) as store:
            assert acknowledged <= {row[0] for row in store.read(lambda tx: tx.all(_IDS))}
            # Whatever was killed in the middle: no state but these, and an approval holds or is not there.
            states = {each.state for each in store.skills.list().items}
            assert states <= {SkillState.APPROVED, SkillState.LOCKED}
            settled(store)
            assert store.verify.run(lock=False).verdict is Verdict.VALID
    assert len(acknowledged) >= count


def test_kill_9_while_skills_are_approved_loses_nothing(tmp_path: Path) -> None:
    rounds(tmp_path / "home", "", tmp_path / "skills", max(3, KILLS // 10))


def test_kill_9_while_skills_are_approved_on_a_server_loses_nothing(tmp_path: Path, postgres_url: str) -> None:
    rounds(tmp_path / "home", postgres_url, tmp_path / "skills", max(3, KILLS // 30))
