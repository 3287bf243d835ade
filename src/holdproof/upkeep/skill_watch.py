"""Skills at work: loaded, verified and watched, and what happens when one is not the approved one.

Rules:
- Nothing but the approved bytes is ever handed out: whatever fails on the way of telling people, the load is refused.
- The first who finds something else locks the skill and tells: the row with its leaf, the operator's question, the
  alerts. Whoever comes later is refused, and nobody is told again.
- In a store that is locked itself nothing is recorded, and that was told already; the load is refused all the same.
- What is said next of a skill, be it an approval or a revocation, ends the lockdown and answers the question.
"""

import logging
import os
from functools import partial
from typing import Final

from holdproof.db import Call, Read, Work, Write, ask
from holdproof.db.effects import Give, Stream, Wait
from holdproof.errors import ConstraintError, HoldproofError, InvalidInputError, SkillLockedError
from holdproof.memory.skills import loads, skill_files, skills
from holdproof.memory.skills.loads import Examined
from holdproof.memory.skills.skills import MAIN
from holdproof.model.page import Page
from holdproof.model.skills import Approval, LoadedSkill, Skill, SkillLockdown, SkillState
from holdproof.model.times import later
from holdproof.model.verify import Locked
from holdproof.store.context import Context
from holdproof.upkeep import alarm, notify
from holdproof.upkeep.notify import Alert
from holdproof.upkeep.verification import log_check

_log = logging.getLogger("holdproof")

_PAGE: Final = 100
_STEPS: Final = "look at the file and who changed it, then approve the one you trust: `holdproof skills approve`"

# --- saying ------------------------------------------------------------------------------------------------------


def approve(
    context: Context, path: str, *, by: str, comment: str = "", root: str | None = None, ns: str = MAIN
) -> Work[Approval]:
    """Approve a skill file as it is now, or with `root` only if it still has that one; ends its lockdown."""
    name = skill_files.absolute(path)
    before = yield from ask(Read(lambda tx: skills.status(tx, name, ns=ns)))
    made = yield from skills.approve(context, name, by=by, comment=comment, root=root, ns=ns)
    yield from _answer(context, before.lockdown, made)
    return made


def revoke(context: Context, path: str, *, by: str, comment: str = "", ns: str = MAIN) -> Work[Approval]:
    """Take an approval back: the skill is not loaded until it is approved again."""
    name = skill_files.absolute(path)
    before = yield from ask(Read(lambda tx: skills.status(tx, name, ns=ns)))
    made = yield from skills.revoke(context, name, by=by, comment=comment, ns=ns)
    yield from _answer(context, before.lockdown, made)
    return made


def _answer(context: Context, ended: SkillLockdown | None, made: Approval) -> Work[None]:
    if ended is not None:
        said = f"{'approved again' if made.action == 'approve' else 'revoked'} by {made.approved_by}"
        about = partial(alarm.answer, context.database, _as_locked(ended), reason=said, by=made.approved_by)
        answered: str = yield from ask(Call(about))
        _log.warning("the lockdown of the skill %s was ended: %s (escalation %s)", made.path, said, answered)


# --- loading -----------------------------------------------------------------------------------------------------


def load(context: Context, path: str, *, ns: str = MAIN) -> Work[LoadedSkill]:
    """The bytes of a skill, read once and found to be the approved ones; SkillLockedError if they are not."""
    found = yield from loads.examine(path, ns=ns)
    if found.loaded is not None:
        return found.loaded
    if found.error is not None:
        raise found.error
    skill = yield from _respond(context, found, ns=ns)
    raise _refusal(skill, found)


def _refusal(skill: Skill, found: Examined) -> SkillLockedError:
    locked = skill.lockdown
    reason = locked.reason if locked else found.problem
    return SkillLockedError(
        f"the skill {skill.path} is locked: {reason}",
        path=skill.path,
        reason=reason,
        changes=list(locked.changes if locked else found.changes),
        lockdown=locked.id if locked else None,
        locked_at=locked.locked_at if locked else None,
    )


def verify(context: Context, *paths: str | os.PathLike[str], lock: bool = True, ns: str = MAIN) -> Work[Page[Skill]]:
    """Look at the files of these skills, or of all that are listed; with `lock` what is not approved is locked."""
    found = []
    for path in paths or (yield from _listed(ns)):
        examined = yield from loads.examine(os.fspath(path), ns=ns)
        found.append((yield from _respond(context, examined, ns=ns)) if lock else _as_is(examined))
    return Page(found)


def _as_is(found: Examined) -> Skill:
    """What was found where nothing is recorded of it."""
    if not found.problem or found.skill.state is not SkillState.APPROVED:
        return found.skill
    return Skill(found.skill.path, SkillState.LOCKED, found.skill.approval, None, found.problem)


def _listed(ns: str) -> Work[list[str]]:
    paths: list[str] = []
    cursor: str | None = None
    while True:
        page = yield from ask(Read(partial(skills.list, cursor=cursor, limit=_PAGE, ns=ns)))
        paths += [each.path for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return paths


def watch(
    context: Context, *paths: str, every_s: float = 2.0, rounds: int | None = None, ns: str = MAIN
) -> Stream[Skill]:
    """Verify again and again; gives every skill once, and then each that has changed, for ever or so many rounds."""
    if not 0.01 <= every_s <= 86_400:
        raise InvalidInputError("a watcher looks every 0.01 to 86,400 seconds", every_s=every_s)
    told: dict[str, Skill] = {}
    while rounds is None or rounds > 0:
        page = yield from verify(context, *paths, ns=ns)
        for skill in page.items:
            if told.get(skill.path) != skill:
                told[skill.path] = skill
                yield Give(skill)
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            yield from _pause(every_s, ns)


def _pause(every_s: float, ns: str) -> Work[None]:
    """Wait for as long, or until something is said of a skill."""
    now = yield from ask(Read(lambda tx: tx.now))
    until = later(now, every_s)
    while now < until:
        woken: bool = yield Wait(f"skills:{ns}", until)
        now = until if woken else (yield from ask(Read(lambda tx: tx.now)))


def warnings(context: Context) -> tuple[str, ...]:
    """What `status` says: which skills are locked."""
    return context.database.read(loads.in_force).result()


# --- responding --------------------------------------------------------------------------------------------------


def _respond(context: Context, found: Examined, *, ns: str) -> Work[Skill]:
    """Lock a skill that is not locked yet, and tell; the skill as it stands then."""
    if not found.problem:
        return found.skill
    skill, path = found.skill, found.skill.path
    try:
        lockdown, new = yield from ask(Write(lambda tx: loads.lock(tx, found, ns=ns)))
    except ConstraintError:  # another process was faster, and tells
        return (yield from ask(Read(lambda tx: skills.status(tx, path, ns=ns))))
    except HoldproofError as error:
        _log.critical("the skill %s is refused: %s (not recorded: %s)", path, found.problem, error)
        return Skill(path, SkillState.LOCKED, skill.approval, None, found.problem)
    if new:
        yield from _tell(context, lockdown)
    return Skill(path, SkillState.LOCKED, skill.approval, lockdown, skill.flaw)


def _tell(context: Context, lockdown: SkillLockdown) -> Work[None]:
    """The operator's question and the alerts; best effort, and logged."""
    locked = _as_locked(lockdown)
    store_id = yield from ask(Read(log_check.called))
    count = len(lockdown.changes)
    asked: str = yield from ask(Call(partial(alarm.ask, context.database, locked, findings=count, to_do=_STEPS)))
    senders, _ = notify.configured(os.environ)
    alert = Alert(store_id, lockdown.id, "TAMPERED", lockdown.reason, lockdown.locked_at, count, lockdown.path)
    told: dict[str, str] = yield from ask(Call(partial(notify.broadcast, senders, alert)))
    _log.critical("locked: %s (escalation %s, alerts %s)", locked.reason, asked, told)


def _as_locked(lockdown: SkillLockdown) -> Locked:
    reason = f"the skill {lockdown.path}: {lockdown.reason}"
    return Locked(lockdown.id, "TAMPERED", reason, lockdown.locked_at)
