"""The shipped suite for the two faces, on every backend of ours."""

from holdproof.testing import ExecutorSuite
from tests.conformance.backends import InMemory, OnPostgres, OnSqlite


class TestSqlite(OnSqlite, ExecutorSuite):
    pass


class TestMemory(InMemory, ExecutorSuite):
    pass


class TestPostgres(OnPostgres, ExecutorSuite):
    pass
