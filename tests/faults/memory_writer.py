"""A process that puts objects, takes snapshots and dumps images as fast as it can; made to be killed.

python -m tests.faults.memory_writer HOME NAME
"""

import os
import sys
import threading

from holdfast import sync


def _write(home: str, name: str) -> None:
    with sync.open(home) as store:

        def puts() -> None:
            number = 0
            while True:
                store.objects.put(f"{name}-{number}", type="t", content=number, meta={"seen": number})
                os.write(1, f"put {name}-{number}\n".encode())  # said only after it is durable, and said at once
                number += 1

        def snapshots() -> None:
            while True:
                os.write(1, f"snapshot {store.snapshots.create(name).cid}\n".encode())

        def images() -> None:
            while True:
                os.write(1, f"image {store.image.dump(author=name).head}\n".encode())

        threads = [threading.Thread(target=work, daemon=True) for work in (puts, snapshots, images)]
        for thread in threads:
            thread.start()
        threads[0].join()


if __name__ == "__main__":
    _write(*sys.argv[1:3])
