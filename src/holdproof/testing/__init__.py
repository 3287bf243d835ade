"""Conformance suites others can run on their own backends, and clocks and randomness that stand still.

class TestMine(DatabaseSuite):
    def open(self, **options):
        return open_database(self.target, **options)
"""

from holdproof.testing.blobs import BlobSuite
from holdproof.testing.clocks import FrozenClock, SeededRandom
from holdproof.testing.database import DatabaseSuite
from holdproof.testing.executors import FaceSuite
from holdproof.testing.relational import RelationalSuite
from holdproof.testing.telemetry import TelemetrySuite

__all__ = [
    "BlobSuite",
    "DatabaseSuite",
    "FaceSuite",
    "FrozenClock",
    "RelationalSuite",
    "SeededRandom",
    "TelemetrySuite",
]
