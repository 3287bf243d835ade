"""Blobs and the bytes behind them: shared, removed, swept, checked, and never lost between two of these."""

import asyncio
import errno
import io
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors
from holdproof.db import MEMORY, Row, open_database, sql
from holdproof.db.sqlite.files import connect
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.model.blobs import BlobsSwept
from holdproof.model.verdicts import Verdict
from holdproof.storage.blobs import BlobBackend, Blobs, BlobStoreConfig, blob_rows, open_backend
from tests.conformance.blobstores import PostgresFiles, Rows, SqliteFiles, SqliteIpfs, SqliteS3, Stores

LARGE = bytes(range(256)) * 300
OTHER = LARGE[::-1]
NAME = f"{sha256(LARGE).hexdigest()}-{'ab' * 8}"

_OBJECTS = sql("SELECT place, address, doomed_at FROM blob_objects ORDER BY address")
_MOVE = sql("UPDATE blobs SET address = :address WHERE key = :key")
_ENTER = sql(
    "INSERT INTO blob_objects (place, address, sha256, born, stamp, put_at)"
    " VALUES ('files', :address, '', 'x', 'x', :now)"
)


class Meddler:
    """A place where something happens right after bytes were put to it, once."""

    def __init__(self, place: BlobBackend) -> None:
        self._place = place
        self.then: Callable[[], object] | None = None

    def put_bytes(self, *arguments: Any) -> str:
        address: str = self._place.put_bytes(*arguments)
        then, self.then = self.then, None
        if then is not None:
            then()
        return address

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)


class PlaceSuite(Stores):
    """Whatever lists its objects."""

    def listed(self) -> list[str]:
        [place] = self.config.backends.values()
        return sorted(address for page in place.list_older(0) for address in page)

    def objects(self) -> list[Row]:
        return self.database.read(lambda tx: tx.all(_OBJECTS)).result()

    def empty(self) -> None:
        assert (self.listed(), self.objects()) == ([], [])

    def meddle(self) -> Meddler:
        [place] = self.config.backends.values()
        meddler = Meddler(place)
        self.config = BlobStoreConfig(meddler)
        return meddler

    def sound(self) -> None:
        """Every blob is right, and nothing else is there."""
        assert self.blobs.check() == []
        used = {blob.address for key in self.blobs.list(limit=1_000) if (blob := self.stat(key)).address}
        assert set(self.listed()) == used

    def test_equal_bytes_lie_there_once_and_go_with_their_last_key(self) -> None:
        blobs = self.blobs
        assert blobs.put("a", LARGE) == blobs.put("b", LARGE) == blobs.open_write("c", [LARGE])
        assert len(self.listed()) == 1
        for key in ("a", "b"):
            assert blobs.delete(key)
            assert blobs.get("c") == LARGE
        blobs.put("c", b"small")
        self.empty()

    def test_replaced_bytes_are_removed_at_once(self) -> None:
        for data in (LARGE, OTHER, LARGE):
            self.blobs.put("k", data)
            assert len(self.listed()) == 1
        self.sound()

    def test_a_crash_between_bytes_and_row_leaves_garbage_that_a_sweep_removes(self) -> None:
        [place] = self.config.backends.values()
        name, _ = self.database.read(lambda tx: blob_rows.name(tx, place.kind, "0" * 64)).result()
        place.put_bytes(place.stage(LARGE), name)
        self.blobs.put("kept", OTHER)
        assert self.blobs.sweep() == BlobsSwept(0, 0), "it is young: somebody may be about to write its row"
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(1, 0)
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(0, 0)
        self.sound()

    def test_a_sweep_leaves_alone_what_another_database_has_at_the_same_place(self) -> None:
        with closing(open_database(MEMORY, space="membrane")) as database:
            others = Blobs(SyncExecutor(database), BlobStoreConfig(*self.config.backends.values()))
            others.put("theirs", LARGE)
            self.blobs.put("ours", OTHER)
            assert self.blobs.sweep(older_than_s=0) == others.sweep(older_than_s=0) == BlobsSwept(0, 0)
            assert (self.blobs.get("ours"), others.get("theirs")) == (OTHER, LARGE)

    def test_a_crash_between_row_and_removal_leaves_garbage_that_a_sweep_removes(self) -> None:
        self.blobs.put("k", LARGE)
        self.blobs.put("kept", OTHER)
        self.database.write(lambda tx: blob_rows.delete(tx, "k")).result()
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(1, 0)
        self.sound()
        self.database.write(lambda tx: blob_rows.claim(tx, "files", NAME, "00")).result()
        assert self.blobs.sweep() == BlobsSwept(0, 0)
        swept = self.blobs.sweep(older_than_s=0)
        assert swept == BlobsSwept(int("files" in self.config.backends), 0)

    def test_a_write_that_meets_a_sweep_ends_well(self) -> None:
        meddler = self.meddle()
        writes: tuple[Callable[[], str], ...] = (
            lambda: self.blobs.put("k", LARGE),
            lambda: self.blobs.open_write("k", [LARGE, OTHER] * 9),
        )
        for write in writes:
            meddler.then = lambda: self.blobs.sweep(older_than_s=0)
            write()
            assert meddler.then is None
            assert self.blobs.check() == []
            self.blobs.delete("k")
        self.blobs.sweep(older_than_s=0)
        assert self.listed() == []

    def test_a_stream_whose_temporary_file_is_swept_ends_well(self) -> None:
        def disturbed() -> Iterator[bytes]:
            yield LARGE * 20
            assert self.blobs.sweep(older_than_s=0).temporaries == 1
            yield OTHER

        self.blobs.put("kept", LARGE)
        self.blobs.open_write("k", disturbed())
        assert self.blobs.get("k") == LARGE * 20 + OTHER

    def test_a_write_that_shares_bytes_whose_last_key_is_deleted_ends_well(self) -> None:
        meddler = self.meddle()
        writes: tuple[Callable[[], str], ...] = (
            lambda: self.blobs.put("k", LARGE),
            lambda: self.blobs.open_write("k", [LARGE]),
        )
        for write in writes:
            self.blobs.put("last", LARGE)
            meddler.then = lambda: self.blobs.delete("last")
            write()
            assert self.blobs.get("k") == LARGE
            self.sound()
            self.blobs.delete("k")
        self.empty()

    def test_bytes_that_cannot_be_removed_now_are_left_to_a_sweep(self, monkeypatch: pytest.MonkeyPatch) -> None:
        [place] = self.config.backends.values()
        self.blobs.put("k", LARGE)
        with monkeypatch.context() as patch:
            patch.setattr(type(place), "remove", _unreachable)
            self.blobs.put("k", OTHER)
            self.blobs.put("l", LARGE)
            assert self.blobs.delete("l")
            assert self.blobs.sweep(older_than_s=0) == BlobsSwept(0, 0)
        assert self.blobs.get("k") == OTHER
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(2, 0)
        self.sound()

    @pytest.mark.parametrize("age", [-1, float("inf"), float("nan"), 1e12, "1", None])
    def test_an_age_that_is_none_is_refused(self, age: Any) -> None:
        with pytest.raises(errors.InvalidInputError):
            self.blobs.sweep(older_than_s=age)

    def test_a_sweep_takes_nothing_that_a_key_has(self) -> None:
        for number in range(5):
            self.blobs.put(f"k{number}", LARGE + bytes([number]))
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(0, 0)
        self.sound()
        with pytest.raises(errors.InvalidInputError):
            self.blobs.sweep(older_than_s=-1)

    def test_a_check_names_what_is_altered_and_what_is_missing(self) -> None:
        blobs, seen = self.blobs, list[int]()
        for key in ("sound", "altered", "missing", "small"):
            blobs.put(key, b"small" if key == "small" else LARGE + key.encode())
        assert blobs.check(progress=seen.append) == []
        assert seen == [4]
        for key in ("altered", "small"):
            self.alter(key)
        self.lose("missing")
        found = blobs.check()
        assert [(each.row, each.verdict, each.table) for each in found] == [
            ("altered", Verdict.TAMPERED, "blobs"),
            ("missing", Verdict.TAMPERED, "blobs"),
            ("small", Verdict.TAMPERED, "blobs"),
        ]
        assert "altered" in found[0].what
        assert "missing" in found[1].what


def _unreachable(*_: object) -> None:
    raise errors.UnreachableError("the line is dead")


class FileSuite(PlaceSuite):
    """Files, which are kept before equal ones are sought."""

    def test_bytes_that_are_put_again_mend_every_key_that_shares_them(self) -> None:
        self.blobs.put("a", LARGE)
        self.alter("a")
        self.blobs.put("b", LARGE)
        assert self.blobs.get("a") == LARGE
        assert len(self.listed()) == 1
        self.sound()


class TestFilesOnSqlite(SqliteFiles, FileSuite):
    def test_equal_bytes_that_come_at_once_lie_there_once(self) -> None:
        async def race() -> list[str]:
            blobs = Blobs(AsyncExecutor(self.database), self.config)
            return await asyncio.gather(*(blobs.put(f"k{number}", LARGE) for number in range(12)))

        assert len(set(asyncio.run(race()))) == len(self.listed()) == 1
        self.sound()

    def test_equal_bytes_are_found_without_a_walk_along_all_objects(self) -> None:
        file = Path(self.database.backend.facts()["path"])
        with closing(connect(file, busy_s=1)) as connection:
            [step] = connection.execute(f"EXPLAIN QUERY PLAN {blob_rows._SHARED.sqlite}", ("0" * 64, "files"))
        assert "(sha256=? AND place=?)" in str(step)


class TestFilesOnPostgres(PostgresFiles, FileSuite): ...


class TestS3(SqliteS3, PlaceSuite): ...


class TestIpfs(SqliteIpfs):
    """A node cannot say which pins are ours; the database can."""

    def objects(self) -> list[Row]:
        return self.database.read(lambda tx: tx.all(_OBJECTS)).result()

    def test_an_address_is_known_before_it_is_pinned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        [place] = self.config.backends.values()
        with monkeypatch.context() as patch:
            patch.setattr(type(place), "pin", _unreachable)
            with pytest.raises(errors.UnreachableError):
                self.blobs.put("k", LARGE)
        assert self.blobs.get("k") is None
        assert len(self.objects()) == 1
        assert self.blobs.sweep() == BlobsSwept(0, 0)
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(1, 0)
        assert self.objects() == []

    def test_equal_bytes_have_one_address_that_says_where_they_are(self) -> None:
        where = self.blobs.put("a", LARGE)
        assert where == self.blobs.open_write("b", [LARGE[:99], LARGE[99:]])
        assert where.startswith("ipfs://baf")
        assert len(self.objects()) == 1
        self.blobs.delete("a")
        assert self.blobs.get("b") == LARGE

    def test_a_node_that_is_down_is_a_typed_error_and_loses_nothing(self, tmp_path: Path) -> None:
        self.blobs.put("k", LARGE)
        down = BlobStoreConfig(open_backend("ipfs+http://127.0.0.1:9", spools=tmp_path))
        blobs = Blobs(SyncExecutor(self.database), down)
        for call in (lambda: blobs.put("k", OTHER), lambda: blobs.open_write("k", [OTHER]), lambda: blobs.get("k")):
            with pytest.raises(errors.UnreachableError):
                call()
        assert self.blobs.get("k") == LARGE
        assert list(tmp_path.glob(".holdproof-blob-*")) == []


# --- both faces ------------------------------------------------------------------------------------------------------


class TestSync(SqliteFiles):
    """The same verbs without await."""

    def test_a_stream_may_be_an_iterator_or_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "source").write_bytes(LARGE * 20)
        with (tmp_path / "source").open("rb") as file:
            for chunks in (iter([LARGE] * 20), [LARGE] * 20, (LARGE for _ in range(20)), file, io.BytesIO(LARGE * 20)):
                self.blobs.open_write("k", chunks)
                assert self.blobs.get("k") == b"".join(self.blobs.open_read("k")) == LARGE * 20
                self.blobs.delete("k")
        self.blobs.open_write("k", [bytearray(b"a"), memoryview(b"b"), b"c"])
        assert self.blobs.get("k") == b"abc"

    def test_a_plain_stream_may_be_given_to_the_async_face(self) -> None:
        async def act() -> None:
            await self.open().open_write("k", iter([LARGE, OTHER]))
            await self.open().open_write("l", io.BytesIO(LARGE + OTHER))

        asyncio.run(act())
        assert self.blobs.get("k") == self.blobs.get("l") == LARGE + OTHER

    def test_an_async_stream_is_refused_by_the_sync_face(self) -> None:
        async def stream() -> AsyncIterator[bytes]:
            yield LARGE

        with pytest.raises(errors.InvalidInputError):
            self.blobs.open_write("k", stream())
        assert self.blobs.list().items == []

    def test_what_is_known_of_a_blob(self) -> None:
        self.blobs.put("a", b"small", "text/plain")
        where = self.blobs.put("b", LARGE)
        small, large = self.blobs.stat("a"), self.blobs.stat("b")
        assert small is not None
        assert large is not None
        assert (small.size, small.content_type, small.place, small.address) == (5, "text/plain", "db", None)
        assert (large.size, large.sha256, large.place) == (len(LARGE), sha256(LARGE).hexdigest(), "files")
        assert Path(where).read_bytes() == LARGE
        assert self.blobs.stat("c") is None


# --- the folder ------------------------------------------------------------------------------------------------------


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write everywhere; be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


class TestFolder(SqliteFiles):
    def temporaries(self) -> list[Path]:
        return list((self.root / ".tmp").glob("*")) if self.root.exists() else []

    def test_no_key_writes_outside_the_root(self, tmp_path: Path) -> None:
        before = {path for path in tmp_path.rglob("*") if self.root not in path.parents and path != self.root}
        for key in ("a/b/c", "..a", "a..", "...", "%2e%2e/x", "~", "~root/x", "-rf", "file:x", "x.tmp", ".tmp/x"):
            where = Path(self.blobs.put(key, LARGE + key.encode()))
            assert self.root in where.parents
        after = {path for path in tmp_path.rglob("*") if self.root not in path.parents and path != self.root}
        assert after == before

    @pytest.mark.parametrize("address", ["../../secret", "/etc/hostname", "ab", NAME + "/../../x", ""])
    def test_a_row_that_was_tampered_with_leads_nowhere_else(self, tmp_path: Path, address: str) -> None:
        (tmp_path / "secret").write_bytes(LARGE)
        self.blobs.put("k", LARGE)
        self.database.write(
            lambda tx: (tx.execute(_ENTER, address=address, now=tx.now), tx.execute(_MOVE, key="k", address=address))
        ).result()
        with pytest.raises(errors.FormatError):
            self.blobs.get("k")
        assert self.blobs.delete("k")
        assert (tmp_path / "secret").read_bytes() == LARGE

    def test_files_and_folders_are_for_the_owner_only(self) -> None:
        path = Path(self.blobs.put("k", LARGE))
        assert [each.stat().st_mode & 0o777 for each in (path, path.parent, self.root)] == [0o600, 0o700, 0o700]

    def test_a_write_that_fails_leaves_no_temporary_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blobs.put("k", LARGE)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        for call in ("fsync", "replace"):
            with monkeypatch.context() as patch:
                patch.setattr(os, call, full)
                with pytest.raises(errors.DiskFullError):
                    self.blobs.open_write("k", [OTHER] * 20)
                with pytest.raises(errors.DiskFullError):
                    self.blobs.put("k", OTHER)
            assert self.temporaries() == []
        assert self.blobs.get("k") == LARGE
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(0, 0)

    def test_a_read_only_folder_is_a_typed_error_and_small_blobs_go_on(self) -> None:
        self.blobs.put("k", LARGE)
        for folder in (self.root, *self.root.iterdir()):
            folder.chmod(0o555)
        for parent in self.root.parents:  # nobody must be able to get here at all
            if not parent.stat().st_mode & stat.S_IXOTH:
                parent.chmod(0o755)
        self.path("k").chmod(0o444)
        with unprivileged():
            with pytest.raises(errors.ReadOnlyError):
                self.blobs.put("k", OTHER)
            with pytest.raises(errors.ReadOnlyError):
                self.blobs.open_write("l", [OTHER] * 9)
            self.blobs.put("small", b"small")
            assert (self.blobs.get("k"), self.blobs.get("small")) == (LARGE, b"small")
        for folder in (self.root, *self.root.iterdir()):
            folder.chmod(0o700)

    def test_a_folder_that_is_not_there_is_no_missing_blob(self) -> None:
        self.blobs.put("k", LARGE)
        self.root.rename(self.root.with_name("unmounted"))
        with pytest.raises(errors.UnavailableError, match="blobs"):
            self.blobs.get("k")
        [found] = self.blobs.check()
        assert found.verdict is Verdict.PENDING, "nothing says that it was altered"

    def test_a_file_in_the_place_of_the_folder_is_a_typed_error(self) -> None:
        self.root.write_bytes(b"")
        with pytest.raises(errors.UnavailableError):
            self.blobs.put("k", LARGE)
        assert self.blobs.list().items == []

    def test_temporary_files_of_a_crash_are_swept_once_they_are_old(self) -> None:
        self.blobs.put("k", LARGE)
        left = self.root / ".tmp" / ".holdproof-blob-left"
        left.write_bytes(LARGE)
        assert self.blobs.sweep() == BlobsSwept(0, 0)
        os.utime(left, (1, 1))
        assert self.blobs.sweep() == BlobsSwept(0, 1)
        assert self.temporaries() == []

    def test_strangers_in_the_folder_are_left_alone(self) -> None:
        self.blobs.put("k", LARGE)
        stranger = self.path("k").with_name("README")
        stranger.write_text("mine")
        (self.root / "notes").mkdir()
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(0, 0)
        assert stranger.exists()


class TestMoving(SqliteFiles):
    """A store that gets another place still has what lies at the old one."""

    def test_old_blobs_are_found_at_their_old_place(self, tmp_path: Path) -> None:
        self.blobs.put("old", LARGE)
        rows_only = Blobs(SyncExecutor(self.database), BlobStoreConfig())
        rows_only.put("new", OTHER)
        with pytest.raises(errors.ConfigError, match="files"):
            rows_only.get("old")
        assert (self.blobs.get("old"), self.blobs.get("new")) == (LARGE, OTHER)

    def test_what_no_place_is_called_is_refused(self) -> None:
        with pytest.raises(errors.ConfigError):
            open_backend("ftp://somewhere")
        with pytest.raises(errors.InvalidInputError):
            open_backend("folder", region="us-east-1")


class TestInMemory(Rows):
    def test_what_a_store_in_memory_keeps_can_be_read_back(self) -> None:
        self.blobs.put("k", LARGE)
        self.blobs.open_write("l", [LARGE] * 40)
        assert (self.blobs.get("k"), self.blobs.get("l")) == (LARGE, LARGE * 40)
        assert self.blobs.sweep(older_than_s=0) == BlobsSwept(0, 0)
