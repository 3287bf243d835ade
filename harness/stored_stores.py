"""Stores as an earlier version left them, small and with a row in every logged table: what upgrades are tested from.

python -m harness.stored_stores tests/stored

writes one for each database at the newest migration of this version. One is added before a migration of the next
version comes, and none is ever written anew: the bytes are those of the version that they stand for. Their keys are
in them and protect nothing.
"""

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from harness import filling
from harness.servers import Postgres, postgres_programs
from holdproof import sync
from holdproof.db import migrate

_DUMP: Final = "dump.sql"
_LEFT_OUT: Final = (".lock", "-shm", ".gitignore")


def make(folder: Path) -> list[Path]:
    """Write a store for each database; return the archives."""
    newest = migrate.shipped("kernel")[-1].name.partition("_")[0]
    folder.mkdir(parents=True, exist_ok=True)
    archives = []
    with tempfile.TemporaryDirectory() as work:
        home = Path(work, "sqlite")
        _fill(home, None)
        archives.append(_pack(folder / f"{newest}-sqlite.tar.xz", home, {}))
        server = Postgres(syncs=False)
        try:
            server.sql("CREATE DATABASE shop")
            home, url = Path(work, "postgres"), server.url("shop")
            _fill(home, url)
            program = postgres_programs() / "pg_dump"
            done = subprocess.run([program, "--no-owner", url], check=True, capture_output=True)
            archives.append(_pack(folder / f"{newest}-postgres.tar.xz", home, {_DUMP: _portable(done.stdout)}))
        finally:
            server.stop()
    return archives


def _fill(home: Path, url: str | None) -> None:
    with sync.open(home, url) as store:
        filling.fill(store)
        filling.remember(store)
        store.blobs.put("report", b"quarterly" * 1000)
        store.sessions.start_session("script", "desk")


def _portable(dump: bytes) -> bytes:
    """Leave out what only the server of the dump understands: settings, and commands of its psql."""
    lines = dump.splitlines(keepends=True)
    return b"".join(
        line for line in lines if not line.startswith((b"SET transaction_timeout", b"\\restrict", b"\\unr"))
    )


def _pack(archive: Path, home: Path, more: dict[str, bytes]) -> Path:
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(home.rglob("*")):
            if path.is_file() and not path.name.endswith(_LEFT_OUT):
                _add(tar, f"home/{path.relative_to(home).as_posix()}", path.read_bytes())
        for name, data in more.items():
            _add(tar, name, data)
    return archive


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o600
    tar.addfile(entry, io.BytesIO(data))


def unpack(archive: Path, folder: Path, url: str | None = None) -> Path:
    """Lay a stored store down in an empty folder, and its tables in an empty database; return its home."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    if url is not None:
        _create_roles(folder / _DUMP, url)
        program = postgres_programs() / "psql"
        subprocess.run(
            [program, "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={folder / _DUMP}", url],
            check=True,
            capture_output=True,
        )
    return folder / "home"


def _create_roles(dump: Path, url: str) -> None:
    """Create the roles of a dump, which belong to the whole server, where they are not there."""
    names = sorted(set(re.findall(r" TO (holdproof_\w+);", dump.read_text())))
    with psycopg.connect(url, autocommit=True) as connection:
        for name in names:
            with suppress(psycopg.errors.DuplicateObject):
                connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))


if __name__ == "__main__":
    for made in make(Path(sys.argv[1])):
        sys.stdout.write(f"{made} {made.stat().st_size}\n")
