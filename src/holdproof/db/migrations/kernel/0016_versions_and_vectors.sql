-- Versions whose record retention let go: the row stays and says so, its block goes once nothing else needs it.
ALTER TABLE object_versions ADD COLUMN pruned_at @time;
CREATE INDEX idx_object_versions_pruned ON object_versions (cid) WHERE pruned_at IS NOT NULL;

-- The vectors that objects have among their volatile fields, for searching: follow from these.
CREATE TABLE object_vectors (
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  cid TEXT NOT NULL,
  dimensions @int NOT NULL,
  vector @blob NOT NULL,
  PRIMARY KEY (ns, key)
);
CREATE INDEX idx_object_vectors_dimensions ON object_vectors (ns, dimensions, key);
