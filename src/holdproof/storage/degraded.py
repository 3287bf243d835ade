"""What is remembered of times when a store was in memory against its settings, so that the next start can say so.

`degraded.json` in the state folder (else the cache or data folder, if only those can be written): for each kind of
store since when, and why. Written at once, for a process that is killed has no time for it later.
"""

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdproof import folders
from holdproof.config import Paths

Periods = dict[str, dict[str, str]]


def _places(paths: Paths) -> list[Path]:
    return [paths.degraded, paths.cache / paths.degraded.name, paths.data / paths.degraded.name]


def read(paths: Paths) -> Periods:
    """The kinds of stores that were in memory, each with `since` and `reason`; what cannot be read is left out."""
    found: Periods = {}
    for place in reversed(_places(paths)):
        with suppress(OSError, ValueError, AttributeError, TypeError, LookupError):
            found |= {kind: _period(period) for kind, period in json.loads(place.read_text("utf-8")).items()}
    return found


def _period(period: Any) -> dict[str, str]:
    return {"since": str(period["since"]), "reason": str(period["reason"])}


def write(paths: Paths, periods: Periods) -> bool:
    """Keep what is to be remembered; whether there was a place for it."""
    kept = not periods
    for place in _places(paths):
        with suppress(OSError):
            if not periods or kept:
                place.unlink(missing_ok=True)
            else:
                _replace(place, json.dumps(periods, indent=2) + "\n")
                kept = True
    return kept


def _replace(place: Path, text: str) -> None:
    folders.make(place.parent)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".degraded-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def warnings(periods: Periods) -> dict[str, str]:
    """What people are told of it, for each kind."""
    return {
        kind: f"the {kind} store of services was in memory since {period['since']}, and what was stored there then was"
        f" not kept ({period['reason']})"
        for kind, period in sorted(periods.items())
    }
