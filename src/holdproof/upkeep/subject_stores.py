"""A person in what services store: blobs and sessions that carry a label. None of it is under the log.

Rules:
- What will go is counted first, the erasure is recorded in the kernel, then it goes. A crash in between leaves the
  record with work to do (`due`), which the next opening does.
- Only the label that the record itself names is ever erased for it.
- A store in memory has its services in memory: those that are open in this process.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdproof.db.sqlite import snapshot
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
    """A label as the record of its erasure names it, both what went and what is still due."""
    return f"{_FOLDER}{handle}"


def is_target(name: str) -> bool:
    """Whether a name in the record of an erasure is that of a label."""
    return name.startswith(_FOLDER)


def find(context: Context, name: str) -> list[SubjectStore]:
    """Who is called so, in each of the databases of services."""
    stores = []
    with _opened(context) as parts:
        for executor, _ in parts:
            handle = executor.read(partial(labels.find, name=name))
            if handle is not None:
                stores.append(SubjectStore(handle, executor.read(partial(labels.counts, handle=handle))))
    return stores


def erase(context: Context, name: str) -> list[str]:
    """Erase a label, called as the record names it, wherever it is; what could not be reached."""
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
    """Each database of services once, with where its blobs lie; none where nobody has stored anything."""
    with ExitStack() as stack:
        if context.head_file is None:
            opened: list[Any] = list(context.services.values())
        else:
            opened = [stack.enter_context(closing(OpenStores(context.settings, context.paths, SyncStorageExecutor)))]
        parts: dict[str, tuple[SyncExecutor, BlobStoreConfig]] = {}
        for stores in opened:
            for noun in ("blobs", "relational"):
                if context.head_file is not None and not stores.exists(noun):
                    continue
                store = stores.open(noun)
                database = store._face.database
                blobs = store.held if noun == "blobs" else BlobStoreConfig()
                parts.setdefault(_name(database), (SyncExecutor(database), blobs))
        yield list(parts.values())


def _name(database: Any) -> str:
    """What tells two databases apart: handles on one share its pumps."""
    return str(id(database.backend))
