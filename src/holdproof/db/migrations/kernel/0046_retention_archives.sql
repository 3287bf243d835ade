-- Archives that retention wrote: folders elsewhere with the records of a month, named by the hash of their manifest.
-- `positions` are the places of the records' entries in the log: what has its entry there may be missing here.
CREATE TABLE retention_archives (
  id TEXT PRIMARY KEY,
  what TEXT NOT NULL,
  month TEXT NOT NULL,
  count @int NOT NULL,
  place TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  positions TEXT NOT NULL,
  who TEXT NOT NULL,
  archived_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
