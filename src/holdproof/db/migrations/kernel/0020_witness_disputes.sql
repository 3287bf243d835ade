-- A witness that refused a head because it has seen more of the log, or another history: each such answer, once.
CREATE TABLE witness_disputes (
  id TEXT PRIMARY KEY,
  url TEXT NOT NULL,
  verdict TEXT NOT NULL,
  what TEXT NOT NULL,
  origin TEXT NOT NULL,
  size @int NOT NULL,
  disputed_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
