-- Who was given a person's content or an export, and who verified the store: each row has an entry in the log.
-- `target` is a subject's handle for a read, and for an export what was exported.
CREATE TABLE accesses (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('read', 'export')),
  who TEXT NOT NULL,
  what TEXT NOT NULL,
  target TEXT NOT NULL,
  accessed_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_accesses_target ON accesses (target, who, what, accessed_at);
CREATE INDEX idx_accesses_leaf ON accesses (leaf_id);

-- `level` is how thorough it was, `found` how many findings there were, `findings` the first of them as JSON.
CREATE TABLE verifications (
  id TEXT PRIMARY KEY,
  who TEXT NOT NULL,
  level TEXT NOT NULL,
  verdict TEXT NOT NULL,
  found @int NOT NULL,
  findings TEXT NOT NULL,
  log_size @int NOT NULL,
  log_root TEXT NOT NULL,
  verified_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_verifications_leaf ON verifications (leaf_id);
