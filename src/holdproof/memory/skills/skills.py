"""Skills: files that agents act by. Only what was approved is loaded, and only as it was approved.

Rules:
- An approval is a row with a leaf and a signature, in one transaction; nothing is ever overwritten, the newest counts.
- Statements about a path are numbered: an approval is refused if another one was recorded since the file was read.
- What is loaded is read once, through no link, hashed, compared with the approved root, and those bytes are the answer:
  whatever becomes of the file meanwhile, nothing else is ever handed out.
- Another root, a link, a pipe, a revoked skill, or an approval that does not hold (proofs.py) locks the skill: a row
  with a leaf that names what changed. It stays locked, whatever the file says later, until something is said of it
  anew.
- A file that nobody ever approved is UNAPPROVED: it is not loaded, and nothing is locked.
- A file that is gone is not found, and locks nothing: there is nothing to act by.
- Telling people is not done here (upkeep/skill_watch.py).
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof import paging
from holdproof.crypto.keys import Signer
from holdproof.db import Call, Read, Row, Tx, Work, Write, ask, sql
from holdproof.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ProofError,
    RevokedKeyError,
    UnknownKeyError,
)
from holdproof.evidence import key_use, keys, leaves, logged_tables, tree
from holdproof.evidence.leaves import Projection
from holdproof.memory.skills import proofs, skill_blocks, skill_files
from holdproof.memory.skills.proofs import Ring
from holdproof.memory.skills.skill_files import NotAFileError
from holdproof.model.page import Page
from holdproof.model.skills import (
    Approval,
    Block,
    Fingerprint,
    Skill,
    SkillLockdown,
    SkillState,
)
from holdproof.store.context import Context

MAIN: Final = "main"
MOST_BLOCKS: Final = 10_000
_MOST_WORDS: Final = 1_000

APPROVALS: Final = Projection("skill_approvals", 1, ("id", *proofs.SIGNED, "blocks", "keyid", "statement"))
LOCKDOWNS: Final = Projection(
    "skill_lockdowns", 1, ("id", "ns", "path", "against", "reason", "changes", "root", "locked_at")
)
LOGGED: Final = (
    logged_tables.describe(APPROVALS, kinds=("skill",), key="id"),
    logged_tables.describe(LOCKDOWNS, kinds=("skill",), key="id"),
)

# --- what was said -----------------------------------------------------------------------------------------------

_COLUMNS: Final = (
    "a.id, a.path, a.n, a.action, a.place, a.rules, a.root, a.size, a.approved_by, a.comment, a.approved_at, a.keyid,"
    " a.ns"
)
_STANDING = sql(
    f"SELECT {_COLUMNS}, a.blocks, a.statement, l.idx FROM skill_approvals a"  # noqa: S608
    " LEFT JOIN log_leaves l ON l.id = a.leaf_id AND l.ver = 1"
    " WHERE a.ns = :ns AND a.path = :path ORDER BY a.n DESC LIMIT 1"
)
_LOCKED = sql(
    "SELECT id, path, against, reason, changes, root, locked_at, ns FROM skill_lockdowns"
    " WHERE ns = :ns AND path = :path AND against = :against"
)


class _ApprovalRow(NamedTuple):
    """A row of `skill_approvals` as a value, with what proves it."""

    approval: Approval
    blocks: str
    statement: str
    log_index: int | None

    @classmethod
    def of(cls, row: Row) -> "_ApprovalRow":
        """Split a row that was selected as `_COLUMNS`, blocks, statement and the index of its leaf."""
        *columns, blocks, statement, log_index = row
        return cls(Approval(*columns), blocks, statement, log_index)


class Standing(NamedTuple):
    """What the database holds of a skill, and the blocks that were approved."""

    skill: Skill
    blocks: tuple[Block, ...] = ()


def standing(tx: Tx, path: str, *, ns: str = MAIN, ring: Ring | None = None) -> Standing:
    """Return what the database holds of a skill, after checking row, statement, signature and key."""
    columns = tx.one(_STANDING, ns=ns, path=path)
    row = None if columns is None else _ApprovalRow.of(columns)
    lockdown = locked(tx, path, against=0 if row is None else row.approval.n, ns=ns)
    if row is None:
        return Standing(Skill(path, SkillState.LOCKED if lockdown else SkillState.UNAPPROVED, None, lockdown))
    flaw = ""
    blocks = tuple[Block, ...]()
    try:
        blocks = check(row, ring or read_ring(tx))
    except (ProofError, RevokedKeyError) as error:
        flaw = error.message
    state = SkillState.INVALID if flaw else _STATES.get(row.approval.action, SkillState.INVALID)
    return Standing(Skill(path, SkillState.LOCKED if lockdown else state, row.approval, lockdown, flaw), blocks)


_STATES: Final = {"approve": SkillState.APPROVED, "revoke": SkillState.REVOKED}


def locked(tx: Tx, path: str, *, against: int, ns: str = MAIN) -> SkillLockdown | None:
    """Return the lockdown of a skill that was found against what was said last, if there is one."""
    row = tx.one(_LOCKED, ns=ns, path=path, against=against)
    if row is None:
        return None
    id, _, _, reason, changes, root, since, _ = row
    return SkillLockdown(id, path, against, reason, tuple(json.loads(changes)), root, since, ns)


def read_ring(tx: Tx) -> Ring:
    """Return whose signatures count."""
    by_keyid = {key.keyid: key for key in keys.keyring(tx) if key.role == "memory"}
    return Ring(by_keyid, frozenset(keys.flaws(tx)), frozenset(keys.origins(tx)))


def check(row: _ApprovalRow, ring: Ring) -> tuple[Block, ...]:
    """Return the blocks of an approval that holds; ProofError or RevokedKeyError if it does not."""
    blocks = read_blocks(row.blocks)
    columns = {name: getattr(row.approval, name) for name in Approval.__slots__}
    proofs.check({**columns, "statement": row.statement}, blocks, index=row.log_index, ring=ring)
    return blocks


def read_blocks(text: str) -> tuple[Block, ...]:
    """Return the blocks of an approval; ProofError if somebody put something else there."""
    try:
        blocks = tuple(Block(*each) for each in json.loads(text))
        skill_blocks.root_of([block.hash for block in blocks])
    except (ValueError, TypeError, RecursionError) as error:
        raise ProofError("its blocks are none") from error
    return blocks


def _write_blocks(blocks: tuple[Block, ...]) -> str:
    listed = [[each.kind, each.title, each.line, each.size, each.hash] for each in blocks]
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":"))


def status(tx: Tx, path: str, *, ns: str = MAIN) -> Skill:
    """Return what is known of a skill; its file is not looked at."""
    return standing(tx, skill_files.absolute(path), ns=ns).skill


_PATHS = sql(
    "SELECT path FROM skill_approvals WHERE ns = :ns AND path > :after"
    " UNION SELECT path FROM skill_lockdowns WHERE ns = :ns AND path > :after ORDER BY path LIMIT :limit"
)


def list(tx: Tx, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[Skill]:
    """List every skill that was ever approved, revoked or locked, by path; no file is read."""
    (after,) = paging.decode(cursor, "")
    page = paging.page(tx.all(_PATHS, ns=ns, after=after, limit=paging.fetch(limit)), limit, tuple)
    ring = read_ring(tx)
    return Page([standing(tx, path, ns=ns, ring=ring).skill for (path,) in page.items], page.next_cursor)


# --- saying it ---------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """A file as it was read."""

    place: str
    data: bytes
    fingerprint: Fingerprint


def fingerprint(path: str) -> Work[Fingerprint]:
    """Read a file and return its blocks and root, for a review before approval; nothing is recorded."""
    read: Reading = yield from ask(Call(partial(_look, skill_files.absolute(path))))
    return read.fingerprint


def approve(
    context: Context, path: str, *, by: str, comment: str = "", root: str | None = None, ns: str = MAIN
) -> Work[Approval]:
    """Approve a file as it is now; with `root`, only if it still is the one that was looked at."""
    name = skill_files.absolute(path)
    # The number is read before the file: if somebody approves meanwhile, this approval is a ConflictError.
    newest = yield from ask(Read(lambda tx: _newest(tx, name, ns)))
    read: Reading = yield from ask(Call(partial(_look, name)))
    current = read.fingerprint
    if root is not None and root != current.root:
        raise ConflictError(f"{name} is not the file with that root any more", path=name, root=current.root)
    columns: dict[str, Any] = {"action": "approve", "place": read.place}
    columns |= {"rules": current.rules, "root": current.root, "size": current.size}
    statement = _Statement(name, newest + 1, columns, current.blocks, by, comment, ns)
    return (yield from _record_statement(context, statement))


def _look(name: str) -> Reading:
    place = skill_files.place_of(name)
    try:
        data = skill_files.read(place)
    except NotAFileError as error:
        raise InvalidInputError(f"{name} cannot be approved: {error}", path=name) from error
    fingerprint = skill_blocks.divide(data, skill_blocks.rules_of(name))
    if len(fingerprint.blocks) > MOST_BLOCKS:
        raise InvalidInputError(f"{name} cannot be approved: more than {MOST_BLOCKS} blocks", path=name)
    return Reading(place, data, fingerprint)


def revoke(context: Context, path: str, *, by: str, comment: str = "", ns: str = MAIN) -> Work[Approval]:
    """Take the approval of a skill back: nothing is loaded under its name until it is approved again."""
    name = skill_files.absolute(path)
    last = (yield from ask(Read(lambda tx: standing(tx, name, ns=ns)))).skill.approval
    if last is None or last.action == "revoke":
        raise NotFoundError(f"{name} is not approved", listed_by="skills list", path=name)
    columns = {"action": "revoke", "place": last.place, "rules": last.rules, "root": last.root, "size": last.size}
    statement = _Statement(name, last.n + 1, columns, (), by, comment, ns)
    return (yield from _record_statement(context, statement))


class _Statement(NamedTuple):
    """An approval or a revocation that is to be signed and recorded."""

    path: str
    n: int
    columns: Mapping[str, Any]
    blocks: tuple[Block, ...]
    by: str
    comment: str
    ns: str


def _record_statement(context: Context, statement: _Statement) -> Work[Approval]:
    """Sign a statement outside the transaction, then write its row and leaf."""
    signer: Signer = yield from key_use.use(context, "memory")
    origin, now = yield from ask(Read(lambda tx: (tree.state(tx).origin, tx.now)))
    row = {**statement.columns, "path": statement.path, "n": statement.n, "approved_at": now}
    row["ns"] = _words("the namespace", statement.ns, least=1)
    row["approved_by"] = _words("by", statement.by, least=1)
    row["comment"] = _words("comment", statement.comment)
    envelope: str = yield from ask(Call(lambda: proofs.sign(row, origin, signer)))
    row |= {"blocks": _write_blocks(statement.blocks), "keyid": signer.keyid, "statement": envelope}
    return (yield from ask(Write(lambda tx: _record(tx, row))))


def _words(what: str, text: str, *, least: int = 0) -> str:
    if not least <= len(text) <= _MOST_WORDS or not text.isprintable():
        raise InvalidInputError(
            f"{what} is a printable text of {least} to {_MOST_WORDS} characters", value=str(text)[:80]
        )
    return text


_NEWEST = sql("SELECT coalesce(max(n), 0) FROM skill_approvals WHERE ns = :ns AND path = :path")
_ADD = sql(
    "INSERT INTO skill_approvals (id, ns, path, n, action, place, rules, root, size, blocks, approved_by, comment,"
    " approved_at, keyid, statement, leaf_id, leaf_ver, leaf_salt) SELECT :id, :ns, :path, :n, :action, :place, :rules,"
    " :root, :size, :blocks, :approved_by, :comment, :approved_at, :keyid, :statement, :leaf_id, :leaf_ver, :leaf_salt"
    " WHERE :n = (SELECT coalesce(max(n), 0) + 1 FROM skill_approvals WHERE ns = :ns AND path = :path)"
)


def _newest(tx: Tx, path: str, ns: str) -> int:
    [(number,)] = tx.all(_NEWEST, ns=ns, path=path)
    return int(number)


def _record(tx: Tx, row: Mapping[str, Any]) -> Approval:
    """Row and leaf; refused if something was said since, or the key went meanwhile."""
    if not keys.is_registered(tx, row["keyid"], "memory"):
        raise UnknownKeyError("the memory key is not in the keyring any more", keyid=row["keyid"])
    columns = {"id": tx.new_id(), **row}
    mark = leaves.stamp(tx, "skill", APPROVALS, columns, ns=row["ns"])
    # The insert itself checks that no newer statement exists: there is no gap between check and write.
    if tx.count(_ADD, **columns, **mark._asdict()) == 0:
        raise ConflictError(f"something was said of {row['path']} meanwhile; look again", path=row["path"])
    tx.notify(f"skills:{row['ns']}")
    return Approval(*(columns[name] for name in Approval.__slots__))


# --- checking what was said --------------------------------------------------------------------------------------

_ROWS = sql(
    f"SELECT {_COLUMNS}, a.blocks, a.statement, l.idx FROM skill_approvals a"  # noqa: S608
    " LEFT JOIN log_leaves l ON l.id = a.leaf_id AND l.ver = 1 WHERE a.id > :after ORDER BY a.id LIMIT :limit"
)


def flaws(tx: Tx, after: str, *, limit: int = 100) -> tuple[int, dict[str, Exception], str | None]:
    """Verify a page of approvals: how many there are, which do not hold and why, and where the next page begins."""
    rows = [_ApprovalRow.of(row) for row in tx.all(_ROWS, after=after, limit=limit)]
    ring = read_ring(tx)
    wrong: dict[str, Exception] = {}
    for row in rows:
        try:
            check(row, ring)
        except (ProofError, RevokedKeyError) as error:
            wrong[row.approval.id] = error
    return len(rows), wrong, rows[-1].approval.id if len(rows) == limit else None
