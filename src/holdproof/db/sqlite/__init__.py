"""SQLite through apsw: one writer thread with group commit, readers on WAL connections of their own, or all in memory.

Rules:
- `synchronous=FULL`: what was answered survives a power cut. `secure_delete=ON`: what was erased is gone for good.
- A file that is not ours, or was written by a newer Holdproof, is refused before a byte of it changes.
- Readers never block the writer nor wait for it. A read is stopped after `read_limit_s`, and a snapshot is given up
  after a few milliseconds, so the write-ahead log can always be recycled.
- Another process holding the file is waited for with jitter, up to `busy_s`; then a typed error.
"""

from holdproof.db.sqlite.backend import check_file, open_sqlite
from holdproof.db.sqlite.files import APPLICATION_IDS, FORMAT, claim

__all__ = ["APPLICATION_IDS", "FORMAT", "check_file", "claim", "open_sqlite"]
