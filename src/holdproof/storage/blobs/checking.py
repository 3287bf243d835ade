"""Check that every blob exists and matches its row; part of the verification of a store."""

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
from holdproof.storage.blobs.files import Files
from holdproof.storage.blobs.verified import VerifiedReader, corrupt

_PAGE: Final = 100
_ELSEWHERE: Final = (
    "verify on the machine that has the file; to read it everywhere, put it again there with bodies in the database,"
    " in S3 or in a shared folder (providers.blob)"
)
_REMEDY: Final = "copy what is there for an investigation, then put the blob again or restore a backup"


def check(config: BlobStoreConfig, *, progress: Callable[[int], None] | None = None) -> Work[list[Finding]]:
    """Read every blob; return a finding for each whose bytes are missing, altered, or cannot be read now."""
    findings: list[Finding] = []
    after = ""
    count = 0
    while page := (yield from ask(Read(partial(blob_rows.page, after=after, limit=_PAGE)))):
        for blob, data in page:
            finding = yield from _check_blob(config, blob, data)
            if finding is not None:
                findings.append(finding)
        last_blob, _ = page[-1]
        after = last_blob.key
        count += len(page)
        if progress is not None:
            progress(count)
    return findings


def _check_blob(config: BlobStoreConfig, blob: Blob, data: bytes | None) -> Work[Finding | None]:
    try:
        yield from call(_read_through, config, blob, data)
    except BlobCorruptError as error:
        now = yield from ask(Read(lambda tx: blob_rows.stat(tx, blob.key)))
        return _finding(config, blob, error) if now == blob else None  # else it was replaced while we looked
    except HoldproofError as error:
        return _finding(config, blob, error)
    return None


def _read_through(config: BlobStoreConfig, blob: Blob, data: bytes | None) -> None:
    if blob.address is None:
        VerifiedReader.from_bytes(blob, data or b"").read_through()
        return
    try:
        VerifiedReader(blob, config.at(blob.place).open(blob.address)).read_through()
    except (FileNotFoundError, FormatError) as error:  # at an address that is none, there is nothing
        raise corrupt(blob, "missing") from error


def _finding(config: BlobStoreConfig, blob: Blob, error: HoldproofError) -> Finding:
    altered = isinstance(error, BlobCorruptError)
    file = ""
    if altered and blob.address is not None:
        with suppress(FormatError):  # an address that is none
            file = config.where(blob.key, blob.place, blob.address)
    verdict = Verdict.TAMPERED if altered else Verdict.PENDING
    remedy = _REMEDY if altered else error.remedy
    # A folder belongs to one machine, the rows of a server to all: the file may lie on the disk of another.
    # Not so for an address that is none: no machine has ever stored anything there.
    if config.is_shared and file and error.fields.get("what") == "missing" and blob.place == Files.kind:
        verdict = Verdict.MISSING_HERE
        remedy = _ELSEWHERE
    return Finding(verdict, error.message, remedy, file, "blobs", blob.key, outside=True)
