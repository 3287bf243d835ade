CREATE TABLE legacy_moves (
  source TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  kind TEXT NOT NULL,
  found TEXT NOT NULL,
  written_at TEXT NOT NULL,
  verified_at TEXT,
  moved_at TEXT,
  PRIMARY KEY (source, fingerprint)
);

CREATE TABLE schema_migrations (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, applied_at TEXT NOT NULL, leaf_id TEXT, leaf_ver INTEGER, leaf_salt BLOB);

CREATE TABLE telemetry_chunks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  first_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL,
  events INTEGER NOT NULL,
  codec TEXT NOT NULL,
  data BLOB NOT NULL
);

CREATE INDEX telemetry_chunks_codec ON telemetry_chunks (codec, last_at);

CREATE INDEX telemetry_chunks_last ON telemetry_chunks (last_at, id);

CREATE TABLE telemetry_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  line TEXT NOT NULL
);

CREATE TABLE telemetry_finds (
  key INTEGER NOT NULL,
  chunk INTEGER NOT NULL REFERENCES telemetry_chunks (id) ON DELETE CASCADE,
  PRIMARY KEY (key, chunk)
) WITHOUT ROWID;

CREATE INDEX telemetry_finds_chunk ON telemetry_finds (chunk);

