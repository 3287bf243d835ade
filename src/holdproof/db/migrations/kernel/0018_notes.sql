-- Notes: JSON objects that agents keep under a path and a key. `path` is its labels with a dot between, `h` is the hash of
-- all a note says; `subject` is the handle of the person whose it is. With `ttl_s` it ends at `expires_at`.
CREATE TABLE notes (
  n @serial,
  ns TEXT NOT NULL,
--sqlite:  path TEXT NOT NULL,
--sqlite:  key TEXT NOT NULL,
--postgres:  path TEXT COLLATE "C" NOT NULL,
--postgres:  key TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  h @blob NOT NULL,
  subject TEXT,
  ttl_s @real,
  expires_at @time,
  created_at @time NOT NULL,
  updated_at @time NOT NULL,
  UNIQUE (ns, path, key)
);
CREATE INDEX idx_notes_expires ON notes (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX idx_notes_subject ON notes (subject) WHERE subject IS NOT NULL;

-- What notes are found by, beside their fields: vectors that were made of some of these.
CREATE TABLE note_vectors (
  note @int NOT NULL REFERENCES notes (n) ON DELETE CASCADE,
  field TEXT NOT NULL,
  dimensions @int NOT NULL,
  vector @blob NOT NULL,
  PRIMARY KEY (note, field)
);
