-- What was said of skills, signed, the newest of a path counts: that a file with this root may be loaded, or that none
-- may any more.
CREATE TABLE skill_approvals (
  id TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  path TEXT NOT NULL,
  n @int NOT NULL,
  action TEXT NOT NULL CHECK (action IN ('approve', 'revoke')),
  place TEXT NOT NULL,
  rules TEXT NOT NULL,
  root TEXT NOT NULL,
  size @int NOT NULL,
  blocks TEXT NOT NULL,
  approved_by TEXT NOT NULL,
  comment TEXT NOT NULL,
  approved_at @time NOT NULL,
  keyid TEXT NOT NULL,
  statement TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  UNIQUE (ns, path, n)
);
-- What was found instead of an approved skill: it is not loaded until something newer than `against` is said of it.
CREATE TABLE skill_lockdowns (
  id TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  path TEXT NOT NULL,
  against @int NOT NULL,
  reason TEXT NOT NULL,
  changes TEXT NOT NULL,
  root TEXT,
  locked_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  UNIQUE (ns, path, against)
);
