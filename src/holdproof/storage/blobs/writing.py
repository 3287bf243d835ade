"""Putting blobs.

Rules:
- A key is a name (model/blobs.py); whatever is not one is refused before anything is touched.
- The row is written after the bytes are durable: an acknowledged blob can be read, a crash leaves garbage only.
- A key has its old bytes or its new ones, all of them, whoever writes at the same time and however a write ends.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from holdproof.db import Call, Read, Tx, Wait, Work, Write, ask, call
from holdproof.errors import BusyError, DiskFullError, InvalidInputError
from holdproof.model.blobs import check_content_type, check_key
from holdproof.storage import labels
from holdproof.storage.blobs import blob_rows
from holdproof.storage.blobs.blob_backend import BlobBackend
from holdproof.storage.blobs.blob_config import BlobStoreConfig
from holdproof.storage.blobs.blob_rows import Kept, Object
from holdproof.storage.blobs.bodies import Body, Chunks, Data, Intake, puller
from holdproof.storage.blobs.removing import remove, remove_bytes

_TRIES: Final = 12
_ENDINGS: Final = 64

Enter = partial[blob_rows.Change]


def put(
    shelf: BlobStoreConfig, key: str, data: Data, content_type: str | None = None, *, subject: str | None = None
) -> Work[str]:
    """Keep bytes under a key, in the place of what was there; where they lie. They go with their `subject`."""
    enter = _entry(key, content_type, subject)
    if not isinstance(data, Data):
        raise InvalidInputError(f"a blob is bytes, not {type(data).__name__}", field="data")
    data = _flat(data)
    if (place := shelf.place_for(len(data))) is None:
        kept = yield from _inline(shelf, Body.of(bytes(data)), enter)
    else:
        kept = yield from _shelve(shelf, place, partial(place.take, data), enter)
    return shelf.where(key, kept.place, kept.address)


def _flat(data: Data) -> Data:
    """Bytes whose length is their number: a view may count in larger items, or leave some out."""
    if not isinstance(data, memoryview) or (data.contiguous and data.itemsize == 1 and data.ndim == 1):
        return data
    return data.tobytes()


def open_write(
    shelf: BlobStoreConfig, key: str, chunks: Chunks, content_type: str | None = None, *, subject: str | None = None
) -> Work[str]:
    """Keep what arrives in pieces (an iterator, or a binary file), all of it or nothing; where it lies."""
    enter = _entry(key, content_type, subject)
    intake, pull = Intake(shelf.inline, shelf.spool), puller(chunks)
    try:
        while (piece := (yield Call(pull))) is not None:
            if intake.add(piece):
                yield from call(intake.flush)
        if (place := shelf.place_for(intake.size)) is None:
            kept = yield from _inline(shelf, intake.finish(), enter)
        else:
            kept = yield from _shelve(shelf, place, intake.finish, enter)
        return shelf.where(key, kept.place, kept.address)
    finally:
        intake.drop()


def _entry(key: str, content_type: str | None, subject: str | None) -> Enter:
    """What writes the row of a key, once its bytes are known."""
    check_key(key)
    check_content_type(content_type)
    if subject is None:
        return partial(blob_rows.enter, key=key, content_type=content_type)
    labels.check(subject)

    def enter(tx: Tx, **known: Any) -> blob_rows.Change:
        return blob_rows.enter(tx, **known, subject=labels.label(tx, subject))

    return partial(enter, key=key, content_type=content_type)


def _inline(shelf: BlobStoreConfig, body: Body, enter: Enter) -> Work[Kept]:
    """Write the row of bytes that lie in it."""
    kept = Kept()
    _, doomed = yield from ask(Write(partial(enter, body=body, kept=kept)))
    if doomed is not None:
        yield from remove(shelf, doomed)
    return kept


def _shelve(shelf: BlobStoreConfig, place: BlobBackend, gather: Callable[[], Body], enter: Enter) -> Work[Kept]:
    """Put bytes to a place and write their row; if they move freely they are put in one go, else equal ones sought."""
    kept: Kept | None = None
    if place.moves:
        body, kept = yield from call(_put_anew, place, gather, (yield from _ending(shelf)))
    else:
        body = yield from call(gather)
    try:
        kept, doomed = yield from _entered(place, body, kept, enter)
    except DiskFullError:  # bytes without a row would stay until a sweep, and more of them with every new try
        if kept is not None and kept.address is not None:
            yield from remove_bytes(shelf, (place.kind, kept.address))
        raise
    finally:
        body.drop()
    if doomed is not None:
        yield from remove(shelf, doomed)
    return kept


def _ending(shelf: BlobStoreConfig) -> Work[str]:
    """What the name of a new object shall end in; looked up for many puts at once."""
    while True:
        with suppress(IndexError):
            return shelf.endings.popleft()
        shelf.endings.extend((yield from ask(Read(lambda tx: blob_rows.endings(tx, _ENDINGS)))))


def _put_anew(place: BlobBackend, gather: Callable[[], Body], ending: str) -> tuple[Body, Kept]:
    body = gather()
    try:
        return body, Kept(place.kind, place.keep(body, f"{body.sha256}-{ending}"), sole=True)
    except BaseException:
        body.drop()
        raise


def _entered(place: BlobBackend, body: Body, kept: Kept | None, enter: Enter) -> Work[tuple[Kept, Object | None]]:
    """Write the row of bytes; they are put once more if equal ones are there, or if they were doomed in between."""
    for _ in range(_TRIES):
        kept = kept or (yield from placed(place, body))
        if kept is not None:
            entered, doomed = yield from ask(Write(partial(enter, body=body, kept=kept)))
            if entered:
                return kept, doomed
        if kept is None or not kept.sole:
            yield Wait(blob_rows.FORGOTTEN)
        kept = None
    raise BusyError(f"equal bytes are being removed from {place.kind} all the time", place=place.kind)


def placed(place: BlobBackend, body: Body) -> Work[Kept | None]:
    """Put bytes to a place, durably; None if equal bytes are just being removed. Their row is yet to be written."""
    name, born = yield from ask(Read(lambda tx: blob_rows.name(tx, place.kind, body.sha256)))
    address = yield from call(place.keep, body, name)
    return (yield from _pin(place, address, body)) if place.pins else Kept(place.kind, address, born)


def _pin(place: BlobBackend, address: str, body: Body) -> Work[Kept | None]:
    """Enter an address, then pin it, so that no pin is ever unknown; None if it is doomed."""
    born = yield from ask(Write(lambda tx: blob_rows.claim(tx, place.kind, address, body.sha256)))
    if born is None:
        return None
    yield from call(place.pin, address)
    return Kept(place.kind, address, born)
