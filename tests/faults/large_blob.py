"""A process that streams a large blob in and out and says how much memory that took at most.

python -m tests.faults.large_blob FOLDER MEBIBYTES
"""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from holdproof.db import open_database
from holdproof.executors import SyncExecutor
from holdproof.storage.blobs import Blobs, BlobStoreConfig, open_backend


def _pieces(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield number.to_bytes(4, "big") * (1 << 18)


def _used_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (10 if sys.platform == "darwin" else 0)


def main(folder: Path, count: int) -> None:
    database = open_database(folder / "membrane.db", space="membrane")
    blobs = Blobs(SyncExecutor(database), BlobStoreConfig(open_backend(folder / "blobs")))
    blobs.open_write("first", _pieces(2))
    before = _used_kib()
    blobs.open_write("large", _pieces(count))
    size = 0
    for piece in blobs.open_read("large"):
        size += len(piece)
    database.close()
    print(size, _used_kib() - before)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
