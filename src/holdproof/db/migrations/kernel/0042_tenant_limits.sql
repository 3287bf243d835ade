-- What a namespace may use: root's signed statement for each change, never edited; the newest of a namespace counts.
CREATE TABLE tenant_limits (
  id TEXT PRIMARY KEY,
  limits TEXT NOT NULL,
  reason TEXT NOT NULL,
  set_at @time NOT NULL,
  statement TEXT NOT NULL,
  ns TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_tenant_limits_ns ON tenant_limits (ns, id);

-- What limited namespaces wrote: the entries of this minute, and the bytes since their first limit.
CREATE TABLE tenant_usage (
  ns TEXT PRIMARY KEY,
  minute TEXT NOT NULL,
  entries @int NOT NULL,
  bytes @int NOT NULL
);
