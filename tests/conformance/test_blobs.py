"""Blobs pass one suite wherever their rows and bytes lie."""

from holdproof.testing import BlobSuite
from tests.conformance.blobstores import PostgresFiles, Rows, SqliteFiles, SqliteIpfs, SqliteS3


class TestInMemory(Rows, BlobSuite): ...


class TestFilesOnSqlite(SqliteFiles, BlobSuite): ...


class TestFilesOnPostgres(PostgresFiles, BlobSuite): ...


class TestS3(SqliteS3, BlobSuite): ...


class TestIpfs(SqliteIpfs, BlobSuite): ...
