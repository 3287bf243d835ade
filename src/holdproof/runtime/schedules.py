"""Schedules: registered functions that are run by the clock.

Rules:
- The flow of an instant has an id that follows from schedule and instant. So an instant has one flow however many
  workers fire, whatever the clock does, and also if it is backfilled.
- Firing is one transaction: the schedule's next version and the flows that it enqueues, or neither.
- A schedule is compared with its entry in the log before anything is done with it: TamperedError, and nothing is run.
- An instant is missed where nobody fired within a minute of it. `catch_up` says what is made up for: `none` of the
  missed instants, `one` (the latest, unless the next is on time), or `all` of them.
- What passes while a schedule is paused, or before its cron expression was changed, is not missed; `backfill` runs it.
- An instant whose flow a policy denies is passed over: the denial is recorded once, and those after it are fired.
- A clock that was set back lets a schedule go on from there; instants that have their flow are passed over.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from holdproof import paging, validation
from holdproof.db import Read, Tx, Work, Write, ask, lock_exclusive, sql
from holdproof.errors import (
    AgentInactiveError,
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    PolicyDeniedError,
    StaleVersionError,
    TamperedError,
    TenantLimitError,
)
from holdproof.model.cron import Cron
from holdproof.model.flows import Flow
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.schedules import (
    CATCH_UPS,
    Backfill,
    CatchUp,
    Firing,
    FiringFailure,
    FunctionRef,
    MissedInstants,
    Schedule,
    ScheduledFlow,
)
from holdproof.runtime import calls, functions, recorded, schedule_rows
from holdproof.runtime.schedule_rows import SCHEDULES, from_datetime, to_datetime, with_arguments

ON_TIME: Final = timedelta(minutes=1)
"""How late an instant may be fired without having been missed."""
_BATCH: Final = 100
"""How many flows one transaction enqueues at most."""
_MOST_BACKFILLED: Final = 10_000
_MICROSECOND: Final = timedelta(microseconds=1)
_VERSION: Final = "1.0"
"""The version of functions that name none, as in `store.flow`."""


def create(
    tx: Tx,
    name: str,
    function: str | FunctionRef,
    *,
    cron: str,
    timezone: str = "UTC",
    catch_up: CatchUp = "one",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    instant_as: str | None = None,
    agent_id: str | None = None,
    version: str | None = None,
    queue: str = functions.DEFAULT_QUEUE,
    paused: bool = False,
    ns: str = MAIN,
) -> Schedule:
    """Run a registered function by the clock from now on; it is passed as itself, or by name with `agent_id`.

    Raises CronError for a mistake in `cron`, and AlreadyExistsError where the name is taken.
    """
    validation.name("name", name)
    # Two who create a schedule must not both find that its name is free.
    lock_exclusive(tx, f"schedules:{ns}:{name}")
    if schedule_rows.exists(tx, name, ns):
        raise AlreadyExistsError(f"there is a schedule {name} already: update it, or delete it first", name=name)
    reference = FunctionRef(function, _VERSION) if isinstance(function, str) else function
    row = {
        **_definition(reference, agent_id, version, queue, catch_up),
        **_arguments(tx, reference, args, kwargs, instant_as),
        **schedule_rows.timing(cron, timezone, tx.now),
        "paused": int(paused),
        "schedule_id": tx.new_id(),
        "name": name,
        "version": 1,
        "created_at": tx.now,
        "updated_at": tx.now,
        "deleted_at": None,
        "ns": validation.namespace(ns),
    }
    return schedule_rows.add(tx, row)


def _definition(
    function: FunctionRef, agent_id: str | None, version: str | None, queue: str, catch_up: str
) -> dict[str, Any]:
    """Return the columns that say what is run, and for whom."""
    agent = agent_id or function.agent_id
    if agent is None:
        message = "name the agent whose flows these are: agent_id=…, or @store.flow(agent=…)"
        raise InvalidInputError(message, field="agent_id")
    return {
        "function": validation.name("function", function.name),
        "function_version": validation.name("version", version or function.version),
        "agent_id": validation.name("agent_id", agent),
        "queue": validation.name("queue", queue),
        "catch_up": validation.one_of("catch_up", catch_up, CATCH_UPS),
    }


def _arguments(
    tx: Tx, function: FunctionRef, args: Sequence[Any], kwargs: Mapping[str, Any] | None, instant_as: str | None
) -> dict[str, Any]:
    """Return the columns that say what the function is called with."""
    named = {**(kwargs or {})}
    if instant_as:
        if not instant_as.isidentifier() or instant_as in named:
            message = "instant_as is the name of a parameter that no argument has"
            raise InvalidInputError(message, field="instant_as", value=instant_as[:100])
        function.check_arguments(args, {**named, instant_as: ""})
    else:
        function.check_arguments(args, named)
    return {"arguments": recorded.store(tx, calls.arguments_text(args, named)), "instant_as": instant_as or None}


# --- reading -------------------------------------------------------------------------------------------------------

_LIST = sql(
    SCHEDULES.select(
        "WHERE ns = :ns AND name > :after AND deleted_at IS NULL AND (CAST(:function AS TEXT) IS NULL OR"
        " function = :function) AND (CAST(:paused AS INTEGER) IS NULL OR paused = :paused) ORDER BY name LIMIT :limit"
    )
)


def get(tx: Tx, name: str, *, ns: str = MAIN) -> Schedule:
    """Return one schedule."""
    return with_arguments(tx, schedule_rows.find(tx, name, ns))


def list(
    tx: Tx,
    *,
    function: str | None = None,
    paused: bool | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[Schedule]:
    """List schedules by name."""
    (after,) = paging.decode(cursor, "")
    filters = {"function": function, "paused": None if paused is None else int(paused)}
    schedules = SCHEDULES.all(tx, _LIST, ns=ns, after=after, limit=paging.fetch(limit), **filters)
    return paging.page((with_arguments(tx, each) for each in schedules), limit, lambda schedule: (schedule.name,))


# --- changing ------------------------------------------------------------------------------------------------------


def update(
    tx: Tx,
    name: str,
    *,
    function: str | FunctionRef | None = None,
    cron: str | None = None,
    timezone: str | None = None,
    catch_up: CatchUp | None = None,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    instant_as: str | None = None,
    agent_id: str | None = None,
    version: str | None = None,
    queue: str | None = None,
    expected_version: int | None = None,
    ns: str = MAIN,
) -> Schedule:
    """Change what is passed of a schedule; another `cron` or `timezone` counts from now on.

    `args` or `kwargs` replace both. Raises StaleVersionError unless the schedule has `expected_version`.
    """
    record = schedule_rows.lock_named(tx, name, ns)
    now = record.value
    if expected_version is not None and expected_version != now.version:
        raise StaleVersionError(
            f"version {expected_version} was to be changed, but the current version is {now.version}: read it again",
            expected=expected_version,
            version=now.version,
        )
    reference = _reference(function, now)
    agent = agent_id or reference.agent_id or now.agent_id
    changes = _definition(reference, agent, version, queue or now.queue, catch_up or now.catch_up)
    if cron is not None or timezone is not None:
        changes |= schedule_rows.timing(cron or now.cron, timezone or now.timezone, tx.now)
    keyword = now.instant_as if instant_as is None else instant_as
    if args is not None or kwargs is not None:
        changes |= _arguments(tx, reference, args or (), kwargs, keyword)
    elif function is not None or instant_as is not None:
        # What it is called with stays, and is checked again, since the function or the keyword is another.
        args, kwargs = calls.decoded(recorded.load(tx, now.arguments))
        changes |= _arguments(tx, reference, args, kwargs, keyword)
    return schedule_rows.change(tx, record, changes)


def _reference(function: str | FunctionRef | None, now: Schedule) -> FunctionRef:
    """Return what a schedule runs from now on; what a name or a function leaves open stays as it is."""
    if function is None or isinstance(function, str):
        return FunctionRef(function or now.function, now.function_version, now.agent_id)
    return function


def pause(tx: Tx, name: str, *, ns: str = MAIN) -> Schedule:
    """Stop firing a schedule; one that is paused stays as it is."""
    record = schedule_rows.lock_named(tx, name, ns)
    return with_arguments(tx, record.value) if record.value.paused else schedule_rows.change(tx, record, {"paused": 1})


def resume(tx: Tx, name: str, *, ns: str = MAIN) -> Schedule:
    """Fire a paused schedule from now on; what passed meanwhile is not made up for, unless it is backfilled."""
    record = schedule_rows.lock_named(tx, name, ns)
    schedule = record.value
    if not schedule.paused:
        return with_arguments(tx, schedule)
    timing = schedule_rows.timing(schedule.cron, schedule.timezone, tx.now)
    return schedule_rows.change(tx, record, {**timing, "paused": 0})


def delete(tx: Tx, name: str, *, ns: str = MAIN) -> bool:
    """Delete a schedule and what its function was called with; return whether there was one. Its flows stay."""
    try:
        record = schedule_rows.lock_named(tx, name, ns)
    except NotFoundError:
        return False
    schedule_rows.change(tx, record, {"deleted_at": tx.now, "paused": 1, "arguments": calls.arguments_text((), {})})
    return True


# --- firing --------------------------------------------------------------------------------------------------------


def trigger(tx: Tx, name: str, *, ns: str = MAIN) -> Flow:
    """Run the function of a schedule now, once more, and return the flow; a paused one too."""
    schedule = schedule_rows.lock_named(tx, name, ns).value
    return _enqueue(tx, schedule, tx.now, flow_id=None)


def _enqueue(tx: Tx, schedule: Schedule, instant: str, *, flow_id: str | None) -> Flow:
    arguments = recorded.load(tx, schedule.arguments)
    if schedule.instant_as is not None:
        arguments["kwargs"][schedule.instant_as] = instant
    return functions.enqueue(
        tx,
        schedule.agent_id,
        schedule.function,
        schedule.function_version,
        recorded.dump(arguments),
        queue=schedule.queue,
        flow_id=flow_id,
        created_by=("schedule", schedule.name),
        ns=schedule.ns,
    )


_FLOW = sql("SELECT 1 FROM decision_flows WHERE dfid = :dfid AND ns = :ns")


def _enqueue_all(tx: Tx, schedule: Schedule, instants: Iterable[datetime]) -> Iterator[ScheduledFlow]:
    """Enqueue the flow of each instant that has none yet."""
    for instant in instants:
        flow_id = f"{schedule.schedule_id}-{instant:%Y%m%dT%H%M%SZ}"
        # Whatever the schedule ran then: it may have been changed since.
        if tx.one(_FLOW, dfid=flow_id, ns=schedule.ns) is None:
            text = from_datetime(instant)
            try:
                flow = _enqueue(tx, schedule, text, flow_id=flow_id)
            except PolicyDeniedError as error:
                error.fields["instant"] = text
                raise
            yield ScheduledFlow(schedule.name, text, flow.flow_id)


class ScheduleFiring(NamedTuple):
    """What firing one schedule gave, and whether instants are left for another transaction."""

    flows: tuple[ScheduledFlow, ...] = ()
    missed: MissedInstants | None = None
    more: bool = False


def fire(tx: Tx, schedule_id: str, *, now: str | None = None, denied: str | None = None) -> ScheduleFiring:
    """Enqueue the flows of a schedule's instants up to now, and record that they are decided on, in one transaction.

    With `denied` those before that instant, which is passed over. Raises TamperedError where the schedule was edited,
    and PolicyDeniedError, which names the `instant`.
    """
    record = schedule_rows.lock(tx, schedule_id)
    if record is None or record.value.paused:
        return ScheduleFiring()
    schedule = record.value
    cron = Cron.parse(schedule.cron, schedule.timezone)
    moment = to_datetime(now or tx.now)
    begin = to_datetime(schedule.fired_until)
    if begin > moment + ON_TIME:
        # The clock was set back: the schedule goes on from here, and instants that have their flow are passed over.
        schedule_rows.advance(tx, record, cron, moment)
        return ScheduleFiring()
    chosen = _choose(cron, begin, moment, schedule.catch_up)
    if chosen is not None and denied is not None:
        chosen = chosen.before(to_datetime(denied))
    if chosen is None:
        return ScheduleFiring()
    enqueued = tuple(_enqueue_all(tx, schedule, chosen.instants))
    schedule_rows.advance(tx, record, cron, chosen.until)
    missed = None if chosen.missed is None else MissedInstants(schedule.name, *map(from_datetime, chosen.missed))
    return ScheduleFiring(enqueued, missed, more=len(chosen.instants) == _BATCH)


class _Chosen(NamedTuple):
    """Which instants are fired, up to when that is decided, and the range of those that are not made up for."""

    instants: Sequence[datetime]
    until: datetime
    missed: tuple[datetime, datetime] | None = None

    def before(self, denied: datetime) -> "_Chosen | None":
        """Return what is left without an instant and all behind it; None where it is not chosen any more."""
        if denied not in self.instants:
            return None
        return _Chosen([each for each in self.instants if each < denied], denied, self.missed)


def _choose(cron: Cron, begin: datetime, now: datetime, catch_up: str) -> _Chosen | None:
    """Return what is fired of the instants after `begin`, up to now; None where there is none."""
    first = cron.next_after(begin)
    if first is None or first > now:
        return None
    end = now + _MICROSECOND
    if catch_up == "all":
        batch = [*islice(cron.between(first, end), _BATCH)]
        return _Chosen(batch, batch[-1])
    chosen = [*cron.between(max(first, now - ON_TIME), end)]
    if catch_up == "one" and not chosen:
        chosen = [_latest(cron, first, now - ON_TIME)]
    # A run that is on time makes up for those before it, as the latest one does.
    until = chosen[0] if chosen else now
    return _Chosen(chosen, chosen[-1] if chosen else now, (first, until) if first < until else None)


def _latest(cron: Cron, first: datetime, end: datetime) -> datetime:
    """Return the last instant before `end`, given the first; without walking over all that lie between."""
    span = ON_TIME
    while True:
        instants = [*cron.between(max(first, end - span), end)]
        if instants:
            return instants[-1]
        span *= 2


_DUE = sql(
    "SELECT schedule_id, name FROM schedules WHERE ns = :ns AND deleted_at IS NULL AND paused = 0"
    " AND (next_at <= :now OR fired_until > :ahead) AND schedule_id > :after ORDER BY schedule_id LIMIT :limit"
)
# Those that are due and could not be fired are left out: whoever waits for them would not wait at all.
_NEXT = sql(
    "SELECT min(next_at) FROM schedules WHERE ns = :ns AND deleted_at IS NULL AND paused = 0 AND next_at > :now"
)
_FAILURES: Final = (
    *(AgentInactiveError, ConflictError, FormatError, InvalidInputError, NotFoundError, TamperedError),
    TenantLimitError,
)
"""What is wrong with one schedule, and keeps no other from being fired."""


def fire_due(*, ns: str = MAIN) -> Work[Firing]:
    """Fire every schedule that is due; any number of workers may do so at once.

    Each is a transaction of its own, of at most 100 flows: one that was edited, or whose agent may not open flows, is
    returned as a failure, and so is each instant whose flow a policy denies; the others go on.
    """
    enqueued: tuple[ScheduledFlow, ...] = ()
    missed: tuple[MissedInstants, ...] = ()
    failures: tuple[FiringFailure, ...] = ()
    backlog = False
    after = ""
    while True:
        page = yield from ask(Read(partial(_due, after=after, ns=ns)))
        for schedule_id, name in page:
            firings, failed = yield from _fire(schedule_id, name)
            failures += failed
            for firing in firings:
                enqueued += firing.flows
                missed += () if firing.missed is None else (firing.missed,)
                backlog = backlog or firing.more
        if len(page) < _BATCH:
            break
        after, _ = page[-1]
    following = yield from ask(Read(partial(_next_of_all, ns=ns, backlog=backlog)))
    return Firing(enqueued, missed, failures, following)


def _fire(schedule_id: str, name: str) -> Work[tuple[Sequence[ScheduleFiring], tuple[FiringFailure, ...]]]:
    """Fire one schedule that is due; instants whose flows are denied are passed over, each in a transaction more."""
    firings: tuple[ScheduleFiring, ...] = ()
    failures: tuple[FiringFailure, ...] = ()
    denied: str | None = None
    while denied is not None or len(failures) < _BATCH:
        try:
            firing = yield from ask(Write(partial(fire, schedule_id=schedule_id, denied=denied)))
        except PolicyDeniedError as error:
            failures += (FiringFailure(name, error.code, error.message),)
            denied = error.fields["instant"]
            continue
        except _FAILURES as error:
            return firings, (*failures, FiringFailure(name, error.code, error.message))
        firings += (firing,)
        if denied is None:
            return firings, failures
        denied = None
    # So many are denied that the others come first.
    return (*firings, ScheduleFiring(more=True)), failures


def _due(tx: Tx, after: str, ns: str) -> Sequence[tuple[str, str]]:
    ahead = from_datetime(to_datetime(tx.now) + ON_TIME)
    rows = tx.all(_DUE, ns=ns, now=tx.now, ahead=ahead, after=after, limit=_BATCH)
    return [(schedule_id, name) for schedule_id, name in rows]


def _next_of_all(tx: Tx, ns: str, *, backlog: bool) -> str | None:
    if backlog:
        return tx.now
    row = tx.one(_NEXT, ns=ns, now=tx.now)
    assert row is not None, "an aggregate has one row"
    following: str | None
    (following,) = row
    return following


def backfill(name: str, start: str, end: str, *, ns: str = MAIN) -> Work[Backfill]:
    """Run a schedule for every instant from `start` on and before `end` that has no flow yet; both in the past.

    At most 10,000 instants at once. Whether the schedule is paused does not matter.
    """
    begin = to_datetime(validation.moment("start", start))
    stop = to_datetime(validation.moment("end", end))
    schedule = yield from ask(Read(partial(_check_past, name=name, end=from_datetime(stop), ns=ns)))
    cron = Cron.parse(schedule.cron, schedule.timezone)
    instants = [*islice(cron.between(begin, stop), _MOST_BACKFILLED + 1)]
    if len(instants) > _MOST_BACKFILLED:
        message = f"there are more than {_MOST_BACKFILLED:,} instants from start to end: backfill a shorter time first"
        raise InvalidInputError(message, field="end", value=end)
    enqueued: tuple[ScheduledFlow, ...] = ()
    for first in range(0, len(instants), _BATCH):
        batch = instants[first : first + _BATCH]
        enqueued += yield from ask(Write(partial(_backfill_batch, schedule=schedule, instants=batch)))
    return Backfill(enqueued, len(instants) - len(enqueued))


def _check_past(tx: Tx, name: str, end: str, ns: str) -> Schedule:
    if end > tx.now:
        message = f"end is after now, {tx.now}: instants to come are fired in time"
        raise InvalidInputError(message, field="end", value=end)
    record = schedule_rows.confirmed(tx, schedule_rows.find(tx, name, ns).schedule_id)
    assert record is not None, "in the same snapshot it was not deleted"
    return record.value


def _backfill_batch(tx: Tx, schedule: Schedule, instants: Sequence[datetime]) -> tuple[ScheduledFlow, ...]:
    record = schedule_rows.lock_named(tx, schedule.name, schedule.ns)
    current = record.value
    # The instants were computed from what was read before; a changed schedule may have others.
    if (current.schedule_id, current.version) != (schedule.schedule_id, schedule.version):
        raise StaleVersionError(
            f"the schedule {schedule.name} was changed meanwhile: backfill again", name=schedule.name
        )
    return tuple(_enqueue_all(tx, current, instants))
