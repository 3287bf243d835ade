"""Finish what a crash left undone, when a store is opened and once more when it is closed.

Rules:
- A key rotation whose leaf is in the log is finished by renaming its file.
- No key is admitted: whoever only reads must not become a signer (`holdproof keys join` admits, as a decision).
- A row whose DBOM file is missing gets it.
- A store whose files cannot be repaired opens all the same and logs a warning: the rows are what counts. On close the
  failure is logged at INFO: it was already reported when the write failed.
"""

import logging
from typing import Any, TypeVar

from holdproof.db import Call, Read, Wait, Work, Write
from holdproof.errors import HoldproofError
from holdproof.evidence import dbom_files, key_admission
from holdproof.store.context import Context

T = TypeVar("T")
_log = logging.getLogger("holdproof")


def at_opening(context: Context) -> None:
    """Finish rotations and write missing DBOM files; failures are logged, not raised."""
    _try(context, key_admission.finish_rotations(context), "a key rotation could not be finished")
    if not context.log.familiar:
        _log.warning("nothing in this home vouches for the store's log: run `holdproof verify`")
    _try(context, dbom_files.repair(context), "DBOM files could not be repaired")


def at_closing(context: Context) -> None:
    """Note up to where DBOM files are complete; write those that could not be written before."""
    if dbom_files.of_store(context) is not None:
        _try(context, dbom_files.repair(context), "DBOM files could not be repaired", level=logging.INFO)


def _try(context: Context, work: Work[Any], what: str, *, level: int = logging.WARNING) -> None:
    try:
        _drive(context, work)
    except HoldproofError as error:
        _log.log(level, "%s: %s", what, error)


def _drive(context: Context, work: Work[T]) -> T:
    """Run work in this thread; there is no executor yet while a store is being opened."""
    answer: Any = None
    try:
        while True:
            effect = work.send(answer)
            match effect:
                case Write(fn):
                    answer = context.database.write(fn).result()
                case Read(fn):
                    answer = context.database.read(fn).result()
                case Call(call):
                    answer = call()
                case Wait():
                    raise AssertionError("nothing here waits")
    except StopIteration as stop:
        value: T = stop.value
        return value
