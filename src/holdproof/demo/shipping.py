"""The world outside of the store: a shop, its carrier, and the worker that ships parcels.

`python -m holdproof.demo.shipping HOME URL BOOK PARCEL` is that worker in a process of its own. It says `booked` once
the carrier has the parcel, and then waits to be killed before it can write that down.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdproof import sync
from holdproof.api.flow_block import OpenFlow
from holdproof.api.flow_functions import FlowFunction
from holdproof.executors import SyncExecutor

FLOW = "ship parcel"
LEASE_S = 1.0


class Shop:
    """A carrier with a book; a parcel that is in it already is not booked again."""

    def __init__(self, book: Path, then: Callable[[], None] = lambda: None) -> None:
        self._book = book
        self._then = then
        book.touch(mode=0o600)

    @property
    def booked(self) -> list[str]:
        """What really happened."""
        return self._book.read_text(encoding="utf-8").splitlines()

    def label(self, parcel: str) -> str:
        """Return a label for a parcel."""
        return f"label of {parcel}"

    def ship(self, parcel: str) -> str:
        """Have a parcel fetched."""
        # The carrier is idempotent by parcel: that is what makes `on_unknown="retry"` safe below.
        if parcel not in self.booked:
            with self._book.open("a", encoding="utf-8") as book:
                book.write(f"{parcel}\n")
        self._then()
        return f"{parcel} is on its way"

    def order(self, item: str, amount: int) -> dict[str, Any]:
        """Order something."""
        return {"item": item, "amount": amount, "ordered": True}


def register(store: sync.Holdproof, shop: Shop) -> FlowFunction[[str], str]:
    """Return the function that ships parcels, so that what one worker began any other can end."""

    @store.flow(name=FLOW, agent="shipper", lease_s=LEASE_S)
    def ship(flow: OpenFlow[SyncExecutor], parcel: str) -> str:
        flow.lock({f"parcel:{parcel}": 1})
        flow.step("print label", shop.label, parcel)
        return flow.step("book carrier", shop.ship, parcel, on_unknown="retry")

    return ship


def _die_here() -> None:
    # Unbuffered: the parent must read it before it kills this process.
    os.write(1, b"booked\n")
    time.sleep(3600)


def main(home: str, url: str, book: str, parcel: str) -> None:
    """Ship one parcel, and be killed in the middle of it."""
    with sync.open(home or None, url or None) as store:
        register(store, Shop(Path(book), _die_here))(parcel)


if __name__ == "__main__":
    main(*sys.argv[1:])
