"""Others that keep ten thousand objects: pickle and JSON in a file, rows of SQLite, git through `dulwich`.

None of them signs or logs anything, and what pickle, JSON and rows give back is believed. `dulwich` names every object
by its hash and keeps history, but does not look at the hashes when it reads. It is not a dependency: it takes part
where it is installed (`pip install dulwich`).
"""

import importlib
import importlib.util
import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

Objects = Mapping[str, Any]
Keep = Callable[[Path, Objects], None]
Load = Callable[[Path], Any]


def peers() -> list[tuple[str, Keep, Load]]:
    """Name, how it keeps objects durably in a folder, how it reads them all."""
    found: list[tuple[str, Keep, Load]] = [
        ("pickle, believed", _pickle, lambda folder: pickle.loads((folder / "all").read_bytes())),
        ("JSON, believed", _json, lambda folder: json.loads((folder / "all").read_bytes())),
        ("rows of SQLite", _rows, _load_rows),
    ]
    return [*found, ("dulwich", _git, _load_git)] if _has_git() else found


def _pickle(folder: Path, objects: Objects) -> None:
    _write(folder / "all", pickle.dumps(objects))


def _json(folder: Path, objects: Objects) -> None:
    _write(folder / "all", json.dumps(objects).encode())


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def open_rows(folder: Path) -> apsw.Connection:
    """A table with one row an object, every commit synced."""
    connection = apsw.Connection(str(folder / "rows.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, data TEXT)")
    return connection


def fill_rows(connection: apsw.Connection, objects: Objects) -> None:
    """Write all objects in one transaction."""
    with connection:
        made = ((id, json.dumps(draft)) for id, draft in objects.items())
        connection.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", made)


def _rows(folder: Path, objects: Objects) -> None:
    with closing(open_rows(folder)) as connection:
        fill_rows(connection, objects)


def _load_rows(folder: Path) -> Any:
    with closing(open_rows(folder)) as connection:
        return {id: json.loads(data) for id, data in connection.execute("SELECT id, data FROM notes")}


def _has_git() -> bool:
    found = importlib.util.find_spec("dulwich") is not None
    if not found and sys.stderr.isatty():
        sys.stderr.write("dulwich is not installed (pip install dulwich): it takes no part\n")
    return found


def _git(folder: Path, objects: Objects) -> None:
    git, made = importlib.import_module("dulwich.repo"), importlib.import_module("dulwich.objects")
    tree = made.Tree()
    blobs = []
    for id, draft in objects.items():
        blob = made.Blob.from_string(json.dumps(draft).encode())
        tree.add(id.encode(), 0o100644, blob.id)
        blobs.append((blob, None))
    with closing(git.Repo.init(str(folder))) as repo:
        repo.object_store.add_objects([*blobs, (tree, None)])
        who = b"bench <bench@localhost>"
        repo.get_worktree().commit(message=b"all of them", committer=who, author=who, tree=tree.id)


def _load_git(folder: Path) -> Any:
    git = importlib.import_module("dulwich.repo")
    with closing(git.Repo(str(folder))) as repo:
        tree = repo[repo[repo.head()].tree]
        return {entry.path.decode(): json.loads(repo[entry.sha].data) for entry in tree.items()}
