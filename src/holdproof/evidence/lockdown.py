"""Lockdown: while it is in force no operation writes.

Rules:
- It is recorded in two places, a flag file outside the database and a row with its leaf; either one locks.
- A flag that cannot be read locks as well; deleting it does not unlock, and neither does an older database file.
- Every process notices: the flag is checked in each transaction, the row at least once a second.
- The lockdown's own records pass the gate (ungated writes); reads go on.
- Only a statement signed by root ends it, by the log key where there is no root key (upkeep/unlock.py).
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdproof import folders
from holdproof.content import disk
from holdproof.db import Database, Tx, sql
from holdproof.db.tx import Limiter
from holdproof.errors import ConfigError, LockedError
from holdproof.evidence import leaves, logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.model.verify import Locked

LOCKDOWNS = Projection("lockdowns", 1, ("id", "verdict", "reason", "findings", "locked_at", "unlocked_at", "statement"))
LOGGED: Final = (logged_tables.describe(LOCKDOWNS, kinds=("lockdown",), key="id"),)

_LOOK_S: Final = 1.0
_HURRY_S: Final = 5.0
_FLAG_BYTES: Final = 1 << 16


class Gate:
    """The hook that refuses writes: called before every operation of one open store."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._held: Locked | None = None
        self._looked = -1e9
        self._passed: object = None
        self._hurries_until = -1e9
        self.limits: Callable[[Tx], Limiter | None] = no_limits
        """Looks up what holds namespaces to their limits; here, so that it costs no call of its own."""
        self._limiter: Limiter | None = None

    def __call__(self, tx: Tx) -> None:
        """Raise LockedError while a lockdown is in force; checked once a transaction for all its operations."""
        # A group of operations shares one notes object, so identity means the same transaction.
        if tx.notes is self._passed:
            return
        if (locked := self.flag()) is not None:
            raise refusal(locked)
        now = time.monotonic()
        if now - self._looked >= _LOOK_S or now < self._hurries_until:
            if (locked := current(tx)) is not None:
                raise refusal(locked)
            self._limiter = self.limits(tx)
            self._looked = now
        tx.limiter = self._limiter
        self._passed = tx.notes  # a new one for each transaction

    def hurry(self) -> None:
        """Look in every transaction for a while: something that is looked up is about to be committed."""
        self._hurries_until = time.monotonic() + _HURRY_S

    def flag(self) -> Locked | None:
        """Return the lockdown that the flag records; None if there is no flag."""
        if self.path is None:
            return self._held
        return read_flag(self.path) if os.path.lexists(self.path) else None

    def put_up(self, locked: Locked) -> None:
        """Write the flag, durably; an existing one stays."""
        if self.path is None:
            self._held = self._held or locked
        elif not os.path.lexists(self.path):
            write_flag(self.path, locked)

    def take_down(self) -> None:
        """Remove the flag, if there is one."""
        self._held = None
        self._looked = -1e9
        if self.path is not None:
            with suppress(FileNotFoundError):
                self.path.unlink()


def no_limits(tx: Tx) -> Limiter | None:
    """Limit nothing."""
    del tx
    return None


def start(database: Database, path: Path | None) -> Gate:
    """Install the gate before every later operation of a store."""
    gate = Gate(path)
    database.hooks.gate.append(gate)
    return gate


def gate_of(database: Database) -> Gate:
    """Return the gate of an open store."""
    for each in database.hooks.gate:
        if isinstance(each, Gate):
            return each
    raise ConfigError("this database was opened without a lockdown")


def refusal(locked: Locked) -> LockedError:
    """Return the error that every write raises."""
    return LockedError(f"the store is locked since {locked.locked_at}: {locked.reason}", **locked.to_dict())


def read_flag(path: Path) -> Locked | None:
    """Return the lockdown that a flag file records; one that cannot be read is a lockdown too."""
    try:
        with path.open("rb") as file:
            facts: dict[str, Any] = json.loads(file.read(_FLAG_BYTES))
        return Locked(*(str(facts[name]) for name in ("id", "verdict", "reason", "locked_at")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, FileNotFoundError) and not os.path.lexists(path):  # a link to nothing is no missing flag
            return None
        return Locked("unknown", "TAMPERED", f"the flag {path} cannot be read ({type(error).__name__})", "unknown")


def write_flag(path: Path, locked: Locked) -> None:
    """Write a flag file: complete or not at all, and durable."""
    with disk.translated(path):
        folders.make(path.parent)
        disk.exchange(path, json.dumps(locked.to_dict(), indent=2).encode())


class _Lockdown(NamedTuple):
    """A row of `lockdowns`."""

    id: str
    verdict: str
    reason: str
    findings: str
    locked_at: str
    unlocked_at: str | None
    statement: str | None
    leaf_id: str
    leaf_ver: int


_COLUMNS: Final = ", ".join(_Lockdown._fields)
_CURRENT = sql(f"SELECT {_COLUMNS} FROM lockdowns WHERE unlocked_at IS NULL ORDER BY locked_at, id LIMIT 1")  # noqa: S608


def current(tx: Tx) -> Locked | None:
    """Return the lockdown in force, as the database records it."""
    row = tx.one(_CURRENT)
    if row is None:
        return None
    stored = _Lockdown(*row)
    return Locked(stored.id, stored.verdict, stored.reason, stored.locked_at)


_BY_ID = sql(f"SELECT {_COLUMNS} FROM lockdowns WHERE id = :id")  # noqa: S608
_ADD = sql(
    "INSERT INTO lockdowns (id, verdict, reason, findings, locked_at, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:id, :verdict, :reason, :findings, :locked_at, :leaf_id, :leaf_ver, :leaf_salt)"
)


def record(tx: Tx, locked: Locked, *, findings: str) -> Locked:
    """Record the lockdown in the database, with its leaf; one that is in force already is returned instead."""
    if (standing := current(tx)) is not None:
        return standing
    if tx.one(_BY_ID, id=locked.id) is None:
        _insert(tx, locked, findings)
    return locked


def _insert(tx: Tx, locked: Locked, findings: str) -> None:
    row = {**locked.to_dict(), "findings": findings}
    # A flag that could not be read has no time; the column needs one.
    if locked.locked_at == "unknown":
        row["locked_at"] = tx.now
    mark = leaves.stamp(tx, "lockdown", LOCKDOWNS, {**row, "unlocked_at": None, "statement": None})
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)


_END = sql(
    "UPDATE lockdowns SET unlocked_at = :unlocked_at, statement = :statement, leaf_ver = :leaf_ver,"
    " leaf_salt = :leaf_salt WHERE id = :id AND unlocked_at IS NULL"
)


def end(tx: Tx, locked: Locked, *, statement: str) -> Locked:
    """End a lockdown, with a leaf; one that the database does not have (it was restored) is recorded first."""
    row = tx.one(_BY_ID, id=locked.id)
    if row is None:
        _insert(tx, locked, "[]")
        row = tx.one(_BY_ID, id=locked.id)
    assert row is not None, "just written"
    stored = _Lockdown(*row)
    if stored.unlocked_at is None:
        _close(tx, stored, statement)
    return replace(locked, locked_at=stored.locked_at)


def _close(tx: Tx, stored: _Lockdown, statement: str) -> None:
    content = {column: getattr(stored, column) for column in LOCKDOWNS.columns}
    content |= {"unlocked_at": tx.now, "statement": statement}
    mark = leaves.stamp(tx, "lockdown", LOCKDOWNS, content, leaf_id=stored.leaf_id, leaf_ver=stored.leaf_ver + 1)
    tx.execute(
        _END,
        id=stored.id,
        unlocked_at=tx.now,
        statement=statement,
        leaf_ver=mark.leaf_ver,
        leaf_salt=mark.leaf_salt,
        expect=1,
    )
