"""The outbox of channels: what people have to be told is found in the store, and tried until somebody was reached.

Rules:
- Nothing is queued by whoever asks: a round looks for pending escalations, lockdowns, skills and reminders that have no
  notification yet. A process that is killed between the request and the message loses nothing.
- One notification for each, whichever process looks; one delivery of it for each channel that is for its event.
- A delivery is claimed before it is sent, for a minute, which is longer than it may take: one at a time, so that no
  claim ends while others are sent. After a crash in between it is sent again: it may come twice, and is never lost.
- Failures are tried again after 10 s, 20 s, 40 s … up to an hour, ten times; then the channel is given up.
- What was queued and how it ended are versions of an entry: `undelivered` says that nobody could be told.
- It passes the lockdown: people are told of it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.access import logins
from holdproof.crypto import canonical
from holdproof.db import Call, Tx, Work, ask, lock_exclusive, sql
from holdproof.errors import HoldproofError, NotFoundError
from holdproof.evidence.tables import Table, numbered
from holdproof.model import jsontext
from holdproof.model.approvals import parse_approvers
from holdproof.model.channels import ChannelStatus, ChannelTest, DeliveryResult, Notification
from holdproof.model.coordination import Escalation
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.times import later
from holdproof.model.visible_text import visible
from holdproof.runtime import approvals, inbox, people
from holdproof.store.context import Context
from holdproof.upkeep import alarm, channels
from holdproof.upkeep.channels import Channel, ChannelMessage
from holdproof.upkeep.notify import UndeliveredError

ATTEMPTS: Final = 10
_FIRST_S: Final = 10.0
_LONGEST_S: Final = 3600.0
_CLAIM_S: Final = 60.0
_CANDIDATES: Final = 10
"""How many deliveries a process looks at, of which others may claim some at the same moment."""
_LINK_S: Final = 3600.0


def _names(text: Any) -> tuple[str, ...]:
    return tuple(jsontext.load(text))


NOTIFICATIONS: Final = Table(
    "notifications",
    Notification,
    kind="notification",
    key="id",
    logged=("id", "event", "about", "channels", "created_at", "ended_at", "outcome", "problems", "ns"),
    loads={"channels": _names, "problems": jsontext.load},
)

# --- looking, testing --------------------------------------------------------------------------------------------


def list_channels(context: Context) -> Work[tuple[ChannelStatus, ...]]:
    """List the configured channels, without their secrets, each with what is wrong with it."""
    loading: Call[Sequence[Channel]] = Call(lambda: channels.load(context.paths.config))
    loaded = yield from ask(loading)
    return tuple(ChannelStatus(each.name, each.kind, each.events, each.problem) for each in loaded)


def test(context: Context, name: str) -> Work[ChannelTest]:
    """Send a test message through one channel, once; return what became of it."""

    def send() -> ChannelTest:
        channel = {each.name: each for each in channels.load(context.paths.config)}.get(name)
        if channel is None:
            raise NotFoundError(f"there is no channel {name} in {channels.FILE}", listed_by="channels list", name=name)
        text = f"This is a test of the channel {name} of Holdproof."
        problem = _send(channel, ChannelMessage("test", "Holdproof: a test", text, {}, channel.console))
        return ChannelTest(name, not problem, problem)

    sending: Call[ChannelTest] = Call(send)
    return (yield from ask(sending))


_LIST = sql(
    NOTIFICATIONS.select(
        "WHERE ns = :ns AND id < :before AND (CAST(:outcome AS TEXT) IS NULL OR outcome = :outcome)"
        " ORDER BY id DESC LIMIT :limit"
    )
)


def notifications(
    tx: Tx, *, outcome: str | None = None, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[Notification]:
    """List what people had to be told, newest first; `outcome` is `delivered` or `undelivered`."""
    if outcome is not None:
        validation.one_of("outcome", outcome, ("delivered", "undelivered"))
    return NOTIFICATIONS.page(tx, _LIST, cursor, limit, outcome=outcome, ns=ns)


def _send(channel: Channel, message: ChannelMessage) -> str:
    """Send once; return the problem, empty for none."""
    try:
        channel.send(message)
    except UndeliveredError as error:
        return str(error)
    except Exception as error:  # only its type is shown: its text may hold a secret
        return f"failed ({type(error).__name__})"
    return ""


# --- queueing ----------------------------------------------------------------------------------------------------

# What no channel is for is passed over here, not afterwards: it would fill the page, and hide what is behind it.
_UNTOLD = sql(
    "SELECT id, ns, event, about FROM (SELECT e.id AS id, e.ns AS ns, 'escalation:' || CAST(e.id AS TEXT) AS about,"
    " CASE f.flow_type WHEN :lockdown_flow THEN 'lockdown' WHEN :skill_flow THEN 'skills' ELSE 'escalations' END"
    " AS event FROM escalation_requests e JOIN decision_flows f ON f.dfid = e.dfid AND f.ns = e.ns"
    " WHERE e.status = 'PENDING'"
    " UNION ALL SELECT e.id, e.ns, 'reminder:' || CAST(e.id AS TEXT), 'reminders' FROM escalation_messages m"
    " JOIN escalation_requests e ON e.id = m.escalation_id WHERE m.kind = 'reminder' AND e.status = 'PENDING') AS u"
    " WHERE NOT EXISTS (SELECT 1 FROM notifications n WHERE n.about = u.about)"
    " AND ((event = 'escalations' AND :escalations = 1) OR (event = 'lockdown' AND :lockdown = 1)"
    " OR (event = 'skills' AND :skills = 1) OR (event = 'reminders' AND :reminders = 1)) ORDER BY id LIMIT 100"
)
_NEXT = numbered("SELECT {id}", "notifications")
_ADD = sql(NOTIFICATIONS.insert())
_QUEUE = sql("INSERT INTO notification_deliveries (notification_id, channel, next_at) VALUES (:id, :channel, :now)")


def _queue(tx: Tx, loaded: Sequence[Channel]) -> int:
    # One process queues at a time: two would both find the same escalation untold.
    lock_exclusive(tx, "notifications")
    flags = {event: int(any(event in each.events for each in loaded)) for event in channels.EVENTS}
    untold = tx.all(_UNTOLD, lockdown_flow=alarm.FLOW, skill_flow=alarm.SKILL_FLOW, **flags)
    for _, ns, event, about in untold:
        _add(tx, event, about, [each.name for each in loaded if event in each.events], ns)
    return len(untold)


def _add(tx: Tx, event: str, about: str, names: Sequence[str], ns: str) -> None:
    numbers = tx.one(_NEXT)
    assert numbers is not None, "a SELECT without FROM has one row"
    (number,) = numbers
    row = {
        **dict.fromkeys(NOTIFICATIONS.columns),
        "id": number,
        "event": event,
        "about": about,
        "channels": canonical.dump_text([*names]),
        "created_at": tx.now,
        "ns": ns,
    }
    NOTIFICATIONS.add(tx, _ADD, row)
    for name in names:
        tx.execute(_QUEUE, id=number, channel=name, now=tx.now, expect=1)


# --- delivering --------------------------------------------------------------------------------------------------


class _Claim(NamedTuple):
    """A delivery that this process is about to send."""

    id: int
    channel: str
    attempts: int
    event: str
    about: str
    ns: str


_DUE = sql(
    "SELECT d.notification_id, d.channel, d.attempts, n.event, n.about, n.ns FROM notification_deliveries d"
    " JOIN notifications n ON n.id = d.notification_id WHERE d.next_at <= :now ORDER BY d.next_at LIMIT :limit"
)
# `attempts` in the WHERE: of two processes that claim one delivery the second changes no row.
_TAKE = sql(
    "UPDATE notification_deliveries SET attempts = attempts + 1, next_at = :until"
    " WHERE notification_id = :id AND channel = :channel AND attempts = :attempts AND next_at <= :now"
)


def _claim(tx: Tx) -> _Claim | None:
    """Claim the delivery that is due for the longest time; None where nothing is due."""
    until = later(tx.now, _CLAIM_S)
    for row in tx.all(_DUE, now=tx.now, limit=_CANDIDATES):
        each = _Claim(*row)
        if tx.count(_TAKE, id=each.id, channel=each.channel, attempts=each.attempts, now=tx.now, until=until):
            return each
    return None


def deliver(context: Context, *, limit: int = 100) -> Work[DeliveryResult]:
    """Queue what nobody was told yet, and send what is due; return how much was queued, sent, failed and given up."""
    validation.limited(limit)
    round_: Call[DeliveryResult] = Call(partial(_round, context, limit))
    return (yield from ask(round_))


def _round(context: Context, limit: int) -> DeliveryResult:
    loaded = channels.load(context.paths.config)
    write = partial(context.database.write, ungated=True)
    queued = write(lambda tx: _queue(tx, loaded)).result() if loaded else 0
    by_name = {each.name: each for each in loaded}
    outcomes: list[str] = []
    for _ in range(limit):
        claim = write(_claim).result()
        if claim is None:
            break
        problem = _attempt(context, by_name.get(claim.channel), claim)
        outcomes.append(write(partial(_note, claim=claim, problem=problem)).result())
    counts = (outcomes.count(each) for each in ("delivered", "retried", "abandoned"))
    return DeliveryResult(queued, *counts)


def _attempt(context: Context, channel: Channel | None, claim: _Claim) -> str:
    if channel is None:
        return f"it is no longer in {channels.FILE}"
    try:
        event, subject, text, facts = context.database.read(partial(_message, claim=claim)).result()
        link, recipients = _link(context, channel, claim)
    except HoldproofError as error:
        return f"failed ({error.code})"
    return _send(channel, ChannelMessage(event, subject, text, facts, link, recipients))


def _message(tx: Tx, claim: _Claim) -> tuple[str, str, str, dict[str, Any]]:
    """Return the event, a subject, a text and the facts; of a person's flow no words, which channels would keep."""
    escalation = inbox.get(tx, _number(claim), ns=claim.ns)
    private = approvals.is_sealed(tx, escalation)
    reason = "a decision about a person" if private else visible(escalation.reason)
    what = {"reminders": "Still waits", "lockdown": "Locked", "skills": "Skill"}.get(claim.event, "Waits")
    deadline = f" Without an answer by {escalation.deadline}: {escalation.on_deadline}." if escalation.deadline else ""
    people_text = f" For {escalation.approvers}." if escalation.approvers else ""
    text = f"{what}: escalation {escalation.id} of agent {escalation.agent_id}: {reason}.{people_text}{deadline}"
    facts = {
        "escalation": escalation.id,
        "flow_id": escalation.flow_id,
        "agent_id": escalation.agent_id,
        "impact": escalation.impact,
        "deadline": escalation.deadline,
        "approvers": escalation.approvers,
        "notification": claim.id,
        "ns": escalation.ns,
    }
    return claim.event, f"Holdproof: {what.lower()}: {reason}", text, facts


def _number(claim: _Claim) -> int:
    return int(claim.about.partition(":")[2])


def _link(context: Context, channel: Channel, claim: _Claim) -> tuple[str, tuple[str, ...]]:
    """Return the link of a message, and the addresses of those who still have to answer."""
    recipients = context.database.read(partial(_recipients, claim=claim)).result()
    if not channel.console:
        return "", recipients
    if channel.login_token is None or not channel.is_for_one_reader:
        return f"{channel.console}/inbox/{_number(claim)}", recipients
    create = partial(logins.create_link, token_id=channel.login_token, ttl_s=_LINK_S)
    link = context.database.write(create, ungated=True).result()
    return f"{channel.console}/login?code={link.secret}", recipients


def _recipients(tx: Tx, claim: _Claim) -> tuple[str, ...]:
    escalation: Escalation = inbox.get(tx, _number(claim), ns=claim.ns)
    if escalation.approvers is None:
        return ()
    waiting = approvals.standing(tx, escalation).waiting_for
    members = people.members(tx, parse_approvers(escalation.approvers).names, ns=claim.ns)
    return tuple(email for name in waiting if (email := members[name].email) is not None)


_DONE = sql(
    "UPDATE notification_deliveries SET delivered_at = :delivered_at, problem = :problem, next_at = :next_at"
    " WHERE notification_id = :id AND channel = :channel AND attempts = :attempts"
)
_LEFT = sql(
    "SELECT channel, delivered_at, problem, next_at FROM notification_deliveries WHERE notification_id = :id"
    " ORDER BY channel"
)
_FIND = sql(NOTIFICATIONS.select("WHERE id = :id", leaf=True))
_END = sql(NOTIFICATIONS.update("ended_at", "outcome", "problems", where="id = :id AND outcome IS NULL"))


def _note(tx: Tx, claim: _Claim, problem: str) -> str:
    """Write what became of an attempt; the last one of a notification ends it."""
    # Two processes may end two channels of one notification at once.
    lock_exclusive(tx, f"notification:{claim.id}")
    attempts = claim.attempts + 1
    is_last = bool(problem) and attempts >= ATTEMPTS
    pause = min(_FIRST_S * 2**claim.attempts, _LONGEST_S)
    tx.execute(
        _DONE,
        id=claim.id,
        channel=claim.channel,
        attempts=attempts,
        delivered_at=None if problem else tx.now,
        problem=problem or None,
        next_at=later(tx.now, pause) if problem and not is_last else None,
    )
    _end(tx, claim.id)
    if not problem:
        return "delivered"
    return "abandoned" if is_last else "retried"


def _end(tx: Tx, id: int) -> None:
    """End a notification that has nothing left to send."""
    rows = tx.all(_LEFT, id=id)
    row = tx.one(_FIND, id=id)
    if any(next_at is not None for _, _, _, next_at in rows) or row is None:
        return
    record = NOTIFICATIONS.record(row)
    if record.value.outcome is not None:
        return
    problems = {channel: problem for channel, _, problem, _ in rows if problem is not None}
    is_reached = any(delivered_at is not None for _, delivered_at, _, _ in rows)
    changes = {
        "ended_at": tx.now,
        "outcome": "delivered" if is_reached else "undelivered",
        "problems": canonical.dump_text(problems),
    }
    NOTIFICATIONS.change(tx, _END, record, changes)
