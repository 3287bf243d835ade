-- What was taken over from legacy places, entered together with the rows: a second run does nothing twice.

CREATE TABLE legacy_moves (
  source TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  kind TEXT NOT NULL,
  found TEXT NOT NULL,
  written_at @time NOT NULL,
  verified_at @time,
  moved_at @time,
  PRIMARY KEY (source, fingerprint)
);
