"""The response to tampering: lock, tell, keep the evidence; and the way out.

Rules:
- The flag goes up first: whatever fails afterwards, the store is locked.
- Everything after the flag is best effort and logged: the row with its leaf, the operator's question (alarm.py), the
  kept evidence, the alerts.
- Where the log itself is in doubt (rolled back, forked, its tree or head wrong) nothing is appended to it: signing on
  would make a second history. The row is then written when the lockdown ends, and the question is left to the alerts.
- A second finding while locked changes nothing; the first lockdown stays the one to be ended.
- Alerts never raise and never hold up the lockdown longer than their deadline.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdproof import folders
from holdproof.config import Paths
from holdproof.content import disk
from holdproof.db import Call, Work, ask
from holdproof.db.clock import Ids, system_clock, system_random
from holdproof.errors import HoldproofError, NotFoundError
from holdproof.evidence import audit, tree
from holdproof.evidence import lockdown as state
from holdproof.evidence.lockdown import gate_of
from holdproof.model.times import to_text
from holdproof.model.verdicts import Verdict, worst
from holdproof.model.verify import Finding, Locked, Report
from holdproof.store.context import Context
from holdproof.upkeep import alarm, notify
from holdproof.upkeep import unlock as statements
from holdproof.upkeep.notify import Alert, Notifier
from holdproof.upkeep.verification import log_check
from holdproof.upkeep.verification.findings import read

_log = logging.getLogger("holdproof")

LOG: Final = "log"
"""The table that findings about the log itself name."""
_KEPT: Final = 50


def status(context: Context) -> Work[Locked | None]:
    """The lockdown in force, if there is one: the flag's, or the database's."""
    flag = gate_of(context.database).flag()
    return flag if flag is not None else (yield from read(context, state.current))


def lock(context: Context, *, reason: str) -> Work[Locked]:
    """Lock by hand: an operator has seen what verification cannot."""
    finding = Finding(Verdict.TAMPERED, reason, "as the operator says")
    return (yield from respond(context, Report(Verdict.TAMPERED, "manual", [finding]), reason=reason))


def respond(
    context: Context, report: Report, *, reason: str = "", notifiers: Sequence[Notifier] | None = None
) -> Work[Locked]:
    """Lock the store because of what was found; gives the lockdown, an older one if it was locked already."""
    standing = yield from status(context)
    if standing is not None:
        return standing
    store_id, identity, now = yield from read(
        context, lambda tx: (log_check.store_id_or_unknown(tx), tx.new_id(), tx.now)
    )
    locked = Locked(identity, report.verdict.word, reason or summarise(report), now)
    gate = gate_of(context.database)
    yield from ask(Call(partial(gate.put_up, locked)))
    findings = json.dumps([each.to_dict() for each in report.findings[:_KEPT]])
    recorded = escalated = "not written: the log itself is in doubt"
    if not in_doubt(report):
        recorded = yield from ask(Call(partial(_record, context, locked, findings)))
        escalated = yield from ask(
            Call(lambda: alarm.escalate(context.database, locked, findings=len(report.findings)))
        )
    evidence: str = yield from ask(Call(partial(keep_evidence, context, locked, report)))
    senders = notify.configured(os.environ)[0] if notifiers is None else notifiers
    alert = Alert(store_id, locked.id, locked.verdict, locked.reason, locked.locked_at, len(report.findings))
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
    """Lock before anybody writes if the log is not the one whose heads were kept, or not that of its own head.

    A new leaf would come under a signed head together with whatever somebody put into the tree meanwhile. Whoever opens
    a store that is locked already is told, since reads go on.
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


def _drive(work: Work[Any]) -> None:
    """Drive work before there is a face to do it: all it asks for are calls."""
    answer: Any = None
    try:
        while True:
            effect = work.send(answer)
            assert isinstance(effect, Call), "the response neither waits nor passes the gate"
            answer = effect.fn()
    except StopIteration:
        return


def lock_unopened(paths: Paths, report: Report) -> Locked:
    """Lock a store whose database cannot be opened: the flag, and the alerts."""
    standing = state.read_flag(paths.lockdown)
    if standing is not None:
        return standing
    micros = system_clock()
    locked = Locked(Ids(system_random).new(micros), report.verdict.word, summarise(report), to_text(micros))
    state.write_flag(paths.lockdown, locked)
    alert = Alert("unknown", locked.id, locked.verdict, locked.reason, locked.locked_at, len(report.findings))
    alerts = notify.broadcast(notify.configured(os.environ)[0], alert)
    _log.critical("locked: %s (alerts %s)", locked.reason, alerts)
    return locked


def warnings(context: Context) -> list[str]:
    """What `status` says: whether the store is locked, and which alerts would not go out."""
    return in_force(context) + notify.configured(os.environ)[1]


def in_force(context: Context) -> list[str]:
    """The lockdown in one line, if there is one."""
    locked = gate_of(context.database).flag() or context.database.read(state.current).result()
    return [f"LOCKED since {locked.locked_at}: {locked.reason} (lockdown {locked.id})"] if locked else []


def summarise(report: Report) -> str:
    """Why, in one line: the first finding of the gravest kind, and how many more there are."""
    grave = [each for each in report.findings if each.verdict.locks]
    if not grave:
        return report.verdict.word
    first = max(grave, key=lambda each: each.verdict.exit_code)
    more = f" (and {len(grave) - 1 + report.left_off} more)" if len(grave) > 1 else ""
    return f"{first.place + ': ' if first.place else ''}{first.what}{more}"


def in_doubt(report: Report) -> bool:
    """Whether the findings concern the log itself, and not only what it covers."""
    history = (Verdict.ROLLED_BACK, Verdict.FORKED)
    return any(each.verdict in history or each.table == LOG for each in report.findings if each.verdict.locks)


def _record(context: Context, locked: Locked, findings: str) -> str:
    """The lockdown's row and leaf; a database too damaged to take them does not stop the lockdown."""
    try:
        context.database.write(partial(state.record, locked=locked, findings=findings), ungated=True).result()
    except HoldproofError as error:
        return f"not written: {error}"
    return "written"


def keep_evidence(context: Context, locked: Locked, report: Report) -> str:
    """Keep what was found, and the heads as they stand, in a folder outside the database; where, or why not."""
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
    """The draft that root is to sign, as JSON text: which lockdown ends, and why."""
    locked = yield from _in_force(context)
    store_id = yield from read(context, log_check.store_id_or_unknown)
    return statements.draft(store_id, locked, reason=reason).decode()


def unlock(context: Context, envelope: str) -> Work[Locked]:
    """End the lockdown by root's signed statement; the row first, the flag last."""
    locked = yield from _in_force(context)
    store_id, trusted = yield from read(
        context, lambda tx: (log_check.store_id_or_unknown(tx), statements.roots(tx, context))
    )
    text = statements.check(envelope.encode(), trusted, store_id, locked)
    database = context.database
    yield from ask(
        Call(lambda: database.write(partial(state.end, locked=locked, statement=text), ungated=True).result())
    )
    yield from ask(Call(gate_of(database).take_down))
    reason = statements.reason_of(text)
    escalation: str = yield from ask(Call(partial(alarm.resolve, database, locked, reason=reason)))
    _log.warning("the lockdown %s was ended by root (escalation %s)", locked.id, escalation)
    return locked


def _in_force(context: Context) -> Work[Locked]:
    locked = yield from status(context)
    if locked is None:
        raise NotFoundError("the store is not locked")
    return locked
