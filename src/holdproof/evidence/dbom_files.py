"""DBOM files: `dboms/dbom_<id>.json` is an evaluation's newest DBOM, `dbom_<id>.<row id>.json` an earlier one.

The database holds every DBOM too; files are written after the commit and can be derived from the rows.

Rules:
- A file appears whole or not at all: temporary file, fsync, rename, fsync of the folder.
- A signed DBOM is never displaced by an imported one: the newest signed one has the plain name.
- The plain name is written first, earlier names after, in the order of their rows. So where the file of an earlier row
  of the newest one's kind (signed or not) exists, the plain one is up to date and nothing before it is missing: the
  cost of publishing does not grow with the number of rows.
- Temporary files are in one folder, `dboms/.tmp`, so that a crash's leftovers are found without listing all files.
- Writers of one evaluation are serialised (a file lock, between threads and processes), and write what the database
  says once they hold the lock: the last one writes the newest.
- Opening and closing a store write the files that a crash left out; files of rows known to be complete are left to
  `verify`, so that a deleted file is reported and not silently replaced.
"""

import fcntl
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from holdproof import folders
from holdproof.content import disk
from holdproof.db import Call, Database, Query, Tx, Work, ask, sql
from holdproof.db.tx import NOT_RUN
from holdproof.errors import DiskFullError, HoldproofError, InvalidInputError, UnavailableError
from holdproof.evidence import tree
from holdproof.lazy import lazy_module
from holdproof.store.context import Context

if TYPE_CHECKING:
    from holdproof.model import evaluations
else:
    evaluations = lazy_module("holdproof.model.evaluations")

T = TypeVar("T")

MAIN: Final = "main"
_MOST_BYTES: Final = 200
_MOST_ID: Final = (1 << 63) - 1
_ROW_ID = re.compile(r"0|[1-9][0-9]{0,17}")
_REFUSED = re.compile(r"[/\\\x00-\x1f\x7f]")
_MOST_GAPS: Final = 1_000
_PAGE: Final = 2_000
_PEEK_S: Final = 0.01
_FEW: Final = 20
_SPARES: Final = ".tmp"
_BUCKET: Final = "[0-9a-f][0-9a-f]"


class DueFile(NamedTuple):
    """A DBOM file as it should be: its name and its text."""

    name: str
    text: str


def is_name(text: object) -> bool:
    """Whether an evaluation id or namespace can be part of a file name: no path, no control character, not too long."""
    if not isinstance(text, str) or not text.strip() or text in (".", "..") or _REFUSED.search(text):
        return False
    try:
        return len(text.encode()) <= _MOST_BYTES
    except UnicodeEncodeError:
        return False


def check_name(text: object, what: str) -> str:
    """Return an evaluation id or namespace that can be part of a file name; InvalidInputError for another."""
    if not is_name(text):
        raise InvalidInputError(
            f"{what} is a text of 1 to {_MOST_BYTES} bytes without slashes and control characters",
            field=what,
            value=str(text)[:100],
        )
    return str(text)


def name_of(evaluation_id: str, row_id: int | None = None) -> str:
    """Return the file name of an evaluation's newest DBOM, or of an earlier one by its row."""
    return f"dbom_{evaluation_id}.json" if row_id is None else f"dbom_{evaluation_id}.{row_id}.json"


def folder_of(dboms: Path, ns: str) -> Path:
    """Return the folder of a namespace's DBOMs."""
    return dboms if ns == MAIN else dboms / ns


def owners(dboms: Path, path: Path) -> list[tuple[str, str]]:
    """Return the evaluations (`ns`, id) whose file that may be: a name with a number can mean two of them."""
    if not path.is_relative_to(dboms):
        return []
    ns = MAIN if path.parent == dboms else path.parent.name
    stem = path.name.removeprefix("dbom_").removesuffix(".json")
    # An evaluation id may itself end in a number after a dot, so both readings are possible.
    evaluation_id, _, number = stem.rpartition(".")
    return [(ns, stem), (ns, evaluation_id)] if number.isdigit() and evaluation_id else [(ns, stem)]


_IS_SIGNED: Final = ("instr(dbom, '\"dsse:') > 0", "strpos(dbom, '\"dsse:') > 0")
_HAVE: Final = "FROM battles WHERE ns = :ns AND battle_id = :battle_id AND dbom IS NOT NULL"


def _query(text: str) -> Query:
    """Return a query over the DBOMs of an evaluation, with each database's function to tell signed ones."""
    sqlite, postgres = (text.format(have=_HAVE, signed=signed) for signed in _IS_SIGNED)
    return sql(sqlite, postgres=postgres)


_NEWEST_SIGNED = _query("SELECT id, dbom, 1 {have} AND {signed} ORDER BY id DESC LIMIT 1")
_NEWEST = _query("SELECT id, dbom, 0 {have} ORDER BY id DESC LIMIT 1")
_EARLIER = _query(
    "SELECT id, CASE WHEN {signed} THEN 1 ELSE 0 END {have} AND id <> :newest AND id < :before"
    " ORDER BY id DESC LIMIT :limit"
)
_OF_EVALUATION = _query("SELECT id, dbom {have} ORDER BY id")
_TEXT = _query("SELECT dbom {have} AND id = :id")


class _Newest(NamedTuple):
    """The DBOM of an evaluation that has the plain name."""

    id: int
    text: str
    signed: int


def _newest(tx: Tx, ns: str, evaluation_id: str) -> _Newest | None:
    """Return the newest signed DBOM of an evaluation, or the newest if none is signed; None if its id names no file."""
    if not is_name(evaluation_id) or not is_name(ns):
        return None
    row = tx.one(_NEWEST_SIGNED, ns=ns, battle_id=evaluation_id) or tx.one(_NEWEST, ns=ns, battle_id=evaluation_id)
    return None if row is None else _Newest(*row)


def due(tx: Tx, ns: str, evaluation_id: str) -> list[DueFile]:
    """Return every file an evaluation should have, the one with the plain name first; none if its id names no file."""
    newest = _newest(tx, ns, evaluation_id)
    if newest is None:
        return []
    rows = tx.all(_OF_EVALUATION, ns=ns, battle_id=evaluation_id)
    earlier = [DueFile(name_of(evaluation_id, id), text) for id, text in rows if id != newest.id]
    return [DueFile(name_of(evaluation_id), newest.text), *earlier]


def is_due(tx: Tx, dboms: Path, path: Path) -> bool:
    """Whether a row says that this file should exist."""
    return any(_speaks_of(tx, ns, evaluation_id, path.name) for ns, evaluation_id in owners(dboms, path))


def _speaks_of(tx: Tx, ns: str, evaluation_id: str, name: str) -> bool:
    newest = _newest(tx, ns, evaluation_id)
    number = name.removesuffix(".json").rpartition(".")[2]
    if newest is None or name == name_of(evaluation_id):
        return newest is not None
    if not _ROW_ID.fullmatch(number) or int(number) == newest.id or name != name_of(evaluation_id, int(number)):
        return False
    return tx.one(_TEXT, ns=ns, battle_id=evaluation_id, id=int(number)) is not None


class DbomFolder:
    """The DBOM files of one store."""

    def __init__(self, database: Database, dboms: Path, locks: Path) -> None:
        self.dboms = dboms
        self._database = database
        self._locks = locks

    def publish(self, ns: str, evaluation_id: str, row_id: int | None = None) -> Path | None:
        """Write what is missing or out of date of an evaluation's files; return the path of its newest.

        With `row_id`, the row just added, only the last files are examined. It is passed because on a server it may
        become visible after rows with larger ids.
        """
        folder = folder_of(self.dboms, ns)
        with self._turn(_bucket(ns, evaluation_id)) as spare:
            newest = self._ask(partial(_newest, ns=ns, evaluation_id=evaluation_id))
            if newest is None:
                return None
            path = folder / name_of(evaluation_id)
            # A file that is right already is not written again: nothing to sync, nothing to lose.
            if _read(path) != newest.text.encode():
                self._write(path, newest.text, spare)
            for earlier in sorted(set(self._unfiled(ns, evaluation_id, newest, row_id))):
                row = self._ask(lambda tx, at=earlier: tx.one(_TEXT, ns=ns, battle_id=evaluation_id, id=at))  # type: ignore[misc]
                if row is not None:  # else it was erased just now
                    (text,) = row
                    self._write(folder / name_of(evaluation_id, earlier), text, spare)
        return path

    def _unfiled(self, ns: str, evaluation_id: str, newest: _Newest, added: int | None) -> Iterator[int]:
        """Yield the earlier rows without a file; if one was added, that one and those down to where none is missing."""
        folder = folder_of(self.dboms, ns)
        before = _MOST_ID
        if added is not None and added != newest.id:
            yield added
        about: dict[str, Any] = {"ns": ns, "battle_id": evaluation_id, "newest": newest.id, "limit": _FEW}
        while page := self._ask(lambda tx: tx.all(_EARLIER, **about, before=before)):  # noqa: B023
            for row_id, signed in page:
                if row_id > newest.id and signed >= newest.signed:  # newer than the newest: it came just now
                    continue
                if not (folder / name_of(evaluation_id, row_id)).exists():
                    yield row_id
                elif added is not None and signed == newest.signed:
                    return
            before = page[-1][0]

    def _write(self, path: Path, text: str, spare: Path) -> None:
        try:
            _write(path, text.encode(), spare)
        except HoldproofError:  # it may have been among those that were marked as filed
            with suppress(OSError):
                self._marked.unlink()
            raise

    def _ask(self, fn: Callable[[Tx], T]) -> T:
        result = self._database.peek(fn, _PEEK_S)
        return self._database.read(fn).result() if result is NOT_RUN else result

    @contextmanager
    def _turn(self, bucket: str) -> Iterator[Path]:
        """Hold the lock of an evaluation's bucket; gives the temporary file that only its holder writes."""
        try:
            lock = _open(os.path.join(self._locks, bucket), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise UnavailableError(f"cannot lock {self._locks}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.dboms / _SPARES / bucket
        finally:
            os.close(lock)

    # --- after a crash -------------------------------------------------------------------------------------------

    def repair(self, *, full: bool = False) -> "evaluations.Repaired":
        """Write missing files of rows since the last repair; with `full` of all rows, comparing every content."""
        # A restore changes the origin and an erasure renames files: both make the remembered position worthless.
        stand = self._database.read(lambda tx: f"{tree.state(tx).origin} {len(tx.all(_ERASURES))}").result()
        since, gaps = (0, []) if full else self._mark(stand)
        rows = self._database.read(lambda tx: [row for gap in gaps for row in tx.all(_AT, id=gap)]).result()
        looked = 0
        written: list[str] = []
        ids: set[int] = set()
        spaces: set[str] = set()
        for page in (rows, *self._pages(since)):
            looked += len(page)
            ids.update(id for id, _, _ in page)
            spaces.update(ns for _, ns, _ in page)
            written += self._mend(page, full)
        for ns in spaces:  # a file that exists may have been written by a process killed before its fsync
            _settle(folder_of(self.dboms, ns))
        last = max(ids, default=since)
        fresh = range(max(since + 1, last - _MOST_GAPS), last)
        self._remember(stand, max(last, since), sorted({*gaps, *fresh} - ids)[-_MOST_GAPS:])
        # Under each bucket's lock, so that no temporary file in use is removed.
        self._sweep()
        return evaluations.Repaired(looked, written, self._unaccounted() if full else [])

    def _mend(self, rows: Iterable[tuple[int, str, str]], full: bool) -> list[str]:
        """Write every file that is missing (with `full`: or differs); return the paths written."""
        written: list[str] = []
        for ns, evaluation_id in dict.fromkeys((ns, evaluation_id) for _, ns, evaluation_id in rows):
            if not self._lacking(ns, evaluation_id, full):
                continue
            with self._turn(_bucket(ns, evaluation_id)) as spare:
                for path, text in self._lacking(ns, evaluation_id, full):
                    self._write(path, text, spare)
                    written.append(str(path))
        return written

    def _lacking(self, ns: str, evaluation_id: str, full: bool) -> list[tuple[Path, str]]:
        folder = folder_of(self.dboms, ns)
        files = self._ask(partial(due, ns=ns, evaluation_id=evaluation_id))
        due_files = [(folder / file.name, file.text) for file in files]
        lacking = [(path, text) for path, text in due_files if _lacks(path, text if full else None)]
        if lacking and due_files[0] not in lacking and _lacks(*due_files[0]):
            return [due_files[0], *lacking]
        return lacking

    def _pages(self, after: int) -> Iterator[list[tuple[int, str, str]]]:
        while page := self._database.read(lambda tx: tx.all(_SINCE, after=after, limit=_PAGE)).result():  # noqa: B023
            yield [(id, ns, evaluation_id) for id, ns, evaluation_id in page]
            after, _, _ = page[-1]

    def _unaccounted(self) -> list[str]:
        """Return the files in the folder that no row accounts for; they are reported, never deleted."""
        named = {
            str(folder_of(self.dboms, ns) / file.name)
            for page in self._pages(0)
            for ns, evaluation_id in {(ns, evaluation_id) for _, ns, evaluation_id in page}
            for file in self._ask(partial(due, ns=ns, evaluation_id=evaluation_id))
        }
        return sorted(str(path) for path in self.dboms.rglob("dbom_*.json") if str(path) not in named)

    def _sweep(self) -> None:
        """Remove temporary files that a crash left behind: an erasure would not find their content."""
        for path in (self.dboms / _SPARES).glob(_BUCKET):
            with self._turn(path.name), suppress(FileNotFoundError):
                path.unlink()

    @property
    def _marked(self) -> Path:
        return self._locks / "filed.json"

    def _mark(self, stand: str) -> tuple[int, list[int]]:
        """Return up to which row files are complete, and the ids before it that may still be committed.

        Both start at nothing after a restore (another origin) or an erasure (which renames files).
        """
        try:
            mark = json.loads(self._marked.read_bytes())
            return (int(mark["filed"]), list(map(int, mark["gaps"]))) if mark["stand"] == stand else (0, [])
        except (OSError, ValueError, KeyError, TypeError):
            return 0, []

    def _remember(self, stand: str, filed: int, gaps: list[int]) -> None:
        if (filed, gaps) == self._mark(stand):
            return
        text = json.dumps({"stand": stand, "filed": filed, "gaps": gaps})
        _write(self._marked, text.encode(), self._locks / f".filed-{os.getpid()}-{threading.get_ident()}")


_ERASURES = sql("SELECT id FROM erasures")
_SINCE = sql("SELECT id, ns, battle_id FROM battles WHERE id > :after ORDER BY id LIMIT :limit")
_AT = sql("SELECT id, ns, battle_id FROM battles WHERE id = :id")


def _bucket(ns: str, evaluation_id: str) -> str:
    return sha256(f"{ns}/{evaluation_id}".encode()).hexdigest()[:2]


def _lacks(path: Path, text: str | None) -> bool:
    return not path.exists() if text is None else _read(path) != text.encode()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error.strerror}", path=str(path)) from error


def _write(path: Path, data: bytes, temporary: Path) -> None:
    """Put a complete file in place, durably; nobody else uses the temporary file at this time.

    If the folder cannot be synced the file is removed again: a file that exists is taken to be durable.
    """
    placed = False
    try:
        with os.fdopen(_open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _move(temporary, path)
        placed = True
        _syncing(path.parent).sync()
    except OSError as error:
        with suppress(OSError):  # on a full disk it takes up room
            (path if placed else temporary).unlink()
        kind = DiskFullError if error.errno in disk.FULL else UnavailableError
        raise kind(f"cannot write {path}: {error.strerror}", path=str(path)) from error


def _settle(folder: Path) -> None:
    """Make the names in a folder durable; a missing folder has none."""
    try:
        _syncing(folder).sync()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UnavailableError(f"cannot sync {folder}: {error.strerror}", path=str(folder)) from error


def _move(temporary: Path, path: Path) -> None:
    """Rename a file into its folder, which is made if it is missing."""
    try:
        os.replace(temporary, path)
    except FileNotFoundError:
        folders.make(path.parent)
        os.replace(temporary, path)


def _open(path: str, flags: int) -> int:
    """A file for the owner alone; its folder is made if it is missing."""
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        folders.make(os.path.dirname(path))
        return os.open(path, flags, 0o600)


class _Syncing:
    """Shares one fsync of a folder between all threads that wait for one.

    A caller that asked before an fsync began is served by it; one that asked later needs the next.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = threading.Condition()
        # Requests are numbered; an fsync covers every number given out before it began.
        self._asked = 0
        self._done = 0
        self._busy = False

    def sync(self) -> None:
        with self._turn:
            self._asked += 1
            mine = self._asked
            self._turn.wait_for(lambda: not self._busy or self._done >= mine)
            # Another thread's fsync began after we asked: it covers our write.
            if self._done >= mine:
                return
            self._busy = True
            covered = self._asked
        try:
            folders.sync(self._folder)
        except OSError:
            covered = 0
            raise
        finally:
            with self._turn:
                self._busy = False
                self._done = max(self._done, covered)
                self._turn.notify_all()


_syncing = lru_cache(maxsize=64)(_Syncing)


def of_store(context: Context) -> DbomFolder | None:
    """Return the folder of DBOM files; None for a store in memory."""
    if context.head_file is None:
        return None
    return DbomFolder(context.database, context.paths.dboms, context.paths.state / "dboms")


def repair(context: Context, *, full: bool = False) -> "Work[evaluations.Repaired]":
    """Write DBOM files that are missing after a crash; with `full` every one that is missing or differs."""
    folder = of_store(context)
    if folder is None:
        return evaluations.Repaired(0)
    return (yield from ask(Call(partial(folder.repair, full=full))))
