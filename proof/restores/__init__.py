"""Point-in-time restores: a store that is replicated while it is written to comes back at any head that it had.

SQLite is replicated by Litestream, PostgreSQL by a base backup and `pg_receivewal`, as the guide says. Writer, server
and replication are killed together; then only the replica is used. Heads are drawn by chance. Each restore must have
exactly that head, as it was published, with every flow that had been acknowledged before, and verify VALID in full; on
PostgreSQL with the entries that had been committed and wait for the next head.

python -m proof restores --heads 100 --database sqlite --seed 22
"""

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdproof import sync
from holdproof.model.verdicts import Verdict
from proof.report import Proof, Say
from proof.restores import on_postgres, on_sqlite, writer
from proof.workflows import sittings
from proof.workflows.sittings import DATABASES, Counts, Place, Plan

LOAD_S: Final = 6.0
"""How long a sitting writes before everything is killed."""
MOST_LOSS_S: Final = 1.0
_HEADS_A_SITTING: Final = 20


class Loss(NamedTuple):
    """What was acknowledged and is not in the replica: how many flows, and how much time of writing."""

    flows: int
    seconds: float


def sitting(place: Place, heads: int, chance: random.Random, *, load_s: float = LOAD_S) -> Counts:
    """Write, kill everything, and restore to so many heads and to the newest one."""
    begin = on_sqlite.begin if place.url is None else on_postgres.begin
    with begin(place, prepare) as replica:
        with writing(place, replica.url):
            time.sleep(load_s)
            replica.kill()
        written = writer.read(place.folder, writer.FLOWS)
        published = {head: at for at, head in reversed(writer.read(place.folder, writer.HEADS))}
        chosen = replica.heads(published, heads, chance)
        assert len(chosen) == heads, f"the replica has {len(chosen)} heads of the load only"
        waiting = 0
        for number, target in enumerate(chosen):
            with replica.restored(target, place.folder / f"head-{number}") as at:
                assert at.head.encode().hex() in published, "a head that nobody published"
                assert at.size == target.size, f"the head is of {at.size} entries, not of {target.size}"
                waiting += verify(at)
                before = {flow_id for acknowledged_at, flow_id in written if acknowledged_at < target.after}
                assert before <= flows(at), "a flow that was acknowledged before the head is missing"
        with replica.restored(None, place.folder / "newest") as at:
            verify(at)
            loss = lost(written, flows(at))
    assert loss.seconds <= MOST_LOSS_S, f"{loss.flows} flows of {loss.seconds:.3f} s were lost"
    return {
        "heads restored": len(chosen),
        "heads of the load": len(published),
        "rows not signed yet": waiting,
        "flows acknowledged": len(written),
        "flows lost": loss.flows,
        "largest loss in ms": round(1000 * loss.seconds),
    }


def prepare(home: Path, url: str | None) -> None:
    """Create the store."""
    with sync.open(home, url) as store:
        store.agents.register("trader", version="1.0.0")


@contextmanager
def writing(place: Place, url: str | None) -> Iterator[None]:
    """Write from another process, which is killed at the end of the block or before it."""
    command = [sys.executable, "-m", "proof.restores.writer", str(place.folder), str(place.home), url or ""]
    with (place.folder / "writer.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not writer.read(place.folder, writer.FLOWS):
            assert process.poll() is None, (place.folder / "writer.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the writer does not begin"
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


def verify(at: on_sqlite.Restored) -> int:
    """The restored store is VALID in full, but for what had been committed and not signed: how many rows are that."""
    report = sync.verify(at.home, at.url, full=True)
    # On PostgreSQL an entry comes under a head moments after its commit; SQLite has no such moment.
    allowed = {Verdict.VALID} if at.url is None else {Verdict.VALID, Verdict.PENDING}
    assert {report.verdict, *(each.verdict for each in report.findings)} <= allowed, report.to_dict()
    return len(report.findings)


def flows(at: on_sqlite.Restored) -> set[str]:
    """The flows that are there, by id."""
    with sync.open(at.home, at.url, readonly=True) as store:
        ids: set[str] = set()
        cursor = None
        while True:
            page = store.flows.list(cursor=cursor, limit=1000)
            ids |= {each.flow_id for each in page.items}
            if (cursor := page.next_cursor) is None:
                return ids


def lost(written: list[tuple[float, str]], there: set[str]) -> Loss:
    """What is missing, which must be the end of what was acknowledged."""
    missing = [at for at, flow_id in written if flow_id not in there]
    kept = [at for at, flow_id in written if flow_id in there]
    assert kept, "nothing of the load came back"
    seconds = max(missing, default=max(kept)) - max(kept)
    return Loss(len(missing), max(seconds, 0.0))


PLAN: Final = Plan(
    "restores",
    "a store that is replicated while it is written to comes back at any head that the replica has, with exactly that"
    " head and VALID; what a kill of machine and replication costs is the last second at most",
    sitting,
    rounds=100,
    rounds_a_sitting=_HEADS_A_SITTING,
)


def arguments(parser: Any) -> None:
    """How many heads, on which database, for how long."""
    parser.add_argument(
        "--heads", dest="rounds", type=int, default=PLAN.rounds, metavar="K", help="on each database (default 100)"
    )
    parser.add_argument("--database", choices=DATABASES, help="one database only")
    parser.add_argument("--minutes", type=float, metavar="N", help="on each database; begin no sitting after that")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Restore; the counts."""
    return sittings.run(given, say, PLAN)
