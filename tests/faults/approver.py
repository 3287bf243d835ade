"""A process that approves skills as fast as it can and says which approvals are acknowledged; made to be killed.

python -m tests.faults.approver HOME URL FOLDER
"""

import os
import sys
from pathlib import Path

from holdproof import sync


def _approve(home: str, url: str | None, folder: Path) -> None:
    with sync.open(home, url) as store:
        turn = 0
        while True:
            turn += 1
            path = folder / f"skill{turn % 3}.org"
            aside = path.with_suffix(".new")
            aside.write_text(f"* Turn {turn}\n")
            os.replace(aside, path)
            approved = store.skills.approve(str(path), by="approver")
            if turn % 4 == 0:
                path.write_text("* Changed\n")
                store.skills.verify(str(path))
            os.write(1, f"{approved.id}\n".encode())  # said only after it is durable, and said at once


if __name__ == "__main__":
    _approve(sys.argv[1], sys.argv[2] or None, Path(sys.argv[3]))
