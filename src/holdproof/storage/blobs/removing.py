"""Removing blobs, and what nobody needs any more.

Rules:
- Bytes go only after their object was doomed (rows.py): never while a key has them, or is about to.
- Bytes that lost their last key are removed at once; if that fails, or a crash comes first, a sweep does it.
- A sweep also removes what crashed writers left: bytes without a row, temporary files. It leaves alone what is younger
  than it is told, so as not to disturb; even at an age of nothing, every write under way ends well.
- Bytes of other databases at the same place are none of its business: a name says whose they are.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from holdproof.db import Read, Tx, Work, Write, ask, call
from holdproof.errors import HoldproofError, UnavailableError, UnreachableError
from holdproof.model.blobs import BlobsSwept, check_key
from holdproof.model.times import to_micros, to_text
from holdproof.storage import values
from holdproof.storage.blobs import blob_rows
from holdproof.storage.blobs.blob_backend import BlobBackend
from holdproof.storage.blobs.blob_config import BlobStoreConfig
from holdproof.storage.blobs.blob_rows import Object

HOUR_S: Final = 3600.0
_LONG_S: Final = 100 * 366 * 86_400
_PAGE: Final = 200


def delete(shelf: BlobStoreConfig, key: str) -> Work[bool]:
    """Remove a key; whether it was there."""
    check_key(key)
    found, doomed = yield from ask(Write(lambda tx: blob_rows.delete(tx, key)))
    if doomed is not None:
        yield from remove(shelf, doomed)
    return found


def remove(shelf: BlobStoreConfig, doomed: Object) -> Work[bool]:
    """Remove the bytes of a doomed object and forget it; where that fails they are left to a sweep."""
    if not (yield from remove_bytes(shelf, doomed)):
        return False
    yield Write(lambda tx: blob_rows.forget(tx, *doomed))
    return True


def remove_bytes(shelf: BlobStoreConfig, doomed: Object) -> Work[bool]:
    """Remove the bytes of an object that no row speaks of; whether that could be done."""
    place, address = doomed
    try:
        yield from call(shelf.at(place).remove, address)
    except HoldproofError:
        return False
    return True


def finish(shelf: BlobStoreConfig) -> Work[list[str]]:
    """Remove the bytes of everything that is doomed, for good; where those lie that nobody can remove.

    A place that cannot be reached now is an error, once everything else was tried: it is to be done again.
    """
    now = yield from ask(Read(lambda tx: tx.now))
    stay: list[str] = []
    away: HoldproofError | None = None
    after: Object = ("", "")
    while left := (yield from ask(Read(partial(blob_rows.left, before=now, after=after, limit=_PAGE)))):
        for place, address in left:
            try:
                gone = yield from call(shelf.at(place).erase, address)
            except (UnreachableError, UnavailableError) as error:
                away = error
                continue
            except HoldproofError:
                stay.append(f"{place}:{address}")
                continue
            stay += [] if gone else [shelf.at(place).where(address)]
            yield Write(partial(blob_rows.forget, place=place, address=address))
        after = left[-1]
    if away is not None:
        raise away
    return stay


def sweep(shelf: BlobStoreConfig, *, older_than_s: float = HOUR_S) -> Work[BlobsSwept]:
    """Remove bytes without a key and temporary files, as far as they are at least that old; what was removed."""
    values.number("older_than_s", older_than_s, least=0, most=_LONG_S)
    before, hour = yield from ask(Read(lambda tx: (_before(tx, older_than_s), _before(tx, HOUR_S))))
    yield Write(lambda tx: blob_rows.forget_strays(tx, hour))
    objects = yield from _sweep_known(shelf, before)
    temporaries = 0
    for place in shelf.places.values():
        objects += yield from _sweep_strays(shelf, place, older_than_s)
        temporaries += yield from call(place.tidy, older_than_s)
    return BlobsSwept(objects, temporaries)


def _before(tx: Tx, seconds: float) -> str:
    return to_text(to_micros(tx.now) - round(seconds * 1e6))


def _sweep_known(shelf: BlobStoreConfig, before: str) -> Work[int]:
    """Remove objects that no key has, and those that were doomed and not removed; how many."""
    removed = 0
    while idle := (yield from ask(Write(partial(blob_rows.doom_idle, before=before, limit=_PAGE)))):
        for each in idle:
            removed += yield from remove(shelf, each)
    after: Object = ("", "")
    while left := (yield from ask(Read(partial(blob_rows.left, before=before, after=after, limit=_PAGE)))):
        for each in left:
            removed += yield from remove(shelf, each)
        after = left[-1]
    return removed


def _sweep_strays(shelf: BlobStoreConfig, place: BlobBackend, older_than_s: float) -> Work[int]:
    """Remove what lies at a place, is ours, and no row speaks of; how many."""
    removed, pages = 0, place.listed(older_than_s)
    while (page := (yield from call(_next, pages))) is not None:
        for at in range(0, len(page), _PAGE):
            strays = yield from ask(
                Write(partial(blob_rows.doom_strays, place=place.kind, addresses=page[at : at + _PAGE]))
            )
            for each in strays:
                removed += yield from remove_bytes(shelf, each)
    return removed


def _next(pages: Iterator[Sequence[str]]) -> Sequence[str] | None:
    return next(pages, None)
