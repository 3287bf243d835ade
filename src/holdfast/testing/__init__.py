"""Conformance suites others can run on their own backends, and clocks and randomness that stand still.

class TestMine(DatabaseSuite):
    def open(self, **options):
        return open_database(self.target, **options)
"""

from holdfast.testing.blobs import BlobSuite
from holdfast.testing.clocks import FrozenClock, SeededRandom
from holdfast.testing.database import DatabaseSuite
from holdfast.testing.faces import FaceSuite
from holdfast.testing.relational import RelationalSuite
from holdfast.testing.telemetry import TelemetrySuite

__all__ = [
    "BlobSuite",
    "DatabaseSuite",
    "FaceSuite",
    "FrozenClock",
    "RelationalSuite",
    "SeededRandom",
    "TelemetrySuite",
]
