"""Verifications in the log: who verified the store, when, how thoroughly, and what was found.

Rules:
- Each report is a row with its entry; rows are never changed.
- The first findings are kept by verdict and table, with the count of all of them; by row and in words only where the
  table is under the log, whose keys outlive an erasure as well. The path of a blob may name a person.
- A verification of what was written since another continues only one that found nothing, and only as its entry says.
  That entry stands behind what the report says it saw, so it is read again, and no edit of both goes unseen.
"""

import json
from collections.abc import Collection
from typing import Final, NamedTuple

from holdproof.db import Tx, sql
from holdproof.errors import TamperedError
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Report

VERIFICATIONS: Final = Projection(
    "verifications", 1, ("id", "who", "level", "verdict", "found", "findings", "log_size", "log_root", "verified_at")
)
LOGGED: Final = (logged_tables.describe(VERIFICATIONS, kinds=("verification",), key="id"),)
_MOST: Final = 100
_ADD = sql(
    "INSERT INTO verifications"
    " (id, who, level, verdict, found, findings, log_size, log_root, verified_at, leaf_id, leaf_ver, leaf_salt) VALUES"
    " (:id, :who, :level, :verdict, :found, :findings, :log_size, :log_root, :verified_at, :leaf_id, :leaf_ver,"
    " :leaf_salt)"
)


class Verified(NamedTuple):
    """What a verification saw: the log of that size and root, at that time."""

    size: int
    root: bytes
    at: str


FAST: Final = "fast"
FULL: Final = "full"
SINCE: Final = "since last"
"""How thorough a report is. One in full may be continued, and so may one of what was written since such a one."""

_SOUND: Final = frozenset(each.word for each in Verdict if each.sound)
_SOUND_WORDS: Final = ", ".join(f"'{word}'" for word in sorted(_SOUND))

_NEWEST: Final = logged_tables.selecting(
    *LOGGED,
    "id",
    "t.id = (SELECT v.id FROM verifications v"  # noqa: S608 (words from above)
    f" WHERE (v.level IN ('{FULL}', '{SINCE}') OR v.verdict NOT IN ({_SOUND_WORDS}))"
    # An entry that waits for the sequencer is signed by nobody yet.
    " AND EXISTS (SELECT 1 FROM log_leaves s WHERE s.id = v.leaf_id AND s.ver = v.leaf_ver)"
    " ORDER BY v.id DESC LIMIT 1)"
    # One that began before another found something, and ended after it, has not seen what that found.
    f" AND NOT EXISTS (SELECT 1 FROM verifications u WHERE u.verdict NOT IN ({_SOUND_WORDS})"
    f" AND u.id > (SELECT max(f.id) FROM verifications f WHERE f.level = '{FULL}' AND f.verdict IN ({_SOUND_WORDS})))",
)


def to_continue(tx: Tx) -> Verified | None:
    """Return what the newest verification saw, if it was thorough and found nothing.

    None if there is no such one, or one since then found something; TamperedError if its row is not its entry's.
    """
    rows = logged_tables.read(tx, _NEWEST)
    if not rows:
        return None
    [row] = rows
    [report] = logged_tables.confirm_rows(*LOGGED, rows)
    index = logged_tables.logged_row(row).leaf_index
    # An entry below the size it speaks of would not be read again: who edits it could have anything believed.
    if index is None or index < report["log_size"]:
        raise TamperedError("a report says that it saw its own entry", table="verifications", row=report["id"])
    if report["verdict"] not in _SOUND or not report["log_size"]:
        return None
    return Verified(report["log_size"], bytes.fromhex(report["log_root"]), report["verified_at"])


def record(tx: Tx, report: Report, *, who: str, logged: Collection[str]) -> None:
    """Record the report of a verification, with its entry; `logged` are the tables under the log."""
    findings = [
        {"verdict": each.verdict.word, "table": each.table}
        | ({"row": each.row, "what": each.what} if each.table in logged else {})
        for each in report.findings[:_MOST]
    ]
    row = {
        "id": tx.new_id(),
        "who": who,
        "level": report.mode,
        "verdict": report.verdict.word,
        "found": len(report.findings) + report.left_off,
        "findings": json.dumps(findings, separators=(",", ":")),
        "log_size": report.head.get("size", 0),
        "log_root": report.head.get("root", ""),
        "verified_at": tx.now,
    }
    mark = leaves.stamp(tx, "verification", VERIFICATIONS, row)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)
