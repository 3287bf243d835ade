-- Vectors, one row each. `change` only grows: what came or went since a reader last looked has a larger one.

CREATE TABLE vector_facts (
  one @int PRIMARY KEY CHECK (one = 1),
  key TEXT NOT NULL,
  dimensions @int NOT NULL CHECK (dimensions > 0),
  model TEXT,
  swept @int NOT NULL DEFAULT 0,
  created_at @time NOT NULL
);

CREATE TABLE vectors (
--sqlite:  change INTEGER PRIMARY KEY,
--sqlite:  id TEXT NOT NULL UNIQUE,
--postgres:  change BIGINT NOT NULL,
--postgres:  id TEXT COLLATE "C" PRIMARY KEY,
  stamp @int NOT NULL,
  vector @blob,
  metadata TEXT,
  CHECK ((stamp = 0) = (vector IS NULL))
);
--sqlite:CREATE INDEX vectors_change ON vectors (change, stamp);
--postgres:CREATE INDEX vectors_change ON vectors (change, id) INCLUDE (stamp);
CREATE INDEX vectors_gone ON vectors (change) WHERE stamp = 0;

-- Vectors of another model on their way in; they take the place of the others all at once.
CREATE TABLE vector_moves (
--sqlite:  id TEXT PRIMARY KEY,
--postgres:  id TEXT COLLATE "C" PRIMARY KEY,
  model TEXT NOT NULL,
  stamp @int NOT NULL,
  vector @blob NOT NULL
);
