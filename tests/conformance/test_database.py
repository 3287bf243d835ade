"""The shipped suite for databases, on every backend of ours."""

from holdproof.testing import DatabaseSuite
from tests.conformance.backends import InMemory, OnPostgres, OnSqlite


class TestSqlite(OnSqlite, DatabaseSuite):
    pass


class TestMemory(InMemory, DatabaseSuite):
    pass


class TestPostgres(OnPostgres, DatabaseSuite):
    pass
