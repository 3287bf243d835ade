-- Equal bytes are found by one look; over the index of places it was a walk along every object there.
DROP INDEX blob_objects_sha256;
CREATE INDEX blob_objects_equal ON blob_objects (sha256, place, address);

-- People whose blobs and sessions are labelled. The name is kept only as a keyed hash, and goes when they are erased.
CREATE TABLE subject_facts (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  secret TEXT NOT NULL
);
--sqlite:INSERT INTO subject_facts (one, secret) VALUES (1, lower(hex(randomblob(32))));
--postgres:INSERT INTO subject_facts (one, secret)
--postgres:  VALUES (1, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

CREATE TABLE service_subjects (
  handle TEXT PRIMARY KEY,
  name_hash TEXT NOT NULL UNIQUE,
  created_at @time NOT NULL
);

ALTER TABLE blobs ADD COLUMN subject TEXT REFERENCES service_subjects (handle);
CREATE INDEX blobs_subject ON blobs (subject) WHERE subject IS NOT NULL;
ALTER TABLE cli_sessions ADD COLUMN subject TEXT REFERENCES service_subjects (handle);
CREATE INDEX cli_sessions_subject ON cli_sessions (subject) WHERE subject IS NOT NULL;
