-- Transcripts: what agent frameworks keep of a conversation, in order, and one document beside it. `last` is the number of
-- the last item that was ever added, `rev` grows with every change.
CREATE TABLE transcripts (
  n @serial,
  ns TEXT NOT NULL,
--sqlite:  name TEXT NOT NULL,
--postgres:  name TEXT COLLATE "C" NOT NULL,
  rev @int NOT NULL,
  last @int NOT NULL,
  state TEXT NOT NULL,
  created_at @time NOT NULL,
  updated_at @time NOT NULL,
  UNIQUE (ns, name)
);

-- Items of transcripts. One with a key can be found by it, and stands for the last that was put under it.
CREATE TABLE transcript_items (
  transcript @int NOT NULL REFERENCES transcripts (n),
  seq @int NOT NULL,
  key TEXT,
  tag TEXT,
  body TEXT NOT NULL,
  PRIMARY KEY (transcript, seq)
);
CREATE UNIQUE INDEX idx_transcript_items_key ON transcript_items (transcript, key) WHERE key IS NOT NULL;
CREATE INDEX idx_transcript_items_tag ON transcript_items (transcript, tag, seq) WHERE tag IS NOT NULL;
