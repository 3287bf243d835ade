-- What retention and erasure must leave: floors (how many days records stay at least) and legal holds. `statement` is
-- root's signed statement; a lifted rule has a second line, by which root lifted it.
CREATE TABLE retention_rules (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('floor', 'hold')),
  scope TEXT NOT NULL,
  target TEXT NOT NULL,
  days @int,
  reason TEXT NOT NULL,
  set_at @time NOT NULL,
  lifted_at @time,
  lift_reason TEXT,
  statement TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_retention_rules_target ON retention_rules (ns, scope, target);
