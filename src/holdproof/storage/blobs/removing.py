"""Removing blobs, and garbage collection (`sweep`).

Rules:
- Bytes are removed only after their object was doomed (blob_rows.py): never while a key has them, or is about to.
- Bytes that lost their last key are removed at once; if that fails, or a crash comes first, a sweep does it.
- A sweep also removes what crashed writers left: bytes without a row, temporary files. It leaves alone what is younger
  than `older_than_s`; but even with 0, no concurrent write fails.
- Bytes of other databases at the same backend are never touched: a name says whose they are.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from holdproof import validation
from holdproof.db import Read, Tx, Work, Write, ask, call
from holdproof.errors import HoldproofError, UnavailableError, UnreachableError
from holdproof.model.blobs import BlobsSwept, check_key
from holdproof.model.times import to_micros, to_text
from holdproof.storage.blobs import blob_rows
from holdproof.storage.blobs.blob_backend import BlobBackend
from holdproof.storage.blobs.blob_config import BlobStoreConfig
from holdproof.storage.blobs.blob_rows import Object

HOUR_S: Final = 3600.0
_LONG_S: Final = 100 * 366 * 86_400
_PAGE: Final = 200


def delete(config: BlobStoreConfig, key: str) -> Work[bool]:
    """Remove a key; return whether it existed."""
    check_key(key)
    existed, doomed = yield from ask(Write(lambda tx: blob_rows.delete(tx, key)))
    if doomed is not None:
        yield from remove(config, doomed)
    return existed


def remove(config: BlobStoreConfig, doomed: Object) -> Work[bool]:
    """Remove the bytes of a doomed object and its row; False if a sweep must try again."""
    if not (yield from remove_bytes(config, doomed)):
        return False
    yield Write(lambda tx: blob_rows.forget(tx, *doomed))
    return True


def remove_bytes(config: BlobStoreConfig, doomed: Object) -> Work[bool]:
    """Remove the bytes of an object that has no key; return whether that succeeded."""
    place, address = doomed
    try:
        yield from call(config.at(place).remove, address)
    except HoldproofError:
        return False
    return True


def finish(config: BlobStoreConfig) -> Work[list[str]]:
    """Erase the bytes of everything that is doomed; return where bytes are that nobody can erase.

    A backend that cannot be reached now is an error, raised once everything else was tried: call it again later.
    """
    # What is doomed after this moment belongs to somebody else, who removes it.
    now = yield from ask(Read(lambda tx: tx.now))
    remaining: list[str] = []
    unreachable: HoldproofError | None = None
    after: Object = ("", "")
    while undeleted := (yield from ask(Read(partial(blob_rows.undeleted, before=now, after=after, limit=_PAGE)))):
        for place, address in undeleted:
            try:
                erased = yield from call(config.at(place).erase, address)
            except (UnreachableError, UnavailableError) as error:
                unreachable = error
                continue
            except HoldproofError:
                remaining.append(f"{place}:{address}")
                continue
            if not erased:
                remaining.append(config.at(place).where(address))
            yield Write(partial(blob_rows.forget, place=place, address=address))
        after = undeleted[-1]
    if unreachable is not None:
        raise unreachable
    return remaining


def sweep(config: BlobStoreConfig, *, older_than_s: float = HOUR_S) -> Work[BlobsSwept]:
    """Remove bytes without a key and temporary files that are at least that old; return how many."""
    validation.number("older_than_s", older_than_s, least=0, most=_LONG_S)
    # Strays stay entered as doomed for an hour: a slow writer may be about to name them (see blob_rows).
    before, hour = yield from ask(Read(lambda tx: (_before(tx, older_than_s), _before(tx, HOUR_S))))
    yield Write(lambda tx: blob_rows.forget_strays(tx, hour))
    objects = yield from _sweep_known(config, before)
    temporaries = 0
    for backend in config.backends.values():
        objects += yield from _sweep_strays(config, backend, older_than_s)
        temporaries += yield from call(backend.tidy, older_than_s)
    return BlobsSwept(objects, temporaries)


def _before(tx: Tx, seconds: float) -> str:
    return to_text(to_micros(tx.now) - round(seconds * 1e6))


def _sweep_known(config: BlobStoreConfig, before: str) -> Work[int]:
    """Remove objects without a key, and those that were doomed and not removed; return how many."""
    removed = 0
    # Pages, so that no transaction holds the writer for long; each page shrinks the next.
    while idle := (yield from ask(Write(partial(blob_rows.doom_idle, before=before, limit=_PAGE)))):
        for each in idle:
            removed += yield from remove(config, each)
    after: Object = ("", "")
    while undeleted := (yield from ask(Read(partial(blob_rows.undeleted, before=before, after=after, limit=_PAGE)))):
        for each in undeleted:
            removed += yield from remove(config, each)
        after = undeleted[-1]
    return removed


def _sweep_strays(config: BlobStoreConfig, backend: BlobBackend, older_than_s: float) -> Work[int]:
    """Remove our bytes at a backend that have no row; return how many."""
    removed = 0
    pages = backend.list_older(older_than_s)
    while (page := (yield from call(_next, pages))) is not None:
        # A listing of a backend may be much longer than one transaction should be.
        for at in range(0, len(page), _PAGE):
            strays = yield from ask(
                Write(partial(blob_rows.doom_strays, place=backend.kind, addresses=page[at : at + _PAGE]))
            )
            for each in strays:
                removed += yield from remove_bytes(config, each)
    return removed


def _next(pages: Iterator[Sequence[str]]) -> Sequence[str] | None:
    return next(pages, None)
