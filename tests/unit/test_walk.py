"""How far a write travels: the calls of one warm `flows.start`, on every thread."""

import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdproof
from holdproof import sync

_HERE = str(Path(holdproof.__file__).parent)
# Two of them are comprehensions, which are calls before Python 3.12.
_MOST_CALLS = 94
_MOST_FILES = 28


class Counter:
    """Notes the source file of every call of the product while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.files: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(_HERE):
            self.files.append(frame.f_code.co_filename)


@pytest.mark.skipif(sys.gettrace() is not None, reason="measured without a debugger or coverage")
def test_a_warm_write_with_its_entry_and_signed_head_makes_at_most_94_calls(tmp_path: Path) -> None:
    counter = Counter()
    before = threading.getprofile() if hasattr(threading, "getprofile") else None
    # Threads take the profile when they start, so it stands before the store is opened.
    threading.setprofile(counter)
    try:
        with sync.open(tmp_path / "store") as store:
            store.agents.register("trader", version="1")
            walks = []
            sys.setprofile(counter)
            for _ in range(8):
                counter.files = []
                counter.on = True
                store.flows.start("trader")
                # The writer tidies up after it has answered; nothing later belongs to this call.
                while store.database.busy:
                    time.sleep(0.001)
                counter.on = False
                walks.append(counter.files)
    finally:
        sys.setprofile(None)
        threading.setprofile(before)
    # The shortest: now and then a head goes to its file, or a level of the tree becomes full.
    walk = min(walks, key=len)
    assert len(walk) <= _MOST_CALLS
    assert len(set(walk)) <= _MOST_FILES
