"""Start over: accept the store that is here in place of the one whose heads this home keeps.

Rules:
- Only for a store that is not the one of the kept heads: its database was deleted or replaced on purpose, or the store
  was restored by another home, as on another machine of the same server. A log that is merely shorter than the kept
  heads is restored instead: the newer state may still exist.
- The store's own log says so: it goes on under a new origin, and the `restore` entry cites the newest head that is
  given up, with the reason as its source. That entry needs a key that counts there.
- Heads of another store go to `state/former-heads`, after the entry is durable; they are never deleted.
"""

from pathlib import Path
from typing import Final

from holdproof.config import Paths
from holdproof.db import Tx, open_database
from holdproof.errors import ConflictError
from holdproof.evidence import log, restores, tree
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.backup import StartedOver
from holdproof.model.verdicts import Verdict
from holdproof.upkeep.backups import restore
from holdproof.upkeep.backups.restore_log import ReplacedStore, StagedCopy, record_restore
from holdproof.upkeep.verification import log_check

_SOURCE: Final = "started over"


def start_over(paths: Paths, target: str | Path, head_file: HeadFile, *, reason: str) -> StartedOver:
    """Record in the log of the store at `target` that it takes the place of another; needs the exclusive lock.

    ConflictError where the heads kept here are those of this very log, or where its restores were made here.
    """
    if isinstance(target, str):
        restore.server().refuse_open(target)
    database = open_database(target)
    try:
        current = restore.with_heads(head_file, ReplacedStore())
        staged, given_up = database.read(lambda tx: _survey(tx, head_file, reason)).result()
        current.head = given_up
        outcome = record_restore(
            database,
            KeyFolder(paths.keys),
            staged,
            current=current,
            erasures=(),
            before_commit=lambda record: head_file.record_restore(record.origin),
        )
    finally:
        database.close()
    head_file.publish(outcome.head)
    head_file.flush()
    aside = head_file.set_aside(f"holdproof/{staged.store_id}", paths.former_heads)
    return StartedOver(
        store_id=staged.store_id,
        origin=outcome.record.origin,
        given_up=given_up,
        former_heads=None if aside is None else str(aside),
        reason=reason,
    )


def _survey(tx: Tx, head_file: HeadFile, reason: str) -> tuple[StagedCopy, str]:
    """Return the store that is here, and the newest head that is given up; ConflictError if there is none."""
    parts = log_check.parts(tx)
    name, _ = log.generation(tree.state(tx).origin)
    foreign = head_file.stores_here() - {name}
    heads = head_file.kept_here()
    others = [each for each in heads if log.generation(each.checkpoint.origin)[0] in foreign]
    made_elsewhere = {each.origin for each in restores.history(tx)}
    strict = log.continuities(tx, heads, head_file.restored_here())
    lenient = log.continuities(tx, heads, made_elsewhere)
    others += [
        head
        for head, refused, accepted in zip(heads, strict, lenient, strict=True)
        if not refused.sound and accepted is Verdict.VALID
    ]
    if not others or not all(verdict.sound for verdict in lenient):
        raise ConflictError(
            "the heads kept here are of the very store that is here: restore a backup, or remove its database first",
            store_id=parts.store_id,
        )
    staged = StagedCopy(parts.store_id, parts.state.size, None, "itself", f"{_SOURCE}: {reason}")
    return staged, others[-1].encode().decode()
