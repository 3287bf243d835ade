"""Stores for tests of backup, restore and erasure: a home, and a server's database where one is meant."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdproof import errors, sync
from holdproof.crypto.keys import PrivateKey
from holdproof.evidence import evaluations
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.backup import Backup, Restored
from holdproof.model.evaluations import Evaluation
from holdproof.model.keys import Role


class RootlessKeys(KeyFolder):
    """A key folder that makes no root key."""

    def ensure(self, role: Role) -> PrivateKey:
        if role == "root":
            raise errors.NotFoundError("there is no root key", role=role)
        return super().ensure(role)


@dataclass(frozen=True)
class StoreLocation:
    """Where one store lives."""

    home: Path
    url: str | None = None

    def open(self, **options: Any) -> sync.Holdproof:
        return sync.open(self.home, self.url, **options)

    def open_without_root(self) -> sync.Holdproof:
        """Open it with keys that have no root key, as a KMS may."""
        return self.open(keys=RootlessKeys(self.home / "config" / "keys"))

    @property
    def recovery(self) -> Path:
        """The recovery of its root key, as a new store leaves it."""
        return self.home / "config" / "keys" / "root-recovery.txt"

    def restore(self, src: Path, **options: Any) -> Restored:
        return sync.restore(src, self.home, self.url, **options)

    def backup(self, dest: Path, **options: Any) -> Backup:
        with self.open() as store:
            return store.backup.create(dest, **options)

    def state(self) -> dict[str, Any]:
        """What a user sees: every battle, every DBOM file, every blob."""
        with self.open() as store:
            found = everything(store)
        return {"battles": found, **files(self.home / "dboms"), **files(self.home / "blobs")}

    def sound(self) -> None:
        """The whole store verifies."""
        with self.open() as store:
            report = store.verify.run(full=True, lock=False)
        assert report.verdict.sound, report.to_dict()


def submit(store: sync.Holdproof, evaluation_id: str, *, subject: str | None = None, secret: str = "x") -> Evaluation:
    """A battle whose result holds a text to look for."""
    return store.run(
        evaluations.submit(store.context, {"answer": secret}, evaluation_id=evaluation_id, score=0.5, subject=subject)
    )


def everything(store: sync.Holdproof) -> list[tuple[str, str | None]]:
    rows = store.read(lambda tx: evaluations.walk(tx, limit=1000))
    return [(each.evaluation_id, each.raw_result) for each in rows]


def files(folder: Path) -> dict[str, str]:
    """Every file below a folder and its hash; what SQLite rebuilds at will is left out."""
    return {
        str(path.relative_to(folder.parent)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal", ".lock"))
    }
