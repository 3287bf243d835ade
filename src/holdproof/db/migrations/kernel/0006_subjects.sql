-- People whose content is sealed. The name is kept only as a keyed hash; key and hash go when the subject is erased.
CREATE TABLE subjects (
  handle TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  name_hash TEXT,
  key @blob,
  created_at @time NOT NULL,
  erased_at @time,
  leaf_id TEXT,
  leaf_ver @int,
  leaf_salt @blob,
  UNIQUE (ns, name_hash)
);

-- What was erased, by handles only; `files` are still to be removed from disk.
CREATE TABLE erasures (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('subject', 'record')),
  target TEXT NOT NULL,
  who TEXT NOT NULL,
  count @int NOT NULL,
  leaf_ids TEXT NOT NULL,
  erased_at @time NOT NULL,
  files TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);

-- Restore ceremonies: from the tree of `size` leaves on, the log goes on under `origin` instead of `previous`.
CREATE TABLE restores (
  n @int PRIMARY KEY,
  origin TEXT NOT NULL,
  previous TEXT NOT NULL,
  size @int NOT NULL,
  trusted TEXT NOT NULL,
  abandoned TEXT NOT NULL,
  source TEXT NOT NULL,
  restored_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
