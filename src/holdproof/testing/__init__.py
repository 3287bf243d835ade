"""Conformance suites for backends of your own, and a clock and randomness that tests control.

class TestMine(DatabaseSuite):
    def open(self, **options):
        return open_database(self.target, **options)
"""

from holdproof.testing.blobs import BlobSuite
from holdproof.testing.clocks import FrozenClock, SeededRandom
from holdproof.testing.database import DatabaseSuite
from holdproof.testing.executors import ExecutorSuite
from holdproof.testing.relational import RelationalSuite
from holdproof.testing.telemetry import TelemetrySuite

__all__ = [
    "BlobSuite",
    "DatabaseSuite",
    "ExecutorSuite",
    "FrozenClock",
    "RelationalSuite",
    "SeededRandom",
    "TelemetrySuite",
]
