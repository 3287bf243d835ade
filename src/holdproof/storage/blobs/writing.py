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
from holdproof.storage.blobs.blob_rows import Object, StoredBytes
from holdproof.storage.blobs.bodies import Body, Chunks, Data, Intake, puller
from holdproof.storage.blobs.removing import remove, remove_bytes

_TRIES: Final = 12
_ENDINGS: Final = 64

Enter = partial[blob_rows.Change]


def put(
    config: BlobStoreConfig, key: str, data: Data, content_type: str | None = None, *, subject: str | None = None
) -> Work[str]:
    """Store bytes under a key, replacing what was there; return where they are. Erasing `subject` removes them."""
    enter = _entry(key, content_type, subject)
    if not isinstance(data, Data):
        raise InvalidInputError(f"a blob is bytes, not {type(data).__name__}", field="data")
    data = _flat(data)
    if (backend := config.backend_for(len(data))) is None:
        stored = yield from _inline(config, Body.of(bytes(data)), enter)
    else:
        stored = yield from _store_outside(config, backend, partial(backend.stage, data), enter)
    return config.where(key, stored.place, stored.address)


def _flat(data: Data) -> Data:
    """Return the same bytes so that `len` counts bytes: a memoryview may count larger items, or have gaps."""
    if not isinstance(data, memoryview) or (data.contiguous and data.itemsize == 1 and data.ndim == 1):
        return data
    return data.tobytes()


def open_write(
    config: BlobStoreConfig, key: str, chunks: Chunks, content_type: str | None = None, *, subject: str | None = None
) -> Work[str]:
    """Store a stream (an iterator, or a binary file), all of it or nothing; return where it is."""
    enter = _entry(key, content_type, subject)
    intake = Intake(config.inline, config.spool)
    pull = puller(chunks)
    try:
        while (piece := (yield Call(pull))) is not None:
            if intake.add(piece):
                yield from call(intake.flush)
        if (backend := config.backend_for(intake.size)) is None:
            stored = yield from _inline(config, intake.finish(), enter)
        else:
            stored = yield from _store_outside(config, backend, intake.finish, enter)
        return config.where(key, stored.place, stored.address)
    finally:
        intake.drop()


def _entry(key: str, content_type: str | None, subject: str | None) -> Enter:
    """Return the function that writes the row of a key once its bytes are stored."""
    check_key(key)
    check_content_type(content_type)
    if subject is None:
        return partial(blob_rows.enter, key=key, content_type=content_type)
    labels.check(subject)

    def enter(tx: Tx, **columns: Any) -> blob_rows.Change:
        return blob_rows.enter(tx, **columns, subject=labels.label(tx, subject))

    return partial(enter, key=key, content_type=content_type)


def _inline(config: BlobStoreConfig, body: Body, enter: Enter) -> Work[StoredBytes]:
    """Write a row that holds the bytes itself."""
    stored = StoredBytes()
    _, doomed = yield from ask(Write(partial(enter, body=body, stored=stored)))
    if doomed is not None:
        yield from remove(config, doomed)
    return stored


def _store_outside(
    config: BlobStoreConfig, backend: BlobBackend, gather: Callable[[], Body], enter: Enter
) -> Work[StoredBytes]:
    """Store bytes at a backend and write their row."""
    stored: StoredBytes | None = None
    # A backend that renames at no cost gets the bytes under a name of their own at once. For the others an upload is
    # expensive: `store_bytes` first looks for equal bytes, which can be shared.
    if backend.renames:
        body, stored = yield from call(_put_new, backend, gather, (yield from _ending(config)))
    else:
        body = yield from call(gather)
    try:
        stored, doomed = yield from _enter_row(backend, body, stored, enter)
    except DiskFullError:  # bytes without a row would stay until a sweep, and more of them with every new try
        if stored is not None and stored.address is not None:
            yield from remove_bytes(config, (backend.kind, stored.address))
        raise
    finally:
        body.drop()
    if doomed is not None:
        yield from remove(config, doomed)
    return stored


def _ending(config: BlobStoreConfig) -> Work[str]:
    """An unused ending for the name of a new object; they are read from the database for many puts at once."""
    while True:
        # Several threads may empty the queue between the extend and the pop: then it is filled again.
        with suppress(IndexError):
            return config.endings.popleft()
        config.endings.extend((yield from ask(Read(lambda tx: blob_rows.endings(tx, _ENDINGS)))))


def _put_new(backend: BlobBackend, gather: Callable[[], Body], ending: str) -> tuple[Body, StoredBytes]:
    body = gather()
    try:
        return body, StoredBytes(backend.kind, backend.put_bytes(body, f"{body.sha256}-{ending}"), sole=True)
    except BaseException:
        body.drop()
        raise


def _enter_row(
    backend: BlobBackend, body: Body, stored: StoredBytes | None, enter: Enter
) -> Work[tuple[StoredBytes, Object | None]]:
    """Write the row of bytes; store them once more if equal ones exist, or if they were doomed in between."""
    for _ in range(_TRIES):
        stored = stored or (yield from store_bytes(backend, body))
        if stored is not None:
            entered, doomed = yield from ask(Write(partial(enter, body=body, stored=stored)))
            if entered:
                return stored, doomed
        # Equal bytes are being removed. Their name is free once the remover has forgotten them.
        if stored is None or not stored.sole:
            yield Wait(blob_rows.FORGOTTEN)
        stored = None
    raise BusyError(
        f"equal bytes are being removed from {backend.kind} again and again; try again later", place=backend.kind
    )


def store_bytes(backend: BlobBackend, body: Body) -> Work[StoredBytes | None]:
    """Store bytes durably; None if equal bytes are just being removed. The caller writes their row."""
    name, born = yield from ask(Read(lambda tx: blob_rows.name(tx, backend.kind, body.sha256)))
    address = yield from call(backend.put_bytes, body, name)
    return (yield from _pin(backend, address, body)) if backend.pins else StoredBytes(backend.kind, address, born)


def _pin(backend: BlobBackend, address: str, body: Body) -> Work[StoredBytes | None]:
    """Enter an address, then pin it, so that every pin is in the database; None if it is doomed."""
    born = yield from ask(Write(lambda tx: blob_rows.claim(tx, backend.kind, address, body.sha256)))
    if born is None:
        return None
    yield from call(backend.pin, address)
    return StoredBytes(backend.kind, address, born)
