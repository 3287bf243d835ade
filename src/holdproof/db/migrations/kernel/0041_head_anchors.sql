-- Anchors: heads of this log that are entries of another one (Rekor v2, or any C2SP log). `key` is the verifier key of
-- that log that the proof was checked with when it came; `proof` a tlog-proof; `url` NULL where a person brought it.
CREATE TABLE head_anchors (
  id TEXT PRIMARY KEY,
  origin TEXT NOT NULL,
  size @int NOT NULL,
  head TEXT NOT NULL,
  url TEXT,
  log TEXT NOT NULL,
  log_index @int NOT NULL,
  key TEXT NOT NULL,
  proof TEXT NOT NULL,
  created_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_head_anchors_size ON head_anchors (origin, size);
