-- Whose objects lie at a place: a part of every name, so that databases which share a place leave each other's alone.

CREATE TABLE blob_facts (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  mark TEXT NOT NULL
);
--sqlite:INSERT INTO blob_facts (one, mark) VALUES (1, lower(hex(randomblob(4))));
--postgres:INSERT INTO blob_facts (one, mark) VALUES (1, substr(gen_random_uuid()::text, 1, 8));
