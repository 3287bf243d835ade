-- Which blocks are sealed for whom: objects by their records, values by their CIDs. The envelopes say the same.
CREATE TABLE sealed_blocks (
  subject TEXT NOT NULL,
  cid TEXT NOT NULL,
  what TEXT NOT NULL,
  PRIMARY KEY (subject, cid)
);
