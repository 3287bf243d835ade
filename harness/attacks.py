"""Attacks on a store from outside Holdproof: statements and edits by name, for the suites and `proof attacks`.

They are made for what `filling.populate` and `filling.remember` write.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.legacy_dboms import legacy_sigma
from harness.raw_access import Past, behind
from holdproof.crypto import canonical, checkpoint, frontier, keys, merkle
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.evidence.evaluations import EVALUATIONS
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.leaves import Projection
from holdproof.evidence.restores import RESTORES
from holdproof.model.verdicts import Verdict

_SWAP = "UPDATE battles SET {0} = (SELECT b.{0} FROM battles b WHERE b.id = 5 - battles.id) WHERE id IN (2, 3)"
_ADD = (
    "INSERT INTO battles SELECT 999, battle_id, timestamp, score, breakdown, raw_result, dbom_hash, ns, dbom, subject,"
    " legacy, legacy_key, {}, leaf_ver, leaf_salt FROM battles WHERE id = 3"
)
ROWS = {
    "edited": ["UPDATE battles SET score = 0.99 WHERE id = 3"],
    "edited by a space": ["UPDATE battles SET raw_result = raw_result || ' ' WHERE id = 3"],
    "edited key": ["UPDATE keyring SET revoked_from = NULL"],
    "salt edited": ["UPDATE battles SET leaf_salt = zeroblob(16) WHERE id = 3"],
    "results swapped": [_SWAP.format("raw_result")],
    "leaves swapped": [_SWAP.format(column) for column in ("leaf_salt", "leaf_id")],
    "deleted": ["DELETE FROM battles WHERE id = 3"],
    "deleted key": ["DELETE FROM keyring WHERE role = 'root'"],
    "deleted and renumbered": ["DELETE FROM battles WHERE id = 3", "UPDATE battles SET id = 3 WHERE id = 4"],
    "added with a leaf of nobody": [_ADD.format("'019a0000-0000-7000-8000-000000000000'")],
    "added with the leaf of another": [_ADD.format("leaf_id")],
    "added before all others": [_ADD.format("leaf_id").replace("999", "-5")],
    "added without a key": [
        "INSERT INTO keyring SELECT NULL, role, alg, public, statement, revoked_from, added_at, leaf_id, leaf_ver,"
        " leaf_salt FROM keyring WHERE role = 'root'"
    ],
    "leaf edited": ["UPDATE log_leaves SET leaf = replace(leaf, '\"ver\":1', '\"ver\":2') WHERE idx = 9"],
    "leaf deleted": ["DELETE FROM log_leaves WHERE idx = 9"],
    "deleted, its leaf filed under another record": [
        "UPDATE log_leaves SET id = 'x', ver = 7 WHERE id = (SELECT leaf_id FROM battles WHERE id = 3)",
        "DELETE FROM battles WHERE id = 3",
    ],
    "leaves swapped in the log": [
        "UPDATE log_leaves SET idx = -1 WHERE idx = 9",
        "UPDATE log_leaves SET idx = 9 WHERE idx = 10",
        "UPDATE log_leaves SET idx = 10 WHERE idx = -1",
    ],
}
ONLY_FULL = {"leaves swapped in the log"}

SCHEMA = {
    "table added": "CREATE TABLE extra (a)",
    "index added": "CREATE INDEX extra ON battles (score)",
    "index dropped": "DROP INDEX idx_battles_battle_id",
    "trigger added": "CREATE TRIGGER quiet AFTER INSERT ON battles BEGIN DELETE FROM battles WHERE id = new.id; END",
    "trigger added under a name like the statistics'": (
        "CREATE TRIGGER sqlite§stat AFTER INSERT ON battles BEGIN DELETE FROM battles WHERE id = new.id; END"
    ),
    "trigger added under a name of SQLite's own": (
        "INSERT INTO sqlite_schema VALUES ('trigger', 'sqlite_stat9', 'battles', 0, 'CREATE TRIGGER sqlite_stat9"
        " AFTER INSERT ON battles BEGIN DELETE FROM battles WHERE id = new.id; END')"
    ),
    "view added": "CREATE VIEW seen AS SELECT 1",
    "column added": "ALTER TABLE battles ADD COLUMN note TEXT",
    "check removed": "UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (id = 1)', '') WHERE name = 'log_state'",
}

SERVER = {name: ROWS[name] for name in ("edited", "results swapped", "leaves swapped", "deleted", "deleted key")}
SERVER |= {name: ROWS[name] for name in ("added with the leaf of another", "leaf edited", "leaf deleted")}
SERVER["leaf filed elsewhere"] = ROWS["deleted, its leaf filed under another record"]
SERVER |= {name: ROWS[name] for name in ("added with a leaf of nobody", "added before all others", "edited by a space")}
SERVER |= {
    "salt edited": ["UPDATE battles SET leaf_salt = decode(repeat('00', 16), 'hex') WHERE id = 3"],
    "table added": ["CREATE TABLE extra (a int)"],
    "trigger added": [
        "CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER quiet BEFORE INSERT ON battles FOR EACH ROW EXECUTE FUNCTION quiet()",
    ],
    "trigger added under the name of the connections' table": [
        "CREATE FUNCTION commit_marks() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER commit_marks BEFORE INSERT ON battles FOR EACH ROW EXECUTE FUNCTION commit_marks()",
    ],
    "table no longer durable": ["ALTER TABLE battles SET UNLOGGED"],
    "index dropped": ["DROP INDEX idx_battles_battle_id"],
    "check removed": ["ALTER TABLE log_state DROP CONSTRAINT log_state_id_check"],
    "column added": ["ALTER TABLE battles ADD COLUMN note TEXT"],
    "view added": ["CREATE VIEW seen AS SELECT 1"],
    "index added": ["CREATE INDEX extra ON battles (score)"],
    "tail cut crudely": ["DELETE FROM battles WHERE id > 5", "DELETE FROM log_leaves WHERE idx > 12"],
}

MEMORY = {
    "an older root": "UPDATE refs SET cid = (SELECT root FROM snapshots ORDER BY rev LIMIT 1) WHERE name = 'work/main'",
    "an older head": "UPDATE refs SET cid = (SELECT cid FROM snapshots ORDER BY rev LIMIT 1) WHERE name = 'head/main'",
    "a ref that is gone": "DELETE FROM refs WHERE name = 'head/main'",
    "another note": "UPDATE snapshots SET note = (SELECT note FROM snapshots ORDER BY rev DESC LIMIT 1)",
    "another root": "UPDATE snapshots SET root = (SELECT root FROM snapshots ORDER BY rev DESC LIMIT 1)",
    "a snapshot that is gone": "DELETE FROM snapshots WHERE prev IS NULL",
    "an index that hides an object": "DELETE FROM object_index WHERE key = 'o05'",
    "an index with one more": "INSERT INTO object_index SELECT ns, 'zz', type, parent, cid FROM object_index LIMIT 1",
    "an index to an older version": "UPDATE object_index SET cid = 'x' WHERE key = 'o07'",
    "words that an object has not": "UPDATE object_text SET body = 'forged' WHERE key = 'o07'",
    "words of an older version": "UPDATE object_text SET cid = 'x' WHERE key = 'o07'",
    "words of no object": "INSERT INTO object_text (ns, key, cid, body) VALUES ('main', 'zz', 'x', 'y')",
    "an index that has another type": "UPDATE object_index SET type = 'forged' WHERE key = 'o07'",
    "an index that has another parent": "UPDATE object_index SET parent = 'o05' WHERE key = 'o07'",
    "an index to what can be no object": "UPDATE object_index SET key = 'two words' WHERE key = 'o07'",
    "a vector of what can be no object": "UPDATE object_vectors SET key = 'two words'",
    "a history that ends elsewhere": "UPDATE object_versions SET cid = NULL WHERE key = 'o09'",
    "an older version that is gone": "DELETE FROM object_versions WHERE key = 'o01' AND n = 1",
    "an older version that is another": "UPDATE object_versions SET cid = (SELECT cid FROM object_index"
    " WHERE key = 'o09') WHERE key = 'o01' AND n = 1",
    "versions at other times": "UPDATE object_versions SET at = '2020-01-01T00:00:00.000000Z'",
    "a deleted object that never was": "DELETE FROM object_versions WHERE key = 'o02'",
    "a version that nobody pruned": "UPDATE object_versions SET pruned_at = at WHERE key = 'o01' AND n = 1",
    "a history that ends earlier": "DELETE FROM object_history WHERE entry > 1",
}


def lie_by_index(home: Path) -> None:
    """Edit the b-tree of an index by itself, as a table WITHOUT ROWID laid over its root page: b3 is not found."""
    with behind(home) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'idx_battles_battle_id'").get
        fake = "CREATE TABLE fake (ns, battle_id, id, PRIMARY KEY (ns, battle_id, id)) WITHOUT ROWID"
        connection.execute("INSERT INTO sqlite_schema VALUES ('table', 'fake', 'fake', ?, ?)", (page, fake))
    with behind(home) as connection:
        connection.execute("UPDATE fake SET battle_id = 'b3-gone' WHERE battle_id = 'b3'")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'fake'")


# --- what a server's owner can append --------------------------------------------------------------------------------

HANDLE = "019a0000-0000-7000-8000-000000000000"
_TIME = "2026-01-01T00:00:00.000000Z"


def as_restored(past: Past) -> None:
    """Have the log as it stands look like a restored one, which gave up whatever heads of it were kept.

    At once: a sequencer that saw the new entry and not yet the new name would sign it under the old one.
    """
    with past.at_once():
        _pass_for_restored(past)


def _pass_for_restored(past: Past) -> None:
    [(origin, size, head)] = past.ask("SELECT origin, size, head FROM log_state")
    [(n,)] = past.ask("SELECT coalesce(max(n), 0) + 1 FROM restores")
    name = "/".join([*origin.split("/")[:2], str(n)])
    facts = (n, name, origin, size, head, head, "raw copy", _TIME)
    names = ("n", "origin", "previous", "size", "trusted", "abandoned", "source", "restored_at")
    insert(past, RESTORES, "restore", dict(zip(names, facts, strict=True)))
    past.ask("UPDATE log_state SET origin = ?", name)


def as_erased(past: Past, evaluation_id: str) -> None:
    """Delete a battle, and put the tombstone of an erasure in its place: the one leaf that the log has to have."""
    [(handle, ver)] = past.ask("SELECT leaf_id, leaf_ver FROM battles WHERE battle_id = ?", evaluation_id)
    past.ask("DELETE FROM battles WHERE battle_id = ?", evaluation_id)
    append(past, "erasures/1", "erasure", "0" * 64, handle, ver + 1)


def insert(past: Past, projection: Projection, kind: str, row: dict[str, Any]) -> None:
    """A row with a leaf that fits; where leaves wait for a sequencer, it will be signed."""
    row = {**row, "leaf_id": HANDLE, "leaf_ver": 1, "leaf_salt": bytes(16)}
    marks = ", ".join("?" * len(row))
    past.ask(f"INSERT INTO {projection.table} ({', '.join(row)}) VALUES ({marks})", *row.values())
    append(past, projection.name, kind, projection.commit(bytes(16), row), HANDLE, 1)


def append(past: Past, projection: str, kind: str, digest: str, handle: str, ver: int) -> None:
    """A leaf for the sequencer to sign; SQLite has none, and whoever has no log key appends nothing there."""
    if past.url is not None:
        facts = (digest, handle, "main", projection, kind, _TIME, 1, ver)
        leaf = canonical.dumps(dict(zip(("h", "id", "ns", "p", "t", "ts", "v", "ver"), facts, strict=True)))
        past.ask("INSERT INTO log_pending (id, ver, leaf) VALUES (?, ?, ?)", handle, ver, leaf.decode())


# --- files -----------------------------------------------------------------------------------------------------------


def legacy(path: Path) -> bytes:
    facts = json.loads(path.read_bytes())
    facts["sigma_judge"] = legacy_sigma(facts["battle_id"], facts["h_delta"])
    return json.dumps(facts, indent=2).encode()


FILES: dict[str, Callable[[Path], object]] = {
    "edited": lambda path: path.write_bytes(path.read_bytes().replace(b'"score_cis": 0.03', b'"score_cis": 0.93')),
    "edited by a space": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "deleted": lambda path: path.unlink(),
    "replaced by a legacy one": lambda path: path.write_bytes(legacy(path)),
    "replaced by that of another": lambda path: shutil.copy(path.with_name("dbom_b4.json"), path),
}
FILE_VERDICTS: dict[str, Verdict] = {"deleted": Verdict.MISSING_HERE}
"""What verification says of each; TAMPERED unless named here: a deleted file is written again from its row."""


# --- row and leaf, and the tree with them ----------------------------------------------------------------------------


def rewrite(past: Past, change: str = "score = 0.99") -> None:
    """Edit a row and give it a leaf that fits."""
    columns = ", ".join(EVALUATIONS.projection.columns)
    past.ask(f"UPDATE battles SET {change} WHERE id = 3")
    [(*row, salt, leaf_id)] = past.ask(f"SELECT {columns}, leaf_salt, leaf_id FROM battles WHERE id = 3")
    digest = EVALUATIONS.projection.commit(salt, dict(zip(EVALUATIONS.projection.columns, row, strict=True)))
    [(text,)] = past.ask("SELECT leaf FROM log_leaves WHERE id = ?", leaf_id)
    changed = f'{{"h":"{digest}"' + text[text.index(',"id"') :]
    past.ask("UPDATE log_leaves SET leaf = ? WHERE id = ?", changed, leaf_id)


def regrow(past: Past, sign: Callable[[LogCheckpoint], str] | None) -> None:
    """Recompute the tree over the leaves that are there, and its head if somebody signs."""
    texts = [row[0].encode() for row in past.ask("SELECT leaf FROM log_leaves ORDER BY idx")]
    grown = frontier.append(frontier.EMPTY, merkle.leaf_hashes(texts)).frontier
    [(origin, head)] = past.ask("SELECT origin, head FROM log_state")
    if sign is not None:
        head = sign(LogCheckpoint(origin, grown.size, grown.root()))
    past.ask("UPDATE log_state SET size = ?, frontier = ?, head = ?", grown.size, grown.to_bytes(), head)


def signed_by(key: keys.PrivateKey) -> Callable[[LogCheckpoint], str]:
    return lambda head: checkpoint.sign(head, key).encode().decode()


def thief(home: Path) -> Callable[[LogCheckpoint], str]:
    """The log key itself, stolen."""
    return signed_by(KeyFolder(home / "config" / "keys").load("log"))
