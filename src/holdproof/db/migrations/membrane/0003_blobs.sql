-- Bytes by key: small ones in their row, larger ones as objects at a place (files, S3, IPFS).

CREATE TABLE blob_objects (
  place TEXT NOT NULL,
  address TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  born TEXT NOT NULL,
  stamp TEXT NOT NULL,
  put_at @time NOT NULL,
  doomed_at @time,
  PRIMARY KEY (place, address)
);
CREATE INDEX blob_objects_sha256 ON blob_objects (sha256);
CREATE INDEX blob_objects_doomed ON blob_objects (doomed_at) WHERE doomed_at IS NOT NULL;

CREATE TABLE blobs (
--sqlite:  key TEXT PRIMARY KEY,
--postgres:  key TEXT COLLATE "C" PRIMARY KEY,
  size @int NOT NULL,
  sha256 TEXT NOT NULL,
  content_type TEXT,
  place TEXT NOT NULL,
  address TEXT,
  put_at @time NOT NULL,
  data @blob,
  FOREIGN KEY (place, address) REFERENCES blob_objects (place, address)
);
CREATE INDEX blobs_object ON blobs (place, address) WHERE address IS NOT NULL;
