-- Versions whose record retention let go: the row stays and says so, its block goes once nothing else needs it.
ALTER TABLE object_versions ADD COLUMN pruned_at @time;
CREATE INDEX idx_object_versions_pruned ON object_versions (cid) WHERE pruned_at IS NOT NULL;
