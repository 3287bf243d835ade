"""Looking at a skill's file and comparing it with what was approved; and locking it where it is something else.

Rules:
- A file is read once, and what is handed out are the bytes that were hashed.
- What is locked already is not even read.
- One lockdown stands against one approval: who finds the same once more changes nothing, and whoever approves anew
  leaves it behind.
"""

import json
from functools import partial
from typing import Final, NamedTuple

from holdproof.db import Call, Read, Tx, Work, ask, sql
from holdproof.errors import HoldproofError, NotFoundError, UnavailableError
from holdproof.evidence import leaves
from holdproof.memory.skills import skill_blocks, skill_files, skills
from holdproof.memory.skills.skill_files import NotAFileError
from holdproof.memory.skills.skills import MAIN
from holdproof.model.skills import Approval, Block, LoadedSkill, Skill, SkillLockdown, SkillState


class Examined(NamedTuple):
    """What came of looking at a skill's file: the bytes if all is well, else what is wrong."""

    skill: Skill
    loaded: LoadedSkill | None = None
    problem: str = ""
    """Why it is to be locked; empty where it is locked already, or missing."""
    changes: tuple[str, ...] = ()
    root: str | None = None
    error: HoldproofError | None = None
    """Why there is nothing to look at."""


def examine(path: str, *, ns: str = MAIN) -> Work[Examined]:
    """Read a skill's file once and compare it with what was approved; nothing is recorded."""
    name = skill_files.absolute(path)
    record = yield from ask(Read(lambda tx: skills.standing(tx, name, ns=ns)))
    skill = record.skill
    # A locked skill is not even read: whatever the file says now, a person has to approve it anew.
    if skill.state is SkillState.LOCKED:
        return Examined(skill)
    if skill.state is SkillState.APPROVED and skill.approval is not None:
        return (yield from ask(Call(partial(_compare, skill, skill.approval, record.blocks))))
    there: bool = yield from ask(Call(lambda: skill_files.exists(name)))
    if skill.state is SkillState.UNAPPROVED and not there:
        missing = NotFoundError(f"{name}: no such file", path=name)
        return Examined(Skill(name, SkillState.MISSING, flaw=missing.message), error=missing)
    return Examined(skill, problem=_WHY[skill.state] + skill.flaw)


_WHY: Final = {
    SkillState.UNAPPROVED: "nobody approved it",
    SkillState.REVOKED: "its approval was revoked",
    SkillState.INVALID: "its approval does not hold: ",
}


def _compare(skill: Skill, approval: Approval, blocks: tuple[Block, ...]) -> Examined:
    try:
        data = skill_files.read(approval.place)
    except (NotFoundError, UnavailableError) as error:
        return Examined(Skill(skill.path, SkillState.MISSING, approval, None, error.message), error=error)
    except NotAFileError as error:
        return Examined(skill, problem=str(error))
    fingerprint = skill_blocks.divide(data, approval.rules)
    if fingerprint.root == approval.root:
        return Examined(skill, LoadedSkill(skill.path, data, approval))
    changes = skill_blocks.compare(blocks, fingerprint.blocks)
    return Examined(skill, None, f"it is not the file that was approved: {changes[0]}", changes, fingerprint.root)


# --- locking it --------------------------------------------------------------------------------------------------

_LOCK = sql(
    "INSERT INTO skill_lockdowns (id, ns, path, against, reason, changes, root, locked_at, leaf_id, leaf_ver,"
    " leaf_salt) VALUES (:id, :ns, :path, :against, :reason, :changes, :root, :locked_at, :leaf_id, :leaf_ver,"
    " :leaf_salt)"
)


def lock(tx: Tx, examination: Examined, *, ns: str = MAIN) -> tuple[SkillLockdown, bool]:
    """Record what was found, with its leaf; the lockdown, and whether it is new: one that stands stays the one."""
    path = examination.skill.path
    against = examination.skill.approval.n if examination.skill.approval else 0
    standing = skills.locked(tx, path, against=against, ns=ns)
    if standing is not None:
        return standing, False
    lockdown = SkillLockdown(
        tx.new_id(), path, against, examination.problem, examination.changes, examination.root, tx.now, ns
    )
    facts = {**lockdown.to_dict(), "changes": json.dumps(lockdown.changes, ensure_ascii=False)}
    mark = leaves.stamp(tx, "skill", skills.LOCKDOWNS, facts, ns=ns)
    tx.execute(_LOCK, **facts, **mark._asdict(), expect=1)
    tx.notify(f"skills:{ns}")
    return lockdown, True
