"""Several processes on one store; and what becomes of a store at fork()."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdproof.db import open_database
from holdproof.testing.schema import MIGRATIONS, add, entries, value
from tests.conformance.racing import race

# A child opens its own store, the parent closes the one it had before the fork, the child writes on and is killed.
_KILLED_CHILD = """
import os, signal, sys
from holdproof import errors
from holdproof.db import open_database
from holdproof.testing.schema import MIGRATIONS, add

target = sys.argv[1]
store = open_database(target, migrations=MIGRATIONS)
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    try:
        own = open_database(target, migrations=MIGRATIONS)
    except errors.ForkedError:
        os.write(ready[1], b"refused")
        os._exit(0)
    os.write(ready[1], b"open")
    os.read(go[0], 1)
    for number in range(20):
        os.write(1, (own.write(lambda tx: add(tx, f"c{number}")).result() + "\\n").encode())
    os.kill(os.getpid(), signal.SIGKILL)
os.read(ready[0], 7)
store.close()
os.write(go[1], b"!")
os.waitpid(child, 0)
"""

# A child opens its own store while the parent is in the middle of a transaction, which then ends.
_CHILD_OF_A_WRITER = """
import os, sys, threading
from holdproof import errors
from holdproof.db import open_database
from holdproof.testing.schema import MIGRATIONS, add

target = sys.argv[1]
store = open_database(target, migrations=MIGRATIONS)
entered, go, forked = threading.Event(), threading.Event(), os.pipe()

def hold(tx):
    add(tx, "parent")
    entered.set()
    go.wait(30)

future = store.write(hold)
entered.wait(30)
child = os.fork()
if child == 0:
    os.read(forked[0], 1)
    try:
        own = open_database(target, migrations=MIGRATIONS, busy_s=2)
        own.write(lambda tx: add(tx, "child")).result()
        own.close()
        answer = "written"
    except errors.HoldproofError as error:
        answer = type(error).__name__
    os.write(1, answer.encode())
    os._exit(0)
go.set()
future.result()
os.write(forked[1], b"!")
os.waitpid(child, 0)
store.close()
"""


def _run(script: str, target: Path) -> str:
    done = subprocess.run([sys.executable, "-c", script, str(target)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_forked_child_was_acknowledged_survives_though_the_parent_closed(tmp_path: Path) -> None:
    target = tmp_path / "kernel.db"
    acknowledged = _run(_KILLED_CHILD, target).split()
    with closing(open_database(target, migrations=MIGRATIONS)) as db:
        kept = db.read(lambda tx: [name for name in acknowledged if value(tx, name) is not None]).result()
        assert db.backend.check() == []
    assert kept == acknowledged


def test_a_child_forked_in_the_middle_of_a_transaction_writes_or_is_refused_as_forked(tmp_path: Path) -> None:
    assert _run(_CHILD_OF_A_WRITER, tmp_path / "kernel.db") in {"written", "ForkedError"}


# --- four processes, one store -------------------------------------------------------------------------------------

_IMPORTS = """
import time
from holdproof.db import open_database, postgres
from holdproof.testing.schema import MIGRATIONS, add, enter, take
"""

# Each asks for more than there is, some calls queued together, some one by one; any error at all ends the process.
_TAKE = """
db = open_database(TARGET, migrations=MIGRATIONS)
won = dict.fromkeys(("one", "many"), 0)
for name in won:
    taken = [db.write(lambda tx: take(tx, name)) for _ in range(40)]
    won[name] += sum(future.result() is not None for future in taken)
    for _ in range(20):
        won[name] += db.write(lambda tx: take(tx, name)).result() is not None
db.close()
answer(won)
"""

# Each writes one row after the other for a while, reading its own writes.
_WRITE = """
db = open_database(TARGET, migrations=MIGRATIONS)
written, until = 0, time.monotonic() + 1
while time.monotonic() < until or written < 20:
    db.write(lambda tx: enter(tx, "c")).result()
    written += 1
db.close()
answer(written)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes can open."""
    place = tmp_path / "kernel.db" if request.param == "sqlite" else request.getfixturevalue("empty_postgres_url")
    return str(place)


def test_four_processes_never_take_more_than_there_is_nor_less(target: str) -> None:
    with closing(open_database(target, migrations=MIGRATIONS)) as db:
        db.write(lambda tx: [add(tx, "one", 1), add(tx, "many", 97)]).result()
        won = race(_TAKE, target, 4, imports=_IMPORTS)
        assert [sum(each[name] for each in won) for name in ("one", "many")] == [1, 97]
        assert db.read(lambda tx: (value(tx, "one"), value(tx, "many"), entries(tx))).result() == (0, 0, 98)
        assert db.backend.check() == []


def test_four_processes_that_write_all_get_on(target: str) -> None:
    with closing(open_database(target, migrations=MIGRATIONS)) as db:
        db.write(lambda tx: add(tx, "c")).result()
        written = race(_WRITE, target, 4, imports=_IMPORTS)
        assert all(count >= 20 for count in written)
        assert db.read(entries).result() == sum(written)
        assert db.backend.check() == []
