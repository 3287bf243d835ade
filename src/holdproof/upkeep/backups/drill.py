"""A disaster drill: the loss of a store rehearsed on a new, empty machine, with the time of each step.

Rules:
- The store in use is left alone, and nothing is restored where anything is: the folder must not be there, the database
  must be empty.
- The new machine has nothing of the old one but the backup, without keys in it, and what the caller hands over. The
  environment of the process does not count either: HOLDPROOF_DATABASE_URL names the store that is in use.
- It counts as passed only by a full verification of the restored store.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from holdproof import folders
from holdproof.config import Paths
from holdproof.content import disk
from holdproof.crypto.keys import PrivateKey
from holdproof.db import transfer
from holdproof.errors import AlreadyExistsError
from holdproof.evidence import tree
from holdproof.model.backup import Backup, Drill, DrillStep, Restored
from holdproof.model.progress import Progress
from holdproof.model.verify import Report
from holdproof.store.context import Context
from holdproof.upkeep.backups import backup, backup_list, restore
from holdproof.upkeep.backups.staging import RestoreRequest
from holdproof.urls import redact

T = TypeVar("T")


@dataclass(frozen=True)
class Rehearsal:
    """The folder of a drill: a backup, and the home of a machine that did not exist before."""

    folder: Path
    paths: Paths
    target: str | Path
    steps: list[DrillStep] = field(default_factory=list)

    @classmethod
    def prepare(cls, folder: Path, to_url: str | None) -> "Rehearsal":
        """Create the folder; AlreadyExistsError if it is there, or if there is a store at the URL."""
        top = Path(os.path.abspath(folder.expanduser()))
        if os.path.lexists(top):
            raise AlreadyExistsError(f"{top}: exists already; name a new folder for the drill", path=str(top))
        paths = Paths.find(top / "machine")
        target = to_url or paths.kernel_db
        if transfer.open_target(target, {"kernel": paths.kernel_db}).ledger("kernel") is not None:
            raise AlreadyExistsError(f"there is a store at {redact(str(target))} already: name an empty database")
        with disk.translated(top):
            folders.make(top.parent)
            try:
                # Not `make`, which takes a folder that is there by now: of two drills at once one has the name.
                top.mkdir(mode=0o700)
            except FileExistsError as error:
                raise AlreadyExistsError(f"{top}: exists already; name a new folder", path=str(top)) from error
        return cls(top, paths, target)

    def timed(self, name: str, work: Callable[[], T], outcome: Callable[[T], str]) -> T:
        """Run a step, and note how long it took and what came of it."""
        start = time.monotonic()
        result = work()
        self.steps.append(DrillStep(name, round(time.monotonic() - start, 3), outcome(result)))
        return result

    def back_up(self, context: Context, tell: Progress) -> Backup:
        """Back the store up, and read the backup back from the disk."""
        path = self.folder / "backup"
        new = self.timed(
            "backup",
            lambda: backup.make(context, path, keys=False, configuration=False, tell=tell),
            lambda each: f"{each.size} entries, {each.files} files, {each.bytes} bytes",
        )
        return self.timed(
            "check",
            lambda: backup_list.inspect(path, key=new.signer, tell=tell),
            lambda each: f"signed by {each.signer}",
        )

    def lose(self) -> None:
        """Note that from here on nothing of the old machine is used."""
        self.timed("loss", self.paths.create, lambda _: "a new machine, with the backup and the recovery code only")

    def restore(self, root: PrivateKey | None, tell: Progress) -> Restored:
        """Restore the backup on the new machine."""
        return restore.restore(
            self.paths, self.target, RestoreRequest(self.folder / "backup", root=root, progress=tell)
        )

    def remove(self) -> None:
        """Remove the backup and the new machine."""
        disk.remove_tree(self.folder)

    def outcome(self, copy: Backup, restored: Restored, report: Report, written_since: int, *, keep: bool) -> Drill:
        """Return what was measured."""
        names = [each.name for each in self.steps]
        outside = [*restored.outside]
        if restored.keyless:
            outside.append(f"the keys of {restored.keyless} subjects, whose content stays unreadable")
        return Drill(
            steps=self.steps,
            verdict=report.verdict.word,
            exit_code=report.verdict.exit_code,
            size=copy.size,
            written_since=written_since,
            recovery_s=round(sum(each.seconds for each in self.steps[names.index("loss") :]), 3),
            outside=outside,
            home=str(self.paths.data) if keep else None,
        )


def log_size(context: Context) -> int:
    """Return how many entries the log of a store has."""
    return context.database.read(tree.state).result().size
