-- Checkpoints under the log: which checkpoint of which thread had which hash. A row goes with its checkpoint, and the
-- pruning that takes it names its handle.
CREATE TABLE thread_entries (
  id TEXT PRIMARY KEY,
  thread @int NOT NULL REFERENCES threads (n),
  thread_id TEXT NOT NULL,
  checkpoint_ns TEXT NOT NULL,
--sqlite:  checkpoint_id TEXT NOT NULL,
--postgres:  checkpoint_id TEXT COLLATE "C" NOT NULL,
  h TEXT NOT NULL,
  logged_at @time NOT NULL,
  ns TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE UNIQUE INDEX idx_thread_entries_checkpoint ON thread_entries (thread, checkpoint_ns, checkpoint_id);
CREATE INDEX idx_thread_entries_leaf ON thread_entries (leaf_id);
