-- Evaluations and their DBOMs. The columns of the Green Agent, then what ties a row to its DBOM and to the log.
-- `dbom` is the exact text of the DBOM file; `legacy` says what an import found (JSON text), NULL for our own rows.
CREATE TABLE battles (
  id @serial,
  battle_id TEXT NOT NULL,
  timestamp TEXT NOT NULL,
  score @real,
  breakdown TEXT,
  raw_result TEXT,
  dbom_hash TEXT,
  ns TEXT NOT NULL,
  dbom TEXT,
  subject TEXT,
  legacy TEXT,
  legacy_key TEXT UNIQUE,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_battles_battle_id ON battles (ns, battle_id, id);
CREATE INDEX idx_battles_subject ON battles (subject);
