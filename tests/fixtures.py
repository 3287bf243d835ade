"""Published vectors: `$HOLDPROOF_FIXTURES`, else `../shared/fixtures` beside the project; tests skip without them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "fixtures"


def fixture(path: str) -> Path:
    """The named file or folder of the fixtures; skips the test with a reason where it is missing."""
    found = Path(os.environ.get("HOLDPROOF_FIXTURES") or _BESIDE) / path
    if not found.exists():
        pytest.skip(f"no fixture {found}: set HOLDPROOF_FIXTURES")
    return found


def load(path: str) -> Any:
    """The JSON value of a fixture."""
    return json.loads(fixture(path).read_text(encoding="utf-8"))
