"""Several processes on one store; and what becomes of a store at fork()."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from holdfast.db import open_database
from holdfast.testing.schema import MIGRATIONS, value

# A child opens its own store, the parent closes the one it had before the fork, the child writes on and is killed.
_KILLED_CHILD = """
import os, signal, sys
from holdfast import errors
from holdfast.db import open_database
from holdfast.testing.schema import MIGRATIONS, add

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
from holdfast import errors
from holdfast.db import open_database
from holdfast.testing.schema import MIGRATIONS, add

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
    except errors.HoldfastError as error:
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
