-- How often a line of checkpoints was written: a run that read it before the last write has not seen all of it.
ALTER TABLE thread_lines ADD COLUMN writes @int NOT NULL DEFAULT 0;
