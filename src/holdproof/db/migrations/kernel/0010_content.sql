-- Content by its CID: nodes of trees, records, commits, lists. A block never changes. A rowid table on purpose:
-- WITHOUT ROWID would be three times as slow.
CREATE TABLE objects (
  h @blob PRIMARY KEY NOT NULL,
  data @blob NOT NULL
);

-- What moves: the tree that objects are put into (`work/<ns>`) and the newest snapshot (`head/<ns>`). Each move is a leaf.
-- Of a tree, `entries` is the number of its history entries and `history` the CID of the newest.
CREATE TABLE refs (
  name TEXT PRIMARY KEY,
  cid TEXT NOT NULL,
  rev @int NOT NULL,
  ns TEXT NOT NULL,
  updated_at @time NOT NULL,
  entries @int NOT NULL DEFAULT 0,
  history TEXT,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);

-- Snapshots: signed commits. `note` is the block with author, message and reason.
CREATE TABLE snapshots (
  id TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  cid TEXT NOT NULL,
  root TEXT NOT NULL,
  rev TEXT NOT NULL,
  prev TEXT,
  note TEXT NOT NULL,
  created_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  UNIQUE (ns, cid)
);
CREATE INDEX idx_snapshots_rev ON snapshots (ns, rev);

-- The history of a namespace: a chain of entries, each naming the one before by its CID. `data` says which versions were
-- written or pruned. The newest CID stands in the tree's ref, so the log covers the whole chain.
CREATE TABLE object_history (
  ns TEXT NOT NULL,
  entry @int NOT NULL,
  cid TEXT NOT NULL,
  data @blob NOT NULL,
  PRIMARY KEY (ns, entry)
);

-- Every version of every object, by the order of writing; `cid` is null where it was deleted. Follows from the history.
CREATE TABLE object_versions (
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  n @int NOT NULL,
  cid TEXT,
  version @int NOT NULL,
  at @time NOT NULL,
  PRIMARY KEY (ns, key, n)
);

-- Where the objects of the tree stand in the graph: follows from their records.
CREATE TABLE object_index (
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  type TEXT NOT NULL,
  parent TEXT,
  cid TEXT NOT NULL,
  PRIMARY KEY (ns, key)
);
CREATE INDEX idx_object_index_parent ON object_index (ns, parent, key);
