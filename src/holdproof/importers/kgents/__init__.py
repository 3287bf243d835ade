"""Legacy data of kgents, taken over: `~/.kgents` and its XDG home.

    report = migrate(stores, roots())

`hint` and `returned` are what a start says of it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from holdproof.errors import UnavailableError
from holdproof.importers.kgents.driver import found, migrate, required

__all__ = ["hint", "migrate", "required", "returned", "roots"]


def roots(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where kgents keeps things: `~/.kgents`, and `kgents` in the XDG data folder."""
    home = Path(env.get("HOME") or Path.home())
    data = env.get("XDG_DATA_HOME", "")
    return [home / ".kgents", (Path(data) if os.path.isabs(data) else home / ".local" / "share") / "kgents"]


def hint(places: list[Path] | None = None) -> str | None:
    """What a first start says where legacy data waits."""
    waiting = [str(path) for path, moved in _seen(places) if moved is False]
    if not waiting:
        return None
    return f"data of kgents waits in {waiting[0]}: `holdproof migrate-legacy --dry-run` says what would be taken over"


def returned(places: list[Path] | None = None) -> list[str]:
    """A warning for each path that was taken over and is there again: somebody still uses the old place."""
    return [
        f"{path} was taken over before and is there again: something still uses the old path;"
        " `holdproof migrate-legacy` takes over what is new in it"
        for path, moved in _seen(places)
        if moved
    ]


def _seen(places: list[Path] | None) -> list[tuple[Path, bool]]:
    """Every source at its old path, and whether one of that name was taken over before."""
    seen: list[tuple[Path, bool]] = []
    for root in roots() if places is None else places:
        try:
            seen += [
                (path, os.path.lexists(path.with_name(f"{path.name}.migrated")))
                for path, kind in found(root)
                if kind is not None
            ]
        except (UnavailableError, OSError):  # what cannot be looked at is no reason not to start
            continue
    return seen
