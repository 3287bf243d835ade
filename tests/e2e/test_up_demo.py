"""`holdproof up --demo`: a server whose store lives, and a question that waits for whoever looks."""

import json
import os
import subprocess
import sys
from pathlib import Path

from holdproof import sync


def test_the_story_is_played_on_the_served_store_and_a_question_is_left(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = ["--home", str(home), "up", "--demo", "--once", "--pace", "0", "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "holdproof", *words], capture_output=True, text=True, timeout=100, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert "http://127.0.0.1:" in done.stdout
    for act in ("Deciding", "Asking", "Killed", "Judged", "Remembered", "Tampered", "Proven"):
        assert act in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    with sync.open(home) as store:
        [waiting] = store.escalations.list(status="PENDING").items
        assert waiting.impact == "HIGH_IMPACT"
        assert store.verify.run().verdict.word == "VALID"
        assert json.dumps(store.snapshots.list().items[0].to_dict())
