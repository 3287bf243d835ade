-- Facts about the store itself: who it is, since when. One row a key.
CREATE TABLE store_facts (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  updated_at @time NOT NULL
);
