"""Load, verify and watch skills, and lock one whose file is not the approved one.

Rules:
- Only approved bytes are ever returned: whatever fails while alerting people, the load is refused.
- The first process that finds another file locks the skill and alerts: the row with its leaf, the escalation, the
  alerts. Later loads are refused without another alert.
- A file that nobody ever approved is UNAPPROVED: refused, with one escalation and one alert for its path, and no
  lockdown. Rejecting or cancelling the escalation dismisses it; the file stays refused, without another alert.
- In a store that is locked itself nothing is recorded, since that was alerted already; the load is still refused.
- The next approval or revocation of a skill ends its lockdown and resolves the escalation.
"""

import logging
import os
from functools import partial
from hashlib import sha256
from typing import Final

from holdproof.db import Call, Read, Work, Write, ask
from holdproof.db.effects import Give, Stream, Wait
from holdproof.errors import ConstraintError, HoldproofError, InvalidInputError, SkillLockedError, SkillUnapprovedError
from holdproof.memory.skills import loads, skill_files, skills
from holdproof.memory.skills import locked as locked_skills
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
_DISMISS: Final = "if it is meant to be used, `holdproof skills approve` it; if not, reject this"
_STEPS: Final = "look at the file and who changed it, then approve the one you trust: `holdproof skills approve`"

# --- saying ------------------------------------------------------------------------------------------------------


def approve(
    context: Context, path: str, *, by: str, comment: str = "", root: str | None = None, ns: str = MAIN
) -> Work[Approval]:
    """Approve a skill file as it is now, or with `root` only if it still has that one; ends its lockdown."""
    name = skill_files.absolute(path)
    before = yield from ask(Read(partial(skills.status, path=name, ns=ns)))
    approval = yield from skills.approve(context, name, by=by, comment=comment, root=root, ns=ns)
    yield from _answer(context, before.lockdown, approval)
    return approval


def revoke(context: Context, path: str, *, by: str, comment: str = "", ns: str = MAIN) -> Work[Approval]:
    """Revoke an approval: the skill is not loaded until it is approved again."""
    name = skill_files.absolute(path)
    before = yield from ask(Read(partial(skills.status, path=name, ns=ns)))
    approval = yield from skills.revoke(context, name, by=by, comment=comment, ns=ns)
    yield from _answer(context, before.lockdown, approval)
    return approval


def _answer(context: Context, ended: SkillLockdown | None, approval: Approval) -> Work[None]:
    if ended is not None:
        reason = f"{'approved again' if approval.action == 'approve' else 'revoked'} by {approval.approved_by}"
        locked = _as_locked(ended)
        end = partial(alarm.resolve, context.database, locked, reason=reason, by=approval.approved_by)
        escalation: str = yield from ask(Call(end))
        _log.warning("the lockdown of the skill %s was ended: %s (escalation %s)", approval.path, reason, escalation)
    if approval.n == 1:  # before its first approval it may have been escalated as unapproved
        about = _unapproved(approval.path, "", approval.approved_at, approval.ns)
        reason = f"approved by {approval.approved_by}"
        resolve = partial(alarm.resolve, context.database, about, reason=reason, by=approval.approved_by)
        yield from ask(Call(resolve))


# --- loading -----------------------------------------------------------------------------------------------------


def load(context: Context, path: str, *, ns: str = MAIN) -> Work[LoadedSkill]:
    """Return the bytes of a skill, read once and compared with the approved ones; SkillLockedError if they differ."""
    examined = yield from loads.examine(path, ns=ns)
    if examined.loaded is not None:
        return examined.loaded
    if examined.error is not None:
        raise examined.error
    skill = yield from _respond(context, examined, ns=ns)
    raise _refusal(skill, examined)


def _refusal(skill: Skill, examined: Examined) -> SkillLockedError:
    if skill.state is SkillState.UNAPPROVED:
        return SkillUnapprovedError(f"the skill {skill.path}: {examined.problem}", path=skill.path)
    locked = skill.lockdown
    reason = locked.reason if locked else examined.problem
    return SkillLockedError(
        f"the skill {skill.path} is locked: {reason}",
        path=skill.path,
        reason=reason,
        changes=list(locked.changes if locked else examined.changes),
        lockdown=locked.id if locked else None,
        locked_at=locked.locked_at if locked else None,
    )


def verify(context: Context, *paths: str | os.PathLike[str], lock: bool = True, ns: str = MAIN) -> Work[Page[Skill]]:
    """Verify the files of these skills, or of all; with `lock` a skill that is not as approved is locked."""
    results = []
    for path in paths or (yield from _listed(ns)):
        examined = yield from loads.examine(os.fspath(path), ns=ns)
        results.append((yield from _respond(context, examined, ns=ns)) if lock else _without_lock(examined))
    return Page(results)


def _without_lock(examined: Examined) -> Skill:
    """Return the state of an examined skill without recording it."""
    if not examined.problem or examined.skill.state is not SkillState.APPROVED:
        return examined.skill
    return Skill(examined.skill.path, SkillState.LOCKED, examined.skill.approval, None, examined.problem)


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
    """Verify repeatedly; yields every skill once, then each that has changed, for ever or for so many rounds."""
    if not 0.01 <= every_s <= 86_400:
        raise InvalidInputError("a watcher looks every 0.01 to 86,400 seconds", every_s=every_s)
    shown_skills: dict[str, Skill] = {}
    while rounds is None or rounds > 0:
        page = yield from verify(context, *paths, ns=ns)
        for skill in page.items:
            if shown_skills.get(skill.path) != skill:
                shown_skills[skill.path] = skill
                yield Give(skill)
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            yield from _pause(every_s, ns)


def _pause(every_s: float, ns: str) -> Work[None]:
    """Wait for that long, or until a skill is approved, revoked or locked."""
    now = yield from ask(Read(lambda tx: tx.now))
    until = later(now, every_s)
    while now < until:
        woken: bool = yield Wait(f"skills:{ns}", until)
        now = until if woken else (yield from ask(Read(lambda tx: tx.now)))


def warnings(context: Context) -> tuple[str, ...]:
    """Return warnings for `status`: the skills that are locked."""
    return context.database.read(locked_skills.in_force).result()


# --- responding --------------------------------------------------------------------------------------------------


def _respond(context: Context, examined: Examined, *, ns: str) -> Work[Skill]:
    """Lock a skill that is not locked yet, and alert; return its state then."""
    if not examined.problem:
        return examined.skill
    skill = examined.skill
    path = examined.skill.path
    if skill.state is SkillState.UNAPPROVED:
        yield from _tell_unapproved(context, skill, examined.problem, ns)
        return skill
    try:
        lockdown, new = yield from ask(Write(lambda tx: loads.lock(tx, examined, ns=ns)))
    except ConstraintError:  # another process locked it first, and alerts
        return (yield from ask(Read(partial(skills.status, path=path, ns=ns))))
    except HoldproofError as error:
        _log.critical("the skill %s is refused: %s (not recorded: %s)", path, examined.problem, error)
        return Skill(path, SkillState.LOCKED, skill.approval, None, examined.problem)
    if new:
        yield from _tell(context, lockdown)
    return Skill(path, SkillState.LOCKED, skill.approval, lockdown, skill.flaw)


def _tell(context: Context, lockdown: SkillLockdown) -> Work[None]:
    """Escalate and send the alerts; best effort, and logged."""
    locked = _as_locked(lockdown)
    store_id = yield from ask(Read(log_check.store_id_or_unknown))
    count = len(lockdown.changes)
    escalation: str = yield from ask(
        Call(
            partial(
                alarm.escalate,
                context.database,
                locked,
                findings=count,
                to_do=_STEPS,
                flow_type=alarm.SKILL_FLOW,
            )
        )
    )
    senders, _ = notify.configured(os.environ)
    alert = Alert(store_id, lockdown.id, "TAMPERED", lockdown.reason, lockdown.locked_at, count, lockdown.path)
    alerts: dict[str, str] = yield from ask(Call(partial(notify.broadcast, senders, alert)))
    _log.critical("locked: %s (escalation %s, alerts %s)", locked.reason, escalation, alerts)


def _unapproved(path: str, reason: str, now: str, ns: str) -> Locked:
    """Return what is escalated of a file that nobody approved; its id follows from the path: once for each path."""
    digest = sha256(f"{ns}\0{path}".encode()).hexdigest()[:32]
    return Locked(f"unapproved-{digest}", "UNAPPROVED", f"the skill {path}: {reason}", now)


def _tell_unapproved(context: Context, skill: Skill, problem: str, ns: str) -> Work[None]:
    """Escalate a file that somebody tried to load and nobody approved, and send one alert; later attempts send none."""
    store_id, now = yield from ask(Read(lambda tx: (log_check.store_id_or_unknown(tx), tx.now)))
    about = _unapproved(skill.path, problem, now, ns)
    escalation: str = yield from ask(
        Call(
            partial(
                alarm.escalate,
                context.database,
                about,
                findings=0,
                to_do=_DISMISS,
                heading="UNAPPROVED",
                flow_type=alarm.SKILL_FLOW,
            )
        )
    )
    if escalation != alarm.ASKED:
        return
    senders, _ = notify.configured(os.environ)
    alert = Alert(store_id, about.id, about.verdict, problem, now, 0, skill.path)
    alerts: dict[str, str] = yield from ask(Call(partial(notify.broadcast, senders, alert)))
    _log.warning("not loaded: %s (escalation %s, alerts %s)", about.reason, escalation, alerts)


def _as_locked(lockdown: SkillLockdown) -> Locked:
    reason = f"the skill {lockdown.path}: {lockdown.reason}"
    return Locked(lockdown.id, "TAMPERED", reason, lockdown.locked_at)
