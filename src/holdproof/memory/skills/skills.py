"""Skills: files that agents act by. Only what was approved is loaded, and only as it was approved.

Rules:
- An approval is a row with a leaf and a signature, in one transaction; nothing is ever overwritten, the newest counts.
- Approving is guarded by number: whoever was overtaken since the file was read is refused.
- What is loaded is read once, through no link, hashed, compared with the approved root, and those bytes are the answer:
  whatever becomes of the file meanwhile, nothing else is ever handed out.
- Another root, a link, a pipe, a revoked or unlisted skill, or an approval that does not hold (skillproofs.py) locks
  the skill: a row with a leaf that names what changed. It stays locked, whatever the file says later, until something
  is said of it anew.
- A file that is gone is not found, and locks nothing: there is nothing to act by.
- Telling people is not done here (upkeep/skill_watch.py).
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

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
from holdproof.evidence import keys, leaves, logged_tables, tree
from holdproof.evidence.leaves import Projection
from holdproof.memory.skills import proofs, skill_blocks, skill_files
from holdproof.memory.skills.proofs import Ring
from holdproof.memory.skills.skill_files import NotAFileError
from holdproof.model.skills import (
    Approval,
    Block,
    Fingerprint,
    Skill,
    SkillLockdown,
    SkillPage,
    SkillState,
)
from holdproof.store.context import Context
from holdproof.validation import limited

MAIN: Final = "main"
MOST_BLOCKS: Final = 10_000
_MOST_WORDS: Final = 1_000

APPROVALS: Final = Projection("skill_approvals", 1, ("id", *proofs.SAID, "blocks", "keyid", "statement"))
LOCKDOWNS: Final = Projection(
    "skill_lockdowns", 1, ("id", "ns", "path", "against", "reason", "changes", "root", "locked_at")
)
logged_tables.register(APPROVALS, kinds=("skill",), key="id")
logged_tables.register(LOCKDOWNS, kinds=("skill",), key="id")

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


class Standing(NamedTuple):
    """What the database holds of a skill, and the blocks that were approved."""

    skill: Skill
    blocks: tuple[Block, ...] = ()


def standing(tx: Tx, path: str, *, ns: str = MAIN, ring: Ring | None = None) -> Standing:
    """What the database holds of a skill, checked: row, statement, signature and key."""
    row = tx.one(_STANDING, ns=ns, path=path)
    lockdown = locked(tx, path, against=0 if row is None else row[2], ns=ns)
    if row is None:
        return Standing(Skill(path, SkillState.LOCKED if lockdown else SkillState.UNLISTED, None, lockdown))
    flaw, blocks = "", tuple[Block, ...]()
    try:
        blocks = check(row, ring or read_ring(tx))
    except (ProofError, RevokedKeyError) as error:
        flaw = error.message
    state = SkillState.INVALID if flaw else _STATES.get(row[3], SkillState.INVALID)
    return Standing(Skill(path, SkillState.LOCKED if lockdown else state, Approval(*row[:13]), lockdown, flaw), blocks)


_STATES: Final = {"approve": SkillState.APPROVED, "revoke": SkillState.REVOKED}


def locked(tx: Tx, path: str, *, against: int, ns: str = MAIN) -> SkillLockdown | None:
    """The lockdown of a skill that was found against what was said last, if there is one."""
    row = tx.one(_LOCKED, ns=ns, path=path, against=against)
    if row is None:
        return None
    id, _, _, reason, changes, root, since, _ = row
    return SkillLockdown(id, path, against, reason, tuple(json.loads(changes)), root, since, ns)


def read_ring(tx: Tx) -> Ring:
    """Whose signatures count."""
    known = {key.keyid: key for key in keys.keyring(tx) if key.role == "memory"}
    return Ring(known, frozenset(keys.flaws(tx)), frozenset(keys.origins(tx)))


def check(row: Row, ring: Ring) -> tuple[Block, ...]:
    """The blocks of an approval that holds; ProofError or RevokedKeyError if it does not."""
    facts = dict(zip((*Approval.__slots__, "blocks", "statement"), row[:15], strict=True))
    blocks = read_blocks(row[13])
    proofs.check(facts, blocks, index=row[15], ring=ring)
    return blocks


def read_blocks(text: str) -> tuple[Block, ...]:
    """The blocks of an approval; ProofError if somebody put something else there."""
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
    """What is known of a skill; its file is not looked at."""
    return standing(tx, skill_files.absolute(path), ns=ns).skill


_PATHS = sql(
    "SELECT path FROM skill_approvals WHERE ns = :ns AND path > :after"
    " UNION SELECT path FROM skill_lockdowns WHERE ns = :ns AND path > :after ORDER BY path LIMIT :limit"
)


def list(tx: Tx, *, after: str = "", limit: int = 100, ns: str = MAIN) -> SkillPage:
    """Every skill that something was ever said or found of, by path, a page at a time; no file is looked at."""
    paths = [row[0] for row in tx.all(_PATHS, ns=ns, after=after, limit=limited(limit))]
    ring = read_ring(tx)
    found = tuple(standing(tx, path, ns=ns, ring=ring).skill for path in paths)
    return SkillPage(found, paths[-1] if len(paths) == limit else None)


# --- saying it ---------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """A file as it was read."""

    place: str
    data: bytes
    fingerprint: Fingerprint


def fingerprint(path: str) -> Work[Fingerprint]:
    """What a file is by its blocks, for whoever is to approve it; nothing is recorded."""
    read: Reading = yield from ask(Call(partial(_look, skill_files.absolute(path))))
    return read.fingerprint


def approve(
    context: Context, path: str, *, by: str, comment: str = "", root: str | None = None, ns: str = MAIN
) -> Work[Approval]:
    """Approve a file as it is now; with `root`, only if it still is the one that was looked at."""
    name = skill_files.absolute(path)
    newest = yield from ask(Read(lambda tx: _newest(tx, name, ns)))
    read: Reading = yield from ask(Call(partial(_look, name)))
    found = read.fingerprint
    if root is not None and root != found.root:
        raise ConflictError(f"{name} is not the file with that root any more", path=name, root=found.root)
    said = {"action": "approve", "place": read.place, "rules": found.rules, "root": found.root, "size": found.size}
    return (yield from _say(context, name, said, found.blocks, n=newest + 1, by=by, comment=comment, ns=ns))


def _look(name: str) -> Reading:
    place = skill_files.place_of(name)
    try:
        data = skill_files.read(place)
    except NotAFileError as error:
        raise InvalidInputError(f"{name} cannot be approved: {error}", path=name) from error
    found = skill_blocks.divide(data, skill_blocks.rules_of(name))
    if len(found.blocks) > MOST_BLOCKS:
        raise InvalidInputError(f"{name} cannot be approved: more than {MOST_BLOCKS} blocks", path=name)
    return Reading(place, data, found)


def revoke(context: Context, path: str, *, by: str, comment: str = "", ns: str = MAIN) -> Work[Approval]:
    """Take the approval of a skill back: nothing is loaded under its name until it is approved again."""
    name = skill_files.absolute(path)
    last = (yield from ask(Read(lambda tx: standing(tx, name, ns=ns)))).skill.approval
    if last is None or last.action == "revoke":
        raise NotFoundError(f"{name} is not approved", path=name)
    said = {"action": "revoke", "place": last.place, "rules": last.rules, "root": last.root, "size": last.size}
    return (yield from _say(context, name, said, (), n=last.n + 1, by=by, comment=comment, ns=ns))


def _say(
    context: Context,
    path: str,
    said: Mapping[str, Any],
    blocks: tuple[Block, ...],
    *,
    n: int,
    by: str,
    comment: str,
    ns: str,
) -> Work[Approval]:
    signer: Signer = yield from keys.use(context, "memory")
    origin, now = yield from ask(Read(lambda tx: (tree.state(tx).origin, tx.now)))
    row = {**said, "path": path, "n": n, "ns": _words("the namespace", ns, least=1)}
    row |= {"approved_by": _words("by", by, least=1), "comment": _words("comment", comment), "approved_at": now}
    statement: str = yield from ask(Call(lambda: proofs.sign(row, origin, signer)))
    row |= {"blocks": _write_blocks(blocks), "keyid": signer.keyid, "statement": statement}
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
    row = tx.one(_NEWEST, ns=ns, path=path)
    assert row is not None, "an aggregate has one row"
    return int(row[0])


def _record(tx: Tx, row: Mapping[str, Any]) -> Approval:
    """Row and leaf; refused if something was said since, or the key went meanwhile."""
    if not keys.is_registered(tx, row["keyid"], "memory"):
        raise UnknownKeyError("the memory key is not in the keyring any more", keyid=row["keyid"])
    made = {"id": tx.new_id(), **row}
    mark = leaves.stamp(tx, "skill", APPROVALS, made, ns=row["ns"])
    if tx.count(_ADD, **made, **mark._asdict()) == 0:
        raise ConflictError(f"something was said of {row['path']} meanwhile; look again", path=row["path"])
    tx.notify(f"skills:{row['ns']}")
    return Approval(*(made[name] for name in Approval.__slots__))


# --- checking what was said --------------------------------------------------------------------------------------

_ROWS = sql(
    f"SELECT {_COLUMNS}, a.blocks, a.statement, l.idx FROM skill_approvals a"  # noqa: S608
    " LEFT JOIN log_leaves l ON l.id = a.leaf_id AND l.ver = 1 WHERE a.id > :after ORDER BY a.id LIMIT :limit"
)


def flaws(tx: Tx, after: str, *, limit: int = 100) -> tuple[int, dict[str, Exception], str | None]:
    """Of a page of approvals: how many there are, which do not hold and why, and after which the next page begins."""
    rows, ring = tx.all(_ROWS, after=after, limit=limit), read_ring(tx)
    wrong: dict[str, Exception] = {}
    for row in rows:
        try:
            check(row, ring)
        except (ProofError, RevokedKeyError) as error:
            wrong[row[0]] = error
    return len(rows), wrong, rows[-1][0] if len(rows) == limit else None
