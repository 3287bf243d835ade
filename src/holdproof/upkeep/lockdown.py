"""The response to tampering: lock the store, keep the evidence, alert people; and how to unlock it.

Rules:
- The flag is written first: whatever fails afterwards, the store is locked.
- Everything after the flag is best effort and logged: the row with its leaf, the escalation (alarm.py), the evidence
  folder, the alerts.
- Where the log itself is in doubt (rolled back, forked, its tree or head wrong) nothing is appended to it: signing
  another head would make a second history. The row is then written at the unlock, and only alerts are sent.
- A second finding while locked changes nothing; the first lockdown is the one to be ended.
- Alerts never raise and never delay the lockdown longer than their deadline.
"""

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdproof import folders
from holdproof.config import Paths
from holdproof.content import disk
from holdproof.crypto.keys import Signer
from holdproof.db import Call, Work, ask, call
from holdproof.db.clock import Ids, system_clock, system_random
from holdproof.errors import HistoryLostError, HoldproofError, InvalidInputError, LockedError, NotFoundError
from holdproof.evidence import audit, tree
from holdproof.evidence import lockdown as state
from holdproof.evidence.lockdown import gate_of
from holdproof.lazy import lazy_module
from holdproof.model.keys import Role
from holdproof.model.times import to_text
from holdproof.model.verdicts import Verdict, worst
from holdproof.model.verify import Finding, Locked, LockedByHand, Report
from holdproof.store.context import Context
from holdproof.upkeep.verification import log_check
from holdproof.upkeep.verification.findings import read

if TYPE_CHECKING:
    from holdproof.upkeep import alarm, notify
    from holdproof.upkeep import unlock as statements
else:
    alarm = lazy_module("holdproof.upkeep.alarm")
    notify = lazy_module("holdproof.upkeep.notify")
    statements = lazy_module("holdproof.upkeep.unlock")

_log = logging.getLogger("holdproof")

LOG: Final = "log"
"""The table that findings about the log itself name."""
_KEPT: Final = 50


def status(context: Context) -> Work[Locked | None]:
    """Return the lockdown in force, by the flag or the database; None while the store is not locked."""
    flag = gate_of(context.database).flag()
    return flag if flag is not None else (yield from read(context, state.current))


def lock(context: Context, *, reason: str) -> Work[LockedByHand]:
    """Lock the store by hand, for something that verification cannot see; the answer says who can end it."""
    finding = Finding(Verdict.TAMPERED, reason, "as the operator says")
    locked = yield from respond(context, Report(Verdict.TAMPERED, "manual", [finding]), reason=reason)
    return LockedByHand(**locked.to_dict(), ended_by=(yield from call(lambda: ended_by(context))))


def ended_by(context: Context) -> str:
    """Say which key ends a lockdown, whether it is here, and by which command."""
    try:
        allowed = context.database.read(lambda tx: statements.signers(tx, context)).result()
    except HoldproofError:  # no log key is here by which the log could prove others
        return "the root key, in the home that has the store's keys: `holdproof unlock --reason TEXT` there"
    if not allowed.public:
        return "nobody here: the log proves no key that may; restore a backup that verifies"
    names = ", ".join(f"{each.keyid[:16]}…" for each in allowed.public)
    try:
        is_here = context.keys.load(allowed.role).keyid in {each.keyid for each in allowed.public}
    except HoldproofError:  # it is kept elsewhere
        is_here = False
    if is_here:
        return f"the {allowed.role} key {names}, which is here: `holdproof unlock --reason TEXT`"
    return (
        f"the {allowed.role} key {names}, which is not here: sign the output of `holdproof lockdown statement` where it"
        " is, then `holdproof unlock FILE`; or bring it back with `holdproof keys recover-root`"
    )


def respond(
    context: Context, report: Report, *, reason: str = "", notifiers: "Sequence[notify.Notifier] | None" = None
) -> Work[Locked]:
    """Lock the store because of a report; return the lockdown, an older one if it was locked already."""
    standing = yield from status(context)
    if standing is not None:
        return standing
    store_id, identity, now = yield from read(
        context, lambda tx: (log_check.store_id_or_unknown(tx), tx.new_id(), tx.now)
    )
    locked = Locked(identity, report.verdict.word, reason or summarise(report), now)
    gate = gate_of(context.database)
    yield from ask(Call(partial(gate.put_up, locked)))
    # Bounded: a row is committed to the log, and a page of findings tells enough.
    findings = json.dumps([each.to_dict() for each in report.findings[:_KEPT]])
    recorded = escalated = "not written: the log itself is in doubt"
    # A doubtful log must not grow, see the rules above.
    if not in_doubt(report):
        recorded = yield from ask(Call(partial(_record, context, locked, findings)))
        escalated = yield from ask(
            Call(lambda: alarm.escalate(context.database, locked, findings=len(report.findings)))
        )
    evidence: str = yield from ask(Call(partial(keep_evidence, context, locked, report)))
    senders = notify.configured(os.environ)[0] if notifiers is None else notifiers
    alert = notify.Alert(store_id, locked.id, locked.verdict, locked.reason, locked.locked_at, len(report.findings))
    alerts: dict[str, str] = yield from ask(Call(partial(notify.broadcast, senders, alert)))
    _log.critical(
        "locked: %s (row %s, escalation %s, evidence %s, alerts %s)",
        locked.reason,
        recorded,
        escalated,
        evidence,
        alerts,
    )
    return locked


def at_opening(context: Context) -> None:
    """Lock before the first write if the log does not continue the kept heads, or does not match its own head.

    A new head would sign whatever somebody put into the tree meanwhile. A store that is locked already is logged as a
    warning, since reads still work.
    """
    for line in in_force(context):
        _log.warning("%s; writes are refused, and what is read may not be what was written", line)
    findings = _glance(context)
    if findings:
        gravest = worst(each.verdict for each in findings)
        _drive(respond(context, Report(gravest, "opening", findings)))


def _glance(context: Context) -> list[Finding]:
    remedy = "run `holdproof verify --full`"
    verdict = context.log.continuity
    findings = [
        Finding(flaw.verdict, flaw.what, remedy, table=LOG) for flaw in audit.glance(context.database, []).findings
    ]
    if not verdict.sound:
        what = "the log does not continue the heads that were kept here"
        findings.append(Finding(verdict, what, remedy, file=str(context.paths.heads), table=LOG))
    return [each for each in findings if each.verdict.locks]


def history_lost(context: Context, error: HistoryLostError) -> None:
    """Lock the store because acknowledged commits are gone; on a thread of its own, since a writer may be calling.

    A log that another home restored meanwhile is no loss: this process is refused and need only open it again.
    """
    threading.Thread(target=_lock_lost, args=(context, error), name="holdproof-lockdown", daemon=True).start()


def _lock_lost(context: Context, error: HistoryLostError) -> None:
    verdict = Verdict[str(error.fields.get("verdict", Verdict.ROLLED_BACK.name))]
    try:
        if context.database.read(context.log.restored_elsewhere).result():
            _log.error("%s: the store was restored meanwhile, open it again", error.message)
            return
        context.log.continuity = verdict
        finding = Finding(verdict, error.message, REMEDIES[verdict], table=LOG)
        _drive(respond(context, Report(verdict, "running", [finding])))
    except HoldproofError as trouble:  # writes are refused all the same: by the connection and by the log
        _log.critical("%s; the store could not be locked: %s", error.message, trouble)


REMEDIES: Final = {
    Verdict.ROLLED_BACK: "find the newer state: another copy of the store, or a backup; restore that",
    Verdict.FORKED: "two histories exist: keep both, ask witnesses which one they saw, restore that one",
    Verdict.TAMPERED: "run `holdproof verify --full`",
}
"""What to do about a log that does not continue what was seen of it."""


def _drive(work: Work[Any]) -> None:
    """Run work that only yields calls; there is no executor yet while a store is being opened."""
    answer: Any = None
    try:
        while True:
            effect = work.send(answer)
            assert isinstance(effect, Call), "the response neither waits nor passes the gate"
            answer = effect.fn()
    except StopIteration:
        return


def lock_unopened(paths: Paths, report: Report) -> Locked:
    """Lock a store whose database cannot be opened: write the flag and send the alerts."""
    standing = state.read_flag(paths.lockdown)
    if standing is not None:
        return standing
    micros = system_clock()
    locked = Locked(Ids(system_random).new(micros), report.verdict.word, summarise(report), to_text(micros))
    state.write_flag(paths.lockdown, locked)
    alert = notify.Alert("unknown", locked.id, locked.verdict, locked.reason, locked.locked_at, len(report.findings))
    alerts = notify.broadcast(notify.configured(os.environ)[0], alert)
    _log.critical("locked: %s (alerts %s)", locked.reason, alerts)
    return locked


def warnings(context: Context) -> list[str]:
    """Return warnings for `status`: a lockdown in force, and notifiers that are not fully configured."""
    return in_force(context) + notify.configured(os.environ)[1]


def in_force(context: Context) -> list[str]:
    """Return the lockdown in force as a list of one line, or an empty list."""
    locked = gate_of(context.database).flag() or context.database.read(state.current).result()
    return [f"LOCKED since {locked.locked_at}: {locked.reason} (lockdown {locked.id})"] if locked else []


def summarise(report: Report) -> str:
    """Return the reason in one line: the first finding of the gravest kind, and how many more there are."""
    grave = [each for each in report.findings if each.verdict.locks]
    if not grave:
        return report.verdict.word
    # Verdicts are ordered by their exit codes.
    first = max(grave, key=lambda each: each.verdict.exit_code)
    more = f" (and {len(grave) - 1 + report.left_off} more)" if len(grave) > 1 else ""
    return f"{first.place + ': ' if first.place else ''}{first.what}{more}"


def in_doubt(report: Report) -> bool:
    """Whether the findings concern the log itself, and not only what it covers."""
    history = (Verdict.ROLLED_BACK, Verdict.FORKED)
    return any(each.verdict in history or each.table == LOG for each in report.findings if each.verdict.locks)


def _record(context: Context, locked: Locked, findings: str) -> str:
    """Write the lockdown's row and leaf; a database too damaged for that does not prevent the lockdown."""
    try:
        context.database.write(partial(state.record, locked=locked, findings=findings), ungated=True).result()
    except HoldproofError as error:
        return f"not written: {error}"
    return "written"


def keep_evidence(context: Context, locked: Locked, report: Report) -> str:
    """Keep the report and the current heads in a folder outside the database; return its path, or why not."""
    if gate_of(context.database).path is None:
        return "not kept: the store is in memory"
    folder = context.paths.state / "lockdowns" / locked.id
    try:
        folders.make(folder)
        _put(folder / "lockdown.json", {**locked.to_dict(), "report": report.to_dict()})
        head = _read_head(context)
        disk.write(folder / "head.note", head.encode())
        with suppress(FileNotFoundError):
            disk.write(folder / "heads.jsonl", context.paths.heads.read_bytes())
    except OSError as error:
        return f"not kept: {error.strerror}"
    return str(folder)


def _put(path: Path, value: Mapping[str, Any]) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, default=str)
        file.flush()
        os.fsync(file.fileno())


def _read_head(context: Context) -> str:
    try:
        return context.database.read(lambda tx: tree.state(tx).head).result()
    except HoldproofError as error:
        return f"the head cannot be read: {error}\n"


# --- the way out -------------------------------------------------------------------------------------------------


def statement(context: Context, *, reason: str) -> Work[str]:
    """Return the unlock statement to be signed, as JSON text: which lockdown ends, and why.

    Signed by root, wherever that key is kept; a store that never had a root key is unlocked by `unlock(reason=...)`.
    """
    locked = yield from _in_force(context)
    store_id = yield from read(context, log_check.store_id_or_unknown)
    return statements.draft(store_id, locked, reason=reason).decode()


def unlock(context: Context, envelope: str | None = None, *, reason: str | None = None) -> Work[Locked]:
    """End the lockdown by a signed statement, or with a `reason` by the root key that is here.

    A store that never had a root key is unlocked by its own log key; the entry says which key it was. ProofError for a
    statement by anybody else, NotFoundError where the key is not here, LockedError while the log itself is in doubt.
    """
    # The row first, the flag last: killed in between, the store is still locked and the statement can be used again.
    locked = yield from _in_force(context)
    if not context.log.continuity.sound:
        # The entry that ends the lockdown would continue the wrong log, and the next opening would find a fork.
        raise LockedError(
            f"the log does not continue the heads kept here ({context.log.continuity.word}): ending the lockdown would"
            " sign a second history",
            **locked.to_dict(),
            remedy="Put the newer database back, or restore a backup; then unlock.",
        )
    store_id, allowed = yield from read(
        context, lambda tx: (log_check.store_id_or_unknown(tx), statements.signers(tx, context))
    )
    if envelope is None:
        draft = statements.draft(store_id, locked, reason=reason or "", signed_by=allowed.role)
        envelope = yield from _sign_here(context, draft, allowed.role)
    elif reason is not None:
        raise InvalidInputError("give a signed statement or a reason, not both", field="reason")
    text = statements.check(envelope.encode(), allowed, store_id, locked)
    database = context.database
    yield from ask(
        Call(lambda: database.write(partial(state.end, locked=locked, statement=text), ungated=True).result())
    )
    yield from ask(Call(gate_of(database).take_down))
    ended = statements.reason_of(text)
    escalation: str = yield from ask(Call(partial(alarm.resolve, database, locked, reason=ended)))
    _log.warning(
        "the lockdown %s was ended by the %s key (escalation %s): %s", locked.id, allowed.role, escalation, ended
    )
    return locked


def _sign_here(context: Context, draft: bytes, role: Role) -> Work[str]:
    """Sign the draft with the key of this home; NotFoundError with the way out if the key is kept elsewhere."""
    try:
        signer: Signer = yield from ask(Call(partial(context.keys.load, role)))
    except NotFoundError as error:
        raise NotFoundError(
            f"the {role} key is not here: sign the output of `holdproof lockdown statement` where it is, then"
            " `holdproof unlock FILE`; or bring it back with `holdproof keys recover-root`",
            role=role,
        ) from error
    signed: bytes = yield from ask(Call(partial(statements.sign, draft, signer)))
    return signed.decode()


def _in_force(context: Context) -> Work[Locked]:
    locked = yield from status(context)
    if locked is None:
        raise NotFoundError("the store is not locked")
    return locked
