"""Whether every blob is there and is what its row says: the check that a verification of the store composes."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from holdproof.db import Read, Work, ask, call
from holdproof.errors import BlobCorruptError, FormatError, HoldproofError
from holdproof.model.blobs import Blob
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.storage.blobs import blob_rows
from holdproof.storage.blobs.blob_config import BlobStoreConfig
from holdproof.storage.blobs.verified import Verified, corrupt

_PAGE: Final = 100
_REMEDY: Final = "keep a copy of what is there, then put the blob again or restore a backup"


def check(shelf: BlobStoreConfig, *, progress: Callable[[int], None] | None = None) -> Work[list[Finding]]:
    """Read every blob; a finding for each whose bytes are missing, altered, or cannot be read now."""
    findings: list[Finding] = []
    after, done = "", 0
    while page := (yield from ask(Read(partial(blob_rows.page, after=after, limit=_PAGE)))):
        for blob, data in page:
            finding = yield from _look(shelf, blob, data)
            findings += [] if finding is None else [finding]
        after, done = page[-1][0].key, done + len(page)
        if progress is not None:
            progress(done)
    return findings


def _look(shelf: BlobStoreConfig, blob: Blob, data: bytes | None) -> Work[Finding | None]:
    try:
        yield from call(_walk, shelf, blob, data)
    except BlobCorruptError as error:
        now = yield from ask(Read(lambda tx: blob_rows.stat(tx, blob.key)))
        return _finding(shelf, blob, error) if now == blob else None  # else it was replaced while we looked
    except HoldproofError as error:
        return _finding(shelf, blob, error)
    return None


def _walk(shelf: BlobStoreConfig, blob: Blob, data: bytes | None) -> None:
    if blob.address is None:
        Verified.of(blob, data or b"").walk()
        return
    try:
        Verified(blob, shelf.at(blob.place).open(blob.address)).walk()
    except (FileNotFoundError, FormatError) as error:  # at an address that is none, there is nothing
        raise corrupt(blob, "missing") from error


def _finding(shelf: BlobStoreConfig, blob: Blob, error: HoldproofError) -> Finding:
    altered, file = isinstance(error, BlobCorruptError), ""
    if altered and blob.address is not None:
        with suppress(FormatError):  # an address that is none
            file = shelf.where(blob.key, blob.place, blob.address)
    verdict = Verdict.TAMPERED if altered else Verdict.PENDING
    remedy = _REMEDY if altered else error.remedy
    return Finding(verdict, error.message, remedy, file, "blobs", blob.key, outside=True)
