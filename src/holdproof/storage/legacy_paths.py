"""Where kgents kept its data, and what a start of Holdproof says about it. The importer itself is `importers.kgents`.

Only names of files are looked at, so that a first run can mention the data without loading the importer.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from holdproof.errors import UnavailableError

NAMES: Final[tuple[str, ...]] = (
    "history.db",
    "prompt-history",
    "hypnagogia",
    "soul",
    "ghost",
    "atelier",
    "membrane.db",
    "vectors.json",
    "blobs",
    "telemetry.db",
)
"""The files and folders that can be imported, in the order in which they are."""
SIDE_FILES: Final = ("-wal", "-shm", "-journal")
"""What SQLite puts beside a database; it belongs to the database."""
_WITNESS: Final = "witness."
_MIGRATED: Final = re.compile(r"\.migrated(-\d+)?$")


def roots(env: Mapping[str, str] = os.environ) -> list[Path]:
    """The folders of kgents: `~/.kgents`, and `kgents` in the XDG data folder."""
    home = Path(env.get("HOME") or Path.home())
    data = env.get("XDG_DATA_HOME", "")
    # XDG says that a relative path is to be ignored.
    return [home / ".kgents", (Path(data) if os.path.isabs(data) else home / ".local" / "share") / "kgents"]


def sources(root: Path) -> Iterator[tuple[Path, bool]]:
    """Each source in a folder, in a fixed order, and whether it was imported before (it is renamed then)."""
    try:
        names = sorted(os.listdir(root), key=os.fsencode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnavailableError(f"{root}: {error.strerror}", path=str(root)) from error
    importable = [name for name in NAMES if name in names]
    # There may be any number of witness files, so they are found by their prefix.
    importable += [name for name in names if name.startswith(_WITNESS) and not name.endswith(SIDE_FILES)]
    for name in importable:
        if not _MIGRATED.search(name):
            yield root / name, False
    for name in names:
        base = original_name(name)
        if base != name and (base in NAMES or base.startswith(_WITNESS)):
            yield root / name, True


def original_name(name: str) -> str:
    """The name of a source before the import renamed it."""
    return _MIGRATED.sub("", name)


def hint(folders: list[Path] | None = None) -> str | None:
    """The sentence for a first start where legacy data can be imported; None where there is none."""
    waiting = [str(path) for path, imported_before in _remaining(folders) if not imported_before]
    if not waiting:
        return None
    return f"data of kgents was found in {waiting[0]}: `holdproof migrate-legacy --dry-run` lists what can be imported"


def returned(folders: list[Path] | None = None) -> list[str]:
    """A warning for each path that was imported and exists again: some program still writes to the old place."""
    return [
        f"{path} was imported before and exists again: something still uses the old path;"
        " `holdproof migrate-legacy` imports what is new in it"
        for path, imported_before in _remaining(folders)
        if imported_before
    ]


def _remaining(folders: list[Path] | None) -> list[tuple[Path, bool]]:
    """Every source that is at its original path, and whether one of that name was imported before."""
    remaining: list[tuple[Path, bool]] = []
    for root in roots() if folders is None else folders:
        try:
            remaining += [
                (path, os.path.lexists(path.with_name(f"{path.name}.migrated")))
                for path, imported in sources(root)
                if not imported
            ]
        except (UnavailableError, OSError):  # an unreadable folder is no reason not to start
            continue
    return remaining
