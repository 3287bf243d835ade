-- Whom the store asks for cosignatures is under the log: a witness that is added, changed or removed has an entry.
-- `locks`: whether its word that the log is forked or rolled back locks the store. A row from before has no entry:
-- verify says UNLOGGED until the witness is added again.
ALTER TABLE log_witnesses ADD COLUMN locks @int NOT NULL DEFAULT 0;
ALTER TABLE log_witnesses ADD COLUMN removed_at @time;
ALTER TABLE log_witnesses ADD COLUMN reason TEXT;
ALTER TABLE log_witnesses ADD COLUMN leaf_id TEXT;
ALTER TABLE log_witnesses ADD COLUMN leaf_ver @int;
ALTER TABLE log_witnesses ADD COLUMN leaf_salt @blob;
