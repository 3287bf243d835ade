-- Lockdowns: from `locked_at` until a statement signed by root ends them, no operation writes.
CREATE TABLE lockdowns (
  id TEXT PRIMARY KEY,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  findings TEXT NOT NULL,
  locked_at @time NOT NULL,
  unlocked_at @time,
  statement TEXT,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
