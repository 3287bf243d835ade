-- Witnesses that are asked to cosign the log's heads, each with the key its answers are checked against.
-- Outside the promise: losing a row loses no evidence of ours, and a cosignature proves itself.
CREATE TABLE log_witnesses (
  url TEXT PRIMARY KEY,
  vkey TEXT NOT NULL,
  added_at @time NOT NULL
);

-- The newest cosigned head of each witness, as a signed note with the witness's line in it.
CREATE TABLE log_cosignatures (
  url TEXT PRIMARY KEY REFERENCES log_witnesses (url),
  origin TEXT NOT NULL,
  size @int NOT NULL,
  head TEXT NOT NULL,
  cosigned_at @time NOT NULL
);
