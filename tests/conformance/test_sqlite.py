"""What only SQLite files must do."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdproof import errors, sync
from holdproof.db import Database, Tx, open_database, sql
from holdproof.db.sqlite import APPLICATION_IDS, FORMAT, check_file, files, snapshot
from holdproof.db.sqlite import connection as writing
from holdproof.db.sqlite.files import WAL_SIZE_BYTES, connect
from holdproof.db.sqlite.page_checksums import checksums, unsealed_pages
from holdproof.db.tx import NOT_RUN
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.testing.schema import (
    ADD_ENTRY,
    COUNTERS,
    GET_COUNTER,
    GET_ENTRY,
    MIGRATIONS,
    SET_COUNTER,
    TAKE,
    add,
    entries,
    value,
)

_FOREIGN = """
import apsw, os, sys
connection = apsw.Connection(sys.argv[1])
connection.pragma("journal_mode", "wal")
connection.execute("CREATE TABLE theirs (n)")
connection.execute("INSERT INTO theirs VALUES (1)")
os._exit(0)  # as in a crash: the rows are in the log only
"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with closing(open_database(tmp_path / "kernel.db", migrations=MIGRATIONS)) as database:
        yield database


def _bytes(folder: Path) -> dict[str, str]:
    empty_log = (file for file in folder.iterdir() if file.name.endswith("-wal") and not file.stat().st_size)
    left_out = {file.name for file in empty_log} | {
        file.name for file in folder.iterdir() if file.name.endswith("-shm")
    }
    files = (file for file in folder.iterdir() if file.name not in left_out)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_foreign_database_with_a_live_log_is_left_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    subprocess.run([sys.executable, "-c", _FOREIGN, str(file)], check=True)
    before = _bytes(tmp_path)
    assert "theirs.db-wal" in before
    with pytest.raises(errors.ForeignFileError):
        open_database(file)
    assert _bytes(tmp_path) == before


def test_every_folder_made_is_for_the_owner_only(tmp_path: Path) -> None:
    open_database(tmp_path / "a" / "b" / "kernel.db", migrations=MIGRATIONS).close()
    assert [f"{folder.stat().st_mode & 0o777:o}" for folder in (tmp_path / "a", tmp_path / "a" / "b")] == ["700", "700"]


def test_a_statement_with_returning_needs_no_reader_of_its_rows(db: Database) -> None:
    def spend(tx: Tx) -> int:
        add(tx, "c", 9)
        tx.execute(TAKE, name="c", expect=1)
        tx.execute(TAKE, name="c")
        return tx.count(TAKE, name="c")

    assert db.write(spend).result() == 1
    assert db.read(lambda tx: value(tx, "c")).result() == 6


@pytest.mark.parametrize("bad", [object(), 2**63, "\ud800"], ids=["object", "too large", "surrogate"])
def test_a_value_no_column_takes_is_a_typed_error(db: Database, bad: Any) -> None:
    with pytest.raises(errors.InvalidInputError):
        db.write(lambda tx: tx.all(GET_COUNTER, name=bad)).result()


def test_many_runs_a_statement_with_returning_for_every_row(db: Database) -> None:
    db.write(lambda tx: [add(tx, name, 5) for name in "abc"]).result()
    db.write(lambda tx: tx.many(TAKE, [{"name": name} for name in "abc"])).result()
    assert db.read(lambda tx: [value(tx, name) for name in "abc"]).result() == [4, 4, 4]


# --- whose file it is ----------------------------------------------------------------------------------------------


def test_all_files_are_for_the_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with closing(open_database(tmp_path / "kernel.db", migrations=MIGRATIONS)):
            modes = {file.name: f"{file.stat().st_mode & 0o777:o}" for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("kernel.db", "kernel.db-wal", "kernel.db-shm"), "600")


def _connect(file: Path) -> apsw.Connection:
    """A connection of our own kind, which keeps page checksums."""
    return apsw.Connection(str(file), vfs=checksums())


def _database(file: Path, *statements: str, ours: bool = False) -> None:
    with closing(_connect(file) if ours else apsw.Connection(str(file))) as connection:
        for statement in statements:
            connection.execute(statement)


def _other_program(file: Path) -> None:
    _database(file, "CREATE TABLE theirs (n)", "INSERT INTO theirs VALUES (1)")


FOREIGN = {
    "a text": lambda file: file.write_text("dear diary, " * 500),
    "a short text": lambda file: file.write_text("hello"),
    "zeros": lambda file: file.write_bytes(bytes(8192)),
    "another program's": _other_program,
    "another program's, with its number": lambda file: _database(file, "PRAGMA application_id=7", "CREATE TABLE t (n)"),
    "another program's, still empty": lambda file: _database(file, "PRAGMA application_id=7", "VACUUM"),
    "our membrane": lambda file: open_database(file, space="membrane", migrations=[]).close(),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_what_is_not_ours_is_refused_and_left_byte_for_byte(tmp_path: Path, make: Any) -> None:
    file = tmp_path / "kernel.db"
    make(file)
    before = _bytes(tmp_path)
    for applying in (True, False):
        with pytest.raises(errors.ForeignFileError, match=r"kernel\.db"):
            open_database(file, migrate=applying)
        assert _bytes(tmp_path) == before


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernel.db").mkdir()
    with pytest.raises(errors.ForeignFileError):
        open_database(tmp_path / "kernel.db")
    assert list((tmp_path / "kernel.db").iterdir()) == []


@pytest.mark.parametrize("name", [b"h\xff", b"h\0"])
def test_a_name_that_sqlite_cannot_take_is_a_typed_error_and_nothing_is_made(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(errors.UnavailableError) as refused:
        open_database(tmp_path / os.fsdecode(name) / "kernel.db")
    str(refused.value).encode()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_while_it_is_open_is_not_read_as_an_empty_one(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "kernel.db")) as db:
        (tmp_path / "kernel.db").unlink()
        with pytest.raises(errors.UnavailableError):
            SyncExecutor(db).read(lambda tx: tx.all(sql("SELECT 1")))
        assert not (tmp_path / "kernel.db").exists()


def test_a_file_of_a_newer_format_is_refused_and_left_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "kernel.db"
    open_database(file, migrations=MIGRATIONS).close()
    _database(file, f"PRAGMA user_version={FORMAT + 1}", ours=True)
    before = _bytes(tmp_path)
    with pytest.raises(errors.NewerStoreError, match=f"format {FORMAT + 1}"):
        open_database(file, migrations=MIGRATIONS)
    assert _bytes(tmp_path) == before


def test_an_empty_file_becomes_ours_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "kernel.db"
    file.touch()
    open_database(file, migrations=MIGRATIONS).close()
    with closing(apsw.Connection(str(file))) as connection:
        assert connection.pragma("application_id") == APPLICATION_IDS["kernel"]
        assert connection.pragma("user_version") == FORMAT


_PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "secure_delete": 1,
    "trusted_schema": 0,
}


def test_two_that_make_one_file_at_once_both_write_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    first: list[apsw.Connection] = []

    def late(connection: apsw.Connection, path: Path) -> None:
        """The first one makes the file while the second has opened it, and nothing more."""
        monkeypatch.undo()
        first.append(connect(path, busy_s=1))
        files.configure(first[0], busy_s=1)
        first[0].execute("CREATE TABLE t (x); INSERT INTO t VALUES (1)").fetchall()
        format_file(connection, path)

    format_file = files._format
    monkeypatch.setattr(files, "_format", late)
    with closing(connect(path, busy_s=1)) as second, closing(first[0]):
        files.configure(second, busy_s=1)
        first[0].wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        # Nothing but this page is moved, and by the second.
        second.execute("UPDATE t SET x = 2").fetchall()
        second.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        assert [*unsealed_pages(path)] == []
    assert check_file(path) == []


@pytest.mark.parametrize(("name", "wanted"), _PRAGMAS.items(), ids=_PRAGMAS)
def test_the_writer_runs_with_the_settings_that_durability_rests_on(db: Database, name: str, wanted: Any) -> None:
    [worker] = db.backend.writer.workers
    connection: apsw.Connection = vars(worker)["connection"]._connection
    assert db.write(lambda _: connection.pragma(name)).result() == wanted


# --- the write-ahead log -------------------------------------------------------------------------------------------

_BODY = bytes(64 << 10)


def _bulk(db: Database, megabytes: int) -> None:
    """Write that much, in transactions of a quarter of a megabyte."""

    def some(tx: Tx) -> None:
        for _ in range(4):
            tx.execute(ADD_ENTRY, id=tx.new_id(), counter="c", amount=0, body=_BODY, data=None, at=tx.now)

    for _ in range(megabytes * 4):
        db.write(some).result()


def _wal(db: Database) -> int:
    size: int = db.backend.facts()["bytes"]["wal"]
    return size


def _snapshot(path: Path) -> apsw.Connection:
    """A reader in the middle of a long transaction."""
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM counters").fetchall()
    return connection


@pytest.mark.parametrize("name", ["kept.db", None])
def test_a_join_is_not_planned_anew_for_other_parameters(tmp_path: Path, name: str | None) -> None:
    with closing(connect(tmp_path / name if name else None, busy_s=1)) as connection:
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


def test_a_scan_paused_between_pages_does_not_keep_the_log_from_being_reset(db: Database, tmp_path: Path) -> None:
    db.write(lambda tx: [add(tx, f"c{n:03}") for n in range(30)]).result()
    rows = SyncExecutor(db).scan(COUNTERS, by=lambda row: row[0], after="", page=10)
    assert next(rows)[0] == "c000"
    db.write(lambda tx: tx.execute(SET_COUNTER, name="c000", value=1)).result()
    with closing(_connect(tmp_path / "kernel.db")) as other:
        assert other.pragma("journal_mode") == "wal"
        other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # BusyError if anybody still read an old page
    assert _wal(db) == 0
    assert len(list(rows)) == 29


def test_the_log_stays_bounded_under_sustained_writes(db: Database) -> None:
    db.write(lambda tx: add(tx, "c")).result()
    sizes = []
    for _ in range(6):
        _bulk(db, 4)
        sizes.append(_wal(db))
    assert max(sizes) < WAL_SIZE_BYTES


def test_the_log_comes_back_under_its_bound_once_a_long_reader_has_ended(db: Database, tmp_path: Path) -> None:
    db.write(lambda tx: add(tx, "c")).result()
    with closing(_snapshot(tmp_path / "kernel.db")):
        _bulk(db, 20)
        assert _wal(db) > WAL_SIZE_BYTES, "the reader's snapshot needs what came before"
    _bulk(db, 1)
    assert _wal(db) <= WAL_SIZE_BYTES


def test_a_log_that_has_grown_large_is_cut_to_nothing(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_WAL_LIMIT_PAGES", 1_200)
    db.write(lambda tx: add(tx, "c")).result()
    with closing(_snapshot(tmp_path / "kernel.db")):
        _bulk(db, 5)
        assert _wal(db) > 1_200 * 4096
        assert db.write(entries).result() == 80, "writers go on beside the reader"
    db.write(lambda tx: tx.execute(SET_COUNTER, name="c", value=1)).result()
    db.write(lambda tx: tx.execute(SET_COUNTER, name="c", value=2)).result()
    assert _wal(db) < 100_000


# --- patience ------------------------------------------------------------------------------------------------------

_COUNT = sql("WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT :most) SELECT count(*) FROM n")
_ENDLESS = sql("WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n")


def test_emptying_the_log_waits_while_another_connection_moves_it(db: Database, tmp_path: Path) -> None:
    db.write(lambda tx: add(tx, "c")).result()
    path = tmp_path / "kernel.db"
    with (
        closing(connect(path, busy_s=0, create=False)) as reader,
        closing(connect(path, busy_s=0, create=False)) as mover,
    ):
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        moves = threading.Event()
        reader_ended = threading.Event()

        def wait_for_reader(_tries: int) -> bool:
            moves.set()
            return reader_ended.wait(30)

        db.write(lambda tx: add(tx, "d")).result()  # the reader does not see this one: the log cannot be reset under it
        mover.set_busy_handler(wait_for_reader)
        moving = threading.Thread(target=mover.wal_checkpoint, kwargs={"mode": apsw.SQLITE_CHECKPOINT_RESTART})
        moving.start()
        assert moves.wait(30)
        outcomes: list[bool] = []
        folding = threading.Thread(target=lambda: outcomes.append(snapshot.fold(path, busy_s=30)))
        folding.start()
        folding.join(0.3)  # long enough to be refused
        reader.execute("COMMIT")
        reader_ended.set()
        folding.join()
        moving.join()
    assert outcomes == [True]
    assert (tmp_path / "kernel.db-wal").stat().st_size == 0


def test_a_read_over_its_limit_is_stopped_and_the_reader_lives_on(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "kernel.db", migrations=MIGRATIONS, read_limit_s=0.05, readers=1)) as db:
        db.write(lambda tx: add(tx, "c", 5)).result()
        endless, beside = db.read(lambda tx: tx.all(_ENDLESS)), db.read(lambda tx: value(tx, "c"))
        assert isinstance(endless.exception(30), errors.ReadLimitError)
        assert beside.result(30) == 5
        assert db.read(lambda tx: value(tx, "c")).result(30) == 5


def test_a_read_that_swallows_its_limit_fails_with_it_all_the_same(tmp_path: Path) -> None:
    def stubborn(tx: Tx) -> str:
        try:
            tx.all(_ENDLESS)
        except errors.ReadLimitError:
            return "never mind"
        return "no error"

    with (
        closing(open_database(tmp_path / "kernel.db", migrations=MIGRATIONS, read_limit_s=0.05)) as db,
        pytest.raises(errors.ReadLimitError),
    ):
        db.read(stubborn).result(30)


@pytest.fixture
def locker(tmp_path: Path) -> Iterator[apsw.Connection]:
    """Another program's connection to the same file, made before the store is opened."""
    open_database(tmp_path / "kernel.db", migrations=MIGRATIONS).close()
    with closing(apsw.Connection(str(tmp_path / "kernel.db"))) as connection:
        yield connection


def test_a_file_locked_for_too_long_is_a_busy_error_and_nothing_else(tmp_path: Path, locker: apsw.Connection) -> None:
    with closing(open_database(tmp_path / "kernel.db", migrations=MIGRATIONS, busy_s=0.05)) as db:
        locker.execute("BEGIN IMMEDIATE")
        futures = [db.write(lambda tx: add(tx, "lost")) for _ in range(3)]
        assert [type(future.exception(30)) for future in futures] == [errors.BusyError] * 3
        assert db.read(lambda tx: value(tx, "lost")).result() is None, "reads do not wait for anybody"
        locker.execute("ROLLBACK")
        assert db.write(lambda tx: add(tx, "kept")).result(30) == "kept"


def test_a_lock_released_in_time_is_never_heard_of(tmp_path: Path, locker: apsw.Connection) -> None:
    with closing(open_database(tmp_path / "kernel.db", migrations=MIGRATIONS, busy_s=60)) as db:
        locker.execute("BEGIN IMMEDIATE")
        future = db.write(lambda tx: add(tx, "kept"))
        assert wait([future], 0.1).not_done
        locker.execute("ROLLBACK")
        assert future.result(30) == "kept"


def test_a_new_file_locked_by_another_is_a_busy_error_when_opened(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "kernel.db"))) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(errors.BusyError):
            open_database(tmp_path / "kernel.db", migrations=MIGRATIONS, busy_s=0.05)
        other.execute("ROLLBACK")
    open_database(tmp_path / "kernel.db", migrations=MIGRATIONS).close()


# --- a full disk ---------------------------------------------------------------------------------------------------

# Files cannot grow past the limit, as on a full disk, until it is lifted; no acknowledgement may be taken back.
_FULL = """
import json, resource, sys
from holdproof import errors
from holdproof.db import open_database
from holdproof.testing.schema import ADD_ENTRY, MIGRATIONS, add

db = open_database(sys.argv[1], migrations=MIGRATIONS)
db.write(lambda tx: add(tx, "c")).result()

def put(tx):
    entry = tx.new_id()
    tx.execute(ADD_ENTRY, id=entry, counter="c", amount=0, body=bytes(9000), data=None, at=tx.now, expect=1)
    return entry

hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
kept, failed = [], []
while len(failed) < 5:
    for future in [db.write(put) for _ in range(7)]:
        error = future.exception()
        if error is None:
            kept.append(future.result())
        else:
            assert isinstance(error, errors.DiskFullError | errors.UnavailableError), repr(error)
            failed.append(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
kept.append(db.write(put).result())
db.close()
print(json.dumps({"kept": kept, "failed": failed}))
"""


def test_a_full_disk_is_a_typed_error_and_everything_acknowledged_is_intact(tmp_path: Path) -> None:
    target = tmp_path / "kernel.db"
    done = subprocess.run([sys.executable, "-c", _FULL, str(target)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["kept"]) > 5
    with closing(open_database(target, migrations=MIGRATIONS)) as db:
        found = db.read(lambda tx: [key for key in said["kept"] if tx.one(GET_ENTRY, id=key)]).result()
        assert found == said["kept"]
        assert db.read(entries).result() == len(found), "nothing that was refused"
        assert db.backend.check() == []


# --- what is erased, what is damaged -------------------------------------------------------------------------------

_DELETE = sql("DELETE FROM entries WHERE id = :id")
_MARKER = "the secret ingredient is cardamom"


def _put(tx: Tx, entry: str, data: str) -> None:
    tx.execute(ADD_ENTRY, id=entry, counter="c", amount=0, body=b"", data=data, at=tx.now, expect=1)


def _marked(path: Path) -> None:
    """A closed store with one entry that holds the marker, between others."""
    with closing(open_database(path, migrations=MIGRATIONS)) as db:
        db.write(lambda tx: add(tx, "c")).result()
        for name, data in (("a", "{}"), ("marked", json.dumps({"note": _MARKER})), ("z", "{}")):
            db.write(partial(_put, entry=name, data=data)).result()


def test_deleted_content_is_gone_from_the_file_once_it_is_closed(tmp_path: Path) -> None:
    target = tmp_path / "kernel.db"
    _marked(target)
    assert _MARKER.encode() in target.read_bytes()
    with closing(open_database(target, migrations=MIGRATIONS)) as db:
        SyncExecutor(db).read(lambda tx: tx.one(GET_ENTRY, id="marked"))
        db.write(lambda tx: tx.execute(_DELETE, id="marked", expect=1)).result()
    assert [file.name for file in tmp_path.iterdir()] == ["kernel.db"], "no log is left behind"
    assert _MARKER.encode() not in target.read_bytes()


def _damage(path: Path) -> int:
    """Flip one bit inside the marker; the number of its page."""
    data = bytearray(path.read_bytes())
    at = data.index(_MARKER.encode())
    data[at + 4] ^= 1
    path.write_bytes(data)
    return at // 4096 + 1


def test_a_flipped_bit_inside_a_text_is_a_corrupt_error_where_it_is_read(tmp_path: Path) -> None:
    target = tmp_path / "kernel.db"
    _marked(target)
    _damage(target)
    with closing(open_database(target, migrations=MIGRATIONS)) as db:
        for _ in range(2):
            with pytest.raises(errors.CorruptError):
                db.read(lambda tx: tx.one(GET_ENTRY, id="marked")).result()
        with pytest.raises(errors.CorruptError):
            db.write(lambda tx: tx.one(GET_ENTRY, id="marked")).result()
        assert db.read(lambda tx: value(tx, "c")).result() == 0, "what is sound can still be read"


def test_a_flipped_bit_is_a_corrupt_error_for_a_read_on_the_callers_thread_too(tmp_path: Path) -> None:
    target = tmp_path / "kernel.db"
    _marked(target)
    _damage(target)
    with closing(open_database(target, migrations=MIGRATIONS)) as db:
        for _ in range(2):
            with pytest.raises(errors.CorruptError):
                SyncExecutor(db).read(lambda tx: tx.one(GET_ENTRY, id="marked"))
        assert SyncExecutor(db).read(lambda tx: value(tx, "c")) == 0


def test_a_flipped_bit_that_sqlite_itself_cannot_see_is_named_by_the_check(tmp_path: Path) -> None:
    target = tmp_path / "kernel.db"
    _marked(target)
    page = _damage(target)
    with closing(apsw.Connection(str(target))) as plain:
        assert plain.pragma("integrity_check") == "ok"
    assert check_file(target) == [f"page {page} is damaged or was written by another program (table entries)"]


def test_the_check_of_a_whole_store_names_the_damaged_page(tmp_path: Path) -> None:
    with sync.open(home=tmp_path) as store:
        path = store.core.paths.kernel_db
        store.write(lambda tx: tx.execute(_FACT, key="note", value=_MARKER, now=tx.now))
    assert sync.check(home=tmp_path).ok
    page = _damage(path)
    assert sync.check(home=tmp_path).findings == [
        f"page {page} is damaged or was written by another program (table store_facts)"
    ]


_FACT = sql("INSERT INTO store_facts (key, value, updated_at) VALUES (:key, :value, :now)")


# --- reads on the caller's own thread ------------------------------------------------------------------------------


def test_a_read_over_the_callers_budget_gets_the_same_answer_from_the_reader(db: Database) -> None:
    def long(tx: Tx) -> int:
        [(count,)] = tx.all(_COUNT, most=400_000)
        return int(count)

    assert db.peek(long, 0.0) is NOT_RUN
    assert db.peek(long, 60) == 400_000
    assert SyncExecutor(db).read(long) == 400_000

    async def ask() -> int:
        return await AsyncExecutor(db).read(long)

    assert asyncio.run(ask()) == 400_000
    assert db.peek(lambda tx: value(tx, "c"), 60) is None, "the connection is as good as before"


def test_a_read_on_the_callers_thread_cannot_write(db: Database) -> None:
    with pytest.raises(errors.ReadOnlyError):
        db.peek(lambda tx: add(tx, "c"), 60)
    assert db.peek(lambda tx: value(tx, "c"), 60) is None


def test_more_callers_than_spare_connections_are_all_served(db: Database) -> None:
    db.write(lambda tx: add(tx, "c", 7)).result()
    inside, go, seen = threading.Semaphore(0), threading.Event(), list[Any]()

    def hold(tx: Tx) -> int | None:
        inside.release()
        go.wait(30)
        return value(tx, "c")

    threads = [threading.Thread(target=lambda: seen.append(db.peek(hold, 60))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert inside.acquire(timeout=30)
    assert db.peek(lambda tx: value(tx, "c"), 60) is NOT_RUN, "every spare connection is in use"
    assert SyncExecutor(db).read(lambda tx: value(tx, "c")) == 7
    go.set()
    for thread in threads:
        thread.join(30)
    assert seen == [7] * 8
    assert db.peek(lambda tx: value(tx, "c"), 60) == 7


def test_after_the_close_a_read_is_refused_as_closed(db: Database) -> None:
    assert SyncExecutor(db).read(lambda tx: value(tx, "c")) is None
    db.close()
    assert db.peek(lambda tx: value(tx, "c"), 60) is NOT_RUN
    with pytest.raises(errors.ClosedError):
        SyncExecutor(db).read(lambda tx: value(tx, "c"))

    async def ask() -> None:
        await AsyncExecutor(db).read(lambda tx: value(tx, "c"))

    with pytest.raises(errors.ClosedError):
        asyncio.run(ask())


def test_a_read_in_the_middle_of_which_the_store_is_closed_is_still_answered(db: Database, tmp_path: Path) -> None:
    def closing_midway(tx: Tx) -> int | None:
        db.close()
        return value(tx, "c")

    assert db.peek(closing_midway, 60) is None
    assert [file.name for file in tmp_path.iterdir()] == ["kernel.db"], "its connection was closed after it"


def test_a_file_that_cannot_be_looked_at_is_a_typed_error(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "kernel.db", space="kernel")) as db:
        (tmp_path / "kernel.db").rename(tmp_path / "elsewhere")
        with pytest.raises(errors.UnavailableError, match="cannot read"):
            db.backend.facts()
        (tmp_path / "elsewhere").rename(tmp_path / "kernel.db")
        assert db.backend.facts()["checksums"]


@pytest.mark.parametrize(("code", "kind"), [(5, errors.UnavailableError), (28, errors.DiskFullError)])
def test_a_copy_that_cannot_be_synced_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[errors.HoldproofError]
) -> None:
    open_database(tmp_path / "kernel.db", space="kernel").close()

    def fail(handle: int) -> None:
        raise OSError(code, "failing", handle)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind):
        snapshot.flatten(tmp_path / "kernel.db")
