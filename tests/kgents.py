"""A home of kgents to take over: every kind of source, with what such homes really hold."""

import json
from contextlib import closing
from pathlib import Path

import apsw

SESSIONS = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT, session_type TEXT, state TEXT, started_at TEXT, ended_at TEXT,
 project_path TEXT, project_hash TEXT, flow_name TEXT, flow_path TEXT, budget_level TEXT, tokens_used INTEGER,
 metadata TEXT);
CREATE TABLE events (id TEXT PRIMARY KEY, session_id TEXT, timestamp TEXT, event_type TEXT, source TEXT, message TEXT,
 data TEXT);
CREATE TABLE agents (id TEXT PRIMARY KEY, session_id TEXT, name TEXT, genus TEXT, status TEXT, started_at TEXT,
 completed_at TEXT, error TEXT, metadata TEXT);
CREATE TABLE artifacts (id TEXT PRIMARY KEY, session_id TEXT, name TEXT, path TEXT, artifact_type TEXT,
 created_at TEXT, updated_at TEXT, size_bytes INTEGER, content_preview TEXT, metadata TEXT);
INSERT INTO sessions (id, name, session_type, state, started_at, tokens_used, metadata)
 VALUES ('s1', 'My REPL', 'interactive', 'completed', '2025-01-01T00:00:00Z', 7, '{"a": 1}'),
        ('s2', 'Flow', 'flow', 'active', '2025-01-02T00:00:00Z', 0, '{}');
INSERT INTO events VALUES ('e1', 's1', '2025-01-01T00:00:01Z', 'command', 'repl', 'ran check', '{}'),
                          ('e2', 'gone', '2025-01-01T00:00:02Z', 'command', 'repl', 'an orphan', '{}');
INSERT INTO agents VALUES ('a1', 's1', 'check', 'b-gent', 'done', NULL, NULL, NULL, '{}');
INSERT INTO artifacts VALUES ('f1', 's2', 'out', '/tmp/out', 'file', NULL, NULL, 3, 'abc', '{}');
"""
MEMBRANE = """
CREATE TABLE shapes (id TEXT PRIMARY KEY, shape_type TEXT, intensity REAL, persistence REAL, interpretation TEXT,
 project_hash TEXT, instance_id TEXT, observed_at TEXT, embedding_status TEXT);
CREATE TABLE embedding_metadata (source_id TEXT PRIMARY KEY, model_name TEXT, dimensions INTEGER, created_at TEXT,
 needs_reembed INTEGER, content TEXT);
INSERT INTO embedding_metadata VALUES ('v1', 'mini', 2, '2025-01-01T00:00:00Z', 0, 'a text');
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TEXT);
INSERT INTO shapes VALUES ('shape1', 'rhythm', 0.5, 1, NULL, NULL, NULL, '2025-01-01T00:00:00Z', 'none');
INSERT INTO schema_version VALUES (1, '2025-01-01T00:00:00Z');
"""
EVENTS = """
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT, timestamp TEXT, data TEXT,
 instance_id TEXT, project_hash TEXT);
INSERT INTO events (event_type, timestamp, data, instance_id) VALUES
 ('instance.started', '2025-01-01T00:00:00Z', '{"pid": 1}', 'i1'),
 ('tick', '2025-01-01T00:00:01Z', '{}', 'i1'), ('tick', '2025-01-01T00:00:01Z', '{}', 'i1');
"""
LARGE = bytes(range(256)) * 1000


def database(path: Path, script: str) -> None:
    """A SQLite file made by somebody else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(script)


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def legacy(root: Path) -> Path:
    """`~/.kgents`, with all seven rows of the table."""
    database(root / "history.db", SESSIONS)
    write(root / "witness.json", json.dumps({"trust": 2}))
    write(root / "witness.log", "started\n")
    write(root / "ghost" / "health.status", "cortex: ok")
    write(root / "ghost" / "deep" / "large.bin", LARGE)
    write(root / "ghost" / "con", "a reserved name")
    write(root / "ghost" / "empty", "")
    write(root / "atelier" / "piece-1.json", '{"title": "x"}')
    write(root / "prompt-history" / "index.json", json.dumps({"checkpoints": ["c1", "c2"]}))
    for name, parent in (("c1", None), ("c2", "c1")):
        checkpoint = {"id": name, "timestamp": "2025-01-01T00:00:00Z", "before_content": "a", "after_content": name}
        more = {
            "before_sections": ["x"],
            "after_sections": [],
            "reason": "why not",
            "parent_id": parent,
            "mood": "calm",
        }
        write(root / "prompt-history" / "checkpoints" / f"{name}.json", json.dumps(checkpoint | more))
    write(root / "hypnagogia" / "state.json", '{"dreams": [1, 2]}')
    write(root / "soul" / "state.json", '{"mood":  "calm"}')
    write(root / "soul" / "eigen.json", '{"genus": "other", "v": 1}')
    write(root / "soul" / "notes.txt", "by hand")
    return root


def xdg(root: Path, dimensions: int = 2) -> Path:
    """`$XDG_DATA_HOME/kgents`."""
    database(root / "membrane.db", MEMBRANE)
    vectors = {f"v{n}": {"vector": [1.0] + [n / 8] * (dimensions - 1), "metadata": {"n": n}} for n in range(5)}
    write(root / "vectors.json", json.dumps({"dimensions": dimensions, "vectors": vectors}))
    write(root / "blobs" / "backups" / "today.bak", b"bytes")
    write(root / "blobs" / "backups" / "today.bak.meta", '{"content_type": "text/plain"}')
    write(root / "blobs" / "notes.meta", "a key of its own")
    database(root / "telemetry.db", EVENTS)
    return root
