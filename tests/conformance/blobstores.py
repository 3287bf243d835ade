"""Blob stores for the suites: which database their rows lie in, which place their bytes."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import IpfsNode, Seaweed
from holdproof.db import MEMORY, Database, open_database, sql
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.model.blobs import Blob
from holdproof.storage.blobs import Blobs, BlobStoreConfig, blob_rows, open_backend

_ALTER = sql("UPDATE blobs SET data = :data WHERE key = :key")


class Stores:
    """One database and one shelf for a test, in as many hands as it likes."""

    database: Database
    config: BlobStoreConfig

    def open(self) -> Blobs[AsyncExecutor]:
        return Blobs(AsyncExecutor(self.database), self.config)

    @property
    def blobs(self) -> Blobs[SyncExecutor]:
        return Blobs(SyncExecutor(self.database), self.config)

    def stat(self, key: str) -> Blob:
        blob = self.database.read(lambda tx: blob_rows.stat(tx, key)).result()
        assert blob is not None
        return blob

    def path(self, key: str) -> Path:
        """The file of a blob."""
        blob = self.stat(key)
        return Path(self.config.where(key, blob.place, blob.address))

    def alter(self, key: str) -> None:
        if self.stat(key).address is None:
            self.database.write(lambda tx: tx.execute(_ALTER, key=key, data=b"other", expect=1)).result()
            return
        with self.path(key).open("r+b") as file:
            file.seek(50_000)
            byte = file.read(1)
            file.seek(50_000)
            file.write(bytes([byte[0] ^ 1]))

    def lose(self, key: str) -> None:
        self.path(key).unlink()


class Rows(Stores):
    """In memory: everything in rows."""

    @pytest.fixture(autouse=True)
    def _place(self) -> Iterator[None]:
        self.database, self.config = open_database(MEMORY, space="membrane"), BlobStoreConfig()
        yield
        self.database.close()

    def alter(self, key: str) -> None:
        self.database.write(lambda tx: tx.execute(_ALTER, key=key, data=b"other", expect=1)).result()

    def lose(self, key: str) -> None:
        pytest.skip("a row has its bytes")


class SqliteFiles(Stores):
    """Rows in SQLite, files beside it."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> Iterator[None]:
        self.root = tmp_path / "blobs"
        self.database = open_database(tmp_path / "membrane.db", space="membrane")
        self.config = BlobStoreConfig(open_backend(self.root))
        yield
        self.database.close()


class PostgresFiles(Stores):
    """Rows in PostgreSQL, files in a folder."""

    @pytest.fixture(autouse=True)
    def _place(self, postgres_url: str, tmp_path: Path) -> Iterator[None]:
        self.root = tmp_path / "blobs"
        self.database = open_database(postgres_url, space="membrane")
        self.config = BlobStoreConfig(open_backend(self.root))
        yield
        self.database.close()


class SqliteS3(Stores):
    """Rows in SQLite, objects in a real S3 server."""

    @pytest.fixture(autouse=True)
    def _place(self, seaweed: Seaweed, tmp_path: Path) -> Iterator[None]:
        bucket = f"t{uuid.uuid4().hex[:12]}"
        self.database = open_database(tmp_path / "membrane.db", space="membrane")
        self.place = open_backend(f"s3://{bucket}/some/prefix", spools=tmp_path / "spools", **seaweed.options)
        self.config = BlobStoreConfig(self.place)
        yield
        self.database.close()

    def alter(self, key: str) -> None:
        blob = self.stat(key)
        if blob.address is None:
            super().alter(key)
            return
        with_other_bytes = self.place.stage(b"other" * (blob.size // 5))
        self.place.put_bytes(with_other_bytes, blob.address)

    def lose(self, key: str) -> None:
        address = self.stat(key).address
        assert address is not None
        self.place.remove(address)


class SqliteIpfs(Stores):
    """Rows in SQLite, content in a real IPFS node, which nobody can alter."""

    @pytest.fixture(autouse=True)
    def _place(self, ipfs_node: IpfsNode, tmp_path: Path) -> Iterator[None]:
        self.database = open_database(tmp_path / "membrane.db", space="membrane")
        self.config = BlobStoreConfig(open_backend(f"ipfs+{ipfs_node.url}", idle_s=60, spools=tmp_path / "spools"))
        yield
        shutil.rmtree(tmp_path / "spools", ignore_errors=True)
        self.database.close()

    def alter(self, key: str) -> None:
        if self.stat(key).address is not None:
            pytest.skip("an address is the hash of its content")
        super().alter(key)

    def lose(self, key: str) -> None:
        pytest.skip("a node alone cannot tell lost content from content it has yet to find")
