"""Holdproof itself: the same statements as functions of a transaction, through both faces."""

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from bench import decision_unit
from bench import workload as w
from bench.fresh_stores import Place, in_a_folder
from bench.measurement import Contestant, Meter
from bench.peers_postgres import Server
from bench.peers_read import keys
from bench.threads import threads
from holdproof.db import Database, Migration, Tx, open_database, sql
from holdproof.evidence import leaves
from holdproof.evidence.leaves import Projection
from holdproof.executors import AsyncExecutor, SyncExecutor

MIGRATIONS = [Migration("0001_bench", w.SCHEMA)]
STORE = [Migration("9000_bench", w.SCHEMA)]

_FILL_ACCOUNTS = sql(w.FILL_ACCOUNTS)
_FILL_ITEMS = sql(w.FILL_ITEMS)


def fill(tx: Tx) -> None:
    """The rows every store begins with."""
    tx.many(_FILL_ACCOUNTS, ({"id": number, "balance": balance} for number, balance in w.account_rows()))
    tx.many(_FILL_ITEMS, ({"id": key, "name": name, "body": body} for key, name, body in w.item_rows()))


_TXN_SELECT = sql(w.TXN_SELECT)
_TXN_UPDATE = sql(w.TXN_UPDATE)
_TXN_INSERT = sql(w.TXN_INSERT)


def txn(tx: Tx, number: int) -> None:
    """SELECT + UPDATE + INSERT."""
    account, now = number % w.ROWS, tx.now
    tx.one(_TXN_SELECT, account=account)
    tx.execute(_TXN_UPDATE, amount=5, now=now, account=account, expect=1)
    tx.execute(_TXN_INSERT, id=tx.new_id(), account=account, amount=5, now=now)


_CREATE = sql(w.UNIT_CREATE)
_CREATED = sql(w.UNIT_CREATED)
_RUN = sql(w.UNIT_RUN)
_RUNNING = sql(w.UNIT_RUNNING)
_REMEMBER = sql(w.UNIT_REMEMBER)
_LOCK = sql(w.UNIT_LOCK)
_AUDIT = sql(w.UNIT_AUDIT)
_COMPLETE = sql(w.UNIT_COMPLETE)


def unit(tx: Tx, number: int) -> None:
    """One decision, eight statements."""
    tx.execute(_COMPLETE, flow=_decide(tx, number), output=w.OUTPUT, now=tx.now, expect=1)


def _decide(tx: Tx, number: int) -> str:
    flow, now = tx.new_id(), tx.now
    tx.execute(_CREATE, flow=flow, agent=w.AGENT, input=w.INPUT, now=now)
    tx.execute(_CREATED, flow=flow, now=now)
    tx.execute(_RUN, flow=flow, now=now, expect=1)
    tx.execute(_RUNNING, flow=flow, now=now)
    tx.execute(_REMEMBER, key=f"key-{flow}", flow=flow, response=w.OUTPUT, now=now)
    tx.execute(_LOCK, resource=f"resource-{number % w.RESOURCES}", flow=flow, now=now, expect=1)
    tx.execute(_AUDIT, event=f"event-{flow}", flow=flow, payload=w.PAYLOAD, now=now)
    return flow


DECISION = Projection("flows", 1, ("flow_id", "agent_id", "status", "input", "output", "created_at", "updated_at"))
_COMPLETE_LOGGED = sql(w.LOGGED_COMPLETE)


def logged(tx: Tx, number: int) -> None:
    """The same, with a leaf for what was decided."""
    flow, now = _decide(tx, number), tx.now
    row = {"flow_id": flow, "agent_id": w.AGENT, "status": "COMPLETED", "input": w.INPUT, "output": w.OUTPUT}
    leaf, _, salt = leaves.stamp(tx, "decision", DECISION, {**row, "created_at": now, "updated_at": now})
    tx.execute(_COMPLETE_LOGGED, flow=flow, output=w.OUTPUT, now=now, leaf=leaf, salt=salt, expect=1)


_READ = sql(w.READ)


def read(tx: Tx, number: int) -> tuple[object, ...] | None:
    """One row by its primary key."""
    return tx.one(_READ, id=number)


class Work(Protocol):
    """A function of a transaction, for the unit of that number."""

    def __call__(self, tx: Tx, number: int) -> object:
        """Do it."""


Call = Callable[[Callable[[Tx], object]], Awaitable[object]]
_WORKS: dict[str, Work] = {"txn": txn, "unit": unit, "logged": logged, "whole": decision_unit.decide, "read": read}
Opener = Callable[[], AbstractContextManager[Database]]


@contextmanager
def on_sqlite() -> Iterator[Database]:
    """A fresh store in a file."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _filled(str(Path(folder, "bench.db"))) as db:
        yield db


@contextmanager
def on_postgres(running: Server) -> Iterator[Database]:
    """A fresh store on the server."""
    with running.fresh() as url, _filled(url) as db:
        yield db


@contextmanager
def on_store(place: Place = in_a_folder) -> Iterator[Database]:
    """A fresh store with its log, and the agent who decides."""
    with place() as (home, url), decision_unit.opened(home, url, *STORE) as store:
        yield store.database


@contextmanager
def _filled(target: str) -> Iterator[Database]:
    db = open_database(target, migrations=MIGRATIONS)
    try:
        SyncExecutor(db).write(fill)
        yield db
    finally:
        db.close()


def asynchronous(work: str, callers: int, opener: Opener, name: str = "holdproof") -> Contestant:
    """The async face with that many callers on one loop."""
    act = _WORKS[work]
    numbers = keys if work == "read" else partial(itertools.count, step=callers)

    async def caller(call: Call, meter: Meter, first: int) -> None:
        for number in numbers(first):
            await call(partial(act, number=number))
            if not meter.done():
                return

    async def all_callers(db: Database, meter: Meter) -> None:
        face = AsyncExecutor(db)
        call = face.read if work == "read" else face.write
        meter.start()
        await asyncio.gather(*(caller(call, meter, first) for first in range(callers)))

    def sample(meter: Meter) -> None:
        with opener() as db:
            asyncio.run(all_callers(db, meter))

    return Contestant(name, callers, sample)


def synchronous(work: str, callers: int, opener: Opener) -> Contestant:
    """The sync face with that many threads."""
    act = _WORKS[work]

    def caller(face: SyncExecutor, meter: Meter, first: int) -> None:
        for number in itertools.count(first, callers):
            face.write(partial(act, number=number))
            if not meter.done():
                return

    def sample(meter: Meter) -> None:
        with opener() as db:
            face = SyncExecutor(db)
            meter.start()
            threads(callers, lambda first: caller(face, meter, first))

    return Contestant("holdproof sync", callers, sample)
