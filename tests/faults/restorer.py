"""A process that restores a store, or backs one up, and says how far it is; made to be killed.

python -m tests.faults.restorer restore|backup|rotate HOME PLACE
"""

import os
import sys

from holdproof import sync


def main(what: str, home: str, place: str) -> None:
    os.write(1, b"begin\n")
    if what == "restore":
        sync.restore(place, home)
    else:
        with sync.open(home) as store:
            if what == "backup":
                store.backup.create(place)
            else:
                store.backup.rotate(place, keep=2)
    os.write(1, b"done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
