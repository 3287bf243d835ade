"""A process that puts objects, takes snapshots, dumps images, takes archives over and collects garbage; to be killed.

python -m tests.faults.memory_writer HOME NAME
"""

import os
import sys
import threading

from holdproof import sync


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

        def archives() -> None:
            """Out to a file and back in: by force, since others write meanwhile."""
            path = f"{home}/{name}.car"
            while True:
                store.archive.export_car(path)
                os.write(1, f"archive {store.archive.import_car(path, force=True, ns='other').head}\n".encode())

        def garbage() -> None:
            while True:
                os.write(1, f"garbage {store.retention.gc().blocks}\n".encode())

        store.snapshots.create(name)
        threads = [threading.Thread(target=work, daemon=True) for work in (puts, snapshots, images, archives, garbage)]
        for thread in threads:
            thread.start()
        threads[0].join()


if __name__ == "__main__":
    _write(*sys.argv[1:3])
