"""The shipped suite for the two faces, on every backend of ours."""

from holdproof.testing import FaceSuite
from tests.conformance.backends import InMemory, OnPostgres, OnSqlite


class TestSqlite(OnSqlite, FaceSuite):
    pass


class TestMemory(InMemory, FaceSuite):
    pass


class TestPostgres(OnPostgres, FaceSuite):
    pass
