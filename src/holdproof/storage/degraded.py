"""Records of times when a store was in memory against its settings, so that the next start can say so.

`degraded.json` in the state folder (else the cache or data folder, if only those can be written): for each kind of
store since when, and why. Written at once: a process that is killed cannot do it later.
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


def _files(paths: Paths) -> list[Path]:
    return [paths.degraded, paths.cache / paths.degraded.name, paths.data / paths.degraded.name]


def read(paths: Paths) -> Periods:
    """The kinds of stores that were in memory, each with `since` and `reason`; unreadable files are skipped."""
    periods: Periods = {}
    # The first file counts most, so it is read last.
    for file in reversed(_files(paths)):
        with suppress(OSError, ValueError, AttributeError, TypeError, LookupError):
            periods |= {kind: _period(period) for kind, period in json.loads(file.read_text("utf-8")).items()}
    return periods


def _period(period: Any) -> dict[str, str]:
    return {"since": str(period["since"]), "reason": str(period["reason"])}


def write(paths: Paths, periods: Periods) -> bool:
    """Write the records to the first folder that can be written to, and remove older files; False if none can."""
    stored = not periods
    for file in _files(paths):
        with suppress(OSError):
            if not periods or stored:
                file.unlink(missing_ok=True)
            else:
                _replace(file, json.dumps(periods, indent=2) + "\n")
                stored = True
    return stored


def _replace(place: Path, text: str) -> None:
    folders.make(place.parent)
    # A temporary file and a rename: a crash leaves the old record or the new, never half of one.
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
    """The warnings for people, by kind."""
    return {
        kind: f"the {kind} store was in memory since {period['since']}, and what was stored there then was"
        f" not kept ({period['reason']})"
        for kind, period in sorted(periods.items())
    }
