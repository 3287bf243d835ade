"""The rows of blobs: functions of a transaction.

Rules:
- A row is written after its bytes are durable, and it names an object only together with a new stamp of that object.
- An object is doomed before its bytes are removed: in one statement, only if it still has the stamp it had before the
  look for keys, and only if there is no key. So a writer that enters a key, on any machine, is noticed or refused.
- A doomed object is never named again. Once its bytes are removed its row is deleted: an existing name is reused
  only if it is still the same object (`born`), a new name only if nobody doomed it meanwhile.
- Bytes with our mark but without an object (a crash came between) are doomed by entering them as doomed, and stay so
  for an hour, for the writer that may have been about to enter them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdproof.db import Row, Tx, sql
from holdproof.model.blobs import Blob
from holdproof.storage.blobs.bodies import Body

DB: Final = "db"
FORGOTTEN: Final = "blobs:forgotten"
_HASH_DIGITS: Final = 64
BlobWithData = tuple[Blob, bytes | None]
"""A blob, and its bytes if they are in the row."""
Object = tuple[str, str]
"""Place and address."""
Change = tuple[bool, Object | None]
"""Whether a row was changed, and the object it had before if that is doomed now."""

_FIND = sql("SELECT key, size, sha256, content_type, place, address, put_at, data FROM blobs WHERE key = :key")


def find(tx: Tx, key: str) -> BlobWithData | None:
    """Read a blob, and its bytes if they are in the row; None if there is no such key."""
    row = tx.one(_FIND, key=key)
    return None if row is None else _with_data(row)


def _with_data(row: Row) -> BlobWithData:
    *columns, data = row
    return Blob(*columns), data


_STAT = sql("SELECT key, size, sha256, content_type, place, address, put_at FROM blobs WHERE key = :key")


def stat(tx: Tx, key: str) -> Blob | None:
    """Read the row of a blob without its bytes; None if there is no such key."""
    row = tx.one(_STAT, key=key)
    return None if row is None else Blob(*row)


# One bound alone: of two SQLite begins at the first of them, and walks all keys up to the other.
_KEYS = sql("SELECT key FROM blobs WHERE key >= :start AND key <> :after ORDER BY key LIMIT :limit")


def keys(tx: Tx, after: str, prefix: str, limit: int) -> list[str]:
    """Read keys after a key and from a prefix on, in code point order."""
    return [key for (key,) in tx.all(_KEYS, start=max(after, prefix), after=after, limit=limit)]


_STATS = sql(
    "SELECT key, size, sha256, content_type, place, address, put_at FROM blobs"
    " WHERE key >= :start AND key <> :after ORDER BY key LIMIT :limit"
)


def stats(tx: Tx, after: str, prefix: str, limit: int) -> list[Blob]:
    """Read the rows of blobs after a key and from a prefix on, without their bytes."""
    return [Blob(*row) for row in tx.all(_STATS, start=max(after, prefix), after=after, limit=limit)]


_PAGE = sql(
    "SELECT key, size, sha256, content_type, place, address, put_at, data FROM blobs"
    " WHERE key > :after ORDER BY key LIMIT :limit"
)


def page(tx: Tx, after: str, limit: int) -> list[BlobWithData]:
    """Read blobs after a key, with the bytes that are in their rows."""
    return [_with_data(row) for row in tx.all(_PAGE, after=after, limit=limit)]


_HAS = sql("SELECT place, address FROM blobs WHERE key = :key AND address IS NOT NULL")
_ENTER = sql(
    "INSERT INTO blobs (key, size, sha256, content_type, place, address, put_at, data, subject)"
    " VALUES (:key, :size, :sha256, :content_type, :place, :address, :put_at, :data, :subject)"
    " ON CONFLICT (key) DO UPDATE SET size = excluded.size, sha256 = excluded.sha256,"
    " content_type = excluded.content_type, place = excluded.place, address = excluded.address,"
    " put_at = excluded.put_at, data = excluded.data, subject = excluded.subject"
)


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Where the bytes of a row are stored.

    `born` is the object's stamp if it existed before; `sole` says that no other object may have the same bytes.
    """

    place: str = DB
    address: str | None = None
    born: str | None = None
    sole: bool = False

    def retain(self, tx: Tx, sha256: str) -> bool:
        """Protect them from removal; False if they are doomed, or not the only ones though they must be."""
        if self.address is None:
            return True
        # Bytes that were uploaded without looking for equal ones: if there are some, the caller shares those instead.
        if self.sole and tx.one(_SHARED, sha256=sha256, place=self.place) is not None:
            return False
        if self.born is None:
            return claim(tx, self.place, self.address, sha256) is not None
        return retain(tx, self.place, self.address, self.born)


def enter(
    tx: Tx, key: str, body: Body, content_type: str | None, stored: StoredBytes, *, subject: str | None = None
) -> Change:
    """Write the row of a key, with the handle of its subject; change nothing if `retain` fails."""
    if not stored.retain(tx, body.sha256):
        return False, None
    # Read before the upsert: afterwards nobody knows which object the key had.
    before = tx.one(_HAS, key=key)
    tx.execute(
        _ENTER,
        key=key,
        size=body.size,
        sha256=body.sha256,
        content_type=content_type,
        place=stored.place,
        address=stored.address,
        put_at=tx.now,
        data=body.data if stored.address is None else None,
        subject=subject,
    )
    return True, _doomed(tx, before)


_DELETE = sql("DELETE FROM blobs WHERE key = :key RETURNING place, address")


def delete(tx: Tx, key: str) -> Change:
    """Delete a key."""
    row = tx.one(_DELETE, key=key)
    return row is not None, _doomed(tx, row)


_LABELLED = sql("SELECT key FROM blobs WHERE subject = :handle LIMIT :limit")


def delete_labelled(tx: Tx, handle: str, limit: int) -> int:
    """Delete keys of a subject and doom their objects; return how many were deleted."""
    labelled = tx.all(_LABELLED, handle=handle, limit=limit)
    # What was deleted, not what was found: a trigger that somebody added to the file may keep rows.
    return sum(existed for existed, _ in [delete(tx, key) for (key,) in labelled])


def _doomed(tx: Tx, before: Row | None) -> Object | None:
    """Doom the object that a row had; return it if that succeeded."""
    if before is None:
        return None
    place, address = before
    if address is None or not doom(tx, place, address):
        return None
    return place, address


# --- objects -----------------------------------------------------------------------------------------------------

_SHARED = sql(
    "SELECT address, born FROM blob_objects WHERE sha256 = :sha256 AND place = :place AND doomed_at IS NULL"
    " ORDER BY address LIMIT 1"
)


def name(tx: Tx, place: str, sha256: str) -> tuple[str, str | None]:
    """The name of an object with these bytes and when it was born; else a new name and None."""
    row = tx.one(_SHARED, sha256=sha256, place=place)
    if row is None:
        [ending] = endings(tx, 1)
        return f"{sha256}-{ending}", None
    address, born = row
    return address, born


def endings(tx: Tx, count: int) -> list[str]:
    """Endings that make a hash a new name: our mark, and random digits."""
    ours = mark(tx)
    return [f"{ours}{tx.random(4).hex()}" for _ in range(count)]


_MARK = sql("SELECT mark FROM blob_facts WHERE one = 1")


def mark(tx: Tx) -> str:
    """What follows the hash in names of this database's objects: another database may use the same backend."""
    [(text,)] = tx.all(_MARK)
    return str(text)


# The WHERE makes a doomed object return no row: it must not come to life again while its bytes are being removed.
_CLAIM = sql(
    "INSERT INTO blob_objects (place, address, sha256, born, stamp, put_at)"
    " VALUES (:place, :address, :sha256, :stamp, :stamp, :now)"
    " ON CONFLICT (place, address) DO UPDATE SET stamp = excluded.stamp, put_at = excluded.put_at"
    " WHERE blob_objects.doomed_at IS NULL RETURNING born"
)


def claim(tx: Tx, place: str, address: str, sha256: str) -> str | None:
    """Enter an object or give it a new stamp; return its birth stamp, or None if it is doomed."""
    row = tx.one(_CLAIM, place=place, address=address, sha256=sha256, stamp=tx.new_id(), now=tx.now)
    if row is None:
        return None
    (born,) = row
    return str(born)


_RETAIN = sql(
    "UPDATE blob_objects SET stamp = :stamp, put_at = :now WHERE place = :place AND address = :address"
    " AND born = :born AND doomed_at IS NULL"
)


def retain(tx: Tx, place: str, address: str, born: str) -> bool:
    """Give an object a new stamp, if it is still the one that was claimed."""
    return tx.count(_RETAIN, place=place, address=address, born=born, stamp=tx.new_id(), now=tx.now) == 1


_STAMP = sql("SELECT stamp FROM blob_objects WHERE place = :place AND address = :address AND doomed_at IS NULL")
_DOOM = sql(
    "UPDATE blob_objects SET doomed_at = :now WHERE place = :place AND address = :address AND stamp = :stamp"
    " AND doomed_at IS NULL AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.place = :place AND b.address = :address)"
    " RETURNING address"
)


def doom(tx: Tx, place: str, address: str) -> bool:
    """Doom an object that no key has; False if it has one, or if somebody else was first."""
    # The stamp is read before the look for keys: a writer that enters a key in between gives the object a new one,
    # and then this statement matches no row.
    row = tx.one(_STAMP, place=place, address=address)
    if row is None:
        return False
    (stamp,) = row
    return tx.one(_DOOM, place=place, address=address, stamp=stamp, now=tx.now) is not None


# An empty hash marks an object that was never entered: nobody can share its bytes.
_DOOM_STRAY = sql(
    "INSERT INTO blob_objects (place, address, sha256, born, stamp, put_at, doomed_at)"
    " VALUES (:place, :address, '', :stamp, :stamp, :now, :now)"
    " ON CONFLICT (place, address) DO NOTHING RETURNING address"
)


def doom_strays(tx: Tx, place: str, addresses: Sequence[str]) -> list[Object]:
    """Doom those that have our mark and no row; return them."""
    ours = f"-{mark(tx)}"
    return [
        (place, address)
        for address in addresses
        if address.startswith(ours, _HASH_DIGITS)
        and tx.one(_DOOM_STRAY, place=place, address=address, stamp=tx.new_id(), now=tx.now) is not None
    ]


_IDLE = sql(
    "SELECT o.place, o.address FROM blob_objects o WHERE o.doomed_at IS NULL AND o.put_at <= :before"
    " AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.place = o.place AND b.address = o.address) LIMIT :limit"
)


def doom_idle(tx: Tx, before: str, limit: int) -> list[Object]:
    """Doom some objects without a key that were entered before that moment; return them."""
    idle = tx.all(_IDLE, before=before, limit=limit)
    return [(place, address) for place, address in idle if doom(tx, place, address)]


_UNDELETED = sql(
    "SELECT place, address FROM blob_objects WHERE doomed_at <= :before AND sha256 <> ''"
    " AND (place, address) > (:place, :address) ORDER BY place, address LIMIT :limit"
)


def undeleted(tx: Tx, before: str, after: Object, limit: int) -> list[Object]:
    """Objects that were doomed before that moment and whose bytes may still exist."""
    after_place, after_address = after
    rows = tx.all(_UNDELETED, before=before, place=after_place, address=after_address, limit=limit)
    return [(place, address) for place, address in rows]


_FORGET_STRAYS = sql("DELETE FROM blob_objects WHERE doomed_at <= :before AND sha256 = ''")


def forget_strays(tx: Tx, before: str) -> None:
    """Delete the rows of strays that were doomed before that moment."""
    tx.execute(_FORGET_STRAYS, before=before)


_FORGET = sql("DELETE FROM blob_objects WHERE place = :place AND address = :address AND doomed_at IS NOT NULL")


def forget(tx: Tx, place: str, address: str) -> None:
    """Delete the row of a doomed object whose bytes are removed; wakes writers of equal bytes."""
    tx.execute(_FORGET, place=place, address=address)
    tx.notify(FORGOTTEN)
