-- Streams of entries: those of one kind, by one agent, in one namespace. Inside an entry stands its stream and its number
-- there, from 1 on without a gap; `n` is the newest. `stream` is the hash of `salt`, agent, kind and namespace: entries
-- are public, names are not. What was logged before this migration has no number.
CREATE TABLE log_streams (
  stream TEXT PRIMARY KEY,
  salt TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  ns TEXT NOT NULL,
  n @int NOT NULL,
  UNIQUE (agent_id, kind, ns)
);

-- Whose an entry is, until the sequencer gives it its number.
--postgres:ALTER TABLE log_pending ADD COLUMN agent_id TEXT;
--postgres:ALTER TABLE log_pending ADD COLUMN dfid TEXT;
--postgres:ALTER TABLE log_pending ADD COLUMN sourced BOOLEAN NOT NULL DEFAULT FALSE;
