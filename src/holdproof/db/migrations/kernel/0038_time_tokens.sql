-- Time tokens (RFC 3161): a time authority signed that a head existed at a time. `certificate` is what the token was
-- checked with when it came; `token` the authority's answer, in base64.
CREATE TABLE time_tokens (
  id TEXT PRIMARY KEY,
  origin TEXT NOT NULL,
  size @int NOT NULL,
  head TEXT NOT NULL,
  url TEXT NOT NULL,
  authority TEXT NOT NULL,
  certificate TEXT NOT NULL,
  token TEXT NOT NULL,
  stamped_at @time NOT NULL,
  created_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_time_tokens_size ON time_tokens (origin, size);
