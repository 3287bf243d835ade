"""How fast decisions are signed and submitted, and which share of it is the signature itself.

The share is read off the ratios to `bare signature`: a contestant that is 0.1 times as fast spends a tenth of its time
on the signature. The peer is what a Green Agent does: no signature, a file that is not synced, one commit a row.
"""

import asyncio
import hashlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw

import holdproof
from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, run_race
from bench.threads import threads
from holdproof import sync
from holdproof.crypto import attest, keys
from holdproof.crypto.dbom import Fields
from holdproof.evidence import evaluations

VECTOR = tuple((at % 97) / 97 - 0.5 for at in range(384))
FIELDS = Fields("battle-1", "ab" * 32, VECTOR, 0.875, "2026-01-14T21:05:51Z")
RESULT = {
    "task": "Rate Limiter",
    "source": "def limit():\n    pass\n" * 60,
    "evaluation": {"valid": True, "score": 0.5},
}
CALLERS = (1, 64)

BARE, PEER = "bare signature @1", "green agent @1"
SIGNING, SUBMITTING = "sign a DBOM (384 numbers)", "submit"


def run(options: Options) -> list[Result]:
    """Both races; PostgreSQL has no part in them."""
    if not options.wants("sqlite"):
        return []
    return run_race(Race(SIGNING, [_bare(), _sign(), _text(), _verify()], (BARE,)), options) + run_race(
        Race(SUBMITTING, [_bare(), _green_agent(), *map(_submit, CALLERS), *map(_submit_sync, CALLERS)], (BARE, PEER)),
        options,
    )


def goals(options: Options) -> list[Goal]:
    """What must be reached, and what is aimed at."""
    disk = options.disk
    return [
        Goal("sign a DBOM: 0.30 x the bare signature", SIGNING, "sign @1", BARE, 0.30),
        Goal(f"submit, 64 callers: as fast as a Green Agent that signs and syncs nothing{disk}", SUBMITTING,
             "holdproof @64", PEER, 1.0, aim=True),
    ]  # fmt: skip


def _loop(name: str, act: Any) -> Contestant:
    def sample(meter: Meter) -> None:
        meter.start()
        while True:
            act()
            if not meter.done():
                return

    return Contestant(name, 1, sample)


def _bare() -> Contestant:
    key = keys.generate()
    message = attest.signed_bytes(FIELDS, key.alg, key.keyid)
    return _loop("bare signature", lambda: key.sign(message))


def _sign() -> Contestant:
    key = keys.generate()
    return _loop("sign", lambda: attest.sign(FIELDS, key))


def _text() -> Contestant:
    key = keys.generate()
    return _loop("sign and write as text", lambda: evaluations.sign(FIELDS, key))


def _verify() -> Contestant:
    key = keys.generate()
    signed = attest.sign(FIELDS, key)
    return _loop("verify", lambda: attest.verify(signed, key.public))


def _green_agent() -> Contestant:
    """A row and a file an evaluation, as the seed's own program writes them."""

    def sample(meter: Meter) -> None:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, closing(_battles(folder)) as connection:
            meter.start()
            for number in itertools.count():
                raw = json.dumps(RESULT)
                digest = hashlib.sha256(raw.encode()).hexdigest()
                dbom = {"battle_id": f"b{number}", "h_delta": digest, "v_intent": VECTOR, "score_cis": 0.5}
                Path(folder, f"dbom_b{number}.json").write_text(json.dumps(dbom, indent=2))
                connection.execute("INSERT INTO battles VALUES (NULL, ?, ?, ?, ?)", (f"b{number}", 0.5, raw, digest))
                if not meter.done():
                    return

    return Contestant("green agent", 1, sample)


def _battles(folder: str) -> apsw.Connection:
    connection = apsw.Connection(str(Path(folder, "battles.db")))
    for statement in ("PRAGMA journal_mode=wal", "PRAGMA synchronous=full"):
        connection.execute(statement)
    connection.execute("CREATE TABLE battles (id INTEGER PRIMARY KEY, battle_id, score, raw_result, dbom_hash)")
    return connection


def _submit(callers: int) -> Contestant:
    async def caller(store: holdproof.Holdproof, meter: Meter, first: int) -> None:
        for number in itertools.count(first, callers):
            await store.evaluations.submit(
                RESULT, evaluation_id=f"b{number}", score=0.5, breakdown="fine", intent=VECTOR
            )
            if not meter.done():
                return

    async def all_callers(home: str, meter: Meter) -> None:
        async with holdproof.open(home) as store:
            await store.evaluations.submit(RESULT, evaluation_id="first", score=0.5)
            meter.start()
            await asyncio.gather(*(caller(store, meter, first) for first in range(callers)))

    def sample(meter: Meter) -> None:
        with tempfile.TemporaryDirectory(prefix="bench-") as home:
            asyncio.run(all_callers(home, meter))

    return Contestant("holdproof", callers, sample)


def _submit_sync(callers: int) -> Contestant:
    def caller(store: sync.Holdproof, meter: Meter, first: int) -> None:
        for number in itertools.count(first, callers):
            store.evaluations.submit(RESULT, evaluation_id=f"b{number}", score=0.5, breakdown="fine", intent=VECTOR)
            if not meter.done():
                return

    def sample(meter: Meter) -> None:
        with _store() as store:
            meter.start()
            threads(callers, lambda first: caller(store, meter, first))

    return Contestant("holdproof sync", callers, sample)


@contextmanager
def _store() -> Iterator[sync.Holdproof]:
    with tempfile.TemporaryDirectory(prefix="bench-") as home, sync.open(home) as store:
        store.evaluations.submit(RESULT, evaluation_id="first", score=0.5)
        yield store
