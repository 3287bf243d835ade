-- Which blocks are sealed for whom: objects by their records, values by their CIDs. The envelopes say the same.
CREATE TABLE sealed_blocks (
  subject TEXT NOT NULL,
  cid TEXT NOT NULL,
  what TEXT NOT NULL,
  PRIMARY KEY (subject, cid)
);

-- Words of what was changed or deleted leave the search index at once, not with some later merge of its segments.
--sqlite:INSERT INTO object_search (object_search, rank) VALUES ('secure-delete', 1);
