-- The append-only Merkle log (RFC 6962). A leaf is a salted commitment; salt and content live in the row it speaks of.
CREATE TABLE log_leaves (
  idx @int PRIMARY KEY,
  id TEXT NOT NULL,
  ver @int NOT NULL,
  leaf TEXT NOT NULL,
  UNIQUE (id, ver)
);

-- Full tiles of 256 hashes; level 0 are leaf hashes. They never change.
CREATE TABLE log_tiles (
  level @int NOT NULL,
  idx @int NOT NULL,
  hashes @blob NOT NULL,
  PRIMARY KEY (level, idx)
);

-- Nodes at tree level 8·level that stand in no full tile yet.
CREATE TABLE log_stems (
  level @int NOT NULL,
  idx @int NOT NULL,
  hash @blob NOT NULL,
  PRIMARY KEY (level, idx)
);

-- One row: the right edge of the tree and the newest signed head.
CREATE TABLE log_state (
  id @int PRIMARY KEY CHECK (id = 1),
  origin TEXT NOT NULL,
  size @int NOT NULL,
  frontier @blob NOT NULL,
  head TEXT NOT NULL,
  updated_at @time NOT NULL
);

-- Public keys by role; the statement that brought a key in is signed by its predecessor or by root.
CREATE TABLE keyring (
  keyid TEXT PRIMARY KEY,
  role TEXT NOT NULL CHECK (role IN ('judge', 'memory', 'log', 'root')),
  alg TEXT NOT NULL,
  public TEXT NOT NULL,
  statement TEXT NOT NULL,
  revoked_from @int,
  added_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_keyring_role ON keyring (role);

--postgres:CREATE TABLE log_pending (
--postgres:  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
--postgres:  id TEXT NOT NULL,
--postgres:  ver BIGINT NOT NULL,
--postgres:  leaf TEXT NOT NULL,
--postgres:  UNIQUE (id, ver)
--postgres:);
