"""What somebody does who has the database file and knows how Holdproof writes it."""

import shutil
from pathlib import Path
from typing import NamedTuple

from holdproof import sync
from holdproof.db import sql
from holdproof.db.sqlite import snapshot
from holdproof.errors import LockedError
from holdproof.upkeep import lockdown

_IMPROVE = sql("UPDATE battles SET score = 1.0 WHERE battle_id = :battle_id")


class Found(NamedTuple):
    """What became of it."""

    verdict: str
    what: str
    lockdown: str
    refused: str


def forge(store: sync.Holdproof, folder: Path, evaluation_id: str) -> Path:
    """Return a copy of a living store, with its keys, in which one score was raised past Holdproof."""
    home = folder / f"forged-{evaluation_id}"
    paths = store.core.paths
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    snapshot.copy(paths.kernel_db, home / "kernel.db", on_snapshot=lambda: None, progress=lambda *_: None)
    for name, place in (("config", paths.config), ("state", paths.state), ("dboms", paths.dboms)):
        shutil.copytree(place, home / name)
    # Written past all operations, checksums included: only the log can tell.
    with snapshot.edit(home / "kernel.db") as tx:
        tx.execute(_IMPROVE, battle_id=evaluation_id, expect=1)
    return home


def look(home: Path) -> Found:
    """Verify the forged store, lock it as verify does but without alerts, then try to work with it."""
    with sync.open(home) as store:
        report = store.verify.run(lock=False)
        # Without notifiers: nobody is alerted for a forgery that is part of the story.
        locked = store.run(lockdown.respond(store.context, report, notifiers=()))
        worst = next(each for each in report.findings if each.verdict.locks)
        try:
            store.agents.register("buyer", version="1.0.1")
            refused = "not at all"
        except LockedError as error:
            refused = f"{error.code}, nobody writes to it any more"
    return Found(report.verdict.word, f"{worst.place}: {worst.what}", locked.id, refused)
