"""A store in an SQLite file that Litestream copies to a folder."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import apsw

from harness import litestream
from harness.litestream import Litestream
from holdproof import sync
from holdproof.crypto import checkpoint
from proof.workflows.sittings import Place


class Target(NamedTuple):
    """A head to restore to."""

    name: str
    """What the replication calls the state: a transaction."""
    size: int
    after: float
    """What was acknowledged before this moment is under the head."""


class Restored(NamedTuple):
    """A store that came back: where it is, and the head that the replica had."""

    home: Path
    url: str | None
    size: int
    head: str


Prepare = Callable[[Path, str | None], None]
"""Creates the store in a home."""


@dataclass(frozen=True)
class Replica:
    """What is left when the machine is gone: the folder that Litestream wrote, and the recovery code of root."""

    process: Litestream
    folder: Path
    recovery: Path
    work: Path
    url: str | None = None

    def kill(self) -> None:
        """End the replication without any notice."""
        self.process.kill()

    def heads(self, published: Mapping[str, float], most: int, chance: random.Random) -> list[Target]:
        """Draw heads that the replica has: each file that Litestream wrote ends with one.

        Those from before the load were published to nobody who kept them.
        """
        names = sorted({path.stem.partition("-")[2] for path in self.folder.rglob("*.ltx")})
        chance.shuffle(names)
        targets: dict[str, Target] = {}
        for name in names:
            copy = self.work / f"look-{name}" / "kernel.db"
            litestream.restore(self.folder, copy, transaction=name)
            head = _head(copy)
            if (at := published.get(head.encode().hex())) is not None:
                targets[head] = Target(name, checkpoint.parse(head.encode()).checkpoint.size, at)
            if len(targets) == most:
                break
        return list(targets.values())

    @contextmanager
    def restored(self, target: Target | None, folder: Path) -> Iterator[Restored]:
        """Restore on a new machine, as the guide says."""
        copy = folder / "copy" / "kernel.db"
        litestream.restore(self.folder, copy, transaction=None if target is None else target.name)
        head = _head(copy)
        size = checkpoint.parse(head.encode()).checkpoint.size
        home = folder / "machine"
        answer = sync.restore(folder / "copy", home, root_recovery=self.recovery)
        assert answer.size == size, f"the restore is of {answer.size} entries, the replica has {size}"
        yield Restored(home, None, size, head)


@contextmanager
def begin(place: Place, prepare: Prepare) -> Iterator[Replica]:
    """Replicate the store of a place until the end of the block."""
    prepare(place.home, None)
    recovery = place.home / "config" / "keys" / "root-recovery.txt"
    folder = place.folder / "replicas"
    process = Litestream(folder, place.home / "kernel.db")
    try:
        yield Replica(process, folder / "kernel.db", recovery, place.folder)
    finally:
        process.stop()


def _head(database: Path) -> str:
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        [(head,)] = connection.execute("SELECT head FROM log_state")
    return str(head)
