-- Tenants: stores of their own that this one knows, by name. A row changes by versions, each with an entry; a name is
-- free again once its tenant is deleted. `place` is empty for a file in the tenant's home, the name of a database on
-- this store's server, or the URL of one elsewhere, without password. `finding` says why its log is not believed.
CREATE TABLE tenants (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  place TEXT NOT NULL,
  store TEXT,
  finding TEXT,
  reason TEXT,
  created_at @time NOT NULL,
  changed_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE UNIQUE INDEX idx_tenants_name ON tenants (name) WHERE status <> 'deleted';

-- Heads of tenants' logs, as this log saw them: never edited. `keys` are the verifier keys that each was checked with.
CREATE TABLE tenant_heads (
  id TEXT PRIMARY KEY,
  tenant_id TEXT NOT NULL,
  name TEXT NOT NULL,
  origin TEXT NOT NULL,
  size @int NOT NULL,
  head TEXT NOT NULL,
  keys TEXT NOT NULL,
  recorded_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_tenant_heads_tenant ON tenant_heads (tenant_id, id);
CREATE INDEX idx_tenant_heads_size ON tenant_heads (tenant_id, origin, size);
