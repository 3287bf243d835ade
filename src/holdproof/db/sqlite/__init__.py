"""SQLite through apsw: one writer thread with group commit, readers on WAL connections of their own, or all in memory.

Rules:
- `synchronous=FULL`: what was answered survives a power cut. `secure_delete=ON`: what was erased is gone for good.
- A file that is not ours, or was written by a newer Holdproof, is refused before a byte of it changes.
- Readers never block the writer nor wait for it. A read is stopped after `read_limit_s`, and a snapshot is given up
  after a few milliseconds, so the write-ahead log can always be recycled.
- Another process holding the file is waited for with jitter, up to `busy_s`; then a typed error.
"""

from holdproof.db.sqlite.backend import (
    check_file,
    check_structure,
    foreign_pages,
    open_sqlite,
    read_foreign_pages,
    reseal_file,
)
from holdproof.db.sqlite.files import APPLICATION_IDS, FORMAT, claim
from holdproof.db.sqlite.page_checksums import LITESTREAM, is_tolerated

__all__ = [
    "APPLICATION_IDS",
    "FORMAT",
    "LITESTREAM",
    "check_file",
    "check_structure",
    "claim",
    "foreign_pages",
    "is_tolerated",
    "open_sqlite",
    "read_foreign_pages",
    "reseal_file",
]
