"""What a crash may have left undone, done when a store is opened, and once more when it is closed.

Rules:
- A rotation whose leaf is in the log ends with its file; a log key without a leaf is registered.
- A row whose DBOM file is missing gets it.
- A store that cannot be tidied opens all the same and says so in the log, once: the rows are what counts. Closing says
  it in a whisper, since a file that could not be written was told of at that moment.
"""

import logging
from typing import Any, TypeVar

from holdproof.db import Call, Read, Wait, Work, Write
from holdproof.errors import HoldproofError
from holdproof.evidence import dbom, evaluations, keys
from holdproof.store.context import Context

T = TypeVar("T")
_log = logging.getLogger("holdproof")


def at_opening(context: Context) -> None:
    """Finish what was left undone."""
    _try(context, keys.finish_rotations(context), "a key rotation could not be finished")
    _try(context, keys.use(context, "log"), "the log key of this machine is not in the keyring")
    _try(context, dbom.repair(context), "DBOM files could not be repaired")


def at_closing(context: Context) -> None:
    """Note up to where DBOM files are complete; write those that could not be written before."""
    if evaluations.dbom_folder(context) is not None:
        _try(context, dbom.repair(context), "DBOM files could not be repaired", level=logging.INFO)


def _try(context: Context, work: Work[Any], what: str, *, level: int = logging.WARNING) -> None:
    try:
        _drive(context, work)
    except HoldproofError as error:
        _log.log(level, "%s: %s", what, error)


def _drive(context: Context, work: Work[T]) -> T:
    """Run work here and now, without a face."""
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
