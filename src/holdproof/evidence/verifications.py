"""Verifications in the log: who verified the store, when, how thoroughly, and what was found.

Rules:
- Each report is a row with its entry; rows are never changed.
- The first findings are kept by verdict and table, with the count of all of them; by row and in words only where the
  table is under the log, whose keys outlive an erasure as well. The path of a blob may name a person.
"""

import json
from collections.abc import Collection
from typing import Final

from holdproof.db import Tx, sql
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
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
