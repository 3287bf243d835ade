"""Defaults that signatures show: apart, so that naming one does not import what works with it."""

from typing import Final

IDLE_S: Final = 5.0
"""How long a transaction of application tables may be without a statement."""
TOTAL_S: Final = 60.0
"""How long such a transaction may last altogether."""
LEASE_S: Final = 30.0
"""How long a worker holds a flow between two heartbeats."""
CONCURRENCY: Final = 8
"""How many flows a worker runs at the same time."""
