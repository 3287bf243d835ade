"""A process that moves a store and is gone, as by kill -9, at the given moment of it.

python -m tests.faults.mover SRC DST HOME MOMENT
"""

import os
import signal
import sys

from holdproof import sync


def main(src: str, dst: str, home: str, moment: str) -> None:
    left = [int(moment)]

    def tell(what: str, done: int, total: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sync.move(src, dst, home, progress=tell)


if __name__ == "__main__":
    main(*sys.argv[1:])
