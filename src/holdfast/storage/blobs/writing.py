"""Putting blobs.

Rules:
- A key is a name (model/blobs.py); whatever is not one is refused before anything is touched.
- The row is written after the bytes are durable: an acknowledged blob can be read, a crash leaves garbage only.
- A key has its old bytes or its new ones, all of them, whoever writes at the same time and however a write ends.
"""

from functools import partial
from typing import Final

from holdfast.db import Call, Read, Wait, Work, Write, ask, call
from holdfast.errors import BusyError, InvalidInputError
from holdfast.model.blobs import check_content_type, check_key
from holdfast.storage.blobs import rows
from holdfast.storage.blobs.bodies import Body, Chunks, Data, Intake, puller
from holdfast.storage.blobs.places import Place
from holdfast.storage.blobs.removing import remove
from holdfast.storage.blobs.rows import Kept, Object
from holdfast.storage.blobs.shelf import Shelf

_TRIES: Final = 12


def put(shelf: Shelf, key: str, data: Data, content_type: str | None = None) -> Work[str]:
    """Keep bytes under a key, in the place of what was there; where they lie."""
    _check(key, content_type)
    if not isinstance(data, Data):
        raise InvalidInputError(f"a blob is bytes, not {type(data).__name__}", field="data")
    data = _flat(data)
    if (place := shelf.place_for(len(data))) is None:
        body = Body.of(bytes(data))
    else:
        body = yield from call(place.take, data)
    return (yield from _enter(shelf, key, body, content_type))


def _flat(data: Data) -> Data:
    """Bytes whose length is their number: a view may count in larger items, or leave some out."""
    if not isinstance(data, memoryview) or (data.contiguous and data.itemsize == 1 and data.ndim == 1):
        return data
    return data.tobytes()


def open_write(shelf: Shelf, key: str, chunks: Chunks, content_type: str | None = None) -> Work[str]:
    """Keep what arrives in pieces (an iterator, or a binary file), all of it or nothing; where it lies."""
    _check(key, content_type)
    intake, pull = Intake(shelf.inline, shelf.spool), puller(chunks)
    try:
        while (piece := (yield Call(pull))) is not None:
            if intake.add(piece):
                yield from call(intake.flush)
        body = yield from call(intake.finish)
        return (yield from _enter(shelf, key, body, content_type))
    finally:
        intake.drop()


def _check(key: str, content_type: str | None) -> None:
    check_key(key)
    check_content_type(content_type)


def _enter(shelf: Shelf, key: str, body: Body, content_type: str | None) -> Work[str]:
    """Write the row of bytes that are all there; if they are many, at their place first."""
    enter = partial(rows.enter, key=key, body=body, content_type=content_type)
    if (place := shelf.place_for(body.size)) is None:
        kept = Kept()
        _, doomed = yield from ask(Write(partial(enter, kept=kept)))
    else:
        try:
            kept, doomed = yield from _shelve(place, body, enter)
        finally:
            body.drop()
    if doomed is not None:
        yield from remove(shelf, doomed)
    return shelf.where(key, kept.place, kept.address)


def _shelve(place: Place, body: Body, enter: "partial[rows.Change]") -> Work[tuple[Kept, Object | None]]:
    """Put bytes to a place and write their row; once more if they were doomed in between."""
    for _ in range(_TRIES):
        kept = yield from placed(place, body)
        if kept is not None:
            entered, doomed = yield from ask(Write(partial(enter, kept=kept)))
            if entered:
                return kept, doomed
        yield Wait(rows.FORGOTTEN)
    raise BusyError(f"equal bytes are being removed from {place.kind} all the time", place=place.kind)


def placed(place: Place, body: Body) -> Work[Kept | None]:
    """Put bytes to a place, durably; None if equal bytes are just being removed. Their row is yet to be written."""
    name, born = yield from ask(Read(lambda tx: rows.name(tx, place.kind, body.sha256)))
    address = yield from call(place.keep, body, name)
    return (yield from _pin(place, address, body)) if place.pins else Kept(place.kind, address, born)


def _pin(place: Place, address: str, body: Body) -> Work[Kept | None]:
    """Enter an address, then pin it, so that no pin is ever unknown; None if it is doomed."""
    born = yield from ask(Write(lambda tx: rows.claim(tx, place.kind, address, body.sha256)))
    if born is None:
        return None
    yield from call(place.pin, address)
    return Kept(place.kind, address, born)
