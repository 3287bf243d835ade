"""Whole databases and servers exchanged: a store made elsewhere, made-up restores, foreign writers, witnesses."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import psycopg

from harness import witnesses
from harness.filling import settled, submit
from harness.witnesses import made, serving
from holdproof import errors, sync
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.db import open_database, sql
from holdproof.db.sqlite import LITESTREAM
from proof.attacks.attacked_store import Lab, Place
from proof.attacks.matrix import FILES, NOTHING, PLAIN, ROWS, Attack, Got, examine, gravest, is_locked

AREA: Final = "substitution"
_GRAVE: Final = ("TAMPERED", "ROLLED_BACK", "FORKED")
_NAME: Final = sql("INSERT INTO store_facts (key, value, updated_at) VALUES ('store_id', :value, :now)")
_STOCK: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
for statement in sys.argv[2:]:
    connection.execute(statement).fetchall()
connection.commit()
connection.close()
"""
_KILLED: Final = """
import os, sys
from harness.filling import submit
from holdproof import sync
submit(sync.open(sys.argv[1]), "before the kill", 0.5)
os._exit(9)
"""
_TOOL: Final = "Litestream's own tables, exactly as it makes them, are no tampering; what is in them proves nothing"


def attacks(lab: Lab) -> Iterator[Attack]:
    """All exchanges that this database allows."""
    yield Attack(AREA, "another store laid in place", ROWS, partial(_replace, lab, False), _GRAVE)
    yield Attack(AREA, "another store laid in place under the same name", ROWS, partial(_replace, lab, True), _GRAVE)
    yield Attack(AREA, "the kernel deleted, and the application started again", ROWS, partial(_delete, lab), locks=None)
    yield Attack(AREA, "the database of a copy laid over the original", ROWS, partial(_lay_copy, lab), ("ROLLED_BACK",))
    yield Attack(AREA, "a restore made up that gives up every kept head", ROWS, _give_up, _GRAVE, names="restores")
    yield Attack(
        AREA, "a witness that has seen another history is asked", ROWS, _contradicted, ("FORKED",), locks=False
    )
    if lab.template.url is not None:
        yield Attack("schema", "a trigger, behind a schema of the name that verify used", ROWS, _blind, names="schema")
        return
    yield Attack(AREA, "the log folded by another program after a kill", FILES, _fold, ("FOREIGN_WRITER",), locks=False)
    yield Attack(AREA, "the same, and a row edited", FILES, _fold_and_edit, names="battles")
    yield Attack(
        "schema",
        "Litestream's tables",
        ROWS,
        _replicate,
        ("VALID",),
        (NOTHING,),
        locks=False,
        design=_TOOL,
    )
    extra = "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER, more TEXT)"
    yield Attack("schema", "a table that only sounds like Litestream's", ROWS, partial(_stock, extra), names="schema")


def _replace(lab: Lab, same_name: bool, place: Place) -> None:
    """Make a store with keys of the attacker's own and put its database in the place of this one."""
    forged = place.folder / "forged"
    url = lab.another_database() if place.url is not None else None
    if same_name:
        forged.mkdir()
        [(store_id,)] = place.past.ask("SELECT value FROM store_facts WHERE key = 'store_id'")
        with closing(open_database(url or forged / "kernel.db")) as database:
            database.write(lambda tx: tx.execute(_NAME, value=store_id, now=tx.now, expect=1)).result()
    for number in range(3 if same_name else 0):  # as often as the store was restored, and once more
        with sync.open(forged, url) as store:
            submit(store, f"forged{number}", 0.9)
            settled(store)
            store.backup.create(place.folder / f"forged{number}", keys=True)
        sync.restore(place.folder / f"forged{number}", forged, url)
    with sync.open(forged, url) as store:
        submit(store, "forged", 0.9)
        settled(store)
    lab.lay(place, forged, url)


def _delete(lab: Lab, place: Place) -> Got:
    """Delete the database; whoever opens the store next must not get a new one that verifies."""
    if place.url is None:
        for file in place.home.glob("kernel.db*"):
            file.unlink()
    else:
        lab.empty(place)
    try:
        with place.open() as store:
            submit(store, "after the deletion", 0.5)
    except errors.StoreGoneError:
        pass
    report = sync.verify(place.home, place.url, full=True)
    return Got(report.verdict.word, report.verdict.exit_code, False, PLAIN, gravest(report))


def _lay_copy(lab: Lab, place: Place) -> None:
    """Copy the store, go on with it, and put the database of the copy in its place: its last entries are gone."""
    copy = place.folder / "copy"
    url = lab.another_database() if place.url is not None else None
    if place.url is None or url is None:
        sync.copy(place.home, copy)
    else:
        sync.copy(place.url, url, place.home, to_home=copy)
    with place.open() as store:
        submit(store, "after the copy", 0.5)
        settled(store)
    lab.lay(place, copy, url)


def _give_up(place: Place) -> None:
    """Only the row: whoever has no log key cannot make its entry."""
    [(origin, head)] = place.past.ask("SELECT origin, head FROM log_state")
    store = "/".join(origin.split("/")[:2])
    columns = "n, origin, previous, size, trusted, abandoned, source, restored_at, leaf_id, leaf_ver, leaf_salt"
    row = (99, f"{store}/99", origin, 1, head, head, "raw copy", "2026-01-01T00:00:00.000000Z", "x", 1, bytes(16))
    place.past.ask(f"INSERT INTO restores ({columns}) VALUES ({', '.join('?' * len(row))})", *row)


def _contradicted(place: Place) -> Got:
    """Not an attack of the witness's: the log was rewritten before, and it alone remembers."""
    with place.open() as store:
        served = made(store, place.folder / "witness.json")
        head = store.log.head().checkpoint
        with served._state.locked():
            served._state.write({head.origin: LogCheckpoint(head.origin, head.size, bytes(32))})
        with serving(served) as url:
            try:
                witnesses.cosign(store, url, key=served.key.encode())
            except errors.ProofError:
                settled(store)
    report = sync.verify(place.home, place.url, lock=True)
    return Got(report.verdict.word, report.verdict.exit_code, is_locked(place), PLAIN, gravest(report))


def _blind(place: Place) -> None:
    assert place.url is not None
    with psycopg.connect(place.url, autocommit=True) as server:
        server.execute("CREATE SCHEMA holdproof_verify")
        server.execute("CREATE FUNCTION kernel.lie() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
        server.execute(
            "CREATE TRIGGER lie BEFORE INSERT ON kernel.flow_transitions FOR EACH ROW EXECUTE FUNCTION kernel.lie()"
        )


def _run(*arguments: str, code: int = 0) -> None:
    done = subprocess.run([sys.executable, *arguments], check=False, cwd=Path(__file__).resolve().parents[2])
    assert done.returncode == code


def _stock(statement: str, place: Place) -> None:
    """Run a statement with the SQLite of the standard library, in a process of its own: locks are per process."""
    _run("-c", _STOCK, str(place.home / "kernel.db"), statement)


def _fold(place: Place) -> None:
    _run("-c", _KILLED, str(place.home), code=9)
    _stock("SELECT count(*) FROM battles", place)


def _fold_and_edit(place: Place) -> Got:
    _fold(place)
    _stock("UPDATE battles SET score = 0.99 WHERE battle_id = 'b3'", place)
    return examine(place, "battles")


def _replicate(place: Place) -> None:
    for statement in LITESTREAM.values():
        _stock(statement, place)
