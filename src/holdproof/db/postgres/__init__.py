"""PostgreSQL through libpq's pipeline mode (psycopg's `pq`), on worker threads that each own a connection.

Rules:
- READ COMMITTED; guards are single conditional statements. SERIALIZABLE only for jobs that declare it.
- A statement that needs no answer waits for nobody: one wait for all of a group's statements, one for its commit.
- What was lost before its commit was sent is simply run again on a new connection. If the connection breaks during the
  commit, the commit mark written in the same transaction tells its fate; only if that cannot be read is it unknown.
- Leases and expiry use the server's time (`ServerClock`).
- Commits that notify wake waiters in every process (LISTEN/NOTIFY).
"""

from holdproof.db.postgres.backend import is_there, open_postgres

__all__ = ["is_there", "open_postgres"]
