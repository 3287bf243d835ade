CREATE TABLE battles (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  battle_id TEXT NOT NULL,
  timestamp TEXT NOT NULL,
  score REAL,
  breakdown TEXT,
  raw_result TEXT,
  dbom_hash TEXT,
  ns TEXT NOT NULL,
  dbom TEXT,
  subject TEXT,
  legacy TEXT,
  legacy_key TEXT UNIQUE,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_battles_battle_id ON battles (ns, battle_id, id);

CREATE INDEX idx_battles_subject ON battles (subject);

CREATE TABLE erasures (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('subject', 'record')),
  target TEXT NOT NULL,
  who TEXT NOT NULL,
  count INTEGER NOT NULL,
  leaf_ids TEXT NOT NULL,
  erased_at TEXT NOT NULL,
  files TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE keyring (
  keyid TEXT PRIMARY KEY,
  role TEXT NOT NULL CHECK (role IN ('judge', 'memory', 'log', 'root')),
  alg TEXT NOT NULL,
  public TEXT NOT NULL,
  statement TEXT NOT NULL,
  revoked_from INTEGER,
  added_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_keyring_role ON keyring (role);

CREATE TABLE lockdowns (
  id TEXT PRIMARY KEY,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  findings TEXT NOT NULL,
  locked_at TEXT NOT NULL,
  unlocked_at TEXT,
  statement TEXT,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE log_cosignatures (
  url TEXT PRIMARY KEY REFERENCES log_witnesses (url),
  origin TEXT NOT NULL,
  size INTEGER NOT NULL,
  head TEXT NOT NULL,
  cosigned_at TEXT NOT NULL
);

CREATE TABLE log_leaves (
  idx INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  ver INTEGER NOT NULL,
  leaf TEXT NOT NULL,
  UNIQUE (id, ver)
);

CREATE TABLE log_state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  origin TEXT NOT NULL,
  size INTEGER NOT NULL,
  frontier BLOB NOT NULL,
  head TEXT NOT NULL,
  updated_at TEXT NOT NULL
);

CREATE TABLE log_stems (
  level INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  hash BLOB NOT NULL,
  PRIMARY KEY (level, idx)
);

CREATE TABLE log_tiles (
  level INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  hashes BLOB NOT NULL,
  PRIMARY KEY (level, idx)
);

CREATE TABLE log_witnesses (
  url TEXT PRIMARY KEY,
  vkey TEXT NOT NULL,
  added_at TEXT NOT NULL
);

CREATE TABLE restores (
  n INTEGER PRIMARY KEY,
  origin TEXT NOT NULL,
  previous TEXT NOT NULL,
  size INTEGER NOT NULL,
  trusted TEXT NOT NULL,
  abandoned TEXT NOT NULL,
  source TEXT NOT NULL,
  restored_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE schema_migrations (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, applied_at TEXT NOT NULL, leaf_id TEXT, leaf_ver INTEGER, leaf_salt BLOB);

CREATE TABLE store_facts (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  updated_at TEXT NOT NULL
);

CREATE TABLE subjects (
  handle TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  name_hash TEXT,
  key BLOB,
  created_at TEXT NOT NULL,
  erased_at TEXT,
  leaf_id TEXT,
  leaf_ver INTEGER,
  leaf_salt BLOB,
  UNIQUE (ns, name_hash)
);

