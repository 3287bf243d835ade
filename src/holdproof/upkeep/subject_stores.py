"""A subject in the application stores: blobs and sessions that carry its label. None of it is under the log.

Rules:
- What will be erased is counted first, the erasure is recorded in the kernel, then it is done. A crash in between
  leaves a record with pending removals (`erasures.due`), which the next opening finishes.
- Only the label that the record itself names is ever erased for it.
- A store in memory has its application stores in memory: those that are open in this process.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdproof.db.sqlite import snapshot
from holdproof.errors import NotFoundError
from holdproof.executors import SyncExecutor
from holdproof.storage import erasure, labels
from holdproof.storage.blobs import BlobStoreConfig
from holdproof.storage.executors import SyncStorageExecutor
from holdproof.storage.open_stores import OpenStores
from holdproof.store.context import Context

_FOLDER: Final = "membrane/"


class SubjectStore(NamedTuple):
    """A label, and how many rows of each kind carry it."""

    handle: str
    holds: dict[str, int]


def target(handle: str) -> str:
    """Return a label as the record of its erasure names it."""
    return f"{_FOLDER}{handle}"


def is_target(name: str) -> bool:
    """Whether a name in the record of an erasure is that of a label."""
    return name.startswith(_FOLDER)


def unknown() -> NotFoundError:
    """Return the error for a person of whom nothing is known; who is known, no list may say."""
    return NotFoundError(
        "no such subject is known here (it may be erased already)",
        remedy="Write the name as it was given with the content: only its hash is stored, and no list has names.",
    )


def find(context: Context, name: str) -> list[SubjectStore]:
    """Find the label of that name in each database of the application stores."""
    stores = []
    with _opened(context) as parts:
        for executor, _ in parts:
            handle = executor.read(partial(labels.find, name=name))
            if handle is not None:
                stores.append(SubjectStore(handle, executor.read(partial(labels.counts, handle=handle))))
    return stores


def rows(context: Context, name: str) -> dict[str, list[dict[str, object]]]:
    """Return what carries the label of that name in the application stores, by kind; empty where nothing does."""
    sections: dict[str, list[dict[str, object]]] = {}
    with _opened(context) as parts:
        for executor, _ in parts:
            handle = executor.read(partial(labels.find, name=name))
            if handle is None:
                continue
            for kind, page in executor.read(partial(labels.rows, handle=handle)).items():
                sections.setdefault(kind, []).extend(page)
    return sections


def erase(context: Context, name: str) -> list[str]:
    """Erase a label, given as its record names it, in every database; return what could not be reached."""
    handle = name.removeprefix(_FOLDER)
    remains: list[str] = []
    with _opened(context) as parts:
        for executor, blobs in parts:
            remains += executor.run(erasure.erase(blobs, handle))
            facts = executor.database.backend.facts()
            if (
                executor.database.dialect == "sqlite"
                and context.head_file is not None
                and not snapshot.fold(Path(facts["path"]))
            ):
                remains.append(f"{facts['path']}-wal")
    return remains


@contextmanager
def _opened(context: Context) -> Iterator[list[tuple[SyncExecutor, BlobStoreConfig]]]:
    """Open each database of the application stores once, with its blob configuration; none where nothing is stored."""
    with ExitStack() as stack:
        if context.head_file is None:
            opened: list[Any] = list(context.services.values())
        else:
            opened = [stack.enter_context(closing(OpenStores(context.settings, context.paths, SyncStorageExecutor)))]
        parts: dict[str, tuple[SyncExecutor, BlobStoreConfig]] = {}
        # Blobs and relational tables may share one database; it is visited once.
        for stores in opened:
            for resource in ("blobs", "relational"):
                if context.head_file is not None and not stores.exists(resource):
                    continue
                store = stores.open(resource)
                database = store._executor.database
                blobs = store.held if resource == "blobs" else BlobStoreConfig()
                parts.setdefault(_name(database), (SyncExecutor(database), blobs))
        yield list(parts.values())


def _name(database: Any) -> str:
    """Return what identifies a database: several handles share one backend."""
    return str(id(database.backend))
