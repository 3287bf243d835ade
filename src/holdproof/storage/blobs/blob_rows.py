"""The rows of blobs: functions of a transaction.

Rules:
- A row is written after its bytes are durable, and it names an object only together with a new stamp of that object.
- An object is doomed before its bytes are removed: in one statement, only if it still has the stamp it had before the
  look for keys, and only if there is no key. So whoever enters a key, on any machine, is either seen or told.
- A doomed object is never named again. Once its bytes are gone it is forgotten: a name that was known before is taken
  only if it is still the same object (`born`), a name that was never used only if nobody doomed it meanwhile.
- Bytes without an object (a crash came between) that bear our mark are doomed by entering them as doomed, and stay so
  for an hour: for the writer who may have been about to enter them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdproof.db import Row, Tx, sql
from holdproof.model.blobs import Blob
from holdproof.storage.blobs.bodies import Body

DB: Final = "db"
FORGOTTEN: Final = "blobs:forgotten"
_HASHED: Final = 64
Found = tuple[Blob, bytes | None]
Object = tuple[str, str]
"""Place and address."""
Change = tuple[bool, Object | None]
"""Whether a row was changed, and the object it had before if that is doomed now."""

_FIND = sql("SELECT key, size, sha256, content_type, place, address, put_at, data FROM blobs WHERE key = :key")


def find(tx: Tx, key: str) -> Found | None:
    """A blob, and its bytes if they lie in the row."""
    row = tx.one(_FIND, key=key)
    return None if row is None else (Blob(*row[:7]), row[7])


_STAT = sql("SELECT key, size, sha256, content_type, place, address, put_at FROM blobs WHERE key = :key")


def stat(tx: Tx, key: str) -> Blob | None:
    """What is known of a blob."""
    row = tx.one(_STAT, key=key)
    return None if row is None else Blob(*row)


_KEYS = sql("SELECT key FROM blobs WHERE key >= :since ORDER BY key LIMIT :limit")


def keys(tx: Tx, since: str, limit: int) -> list[str]:
    """Keys from one on, sorted by code point."""
    return [key for (key,) in tx.all(_KEYS, since=since, limit=limit)]


_PAGE = sql(
    "SELECT key, size, sha256, content_type, place, address, put_at, data FROM blobs"
    " WHERE key > :after ORDER BY key LIMIT :limit"
)


def page(tx: Tx, after: str, limit: int) -> list[Found]:
    """Blobs after a key, with the bytes that lie in their rows."""
    return [(Blob(*row[:7]), row[7]) for row in tx.all(_PAGE, after=after, limit=limit)]


_HAS = sql("SELECT place, address FROM blobs WHERE key = :key AND address IS NOT NULL")
_ENTER = sql(
    "INSERT INTO blobs (key, size, sha256, content_type, place, address, put_at, data, subject)"
    " VALUES (:key, :size, :sha256, :content_type, :place, :address, :put_at, :data, :subject)"
    " ON CONFLICT (key) DO UPDATE SET size = excluded.size, sha256 = excluded.sha256,"
    " content_type = excluded.content_type, place = excluded.place, address = excluded.address,"
    " put_at = excluded.put_at, data = excluded.data, subject = excluded.subject"
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the bytes of a row were put; `born` if that was an object already, `sole` if no other may equal it."""

    place: str = DB
    address: str | None = None
    born: str | None = None
    sole: bool = False

    def hold(self, tx: Tx, sha256: str) -> bool:
        """Make sure that they stay; False if they are doomed, or not the only ones though they should be."""
        if self.address is None:
            return True
        if self.sole and tx.one(_SHARED, sha256=sha256, place=self.place) is not None:
            return False
        if self.born is None:
            return claim(tx, self.place, self.address, sha256) is not None
        return hold(tx, self.place, self.address, self.born)


def enter(tx: Tx, key: str, body: Body, content_type: str | None, kept: Kept, *, subject: str | None = None) -> Change:
    """Write a key's row, with the handle of its subject; nothing is changed if its bytes are not as they must be."""
    if not kept.hold(tx, body.sha256):
        return False, None
    before = tx.one(_HAS, key=key)
    tx.execute(
        _ENTER,
        key=key,
        size=body.size,
        sha256=body.sha256,
        content_type=content_type,
        place=kept.place,
        address=kept.address,
        put_at=tx.now,
        data=body.data if kept.address is None else None,
        subject=subject,
    )
    return True, _doomed(tx, before)


_DELETE = sql("DELETE FROM blobs WHERE key = :key RETURNING place, address")


def delete(tx: Tx, key: str) -> Change:
    """Remove a key."""
    row = tx.one(_DELETE, key=key)
    return row is not None, _doomed(tx, row)


_LABELLED = sql("SELECT key FROM blobs WHERE subject = :handle LIMIT :limit")


def delete_labelled(tx: Tx, handle: str, limit: int) -> int:
    """Remove keys of a subject and doom what they had; how many."""
    found = tx.all(_LABELLED, handle=handle, limit=limit)
    for (key,) in found:
        delete(tx, key)
    return len(found)


def _doomed(tx: Tx, before: Row | None) -> Object | None:
    """The object that a row had, if it is doomed now."""
    if before is None or before[1] is None or not doom(tx, *before):
        return None
    return before[0], before[1]


# --- objects -----------------------------------------------------------------------------------------------------

_SHARED = sql(
    "SELECT address, born FROM blob_objects WHERE sha256 = :sha256 AND place = :place AND doomed_at IS NULL"
    " ORDER BY address LIMIT 1"
)


def name(tx: Tx, place: str, sha256: str) -> tuple[str, str | None]:
    """What an object with these bytes is called there already, and since when; else a name that was never used."""
    row = tx.one(_SHARED, sha256=sha256, place=place)
    return (f"{sha256}-{endings(tx, 1)[0]}", None) if row is None else (row[0], row[1])


def endings(tx: Tx, count: int) -> list[str]:
    """What makes a hash a name that was never used: our mark, and digits by chance."""
    ours = mark(tx)
    return [f"{ours}{tx.random(4).hex()}" for _ in range(count)]


_MARK = sql("SELECT mark FROM blob_facts WHERE one = 1")


def mark(tx: Tx) -> str:
    """What the names of this database's objects have after their hash: another database may share the place."""
    [(found,)] = tx.all(_MARK)
    return str(found)


_CLAIM = sql(
    "INSERT INTO blob_objects (place, address, sha256, born, stamp, put_at)"
    " VALUES (:place, :address, :sha256, :stamp, :stamp, :now)"
    " ON CONFLICT (place, address) DO UPDATE SET stamp = excluded.stamp, put_at = excluded.put_at"
    " WHERE blob_objects.doomed_at IS NULL RETURNING born"
)


def claim(tx: Tx, place: str, address: str, sha256: str) -> str | None:
    """Enter an object or give it a new stamp; since when it is there, or None if it is doomed."""
    row = tx.one(_CLAIM, place=place, address=address, sha256=sha256, stamp=tx.new_id(), now=tx.now)
    return None if row is None else str(row[0])


_HOLD = sql(
    "UPDATE blob_objects SET stamp = :stamp, put_at = :now WHERE place = :place AND address = :address"
    " AND born = :born AND doomed_at IS NULL"
)


def hold(tx: Tx, place: str, address: str, born: str) -> bool:
    """Give an object a new stamp, if it is still the one that was claimed."""
    return tx.count(_HOLD, place=place, address=address, born=born, stamp=tx.new_id(), now=tx.now) == 1


_STAMP = sql("SELECT stamp FROM blob_objects WHERE place = :place AND address = :address AND doomed_at IS NULL")
_DOOM = sql(
    "UPDATE blob_objects SET doomed_at = :now WHERE place = :place AND address = :address AND stamp = :stamp"
    " AND doomed_at IS NULL AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.place = :place AND b.address = :address)"
    " RETURNING address"
)


def doom(tx: Tx, place: str, address: str) -> bool:
    """Doom an object that no key has; whether it is its turn."""
    stamp: Row | None = tx.one(_STAMP, place=place, address=address)
    if stamp is None:
        return False
    return tx.one(_DOOM, place=place, address=address, stamp=stamp[0], now=tx.now) is not None


_DOOM_STRAY = sql(
    "INSERT INTO blob_objects (place, address, sha256, born, stamp, put_at, doomed_at)"
    " VALUES (:place, :address, '', :stamp, :stamp, :now, :now)"
    " ON CONFLICT (place, address) DO NOTHING RETURNING address"
)


def doom_strays(tx: Tx, place: str, addresses: Sequence[str]) -> list[Object]:
    """Doom those that bear our mark and that no row speaks of."""
    ours = f"-{mark(tx)}"
    return [
        (place, address)
        for address in addresses
        if address.startswith(ours, _HASHED)
        and tx.one(_DOOM_STRAY, place=place, address=address, stamp=tx.new_id(), now=tx.now) is not None
    ]


_IDLE = sql(
    "SELECT o.place, o.address FROM blob_objects o WHERE o.doomed_at IS NULL AND o.put_at <= :before"
    " AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.place = o.place AND b.address = o.address) LIMIT :limit"
)


def doom_idle(tx: Tx, before: str, limit: int) -> list[Object]:
    """Doom some of those that no key has, entered before that moment."""
    idle = tx.all(_IDLE, before=before, limit=limit)
    return [(place, address) for place, address in idle if doom(tx, place, address)]


_LEFT = sql(
    "SELECT place, address FROM blob_objects WHERE doomed_at <= :before AND sha256 <> ''"
    " AND (place, address) > (:place, :address) ORDER BY place, address LIMIT :limit"
)


def left(tx: Tx, before: str, after: Object, limit: int) -> list[Object]:
    """Objects that were doomed before that moment and whose bytes may still be there."""
    found = tx.all(_LEFT, before=before, place=after[0], address=after[1], limit=limit)
    return [(place, address) for place, address in found]


_FORGET_STRAYS = sql("DELETE FROM blob_objects WHERE doomed_at <= :before AND sha256 = ''")


def forget_strays(tx: Tx, before: str) -> None:
    """Forget bytes that never were an object and were doomed before that moment."""
    tx.execute(_FORGET_STRAYS, before=before)


_FORGET = sql("DELETE FROM blob_objects WHERE place = :place AND address = :address AND doomed_at IS NOT NULL")


def forget(tx: Tx, place: str, address: str) -> None:
    """Remove a doomed object whose bytes are gone."""
    tx.execute(_FORGET, place=place, address=address)
    tx.notify(FORGOTTEN)
